"""Fixtures of tests that resolve settings: a working directory of their own, and environments that no one may import.

A `conftest.py` takes them over by importing them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

MODULES = ("toy_env", "other_env")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, with `toy-env` and `other-env` importable but importing either an error."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for module in MODULES:
        (modules / f"{module}.py").write_text("raise RuntimeError('settings must not import an environment')\n")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.delenv("PRIME_API_KEY", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def write(here: Path) -> Callable[[str, str], Path]:
    """Write a file under the working directory."""

    def write(name: str, text: str) -> Path:
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write
