"""Throw-away environments on the import path, and `bench` as a function."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cli.main import main

MODULES = ("toy_env", "other_env")


@dataclass(frozen=True, slots=True)
class Done:
    """What one command left behind."""

    code: int
    out: str
    err: str


Bench = Callable[..., Done]


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
def bench(here: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run `bench` in this process, from the console script's own function."""

    def bench(*arguments: str) -> Done:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return bench


@pytest.fixture
def write(here: Path) -> Callable[[str, str], Path]:
    """Write a file under the working directory."""

    def write(name: str, text: str) -> Path:
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write
