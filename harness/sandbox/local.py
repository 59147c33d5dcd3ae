"""No containment: the machine itself, with limits. Owns what little holds without one: resource limits, a session and a
private folder of the program's own, an empty environment, and the end of everything it has started.

The program reads and writes what the user may, and reaches the network. So this way is only ever taken by its name."""

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
    """See the module."""

    @property
    def name(self) -> str:
        """See `Sandbox`."""
        return "unsafe-local"

    @contextmanager
    def launch(self, limits: Limits) -> Generator[Launch, None, None]:
        """See `SandboxBackend`."""
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
