"""`runs_df`: every run once, newest first, with the numbers of its summary, and none where none can be believed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd  # pyright: ignore[reportMissingTypeStubs]
import polars as pl
import pytest
from store_samples import example, failed, generated, make_run, scored, write

from harness.core.errors import UsageError
from harness.core.types import Usage
from harness.report.frames import runs_df
from harness.stats.summary import summarize
from harness.store.journal_index import Recorded
from harness.store.rundir import RunDir
from harness.store.score_table import tally

TEXT = str(pd.Series(["a"]).dtype)
COLUMNS = {
    "id": TEXT, "path": TEXT, "env_id": TEXT, "model": TEXT, "name": TEXT, "kind": TEXT, "state": TEXT,
    "created": "datetime64[us, UTC]", "parent": TEXT, "suite": TEXT, "planned": "Int64", "scored": "Int64",
    "unscored": "Int64", "mean": "float64", "ci95_low": "float64", "ci95_high": "float64", "stderr": "float64",
    "std": "float64", "pass@1": "float64", "input_tokens": "Int64", "output_tokens": "Int64", "requests": "Int64",
    "cost": "float64", "judge_cost": "float64", "wall_s": "float64",
}  # fmt: skip
NUMBERS = list(COLUMNS)[list(COLUMNS).index("scored") :]


def made(output_dir: Path, **manifest: Any) -> RunDir:
    """A run without a journal that says it is done."""
    return make_run(
        output_dir, **{"status": "done", "planned": {"num_examples": 3, "rollouts_per_example": 2}, **manifest}
    )


def counted(output_dir: Path, **manifest: Any) -> RunDir:
    """A run of six rollouts, two of them without a score, with its summary."""
    run = made(output_dir, created="2026-11-21T09:15:03.250000Z", **manifest)
    judged = {"judgements": [{"usage": {"input_tokens": 3, "requests": 1, "cost": 0.125}}]}
    paid = Usage(10, 5, requests=1, cost=0.5)
    write(
        run.journal_path,
        [
            example(0), generated(0, 0, usage=paid), scored(0, 0, 1.0, extra=judged), generated(0, 1), scored(0, 1),
            example(1), generated(1, 0), scored(1, 0, 0.0), generated(1, 1), scored(1, 1, 1.0),
            example(2), failed(2, 0), generated(2, 1), scored(2, 1, None, reasons={"judge": "no verdict"}),
        ],
    )  # fmt: skip
    summary = summarize(
        tally(Recorded.load(run.journal_path)), pass_threshold=1.0, rollouts_per_example=2, planned=6,
        reward_range=(0.0, 1.0), wall_s=4.0,
    )  # fmt: skip
    run.write_summary(summary.to_json())
    return run


def table(path: Path, **options: Any) -> list[dict[str, Any]]:
    return runs_df(path, backend="polars", **options).to_dicts()


def names(path: Path, **options: Any) -> list[str]:
    return [row["name"] for row in table(path, **options)]


def test_a_run_in_full(tmp_path: Path) -> None:
    run = counted(tmp_path, kind="eval", parent="20260101T000000Z-aaaa", suite="20260101T000000Z-bbbb")
    [row] = table(tmp_path)
    summary = run.read_summary()
    assert summary is not None
    assert row == {
        "id": run.id, "path": str(run.path), "env_id": "sums", "model": "lab/m-1", "name": "sums", "kind": "eval",
        "state": "done", "created": datetime(2026, 11, 21, 9, 15, 3, 250_000, UTC),
        "parent": "20260101T000000Z-aaaa", "suite": "20260101T000000Z-bbbb",
        "planned": 6, "scored": 4, "unscored": 2, "mean": 0.75, "ci95_low": summary["reward"]["ci95"][0],
        "ci95_high": summary["reward"]["ci95"][1], "stderr": 0.25, "std": 0.5, "pass@1": 0.75, "input_tokens": 50,
        "output_tokens": 25, "requests": 5, "cost": 0.5, "judge_cost": 0.125, "wall_s": 4.0,
    }  # fmt: skip
    assert (row["ci95_low"], row["ci95_high"]) == (0.0, 1.0), "two examples say nothing of the mean"
    [other] = runs_df(tmp_path).to_dict("records")
    assert other == row


def test_types_do_not_hang_on_values(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    made(tmp_path / "without")
    counted(tmp_path / "full")
    kinds = {
        "float64": pl.Float64(),
        "Int64": pl.Int64(),
        TEXT: pl.String(),
        "datetime64[us, UTC]": pl.Datetime("us", "UTC"),
    }
    for folder, count in (("none", 0), ("without", 1), ("full", 1)):
        frame = runs_df(tmp_path / folder)
        assert [(name, str(kind)) for name, kind in frame.dtypes.items()] == list(COLUMNS.items())
        assert len(frame) == count
        other = runs_df(tmp_path / folder, backend="polars")
        assert dict(other.schema) == {name: kinds[kind] for name, kind in COLUMNS.items()}


def test_states_are_those_that_one_sees_from_outside(tmp_path: Path) -> None:
    under_way, died = counted(tmp_path, name="under way"), counted(tmp_path, name="died")
    interrupted, damaged = counted(tmp_path, name="interrupted"), counted(tmp_path, name="damaged")
    for run in (under_way, died):
        run.write_manifest(run.read_manifest().ended("running"))
    interrupted.write_manifest(interrupted.read_manifest().ended("interrupted"))
    damaged.manifest_path.write_text("{")
    with under_way.lock():
        rows = {row["id"]: row for row in table(tmp_path)}
    assert {run_id: row["state"] for run_id, row in rows.items()} == {
        under_way.id: "running", died.id: "died", interrupted.id: "interrupted", damaged.id: "damaged",
    }  # fmt: skip
    assert rows[interrupted.id]["mean"] == 0.75
    for run in (under_way, died):
        assert {rows[run.id][name] for name in NUMBERS} == {None}
        assert (rows[run.id]["name"], rows[run.id]["planned"]) == (run.read_manifest().name, 6)
    assert [rows[damaged.id][name] for name in ("path", "env_id", "model", "kind", "planned")] == [
        str(damaged.path), None, None, None, None,
    ]  # fmt: skip


def test_the_newest_run_stands_first(tmp_path: Path) -> None:
    ids = ["20260103T000000Z-aaaa", "20260101T000000Z-cccc", "20260102T000000Z-bbbb"]
    for n, new in enumerate(ids):
        run = made(tmp_path, env_id=f"env-{n}")
        run.path.rename(run.parent / new)
    assert [row["id"] for row in table(tmp_path)] == sorted(ids, reverse=True)


def test_filters(tmp_path: Path) -> None:
    made(tmp_path, env_id="gsm8k", name="a", model="lab/small")
    made(tmp_path, env_id="gsm8k-hard", name="b", model="lab/large", status="failed")
    made(tmp_path, env_id="towns", name="c", model="lab/large", kind="eval")
    made(tmp_path, env_id="tasks", name="d", model="other/large", kind="multi", status="stopped")
    assert sorted(names(tmp_path)) == ["a", "b", "c", "d"]
    assert sorted(names(tmp_path, env="gsm8k")) == ["a", "b"]
    assert names(tmp_path, env="gsm8k*", model="*small") == ["a"]
    assert sorted(names(tmp_path, env=["hard", "towns"])) == ["b", "c"]
    assert sorted(names(tmp_path, model="LARGE", state=["done", "failed"])) == ["b", "c"]
    assert names(tmp_path, kind="multi") == ["d"]
    assert sorted(names(tmp_path, kind=("eval", "multi"))) == ["c", "d"]
    assert names(tmp_path, env="nothing like it") == []
    with pytest.raises(UsageError, match="state: 'finished' is not known; valid here: running, done"):
        runs_df(tmp_path, state="finished")
    with pytest.raises(UsageError, match="kind: 'evals' is not known; did you mean \"eval\""):
        runs_df(tmp_path, kind=["run", "evals"])


def test_settings_become_columns_of_what_they_hold(tmp_path: Path) -> None:
    first = {
        "env.shuffle": True, "env.env_args": {"split": "test"}, "env.env_args.split": "test", "env.num_examples": 5,
        "model.sampling_args": {"temperature": 1, "extra_body": {"top_k": 4}}, "env.timeout": None,
        "model.sampling_args.temperature": 1, "env.env_args.mixed": "x", "env.env_args.flag": True,
        "name": "of a setting",
    }  # fmt: skip
    second = {
        "env.shuffle": False, "env.env_args": {}, "env.num_examples": -1, "model.sampling_args": {"temperature": 0.5},
        "model.sampling_args.temperature": 0.5, "env.timeout": None, "env.env_args.mixed": 2, "env.env_args.flag": 1,
    }  # fmt: skip
    made(tmp_path, name="first", settings=first)
    made(tmp_path, name="second", settings=second)
    asked = [
        "model.sampling_args.temperature", "env.shuffle", "env.num_examples", "env.env_args", "env.env_args.split",
        "env.env_args.mixed", "env.timeout", "model.sampling_args.top_p", "model.sampling_args.extra_body.top_k",
        "env.env_args.flag", "name", "env.shuffle",
    ]  # fmt: skip
    frame = runs_df(tmp_path, settings=asked)
    added = [name for name in frame.columns if name not in COLUMNS]
    assert added == [*asked[:-2], "settings.name"]
    assert [str(frame[name].dtype) for name in added] == [
        "float64", "boolean", "float64", TEXT, TEXT, TEXT, TEXT, TEXT, "float64", TEXT, TEXT,
    ]  # fmt: skip
    values = {row["name"]: [row[name] for name in added] for row in table(tmp_path, settings=asked)}
    assert values == {
        "first": [1.0, True, 5.0, '{"split":"test"}', "test", "x", None, None, 4.0, "true", "of a setting"],
        "second": [0.5, False, -1.0, "{}", None, "2", None, None, None, "1", None],
    }
    assert names(tmp_path, settings="env.shuffle") == names(tmp_path)


def test_a_setting_that_no_run_has_is_refused(tmp_path: Path) -> None:
    made(tmp_path, settings={"env.num_examples": 5, "env.env_args": {}})
    with pytest.raises(
        UsageError, match=r"settings: no run has a setting 'env\.num_example'; did you mean \"env\.num_examples\""
    ):
        runs_df(tmp_path, settings=["env.num_example"])
    with pytest.raises(UsageError, match=r"settings: no run has a setting 'env\.num_examples\.x'"):
        runs_df(tmp_path, settings=["env.num_examples.x"])
    (tmp_path / "none").mkdir()
    assert str(runs_df(tmp_path / "none", settings=["anything"])["anything"].dtype) == TEXT


def test_the_folder_may_be_of_all_runs_of_some_or_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made(tmp_path, name="first"), made(tmp_path, name="second", env_id="other")
    assert sorted(names(tmp_path)) == ["first", "second"]
    assert names(second.parent) == ["second"]
    assert names(first.path) == ["first"]
    with pytest.raises(UsageError, match=f"path: there is no folder '{tmp_path}/output'; give the output folder"):
        runs_df(tmp_path / "output")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="path: there is no folder 'outputs'"):
        runs_df()
    assert {*runs_df(".")["path"]} == {str(run.path.relative_to(tmp_path)) for run in (first, second)}


def test_a_summary_of_another_shape_is_no_obstacle(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.write_summary(
        {"scored": "four", "unscored": [1], "reward": {"mean": 0.5, "ci95": [0.25]}, "usage": 7, "wall_s": {}}
    )
    [row] = table(tmp_path)
    assert {name: row[name] for name in NUMBERS if row[name] is not None} == {"mean": 0.5, "ci95_low": 0.25}
