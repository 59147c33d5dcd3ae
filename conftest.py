"""What every test may rely on: terminal, signals and proxies of whoever runs the tests decide nothing. And what makes
them quick: how many workers `-n auto` means, and what is not collected."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest

_TERMINAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def pytest_configure(config: pytest.Config) -> None:
    """Take them away before the first test, from child processes too; a test that wants one sets it."""
    for name in _TERMINAL:
        os.environ.pop(name, None)
    if any(name.lower().endswith("_proxy") for name in os.environ):  # the tests' servers are here: no proxy knows them
        for name in ("no_proxy", "NO_PROXY"):
            os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    # A script that starts the tests with `&` has them ignore Ctrl-C, and child processes would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are cores: a third of the time, a test waits for a process, a server or a clock."""
    return (os.cpu_count() or 1) + 2


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there by now stays to the end: that the collector walks through half a million objects again and again
    would take almost a tenth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_secrets() -> Iterator[None]:
    """A key that one test has used is a secret in no other: it may be a word there."""
    from harness.redact import redactor

    before = redactor._secrets
    yield
    redactor._secrets = before
