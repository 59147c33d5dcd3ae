"""`messages_df`: every message of every rollout once, whole, and in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from store_samples import example, failed, generated, make_run, scored, write

from harness.core.errors import UsageError
from harness.core.records import Record
from harness.report.frames import messages_df
from harness.store.dataset import DatasetWriter
from harness.store.rows import RowShape
from harness.store.rundir import RunDir

COLUMNS = [
    "run_id", "env_id", "model", "example_id", "rollout_index", "position", "part", "role", "content", "parts",
    "reasoning", "tool_calls", "name", "tool_call_id", "extra",
]  # fmt: skip

IMAGE = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    {"type": "text", "text": "Say one word."},
]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
ODD_CALL = {"id": "c2", "function": {"name": "look", "arguments": {"at": 1}}, "index": 0}
TALK: list[Any] = [
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL, ODD_CALL]},
    {"role": "tool", "content": "blue", "tool_call_id": "c1", "name": "look"},
    {"role": "assistant", "content": "", "refusal": "I may not.", "tool_calls": []},
]


def journal(folder: Path, records: list[Record], **manifest: Any) -> RunDir:
    run = make_run(folder, **manifest)
    if records:
        write(run.journal_path, records)
    return run


def table(run: Any, **options: Any) -> list[dict[str, Any]]:
    return messages_df(run, backend="polars", **options).to_dicts()


def test_a_conversation_in_full(tmp_path: Path) -> None:
    run = journal(tmp_path, [example(0, prompt=[{"role": "user", "content": IMAGE}]), generated(0, 1, completion=TALK)])
    nothing = dict.fromkeys(COLUMNS[8:])
    same = {"run_id": run.id, "env_id": "sums", "model": "lab/m-1", "example_id": "0", "rollout_index": 1, **nothing}
    question, asked, told, refused = table(run)
    assert question == {
        **same, "position": 0, "part": "prompt", "role": "user", "content": "What is this?\nSay one word.",
        "parts": json.dumps(IMAGE, separators=(",", ":")),
    }  # fmt: skip
    assert json.loads(asked.pop("tool_calls")) == [CALL, ODD_CALL]
    del same["tool_calls"]
    assert asked == {**same, "position": 1, "part": "completion", "role": "assistant", "reasoning": "hm"}
    same["tool_calls"] = None
    assert told == {
        **same, "position": 2, "part": "completion", "role": "tool", "content": "blue", "tool_call_id": "c1",
        "name": "look",
    }  # fmt: skip
    assert refused == {
        **same, "position": 3, "part": "completion", "role": "assistant", "content": "",
        "extra": '{"refusal":"I may not."}',
    }  # fmt: skip


def test_texts_of_completion_models_and_odd_messages(tmp_path: Path) -> None:
    odd: list[Any] = ["just text", {"content": 5}, {"role": "assistant", "content": ["a", {"text": "b"}, {"text": 1}]}]
    run = journal(
        tmp_path,
        [example(0, prompt="Once"), generated(0, 0, completion=" upon"), failed(0, 1), generated(0, 2, completion=odd)],
    )
    assert [
        (r["rollout_index"], r["position"], r["part"], r["role"], r["content"], r["parts"]) for r in table(run)
    ] == [
        (0, 0, "prompt", "user", "Once", None),
        (0, 1, "completion", "assistant", " upon", None),
        (1, 0, "prompt", "user", "Once", None),
        (2, 0, "prompt", "user", "Once", None),
        (2, 1, "completion", None, "just text", None),
        (2, 2, "completion", None, None, "5"),
        (2, 3, "completion", "assistant", "a\nb", '["a",{"text":"b"},{"text":1}]'),
    ]


def test_texts_are_those_of_the_dataset(tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    empty: list[Any] = [{"role": "assistant", "content": [{"type": "text", "text": ""}]}, {"role": "assistant"}]
    run = journal(
        tmp_path,
        [example(0, prompt=[{"role": "user", "content": IMAGE}]), generated(0, 0, completion=TALK), scored(0, 0),
         generated(0, 1, completion=empty), scored(0, 1), example(1, prompt=""), failed(1, 0)],
    )  # fmt: skip
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    [file] = run.data_path.glob("*.parquet")
    dataset: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    names = {"role": "role", "content": "content", "parts": "parts", "reasoning_content": "reasoning", "name": "name",
             "tool_call_id": "tool_call_id"}  # fmt: skip
    expected = [
        {names[name]: message[name] for name in names}
        for row in dataset
        for message in [*row["prompt"], *row["completion"]]
    ]
    assert [{name: row[name] for name in names.values()} for row in table(run)] == expected
    assert len(expected) == 4 + 3 + 1


def test_messages_follow_the_rollouts(tmp_path: Path) -> None:
    first = journal(tmp_path, [example(1), example(0), generated(1), generated(0, 1), generated(0, 0)])
    second = journal(tmp_path, [example(0), generated(0)], model="lab/m-2")
    rows = table([second, first])
    places = [(row["model"], row["example_id"], row["rollout_index"], row["position"]) for row in rows]
    assert places == [
        *[("lab/m-2", "0", 0, n) for n in range(3)],
        *[("lab/m-1", "0", 0, n) for n in range(3)],
        *[("lab/m-1", "0", 1, n) for n in range(3)],
        *[("lab/m-1", "1", 0, n) for n in range(3)],
    ]
    assert [row["role"] for row in rows] == ["system", "user", "assistant"] * 4


@pytest.mark.parametrize("lines", [[], [example(0), generated(0, completion=TALK)]], ids=["empty", "full"])
def test_types_do_not_hang_on_values(tmp_path: Path, lines: list[Record]) -> None:
    run = journal(tmp_path, lines)
    counts = {"rollout_index", "position"}
    frame = messages_df(run)
    text = str(messages_df([])["role"].dtype)
    assert [(name, str(kind)) for name, kind in frame.dtypes.items()] == [
        (name, "Int64" if name in counts else text) for name in COLUMNS
    ]
    assert dict(messages_df(run, backend="polars").schema) == {
        name: pl.Int64() if name in counts else pl.String() for name in COLUMNS
    }


def test_only_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    run = journal(tmp_path, [example(0, prompt="a"), generated(0, completion="b")])
    assert table(run, columns=["content", "part"]) == [
        {"content": "a", "part": "prompt"}, {"content": "b", "part": "completion"},
    ]  # fmt: skip
    with pytest.raises(UsageError, match="columns: there is no column 'contents'; did you mean \"content\""):
        messages_df(run, columns=["contents"])
