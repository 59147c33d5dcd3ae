"""Check that model-written code can be run here; `harness.sandbox.find` tries each sandbox."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.sandbox.find import ENGINES

BACKENDS = ("bubblewrap", *ENGINES)
"""Sandboxes in the order of `sandbox="auto"`."""

_ASKS = re.compile(rb"\bfind_sandbox\b|\bharness\.sandbox\b|\bPythonEnv\b|\bSandboxEnv\b|\bsandbox-env\b")


def asks_for_sandbox(files: Sequence[Path]) -> bool:
    """Whether code mentions a sandbox. Its arguments may still disable the sandbox."""
    return any(_ASKS.search(file.read_bytes()) for file in files if file.is_file())


def backend_findings(reasons: Sequence[str], wanted_by: Sequence[str] = ()) -> list[Diagnosis]:
    """Findings on all sandboxes together.

    Args:
        reasons: For each of `BACKENDS`, the reason why it does not work; "" if it does.
        wanted_by: Environments that may run code.
    """
    works = [name for name, reason in zip(BACKENDS, reasons, strict=True) if not reason]
    others = "; ".join(filter(None, reasons))
    if works:
        also = f"; {others}" if others else ""
        how = "a program was run in it" if works[0] == "bubblewrap" else "its engine answers"
        return [ok("sandbox", works[0], f"works: {how}{also}")]
    if wanted_by:
        says = f"{', '.join(wanted_by)} may run what a model has written, and no sandbox works: {others}"
        return [problem("sandbox", "sandbox", says, _advice())]
    says = f"none works, so environments that run what a model has written cannot: {others}"
    return [note("sandbox", "sandbox", says, _advice())]


def _advice() -> str:
    if sys.platform == "linux":
        return "install bubblewrap, 0.7 or newer (apt-get install bubblewrap, dnf install bubblewrap), or start docker"
    return "install docker or podman, and start it"
