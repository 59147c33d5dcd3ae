"""`bench import` of results files of `bench eval`, and of the documented file of `osmosis eval`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_evals import Evals, evals
from import_results import imported, refused
from tables import for_each_row

from harness.core.records import Generated
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rundir import RunDir

__all__ = ["evals"]

Bench = Callable[..., Any]

FUNCTIONS = ("rewards:exact_match", "rewards:broken")

RUN: dict[str, Any] = {"run_index": 0, "success": True, "scores": {"f": 1.0}, "duration_ms": 450, "tokens": 200}
FILE: dict[str, Any] = {
    "config": {"model": "m", "n_runs": 1, "pass_threshold": 0.5, "eval_fns": ["f"]},
    "summary": {"total_rows": 1, "total_runs": 1, "eval_fns": {}, "total_tokens": 200, "total_duration_ms": 450},
    "rows": [{"row_index": 0, "runs": [RUN]}],
}
"""The documented file, with one run."""


def changed(**changes: Any) -> dict[str, Any]:
    return {**FILE, "rows": [{"row_index": 0, "runs": [{**RUN, **changes}]}]}


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def rollouts(run: RunDir) -> list[Outcome]:
    return list(outcomes(read_journal(run)))


def test_results_of_bench_eval_come_back_row_by_row(evals: Evals) -> None:
    words = ("--baseline-model", "weak", "--baseline-base-url", evals.model.url, "--n", "2", "-o", "results.json")
    assert evals.eval(*words, fns=FUNCTIONS).code == 0
    ours = {RunDir(path).read_manifest().model: RunDir(path) for path in evals.runs()}
    made = evals.bench("import", "results.json", "--data", "data.jsonl", "--output-dir", "imported", "--json")
    assert made.code == 0, made.err
    theirs = {run["model"]: RunDir(Path(run["path"])) for run in json.loads(made.out)["runs"]}
    assert ours.keys() == theirs.keys() == {"my-model", "weak"}
    for model, run in theirs.items():
        before, after = ours[model].read_manifest(), run.read_manifest()
        for part in ("env_id", "kind", "metric_names", "planned"):
            assert getattr(after, part) == getattr(before, part), part
        for mine, each in zip(rollouts(ours[model]), rollouts(run), strict=True):
            assert (each.example, each.base.rollout_index) == (mine.example, mine.base.rollout_index)
            assert (each.reward, each.score and each.score.metrics) == (mine.reward, mine.score and mine.score.metrics)
            assert each.error == mine.error and each.base.usage.unreported == 1
            assert isinstance(each.base, Generated) and isinstance(mine.base, Generated)
            assert each.base.stop_condition == mine.base.stop_condition and not each.base.is_empty
    compared = evals.bench("compare", str(ours["weak"].path), str(theirs["my-model"].path), "--json")
    assert compared.code == 0 and json.loads(compared.out)["comparisons"][0]["pairs"] == 3


def test_the_documented_file_is_read_without_a_dataset(bench: Bench, tmp_path: Path) -> None:
    document = {
        **FILE,
        "config": {**FILE["config"], "baseline_model": "openai/gpt-5-mini", "n_runs": 2},
        "rows": [
            {"row_index": 4, "runs": [
                {**RUN, "model_tag": "primary"}, {**RUN, "model_tag": "baseline", "scores": {"f": 0.0}},
                {**RUN, "run_index": 1, "success": False, "scores": {}, "error": "no reply", "model_tag": "primary"},
            ]},
        ],
    }  # fmt: skip
    made = bench("import", str(written(tmp_path / "res.json", document)), "--json")
    first, second = (RunDir(Path(run["path"])) for run in json.loads(made.out)["runs"])
    assert (first.read_manifest().env_id, first.read_manifest().model) == ("res", "m")
    assert second.read_manifest().model == "openai/gpt-5-mini"
    passed, failed = rollouts(first)
    assert (passed.reward, passed.base.timing.generation, passed.state["tokens"]) == (1.0, 0.45, 200)
    assert (failed.reward, failed.base.kind, failed.error) == (None, "failed", "error: no reply")
    assert passed.example.info == {"row_index": 4}
    told = bench("compare", first.id, second.id, "--json")
    assert json.loads(told.out)["comparisons"][0]["pairs"] == 1


@for_each_row(
    ("document", "words", "problem"),
    [
        ('{"config": {"model": "m", "n_runs": 1}, "summary": ', (), "x.json is not JSON"),
        ({**FILE, "rows": {}}, (), "x.json: rows: "),
        ({**FILE, "rows": [{"row_index": -1, "runs": []}]}, (), "x.json: rows.0.row_index: "),
        (changed(run_index=10**6), (), "row 0, run 1000000: the rollout number"),
        (changed(success="perhaps"), (), "rows.0.runs.0.success: "),
        ({**FILE, "rows": [{"row_index": 0, "runs": [RUN, RUN]}]}, (), "rollout 0 of example 0 is there twice"),
        ({**FILE, "rows": []}, (), "the imported run has no rollouts"),
        (FILE, ("--reward", "g"), "--reward: "),
        (FILE, ("--data", "nowhere.jsonl"), "--data nowhere.jsonl: Dataset file not found"),
        (FILE, ("--map", "reward=f", "-f", "osmosis"), "--map: the format osmosis does not take it"),
    ],
)
def test_hostile_files_are_refused(
    bench: Bench, tmp_path: Path, document: Any, words: tuple[str, ...], problem: str
) -> None:
    path = tmp_path / str(len(list(tmp_path.iterdir()))) / "x.json"
    path.parent.mkdir()
    assert problem in refused(bench, written(path, document), *words)


def test_a_dataset_that_is_too_short_is_refused(bench: Bench, tmp_path: Path) -> None:
    row = {"system_prompt": "Add.", "user_prompt": "1 + 1", "ground_truth": "2"}
    data = written(tmp_path / "data.jsonl", json.dumps(row))
    path = written(tmp_path / "x.json", {**FILE, "rows": [{"row_index": 1, "runs": [RUN]}]})
    assert "results of row 1, but the dataset only has 1 rows" in refused(bench, path, "--data", str(data))


def test_scores_that_are_no_numbers_stay_unknown(bench: Bench, tmp_path: Path) -> None:
    for number, value in enumerate(("NaN", "Infinity", '"high"', "null", "1e999", "1" * 400)):
        text = json.dumps(changed(scores={"f": "X"})).replace('"X"', value)
        [only] = rollouts(imported(bench, written(tmp_path / f"{number}.json", text)))
        assert only.reward is None and only.error == "f: the file has no number"


def test_a_fifo_is_not_read(bench: Bench, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    assert "not a file or folder" in refused(bench, tmp_path / "x.json", "-f", "osmosis")
