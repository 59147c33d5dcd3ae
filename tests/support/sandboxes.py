"""Sandboxes for tests, and what a test needs to see of them from outside: who lives, and what leaks.

Where no sandbox works, a test that needs one is skipped on a developer's machine and fails where
`BENCH_REQUIRE_SANDBOX` is set, as it is in CI."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from harness.core.errors import SandboxMissing
from harness.sandbox import Sandbox, find_sandbox

REQUIRED = "BENCH_REQUIRE_SANDBOX"


@cache
def _find(name: str, packages: tuple[str, ...]) -> Sandbox | str:
    try:
        return find_sandbox(name, packages=packages)
    except SandboxMissing as error:
        return str(error)


def sandbox(name: str = "bubblewrap", packages: Sequence[str] = ()) -> Sandbox:
    """The sandbox of this name, or the end of the test that asks for it."""
    found = _find(name, tuple(packages))
    if isinstance(found, Sandbox):
        return found
    if os.environ.get(REQUIRED):
        pytest.fail(found)
    pytest.skip(found.partition(" On a machine that")[0])


def marked(mark: str) -> list[int]:
    """Processes of the whole machine, seen from outside, whose command line holds `mark`."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in line and state not in "ZX":
                found.append(int(folder.name))
    return found


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether it comes true in time; asks again and again."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
