"""The dataset on disk: every rollout once, in its columns, loadable by `datasets`, at every moment of a run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import PEAK, example, failed, generated, key, make_run, python, rollouts, scored, write
from tables import for_each_row

from harness.core.errors import ConfigError, StoreError
from harness.core.records import FIXED_COLUMNS, Example, Record
from harness.core.types import Messages
from harness.store import dataset as dataset_module
from harness.store.atomic import swap_folder
from harness.store.card import rebuild_card
from harness.store.dataset import DatasetWriter
from harness.store.rows import RowShape
from harness.store.rundir import RunDir


def load(run: RunDir, tmp_path: Path, *config: str) -> Any:
    """What a user gets from the parent folder."""
    from datasets import load_dataset  # pyright: ignore[reportMissingTypeStubs]

    return load_dataset(str(run.parent), *config, split="train", cache_dir=str(tmp_path / "cache"))


def on_disk(run: RunDir) -> list[dict[str, Any]]:
    """All rows of all files, the files in no order that matters."""
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    rows: list[dict[str, Any]] = []
    for path in sorted(run.data_path.glob("*.parquet")):
        rows.extend(pq.ParquetFile(path).read().to_pylist())
    return rows


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["example_id"], row["rollout_index"]) for row in rows]


def writer(run: RunDir) -> DatasetWriter:
    return DatasetWriter(run.path, RowShape.of(run.read_manifest()))


def finished(tmp_path: Path, lines: list[Record], **manifest: Any) -> RunDir:
    run = make_run(tmp_path / "out", **manifest)
    write(run.journal_path, lines)
    writer(run).finish()
    return run


def test_columns_stand_in_the_order_of_the_contract(tmp_path: Path) -> None:
    run = finished(tmp_path, list(rollouts(3, 2)), metric_names=("correct", "format"), state_columns=("turn", "board"))
    data = load(run, tmp_path)
    assert data.column_names == [
        "example_id", "rollout_index", "prompt", "completion", "answer", "task", "info", "reward",
        "correct", "format",
        "outcome", "error", "stop_condition", "is_truncated", "usage", "timing", "model", "env_id",
        "turn", "board",
    ]  # fmt: skip
    assert len(data) == 6
    row = data[3]
    assert (row["example_id"], row["rollout_index"], row["answer"], row["reward"]) == ("1", 1, "2", 1.0)
    assert (row["correct"], row["format"], row["turn"], row["board"]) == (1.0, None, "1", None)
    assert (row["model"], row["env_id"], row["task"], row["outcome"], row["error"]) == (
        "lab/m-1", "sums", "sums", "scored", None,
    )  # fmt: skip
    assert json.loads(row["usage"])["input_tokens"] == 10
    assert json.loads(row["timing"]) == {
        "started_at": 1.79e9, "generation": 0.5, "model": 0.25, "waiting": 0.0, "scoring": 0.01
    }  # fmt: skip
    assert json.loads(row["info"]) == {"n": 1}


@for_each_row("name", [*FIXED_COLUMNS, "twice"])
def test_columns_with_one_name_are_refused_at_construction(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*has the name of another column"):
        RowShape("sums", "m", metric_names=("twice", name) if name == "twice" else (name,))
    with pytest.raises(ConfigError, match=f"state column '{name}'"):
        RowShape("sums", "m", metric_names=("twice",), state_columns=(name,))


def test_messages_survive_whole(tmp_path: Path) -> None:
    image = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ]
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    odd_call = {"id": "c2", "function": {"name": "look", "arguments": {"at": 1}}, "index": 0}
    said: Messages = [
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call, odd_call]},
        {"role": "tool", "content": "blue", "tool_call_id": "c1", "name": "look"},
        {"role": "assistant", "content": "", "refusal": "I may not.", "audio": {"id": 5}},
    ]
    run = finished(
        tmp_path, [example(0, prompt=[{"role": "user", "content": image}]), generated(0, completion=said), scored(0)]
    )
    row = load(run, tmp_path)[0]
    (question,) = row["prompt"]
    assert json.loads(question["parts"]) == image and question["content"] == "What is this?"
    asked, told, refused = row["completion"]
    assert asked["content"] is None and asked["parts"] is None and asked["reasoning_content"] == "hm"
    assert asked["tool_calls"] == [
        {"id": "c1", "type": "function", "name": "look", "arguments": '{"at": "sky"}'},
        {"id": "c2", "type": None, "name": "look", "arguments": '{"at":1}'},
    ]
    assert json.loads(asked["extra"]) == {"tool_calls": [call, odd_call]}
    assert told["tool_call_id"] == "c1" and told["name"] == "look" and told["tool_calls"] == []
    assert refused["content"] == "" and json.loads(refused["extra"]) == {"refusal": "I may not.", "audio": {"id": 5}}
    assert list(asked) == [
        "role", "content", "parts", "reasoning_content", "name", "tool_call_id", "tool_calls", "extra",
    ]  # fmt: skip


def test_a_completion_model_has_one_message_each_way(tmp_path: Path) -> None:
    run = finished(tmp_path, [example(0, prompt="Once"), generated(0, completion=" upon"), scored(0)])
    row = load(run, tmp_path)[0]
    assert [(m["role"], m["content"]) for m in row["prompt"] + row["completion"]] == [
        ("user", "Once"), ("assistant", " upon"),
    ]  # fmt: skip


def test_every_outcome_has_its_row(tmp_path: Path) -> None:
    run = finished(
        tmp_path,
        [
            example(0), generated(0, 0), scored(0, 0, reasons={"style": "timeout: 3 s"}),
            generated(0, 1), scored(0, 1, reward=None, reasons={"*": "group incomplete", "judge": "no verdict"}),
            failed(0, 2), failed(0, 3, error="", completion=[{"role": "assistant", "content": "half"}]),
            generated(0, 4),
        ],
    )  # fmt: skip
    rows = load(run, tmp_path)
    assert list(rows["outcome"]) == ["scored", "unscored", "unscored", "unscored", "unscored"]
    assert list(rows["reward"]) == [1.0, None, None, None, None]
    assert list(rows["error"]) == [
        "style: timeout: 3 s", "group incomplete; judge: no verdict", "timeout: no reply in 600 s", "timeout",
        "not scored",
    ]  # fmt: skip
    assert [len(said) for said in rows["completion"]] == [1, 1, 0, 1, 1]


HORRORS: list[Record] = [
    example(
        0,
        example_id="ø/\ud800",
        prompt=[],
        answer={"a": [1]},
        task=None,
        info={"n": 2**80, "x": math.nan, "k": "\udfff"},
    ),
    generated(0, completion=[{"role": "assistant", "content": "\ud83d\ude00 \ud800 \x00 \u2028"}], stop_condition=None),
    scored(0, metrics={}, extra={"turn": math.inf}),
    example(
        1, info={"n": "now text"}, answer="", prompt=[{"content": 5}, {"role": ["r"], "content": {"text": "x"}}, {}]
    ),
    generated(1, completion=[{"role": "assistant", "content": [], "tool_calls": "none", "name": 7}], state={}),
    scored(1, metrics={"correct": None, "unknown": 1.0}),
    example(2, info={}, prompt=["bare", None], example_id=2**70),
    generated(2, completion=[], usage=generated().usage),
    scored(2, reward=None, metrics={"correct": None}),
    example(3, info={"deep": [[[[{}]]]]}),
    generated(3, completion="", state={"turn": {"board": [[1, None], ["x"]]}}),
    scored(3, extra={"turn": {"verdict": None}}),
]


def test_nothing_breaks_the_columns(tmp_path: Path) -> None:
    run = finished(tmp_path, HORRORS)
    rows = load(run, tmp_path)
    assert [json.loads(info).get("n") for info in rows["info"]] == [2**80, "now text", None, None]
    assert list(rows["answer"]) == ['{"a":[1]}', "", "3", "4"]
    assert list(rows["correct"]) == [None, None, None, 1.0]
    assert rows[0]["completion"][0]["content"] == "😀 \ufffd \x00 \u2028"
    assert rows[0]["task"] is None and rows[2]["example_id"] == str(2**70)
    assert list(rows["turn"]) == ["null", None, "1", '{"verdict":null}']
    assert [m["content"] for m in rows[2]["prompt"]] == ["bare", None]


def test_a_column_without_any_value_keeps_its_type(tmp_path: Path) -> None:
    run = finished(tmp_path, [example(0, prompt=[]), failed(0)], metric_names=("a",), state_columns=("s",))
    data = load(run, tmp_path)
    assert str(data.features["a"].dtype) == "float64" and str(data.features["s"].dtype) == "string"
    other = finished(tmp_path, list(rollouts(2)), metric_names=("a",), state_columns=("s",), env_id="other")
    assert load(other, tmp_path).features == data.features


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "name", "reasoning_content", "tool_call_id", "refusal"]),
        anything,
    ),
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(prompt=messages, said=messages | st.text(max_size=4), value=anything)
def test_whatever_a_model_says_becomes_a_row(
    tmp_path_factory: pytest.TempPathFactory, prompt: Messages, said: Messages | str, value: Any
) -> None:
    run = make_run(tmp_path_factory.mktemp("out"))
    write(
        run.journal_path,
        [
            example(0, prompt=prompt, answer=value, info={"v": value}, task=value),
            generated(0, completion=said, state={"turn": value}),
            scored(0, extra={"turn": value} if value else {}),
        ],
    )
    assert writer(run).finish() == 1
    (row,) = on_disk(run)
    assert len(row["prompt"]) == len(prompt)
    assert isinstance(json.loads(row["info"]), dict)
    json.loads(row["turn"] or "null")


def test_rows_are_sorted_whatever_the_order_of_the_journal(tmp_path: Path) -> None:
    lines: list[Record] = [example(n) for n in (2, 0, 1)]
    for index, rollout in [(2, 1), (0, 0), (1, 1), (2, 0), (0, 1), (1, 0)]:
        lines += [generated(index, rollout), scored(index, rollout)]
    run = finished(tmp_path, lines)
    assert places(on_disk(run)) == [(str(n), r) for n in range(3) for r in range(2)]


def test_checkpoints_hold_the_lag(tmp_path: Path) -> None:
    """After each checkpoint the dataset has every rollout that has an outcome, and no other."""
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0)])
    keeper = writer(run)
    assert keeper.checkpoint() == 0 and not run.data_path.exists()
    for step in range(5):
        write(run.journal_path, [generated(0, step), *([scored(0, step - 1)] if step else [])])
        assert keeper.checkpoint() == (1 if step else 0)
        assert sorted(places(on_disk(run))) == [("0", r) for r in range(step)]
        if step:
            assert len(load(run, tmp_path)) == step
    assert keeper.checkpoint() == 0
    assert keeper.finish() == 5
    assert places(on_disk(run)) == [("0", r) for r in range(5)]
    assert [path.name[:6] for path in run.data_path.iterdir()] == ["train-"]


def test_a_resumed_run_starts_from_what_is_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0), generated(0, 1)])
    assert writer(run).checkpoint() == 1
    write(run.journal_path, [generated(0, 2), scored(0, 2)])
    again = writer(run)  # the process died here
    assert again.checkpoint() == 1
    write(run.journal_path, [scored(0, 1)])
    assert writer(run).checkpoint() == 1
    assert sorted(places(on_disk(run))) == [("0", 0), ("0", 1), ("0", 2)]
    assert writer(run).checkpoint() == 0


def test_nothing_is_read_before_the_first_rows_are_due(tmp_path: Path) -> None:
    run = finished(tmp_path, list(rollouts(3, 2)))
    away = tmp_path / "away"
    run.journal_path.rename(away)
    again = writer(run)  # a resume makes one before its first request, which a long journal must not hold up
    away.rename(run.journal_path)
    assert len(again.catch_up()) == 6
    assert again.finish() == 6


def test_a_run_that_was_interrupted_and_goes_on_has_every_rollout_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0), generated(0, 1), failed(0, 2)])
    writer(run).finish()
    assert [row["error"] for row in on_disk(run)] == [None, "not scored", "timeout: no reply in 600 s"]
    resumed = writer(run)
    write(run.journal_path, [scored(0, 1)])
    assert resumed.checkpoint() == 3  # the row without a score had to go, so all were built anew
    write(run.journal_path, [generated(0, 3), scored(0, 3), generated(0, 2)])
    assert resumed.checkpoint() == 1
    assert sorted(places(on_disk(run))) == [("0", r) for r in range(4)]
    died_and_resumed = writer(run)
    write(run.journal_path, [scored(0, 2), scored(0, 0, reward=0.5)])
    died_and_resumed.checkpoint()
    assert sorted(places(on_disk(run))) == [("0", r) for r in range(4)]
    died_and_resumed.finish()
    assert [row["reward"] for row in on_disk(run)] == [0.5, 1.0, 1.0, 1.0]
    (before,) = run.data_path.iterdir()
    written = before.stat().st_ino
    assert writer(run).finish() == 4
    assert before.stat().st_ino == written, "nothing to do must not rewrite"


def test_the_newest_score_wins(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0, 0.0)])
    keeper = writer(run)
    keeper.checkpoint()
    write(run.journal_path, [scored(0, 0, 1.0)])
    assert keeper.checkpoint() == 0
    keeper.finish()
    assert [row["reward"] for row in on_disk(run)] == [1.0]


@pytest.mark.parametrize("damage", ["torn", "foreign", "missing", "ahead", "columns"])
def test_files_that_do_not_add_up_are_built_anew(tmp_path: Path, damage: str) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0)])
    keeper = writer(run)
    for step in range(3):
        write(run.journal_path, [generated(0, step), scored(0, step)])
        keeper.checkpoint()
    parts = sorted(run.data_path.glob("*.parquet"))
    assert len(parts) == 3
    if damage == "torn":
        parts[1].write_bytes(parts[1].read_bytes()[:100])
    elif damage == "foreign":
        import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
        import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

        pq.write_table(pa.table({"x": [1]}), run.data_path / "mine.parquet")
    elif damage == "missing":
        parts[1].unlink()
    elif damage == "ahead":  # power loss: the journal lost lines that were never acknowledged
        os.truncate(run.journal_path, run.journal_path.stat().st_size - 10)
    else:
        run.write_manifest(make_run(tmp_path, state_columns=("other",)).read_manifest())
    (run.data_path / ".part.1-2.tmp").write_bytes(b"left over")
    (run.path / ".data.dead").mkdir()
    again = writer(run)
    again.checkpoint()
    expected = 2 if damage == "ahead" else 3
    assert places(on_disk(run)) == [("0", r) for r in range(expected)]
    assert [path.name[:6] for path in run.data_path.iterdir()] == ["train-"]
    assert not (run.path / ".data.dead").exists()


def test_rows_that_the_journal_does_not_hold_go(tmp_path: Path) -> None:
    run = finished(tmp_path, list(rollouts(3)))
    run.journal_path.write_bytes(b"")
    assert writer(run).finish() == 0
    assert on_disk(run) == [] and not run.has_data()


@pytest.mark.slow
def test_many_small_checkpoints_leave_few_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0)])
    keeper = writer(run)
    count = dataset_module.FAN_IN + 3
    for step in range(count):
        write(run.journal_path, [generated(0, step), scored(0, step)])
        assert keeper.checkpoint() == 1
        assert len(on_disk(run)) == step + 1
    assert len(list(run.data_path.glob("*.parquet"))) == 4
    assert sorted(places(on_disk(run)), key=lambda place: place[1]) == [("0", r) for r in range(count)]
    write(run.journal_path, [generated(0, count), scored(0, count)])
    assert writer(run).checkpoint() == 1
    assert len(on_disk(run)) == count + 1


READ_ALL_THE_TIME = """
import glob, select, sys
import pyarrow.parquet as pq
folder, reads, at_least = sys.argv[1], 0, 1
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    names = sorted(glob.glob(folder + "/*.parquet"))
    try:
        tables = [pq.ParquetFile(name).read(columns=["rollout_index"]) for name in names]
    except FileNotFoundError:
        continue  # listed before a swap, opened after it: loud, and gone at the next look
    found = [value for table in tables for value in table["rollout_index"].to_pylist()]
    if len(found) != len(set(found)) or len(found) < at_least:
        sys.exit(f"expected {at_least} or more, found {sorted(found)} in {names}")
    at_least = len(found)
    reads += 1
print(reads)
"""


@pytest.mark.slow
def test_a_reader_meets_every_rollout_once_at_any_moment(tmp_path: Path) -> None:
    """A process that reads all the time while checkpoints and swaps go on never counts too many or too few."""
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0)])
    keeper = writer(run)
    keeper.checkpoint()
    command = [sys.executable, "-c", READ_ALL_THE_TIME, str(run.data_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for step in range(1, 81):
            write(run.journal_path, [generated(0, step), scored(0, step), scored(0, 0)])
            keeper.checkpoint()
            if step % 10 == 0:
                keeper.finish()
        out, complaint = child.communicate(timeout=60)
    assert child.returncode == 0, complaint
    assert int(out) > 5
    assert len(on_disk(run)) == 81


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    old, new = tmp_path / "data", tmp_path / ".data.1"
    for folder, name in ((old, "old"), (new, "new")):
        folder.mkdir()
        (folder / name).write_text(name)
    swap_folder(new, old)
    assert [path.name for path in old.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_dataset_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, list(rollouts(50)))
    writer(run).finish()
    write(run.journal_path, [example(50), generated(50), scored(50)])
    code = """
import resource, sys
from pathlib import Path
from harness.core.errors import StoreError
from harness.store.dataset import DatasetWriter
from harness.store.rows import RowShape
from harness.store.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
except StoreError as error:
    print(error)
"""
    child = python(code, run.path)
    assert "cannot write" in child.stdout, child.stderr
    assert len(on_disk(run)) == 50
    writer(run).finish()
    assert len(on_disk(run)) == 51
    assert sorted(path.name for path in run.path.iterdir() if path.name.startswith(".")) == []


def test_a_failed_checkpoint_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, [example(0), generated(0, 0), scored(0, 0)])
    keeper = writer(run)
    keeper.catch_up()  # from here on it knows what is there
    run.data_path.write_text("in the way")
    with pytest.raises(StoreError, match="data"):
        keeper.checkpoint()
    run.data_path.unlink()
    assert keeper.checkpoint() == 1
    assert places(on_disk(run)) == [("0", 0)]


def test_one_config_a_run_and_the_newest_is_the_default(tmp_path: Path) -> None:
    runs = [finished(tmp_path, list(rollouts(n))) for n in (1, 2, 3)]
    renamed: list[RunDir] = []
    for day, run in enumerate(runs, 1):
        renamed.append(RunDir(run.path.rename(run.parent / f"2026010{day}T000000Z-aaaa")))
    rebuild_card(runs[0].parent)
    assert len(load(renamed[0], tmp_path)) == 3
    for count, run in enumerate(renamed, 1):
        assert len(load(run, tmp_path, run.id)) == count


def test_two_checkpoints_at_once_do_not_double_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, list(rollouts(200)))
    keeper = writer(run)
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(keeper.checkpoint())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(counts) == [0, 0, 0, 200]
    assert len(on_disk(run)) == 200


def test_pandas_is_not_imported_for_it(tmp_path: Path) -> None:
    """Its import costs more than a small run; pyarrow imports it on the way to most conveniences."""
    run = make_run(tmp_path / "out")
    write(run.journal_path, HORRORS)
    code = """
import sys
from pathlib import Path
from harness.store.dataset import DatasetWriter
from harness.store.rows import RowShape
assert not {"pyarrow", "pandas", "datasets", "numpy"} & set(sys.modules)
writer = DatasetWriter(Path(sys.argv[1]), RowShape("sums", "m", ("correct",), ("turn",)))
assert writer.checkpoint() == 4 and writer.finish() == 4
assert not {"pandas", "datasets"} & set(sys.modules)
"""
    child = python(code, run.path)
    assert child.returncode == 0, child.stderr


GROW = (
    PEAK
    + """
import sys
from pathlib import Path
from harness.store.dataset import DatasetWriter
from harness.store.journal_index import Recorded
from harness.store.rows import RowShape
from harness.store.score_table import tally
run = Path(sys.argv[1])
table = tally(Recorded.load(run / "journal.jsonl"))
assert len(table) == int(sys.argv[2])
writer = DatasetWriter(run, RowShape("sums", "m", ("correct",), ("turn",)))
writer.checkpoint()
writer.finish()
print(peak())
"""
)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks: dict[int, float] = {}
    for count in (2_000, 20_000):
        run = make_run(tmp_path / str(count))
        said: Messages = [{"role": "assistant", "content": "word " * 400}]
        with run.journal_path.open("wb") as file:
            from harness.store.codec import encode

            for n in range(count):
                file.write(encode(example(n)) + encode(generated(n, completion=said)) + encode(scored(n)))
        child = python(GROW, run.path, count)
        assert child.returncode == 0, child.stderr
        peaks[count] = float(child.stdout)
        assert len(on_disk(run)) == count
    assert peaks[20_000] - peaks[2_000] < 20, peaks


def test_an_example_shared_by_rollouts_is_read_for_each_of_them(tmp_path: Path) -> None:
    other = Example("other", "b", "second", index=0)
    run = finished(tmp_path, [example(0), generated(0), scored(0), other, generated(1, example_key="other"), scored(1)])
    assert [row["prompt"][-1]["content"] for row in on_disk(run)] == ["What is 0 + 1?", "second"]
    assert key("example", 0) != "other"


@pytest.mark.parametrize("what", ["a file", "a link to a folder", "a link to nowhere"])
def test_what_is_in_the_place_of_the_folder_gives_way(tmp_path: Path, what: str) -> None:
    run = make_run(tmp_path / "out")
    write(run.journal_path, list(rollouts(3)))
    elsewhere = tmp_path / "elsewhere"
    if what == "a file":
        run.data_path.write_text("mine")
    else:
        if what == "a link to a folder":
            elsewhere.mkdir()
            (elsewhere / "mine.txt").write_text("mine")
        run.data_path.symlink_to(elsewhere)
    assert writer(run).checkpoint() == 3
    writer(run).finish()
    assert len(on_disk(run)) == 3 and run.data_path.is_dir() and not run.data_path.is_symlink()
    assert not [path.name for path in run.path.iterdir() if path.name.startswith(".data")], "and nothing is left of it"
    if what == "a link to a folder":
        assert (elsewhere / "mine.txt").read_text() == "mine"
