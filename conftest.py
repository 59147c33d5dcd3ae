"""Setup for every test: the terminal, signals and proxies of the calling shell have no effect. Also the number of
workers for `-n auto`, the list of what was skipped and why, and `--left-out`, which runs that later."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator

import pytest

_TERMINAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


_SKIPPED = "bench/skipped"
"""Key in pytest's cache: the ids of the tests that were skipped when they last ran."""


class Skips:
    """Collect skipped tests, list each reason on one line, and keep the ids for `--left-out`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran: set[str] = set()
        self._skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the reason if the test was skipped."""
        self._ran.add(report.nodeid)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print one line for each reason."""
        for reason, count in Counter(self._skipped.values()).most_common():
            terminalreporter.write_line(f"{count} skipped: {' '.join(reason.split())}")

    def pytest_sessionfinish(self) -> None:
        """Update the ids of skipped tests; those of tests that did not run this time stay."""
        if getattr(self._config, "cache", None) is not None and self._ran:
            before: set[str] = set(self._config.cache.get(_SKIPPED, []))
            self._config.cache.set(_SKIPPED, sorted(before - self._ran | self._skipped.keys()))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the second pass of CI."""
    parser.addoption("--left-out", action="store_true", help="run slow tests and those skipped when they last ran")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select slow and skipped tests for `--left-out`."""
    if not config.getoption("left_out") or config.cache is None:
        return
    skipped: set[str] = set(config.cache.get(_SKIPPED, []))
    chosen = [item for item in items if item.nodeid in skipped or item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def pytest_configure(config: pytest.Config) -> None:
    """Remove these variables before the first test, for child processes too; a test that needs one sets it. Give
    the tests a state folder of their own."""
    if not hasattr(config, "workerinput"):  # set by pytest-xdist in its workers, which report to the main process
        config.pluginmanager.register(Skips(config))
    state = tempfile.TemporaryDirectory(prefix="bench-tests-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    for name in _TERMINAL:
        os.environ.pop(name, None)
    if any(name.lower().endswith("_proxy") for name in os.environ):  # the tests' servers are here: no proxy knows them
        for name in ("no_proxy", "NO_PROXY"):
            os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    # No deadline, since a busy machine would miss it. `make test` draws fewer examples, unless a test says how many.
    # The same examples are drawn each time, so that a change is not held up by what another one did; `make
    # test-random` draws new ones.
    from hypothesis import HealthCheck, settings

    examples = 30 if config.getoption("markexpr") == "not slow" else 100
    settings.register_profile(
        "bench",
        max_examples=examples,
        deadline=None,
        derandomize=not os.environ.get("BENCH_RANDOM_EXAMPLES"),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("bench")
    # A script that starts the tests with `&` has them ignore Ctrl-C, and child processes would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three more than there are cores: more than half of the time, a test waits for a process, a server or a clock."""
    return (os.cpu_count() or 1) + 3


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and exclude the collected tests and modules from later collections: each
    walk through half a million objects would take almost a tenth of the tests' time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def own_secrets() -> Iterator[None]:
    """A key that one test has used is a secret in no other: it may be a word there."""
    from harness.core.redact import redactor

    before = redactor._secrets
    yield
    redactor._secrets = before


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """A handler of Ctrl-C that one test leaves would decide what another one sees."""
    yield
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    assert handler is signal.default_int_handler, f"the test left {handler} as the handler of SIGINT"
