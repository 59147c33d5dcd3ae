"""`rollouts_df`: every rollout of the journals once, what is not known missing and never 0, one shape in any case."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd  # pyright: ignore[reportMissingTypeStubs]
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import PEAK, example, failed, generated, key, make_run, python, rollouts, scored, write

from harness.core.errors import JournalDamaged, UsageError
from harness.core.records import Record, Timing
from harness.core.types import Usage
from harness.report.frames import rollouts_df
from harness.stats.scores import LARGEST_SCORE, UNUSABLE
from harness.store.codec import encode
from harness.store.dataset import DatasetWriter
from harness.store.outcomes import read_journal
from harness.store.rows import RowShape
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of

FIXED = [
    ("run_id", "text"), ("env_id", "text"), ("model", "text"), ("name", "text"), ("example_id", "text"),
    ("example_key", "text"), ("rollout_index", "integer"), ("reward", "number"), ("outcome", "text"),
    ("reason", "text"), ("error", "text"), ("correct", "number"), ("input_tokens", "integer"),
    ("output_tokens", "integer"), ("reasoning_tokens", "integer"), ("cached_tokens", "integer"),
    ("requests", "integer"), ("cost", "number"), ("started", "time"), ("generation_s", "number"),
    ("model_s", "number"), ("waiting_s", "number"), ("scoring_s", "number"), ("attempts", "integer"),
    ("turns", "integer"), ("stop_condition", "text"), ("is_truncated", "flag"), ("task", "text"), ("info", "text"),
    ("prompt", "text"), ("completion", "text"), ("answer", "text"), ("turn", "text"),
]  # fmt: skip
PANDAS = {
    "text": str(pd.Series(["a"]).dtype), "number": "float64", "integer": "Int64", "flag": "boolean",
    "time": "datetime64[us, UTC]",
}  # fmt: skip
POLARS = {
    "text": pl.String(), "number": pl.Float64(), "integer": pl.Int64(), "flag": pl.Boolean(),
    "time": pl.Datetime("us", "UTC"),
}  # fmt: skip


def journal(folder: Path, records: list[Record], **manifest: Any) -> RunDir:
    run = make_run(folder, **manifest)
    if records:
        write(run.journal_path, records)
    return run


def table(run: Any, **options: Any) -> list[dict[str, Any]]:
    """The rows as Python values, a missing one as None."""
    return rollouts_df(run, backend="polars", **options).to_dicts()


def test_a_scored_rollout_in_full(tmp_path: Path) -> None:
    said = [
        {"role": "assistant", "content": "let me see", "tool_calls": [{"id": "c"}]},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": [{"type": "text", "text": "It is"}, {"type": "text", "text": "7"}]},
    ]
    usage = Usage(100, 20, 5, 40, 2, 0, 0.25)
    run = journal(
        tmp_path,
        [
            example(3, info={"n": [1, None]}),
            generated(3, 1, completion=said, usage=usage, timing=Timing(1_790_000_000.5, 2.0, 1.5, 0.25), attempts=2,
                      is_truncated=True, stop_condition="max_turns_reached"),
            scored(3, 1, 0.75, metrics={"correct": 1.0}, seconds=0.5),
        ],
    )  # fmt: skip
    [row] = table(run)
    assert row == {
        "run_id": run.id, "env_id": "sums", "model": "lab/m-1", "name": "sums", "example_id": "3",
        "example_key": key("example", 3), "rollout_index": 1, "reward": 0.75, "outcome": "scored", "reason": None,
        "error": None, "correct": 1.0, "input_tokens": 100, "output_tokens": 20, "reasoning_tokens": 5,
        "cached_tokens": 40, "requests": 2, "cost": 0.25,
        "started": datetime.fromtimestamp(1_790_000_000.5, UTC), "generation_s": 2.0, "model_s": 1.5,
        "waiting_s": 0.25, "scoring_s": 0.5, "attempts": 2, "turns": 2, "stop_condition": "max_turns_reached",
        "is_truncated": True, "task": "sums", "info": '{"n":[1,null]}', "prompt": "What is 3 + 1?",
        "completion": "It is\n7", "answer": "4", "turn": "1",
    }  # fmt: skip


OUTCOMES: list[Record] = [
    example(0),
    generated(0, 0), scored(0, 0, 1.0, reasons={"style": "timeout: 3 s"}),
    generated(0, 1), scored(0, 1, None, reasons={"judge": "no verdict: what?", "style": "timeout: 3 s"}),
    generated(0, 2), scored(0, 2, None, reasons={}),
    generated(0, 3),
    failed(0, 4, usage=Usage(10, 0, requests=1)),
    failed(0, 5, reason="rate_limit", error="", timing=Timing(), completion=[{"role": "assistant", "content": "half"}]),
    generated(0, 6), scored(0, 6, 0.0),
]  # fmt: skip


def test_what_has_no_score_has_no_reward_and_says_why(tmp_path: Path) -> None:
    run = journal(tmp_path, OUTCOMES)
    rows = table(run)
    assert [(row["reward"], row["outcome"], row["reason"], row["error"]) for row in rows] == [
        (1.0, "scored", None, "style: timeout: 3 s"),
        (None, "unscored", "judge no verdict", "judge: no verdict: what?; style: timeout: 3 s"),
        (None, "unscored", "no reason given", "no reason given"),
        (None, "unscored", "not scored", "not scored"),
        (None, "unscored", "timeout", "timeout: no reply in 600 s"),
        (None, "unscored", "rate_limit", "rate_limit"),
        (0.0, "scored", None, None),
    ]
    assert [row["correct"] for row in rows] == [1.0, None, None, None, None, None, 0.0]
    assert [row["scoring_s"] for row in rows] == [0.01, 0.01, 0.01, None, None, None, 0.01]
    assert [row["completion"] for row in rows] == [*["#### 1"] * 4, None, "half", "#### 1"]
    assert [row["turns"] for row in rows] == [1, 1, 1, 1, 0, 1, 1]
    assert rows[5]["started"] is None and rows[5]["turn"] is None
    frame = rollouts_df(run)
    assert frame["reward"].isna().tolist() == [False, True, True, True, True, True, False]
    assert frame["reward"].tolist()[::6] == [1.0, 0.0]
    assert frame.agg({"reward": "mean"}).tolist() == [0.5]
    assert frame["reason"].value_counts().to_dict() == {
        "judge no verdict": 1, "no reason given": 1, "not scored": 1, "timeout": 1, "rate_limit": 1,
    }  # fmt: skip


def test_a_reward_that_the_summary_leaves_out_is_left_out_here_too(tmp_path: Path) -> None:
    run = journal(tmp_path, [
        example(0), generated(0, 0), scored(0, 0, 1e101),
        generated(0, 1), scored(0, 1, 0.5, metrics={"correct": -1e300}),
    ])  # fmt: skip
    rows = table(run, columns=["reward", "outcome", "reason", "error", "correct"])
    assert rows == [
        {
            "reward": None, "outcome": "unscored", "reason": UNUSABLE, "error": "the reward is 1e+101", "correct": None,
        },
        {"reward": 0.5, "outcome": "scored", "reason": None, "error": None, "correct": None},
    ]  # fmt: skip
    recorded = read_journal(run)
    summary = summary_of(run.read_manifest(), recorded)
    assert (summary.reward.estimate.mean, summary.unscored) == (0.5, {UNUSABLE: 1})
    assert summary.metrics["correct"].estimate.mean is None


def test_tokens_that_nobody_reported_are_missing(tmp_path: Path) -> None:
    unknown, partly, none = Usage(0, 0, requests=2, unreported=2), Usage(9, 3, requests=2, unreported=1), Usage()
    lines: list[Record] = [example(0)]
    for place, usage in enumerate((unknown, partly, none, Usage(2**70, 1, requests=1))):
        lines += [generated(0, place, usage=usage), scored(0, place)]
    rows = table(journal(tmp_path, lines))
    assert [(row["input_tokens"], row["output_tokens"], row["requests"]) for row in rows] == [
        (None, None, 2), (9, 3, 2), (0, 0, 0), (None, 1, 1),
    ]  # fmt: skip


def test_rows_stand_in_the_order_of_the_dataset_with_their_newest_scores(tmp_path: Path) -> None:
    lines: list[Record] = [example(n) for n in (2, 0, 1)]
    for index, rollout in [(2, 1), (0, 0), (1, 1), (2, 0), (0, 1), (1, 0)]:
        lines += [generated(index, rollout), scored(index, rollout, 0.0)]
    lines += [scored(1, 1, 0.5), failed(2, 0), generated(2, 0, completion="again"), scored(2, 0, 0.25)]
    run = journal(tmp_path, lines)
    rows = table(run)
    assert [(row["example_id"], row["rollout_index"], row["reward"]) for row in rows] == [
        ("0", 0, 0.0), ("0", 1, 0.0), ("1", 0, 0.0), ("1", 1, 0.5), ("2", 0, 0.25), ("2", 1, 0.0),
    ]  # fmt: skip
    assert rows[4]["completion"] == "again"


def test_values_that_the_dataset_has_are_those_of_the_dataset(tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    run = journal(tmp_path, [*OUTCOMES, *rollouts(3, 2)], state_columns=("turn", "absent"))
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    [file] = run.data_path.glob("*.parquet")
    dataset: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    rows = table(run)
    shared = (set(dataset[0]) & set(rows[0])) - {"prompt", "completion"}
    assert shared == {
        "example_id", "rollout_index", "answer", "task", "info", "reward", "correct", "outcome", "error",
        "stop_condition", "is_truncated", "model", "env_id", "turn", "absent",
    }  # fmt: skip
    assert [{name: row[name] for name in shared} for row in rows] == [
        {name: row[name] for name in shared} for row in dataset
    ]


def test_the_journal_is_the_truth_and_not_the_dataset(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(2)))
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    write(run.journal_path, [example(2), generated(2), scored(2, reward=0.5)])
    with run.journal_path.open("ab") as file:
        file.write(b'{"type":"generated","key":"torn')
    assert [row["reward"] for row in table(run)] == [0.0, 1.0, 0.5]


def test_a_damaged_journal_is_said_and_not_passed_over(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(2)))
    lines = run.journal_path.read_bytes().split(b"\n")
    run.journal_path.write_bytes(b"\n".join([lines[0], b"{oops", *lines[2:]]))
    with pytest.raises(JournalDamaged, match=r"journal\.jsonl:2 "):
        rollouts_df(run)


def test_many_runs_have_the_metrics_and_state_of_all(tmp_path: Path) -> None:
    first = journal(tmp_path, [example(0), generated(0), scored(0)])
    second = journal(
        tmp_path,
        [example(0), generated(0, state={"board": [[1]], "turn": None}),
         scored(0, 0, 0.5, metrics={"style": 0.5}, extra={"verdict": "good"})],
        model="lab/m-2", name="second", metric_names=("style",), state_columns=("board", "verdict"),
    )  # fmt: skip
    rows = table([second, first])
    assert [(row["run_id"], row["model"], row["name"]) for row in rows] == [
        (second.id, "lab/m-2", "second"), (first.id, "lab/m-1", "sums"),
    ]  # fmt: skip
    assert [(row["style"], row["correct"]) for row in rows] == [(0.5, None), (None, 1.0)]
    assert list(rows[0])[-3:] == ["board", "verdict", "turn"]
    assert [(row["board"], row["verdict"], row["turn"]) for row in rows] == [
        ("[[1]]", '"good"', "null"), (None, None, "1"),
    ]  # fmt: skip
    [row] = table(second, state=["turn", "verdict", "turn", "nothing"])
    assert list(row)[-3:] == ["turn", "verdict", "nothing"]
    assert (row["turn"], row["verdict"], row["nothing"]) == ("null", '"good"', None)
    assert "board" not in row


def test_metrics_and_state_named_like_other_columns_get_names_of_their_own(tmp_path: Path) -> None:
    run = journal(
        tmp_path,
        [example(0), generated(0, state={"name": "x", "cost": 3, "correct": False}),
         scored(0, metrics={"cost": 0.5, "reason": 1.0, "correct": 1.0})],
        metric_names=("cost", "reason", "correct"), state_columns=(),
    )  # fmt: skip
    [row] = table(run, state=["name", "cost", "correct", "reward"])
    assert (row["cost"], row["metric.cost"], row["state.cost"]) == (None, 0.5, "3")
    assert (row["reason"], row["metric.reason"]) == (None, 1.0)
    assert (row["correct"], row["state.correct"]) == (1.0, "false")
    assert (row["name"], row["state.name"]) == ("sums", '"x"')
    assert (row["reward"], row["state.reward"]) == (1.0, None)


def test_what_scoring_set_stands_before_what_the_rollout_left(tmp_path: Path) -> None:
    run = journal(tmp_path, [example(0), generated(0), scored(0, extra={"turn": 9})])
    assert [row["turn"] for row in table(run)] == ["9"]


EMPTY: list[Record] = []
NOTHING_KNOWN: list[Record] = [example(0), failed(0, 0, timing=Timing(), usage=Usage(requests=1, unreported=1))]


@pytest.mark.parametrize("lines", [EMPTY, NOTHING_KNOWN, OUTCOMES], ids=["empty", "nothing known", "full"])
def test_types_do_not_hang_on_values(tmp_path: Path, lines: list[Record]) -> None:
    run = journal(tmp_path, lines)
    frame = rollouts_df(run)
    assert [(name, str(kind)) for name, kind in frame.dtypes.items()] == [(n, PANDAS[kind]) for n, kind in FIXED]
    assert frame.index.tolist() == list(range(len(frame)))
    other = rollouts_df(run, backend="polars")
    assert list(other.schema.items()) == [(name, POLARS[kind]) for name, kind in FIXED]


def test_no_run_at_all_still_has_the_columns() -> None:
    general = [name for name, _ in FIXED if name not in ("correct", "turn")]
    assert rollouts_df([]).columns.tolist() == general
    assert rollouts_df([], backend="polars").columns == general


def test_only_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(2)))
    assert table(run, columns=["correct", "example_id", "turn", "correct"]) == [
        {"correct": 0.0, "example_id": "0", "turn": "1"},
        {"correct": 1.0, "example_id": "1", "turn": "1"},
    ]
    with pytest.raises(UsageError, match="columns: there is no column 'rewards'; did you mean \"reward\""):
        rollouts_df(run, columns=["rewards"])
    with pytest.raises(UsageError, match=r'columns: give a list of names, such as \["reward"\]'):
        rollouts_df(run, columns="reward")
    with pytest.raises(UsageError, match=r'state: give a list of names, such as \["turn"\]'):
        rollouts_df(run, state="turn")


def test_rows_beyond_one_batch_keep_their_order(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(1_100, 2)))
    frame = rollouts_df(run, columns=["example_id", "rollout_index", "reward", "prompt"])
    assert len(frame) == 2_200
    assert frame["example_id"].tolist() == [str(n) for n in range(1_100) for _ in range(2)]
    assert frame["prompt"].tolist() == [f"What is {n} + 1?" for n in range(1_100) for _ in range(2)]
    assert frame["reward"].tolist() == [float(n % 2) for n in range(1_100) for _ in range(2)]


def test_long_texts_are_whole(tmp_path: Path) -> None:
    texts = [f"{n}" * 9_000_000 for n in range(4)]
    lines: list[Record] = [example(0)]
    for n, text in enumerate(texts):
        lines += [generated(0, n, completion=text), scored(0, n)]
    frame = rollouts_df(journal(tmp_path, lines), columns=["completion"])
    assert frame["completion"].tolist() == texts


GROW = (
    PEAK
    + """
import sys
import pandas
from harness.report.frames import rollouts_df
columns = ["example_id", "reward"] if sys.argv[2] == "few" else None
rollouts_df([])
before = peak()
frame = rollouts_df(sys.argv[1], columns=columns)
print(len(frame), peak() - before)
"""
)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_ten_thousand_rollouts_take_seconds_at_most_and_little_more_memory_than_the_frame(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with run.journal_path.open("wb") as file:
        for n in range(10_000):
            file.write(encode(example(n)) + encode(generated(n, completion="word " * 800)) + encode(scored(n)))
    for columns, most in (("few", 20), ("all", 100)):
        child = python(GROW, run.path, columns)
        assert child.returncode == 0, child.stderr
        count, grown = map(float, child.stdout.split())
        assert count == 10_000
        assert grown < most, f"{columns}: {grown} MB; the texts are 40 MB"


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(value=JSON, content=JSON, reward=st.none() | st.floats(allow_nan=False, allow_infinity=False))
def test_whatever_a_journal_holds_both_backends_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, value: Any, content: Any, reward: float | None
) -> None:
    said = [{"role": "assistant", "content": content}]
    run = journal(
        tmp_path_factory.mktemp("out"),
        [
            example(0, prompt=[{"role": "user", "content": content}], answer=value, info={"v": value}, task=value),
            generated(0, completion=said, state={"turn": value}), scored(0, reward=reward, metrics={"correct": reward}),
        ],
    )  # fmt: skip
    [row] = rollouts_df(run, backend="polars").to_dicts()
    frame = rollouts_df(run)
    [other] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert list(row) == list(other) == [name for name, _ in FIXED]
    assert row == other
    assert row["reward"] == (None if reward is None or abs(reward) > LARGEST_SCORE else reward)
    assert json.loads(row["turn"]) == json.loads(json.dumps(value))
