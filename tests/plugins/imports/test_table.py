"""`bench import` of tables: by a mapping of columns, and our own JSON Lines and Parquet exports row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_results import facts, imported, refused
from odd_runs import odd_run
from tables import for_each_row

from harness.core.records import Generated
from harness.store.export_formats import export_run, formats
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

Bench = Callable[..., Any]

ROWS: list[dict[str, Any]] = [
    {"id": "a", "trial": 1, "score": 1, "q": "1 + 1 =", "out": "2", "gold": "2", "judge": {"f1": 0.5}, "who": "m1"},
    {"id": "a", "trial": 2, "score": 0.25, "q": "1 + 1 =", "out": "3", "gold": "2", "judge": {"f1": None}, "who": "m1"},
    {"id": "b", "trial": 1, "score": None, "q": "1 + 2 =", "out": None, "gold": "3", "judge": {}, "who": "m1"},
]
MAP = "reward=score,example=id,rollout=trial,prompt=q,completion=out,answer=gold,metric.f1=judge.f1,model=who"


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def parquet(path: Path, rows: list[Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("write", [jsonl, parquet])
def test_columns_become_rollouts(bench: Bench, tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / f"scores.{write.__name__}", ROWS)
    run = imported(bench, path, "--map", MAP)
    manifest = run.read_manifest()
    assert (manifest.env_id, manifest.model, manifest.derived["format"]) == ("scores", "m1", "table")
    assert manifest.planned == {"num_examples": 2, "rollouts_per_example": 2}
    first, second, third = outcomes(read_journal(run))
    assert [each.base.rollout_index for each in (first, second, third)] == [0, 1, 0]
    assert [each.reward for each in (first, second, third)] == [1.0, 0.25, None]
    assert first.score is not None and first.score.metrics == {"f1": 0.5}
    assert first.example.prompt == [{"role": "user", "content": "1 + 1 ="}] and first.example.answer == "2"
    assert second.base.completion == [{"role": "assistant", "content": "3"}]
    assert third.error == "score has no number"
    assert isinstance(third.base, Generated) and not third.base.is_empty and third.base.usage.unreported == 1


def test_each_model_and_environment_is_a_run(bench: Bench, tmp_path: Path) -> None:
    rows = [{"s": n % 2, "m": f"m{n % 2}", "e": "sums", "q": f"{n // 2}"} for n in range(12)]
    path = jsonl(tmp_path / "all.jsonl", rows)
    made = bench("import", str(path), "--map", "reward=s,model=m", "--map", "env=e,prompt=q", "--json")
    runs = json.loads(made.out)["runs"]
    assert sorted((run["env_id"], run["model"]) for run in runs) == [("sums", "m0"), ("sums", "m1")]
    told = bench("compare", runs[0]["id"], runs[1]["id"], "--json")
    assert json.loads(told.out)["comparisons"][0]["pairs"] == 6


def test_tokens_cost_and_errors_are_read(bench: Bench, tmp_path: Path) -> None:
    rows = [
        {"s": 1, "i": 7, "o": 3, "c": 0.5, "t": 1.5, "e": None, "why": "stop", "cut": False},
        {"s": 0, "i": None, "o": 3, "c": None, "t": None, "e": "timeout", "why": None, "cut": True},
    ]
    words = "reward=s,input_tokens=i,output_tokens=o,cost=c,seconds=t,error=e,stop=why,truncated=cut"
    run = imported(bench, jsonl(tmp_path / "x.jsonl", rows), "--map", words, "--model", "lab/m", "--env", "sums")
    assert run.read_manifest().model == "lab/m" and run.read_manifest().env_id == "sums"
    first, second = outcomes(read_journal(run))
    assert (first.base.usage.input_tokens, first.base.usage.output_tokens, first.base.usage.cost) == (7, 3, 0.5)
    assert (first.base.timing.generation, first.reward) == (1.5, 1.0)
    assert isinstance(first.base, Generated) and first.base.stop_condition == "stop"
    # An error is never a score, whatever number stands beside it.
    assert (second.reward, second.base.kind, second.error) == (None, "failed", "error: timeout")
    assert second.base.usage.unreported == 1


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_an_export_comes_back_row_by_row_without_a_mapping(bench: Bench, tmp_path: Path, name: str) -> None:
    run = odd_run(tmp_path)
    export_run(run, formats()[name], tmp_path / f"rows.{name}")
    again = imported(bench, tmp_path / f"rows.{name}")
    ours, theirs = run.read_manifest(), again.read_manifest()
    for part in ("env_id", "model", "planned", "state_columns", "metric_names"):
        assert getattr(theirs, part) == getattr(ours, part), part
    assert texts(facts(again)) == texts(facts(run))
    for before, after in zip(outcomes(read_journal(run)), outcomes(read_journal(again)), strict=True):
        assert (after.base.usage, after.base.timing) == (before.base.usage, before.base.timing)
        if isinstance(before.base, Generated) and isinstance(after.base, Generated):
            assert after.base.stop_condition == before.base.stop_condition


def texts(found: list[Any]) -> list[Any]:
    """Facts with texts as messages, as these formats have them."""

    def messages(value: Any, role: str) -> Any:
        return [{"role": role, "content": value}] if isinstance(value, str) and value else value

    return [
        (each[0], messages(each[1], "user"), *each[2:9], messages(each[9], "assistant"), each[10]) for each in found
    ]


@for_each_row(
    ("rows", "words", "problem"),
    [
        (ROWS, "reward=scor", "has no column 'scor' for reward; did you mean \"score\"?"),
        (ROWS, "reward=judge.f2", "did you mean \"judge.f1\"?"),
        (ROWS, "example=id", "--map: name the column of the reward: reward=COLUMN"),
        (ROWS, "rewards=score", "there is no field 'rewards'; did you mean \"reward\"?"),
        (ROWS, "reward", "--map 'reward': give it as FIELD=COLUMN"),
        (ROWS, "reward=score,reward=id", "the field 'reward' is given twice"),
        (ROWS, "reward=score,cost=score,input_tokens=score", "give both input_tokens and output_tokens"),
        (ROWS, "reward=id", "row 1: id is \"a\", not a number"),
        (ROWS, "reward=score,rollout=id", "row 1: id is \"a\", not a number of a rollout"),
        ([ROWS[0], ROWS[0]], MAP, "row 2: rollout 0 of example \"a\" is there twice"),
        ([{"s": 1, "m": f"m{n}"} for n in range(101)], "reward=s,model=m", "more than 100 environments and models"),
        ([], "reward=s", "no results of other tools found"),
        (["[1]\n"], "reward=s", "row 1: a row must be an object, not [1]"),
        (["{\n"], "reward=s", "Invalid JSON at line 1"),
        ([{"s": [1]}], "reward=s", "row 1: s is [1], not a number"),
        (['{"s": ' + "[" * 9999 + "]" * 9999 + "}\n"], "reward=s", "line 1: maximum recursion depth"),
        ([{"s": 1, "r": 10**9}], "reward=s,rollout=r", "is not between 0 and"),
    ],
)  # fmt: skip
def test_wrong_mappings_and_hostile_tables_are_refused(
    bench: Bench, tmp_path: Path, rows: list[Any], words: str, problem: str
) -> None:
    path = jsonl(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", rows)
    assert problem in refused(bench, path, "--map", words)


def test_numbers_that_are_none_stay_unknown(bench: Bench, tmp_path: Path) -> None:
    rows = [
        '{"s": NaN}\n',
        '{"s": Infinity}\n',
        '{"s": 1e999}\n',
        f'{{"s": {10**400}}}\n',
        '{"s": ""}\n',
        '{"s": true}\n',
    ]
    run = imported(bench, jsonl(tmp_path / "x.jsonl", rows), "--map", "reward=s")
    assert [each.reward for each in outcomes(read_journal(run))] == [None] * 5 + [1.0]


def test_other_files_and_missing_mappings_are_refused(bench: Bench, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "x.jsonl", ROWS)
    assert "is in no known format" in refused(bench, path)
    assert "a table needs a mapping of its columns" in refused(bench, path, "-f", "table")
    (tmp_path / "x.txt").write_text("x")
    assert "Unsupported file format: .txt" in refused(bench, tmp_path / "x.txt", "--map", "reward=s")
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    assert "Parquet" in refused(bench, tmp_path / "x.parquet", "--map", "reward=s")
    assert isinstance(imported(bench, path, "--map", MAP), RunDir)
