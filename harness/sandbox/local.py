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
from harness.sandbox.backend import Sandbox
from harness.sandbox.bubblewrap import program_environment
from harness.sandbox.launch_data import LAUNCHER, Launch, Lifeline


class UnsafeLocal(Sandbox):
    """Sandbox without isolation."""

    name = "unsafe-local"

    @contextmanager
    def launch(self, limits: Limits) -> Generator[Launch, None, None]:
        """Prepare the start of one process; see `Sandbox.launch`."""
        base = os.path.realpath(tempfile.mkdtemp(prefix="bench-sandbox-"))
        lifeline = Lifeline()
        try:
            yield Launch(
                command=(sys.executable, *LAUNCHER),
                python=sys.executable,
                base=base,
                env=program_environment(base, os.path.dirname(sys.executable)),
                pass_fds=(lifeline.read_end,),
                request={"delete_base": True},
                own_threads=1,
                lifeline=lifeline,
            )
        finally:
            lifeline.cut()
            shutil.rmtree(base, ignore_errors=True)
