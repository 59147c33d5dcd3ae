"""Figures of a run that its environment computes from all rollouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import Rubric, SingleTurnEnv, State, evaluate
from harness.core.records import Example
from harness.core.types import Messages
from harness.report.final_table import RunReport, remarks_of


def right(state: State) -> float:
    state["length"] = {"characters": len(str(state["completion"][-1]["content"]))}
    return float(state["completion"][-1]["content"] == state["answer"])


class Sums(SingleTurnEnv):
    figures_of = "length"

    def reference_reply(self, example: Example, messages: Messages) -> str:
        return example.answer

    def figures(self, values: Sequence[Any]) -> dict[str, float]:
        return {"longest": float(max(each["characters"] for each in values))}


class Broken(Sums):
    def figures(self, values: Sequence[Any]) -> dict[str, float]:
        raise KeyError("bug")


ROWS = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in (1, 10, 100)]


def run(environment: SingleTurnEnv, folder: Path, **settings: Any) -> Any:
    [done] = evaluate(environment, "reference/oracle", output_dir=str(folder), progress=False, **settings)
    return done


def test_figures_are_part_of_the_summary_and_of_the_table(tmp_path: Path) -> None:
    done = run(Sums(dataset=ROWS, rubric=Rubric([right])), tmp_path)
    assert done.summary.figures == {"longest": 3.0}
    assert json.loads((done.path / "summary.json").read_text())["figures"] == {"longest": 3.0}
    report = RunReport("sums", "sums", "m", summary=done.summary)
    assert "over all examples: longest 3.000" in remarks_of(report)


def test_a_failing_function_leaves_the_run_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = run(Broken(dataset=ROWS, rubric=Rubric([right])), tmp_path)
    assert (done.state, done.summary.figures, done.summary.scored) == ("done", {}, 9)
    assert "figures" not in json.loads((done.path / "summary.json").read_text())
    assert "the figures of the run could not be computed: KeyError: 'bug'" in caplog.text
