"""Leaves out the tests of plugins where `harness/plugins` is not there: modules that import it, and tests with the
marker `plugins`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MISSING = find_spec("harness.plugins") is None

collect_ignore = [
    "compat",
    "plugins",
    "cli/test_exec.py",
    "export/test_verifiers.py",
    "export/test_verifiers_reader.py",
]
collect_ignore += [
    path.relative_to(HERE).as_posix()
    for path in HERE.rglob("test_*.py")
    if MISSING and "from harness.plugins" in path.read_text(encoding="utf-8")
]
collect_ignore = collect_ignore if MISSING else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if MISSING and item.get_closest_marker("plugins") is not None:
            item.add_marker(pytest.mark.skip(reason="harness/plugins is not there"))
