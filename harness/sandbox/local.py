"""Sandbox backend without isolation: programs run on this machine with resource limits, their own session, a private
folder and an empty environment, and are killed with all of their children.

The program can read and write everything that the user can, and use the network. So this backend must be selected by
name."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from harness.sandbox.api import Limits
from harness.sandbox.backend import SandboxBackend
from harness.sandbox.bubblewrap import program_environment
from harness.sandbox.orders import WARDEN, Launch, Lifeline


class UnsafeLocal(SandboxBackend):
    """Sandbox without isolation."""

    @property
    def name(self) -> str:
        """Name of the sandbox, as in `find_sandbox`."""
        return "unsafe-local"

    @contextmanager
    def launch(self, limits: Limits) -> Generator[Launch, None, None]:
        """Prepare the start of one process; see `SandboxBackend.launch`."""
        base = os.path.realpath(tempfile.mkdtemp(prefix="bench-sandbox-"))
        lifeline = Lifeline()
        try:
            yield Launch(
                command=(sys.executable, *WARDEN),
                python=sys.executable,
                base=base,
                env={
                    **program_environment(base),
                    "PATH": f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin",
                },
                pass_fds=(lifeline.read_end,),
                order={"sweep": True},
                own_threads=1,
                lifeline=lifeline,
            )
        finally:
            lifeline.cut()
            shutil.rmtree(base, ignore_errors=True)
