"""Throw-away environments on the import path, and `bench` as a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from agent_evals import evals
from multi_evals import multi
from workplace import here, write

from harness.cli.main import main

__all__ = ["Bench", "Done", "bench", "evals", "here", "multi", "write"]


@dataclass(frozen=True, slots=True)
class Done:
    """What one command left behind."""

    code: int
    out: str
    err: str


Bench = Callable[..., Done]


@pytest.fixture
def bench(here: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run `bench` in this process, from the console script's own function."""

    def bench(*arguments: str) -> Done:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return bench
