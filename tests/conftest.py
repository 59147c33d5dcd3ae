"""Leaves out the tests of plugins where `harness/plugins` is not there: modules that import a plugin, also by a module
of `tests/support` or `tests/chaos`, and tests with the marker `plugins`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MISSING = find_spec("harness.plugins") is None


def modules_with_plugins() -> list[str]:
    """Paths of test modules that import a plugin or the fault scripts, which a plugin parses."""
    names = [r"harness\.plugins", r"harness\.reference\.script"]
    paths = {path: path.read_text(encoding="utf-8") for path in HERE.rglob("*.py") if path.stem != "conftest"}
    found: list[str] = []
    grows = True
    while grows:
        needs = re.compile(rf"^\s*(from|import) ({'|'.join(names)})\b", re.MULTILINE)
        new = [path for path, text in paths.items() if needs.search(text)]
        found += [path.relative_to(HERE).as_posix() for path in new]
        names += [re.escape(path.stem) for path in new if not path.stem.startswith("test_")]
        for path in new:
            del paths[path]
        grows = bool(new)
    return found


collect_ignore = ["plugins", *modules_with_plugins()] if MISSING else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if MISSING and item.get_closest_marker("plugins") is not None:
            item.add_marker(pytest.mark.skip(reason="harness/plugins is not there"))
