"""What every test may rely on: the terminal settings of whoever runs the tests decide nothing. And how many workers
`-n auto` means."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_TERMINAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def pytest_configure(config: pytest.Config) -> None:
    """Take them away before the first test, from child processes too; a test that wants one sets it."""
    for name in _TERMINAL:
        os.environ.pop(name, None)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a third of the time, a test waits for a process, a server or a clock."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def own_secrets() -> Iterator[None]:
    """A key that one test has used is a secret in no other: it may be a word there."""
    from harness.redact import redactor

    before = redactor._secrets
    yield
    redactor._secrets = before
