"""Records on disk: layout, what is left out, an index that many processes write, reading back, and failures that cost
no result."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

import pytest
from bench_runs import until
from tables import for_each_row

from harness.core.errors import ConfigError, StoreError
from harness.core.types import JsonDict
from harness.multi import EvaluationResult, evaluate, list_runs, load_run
from harness.multi.document import Started, result_document
from harness.multi.options import Persist
from harness.multi.persist import find_entry, list_records, load_record, save_record
from harness.multi.results import RunRecord

RECORDS = Path(".memory") / "multi-model-eval"

TASKS: list[JsonDict] = [{"prompt": "a", "expected": "yes", "matchMode": "exact"}, {"id": "b", "prompt": "b"}]
MODELS: list[JsonDict] = [{"id": "good", "modelId": "reference/oracle"}, {"id": "bad", "modelId": "reference/null"}]


def stored(**options: Any) -> EvaluationResult:
    return asyncio.run(evaluate(TASKS, MODELS, **{"persist": True, **options}))


def record_of(run_id: str, **changes: Any) -> RunRecord:
    """A small one."""
    result = result_document(Started(run_id, 1, 1, at=1), [], {}, finished_at=2)
    values: JsonDict = {**result, "tasks": [], "modelConfigs": [], "options": {}, "persistedAt": "2026-01-01"}
    del values["persist"]
    return RunRecord(**{**values, **changes})


def test_the_layout_is_the_documented_one(workplace: Path) -> None:
    result = stored(timeoutMs=5000, run_id="mine")
    path = RECORDS / "mine.json"
    assert result["persist"] == {"enabled": True, "stored": True, "path": str(path), "reason": None}
    assert sorted(each.name for each in RECORDS.iterdir()) == [".index.lock", "index.jsonl", "mine.json"]
    text = path.read_text()
    record = json.loads(text)
    assert text.startswith('{\n  "runId": "mine",\n')
    assert list(record) == [
        "runId", "startedAt", "finishedAt", "durationMs", "totals", "summary", "models", "tasks", "modelConfigs",
        "options", "persistedAt", "meta",
    ]  # fmt: skip
    assert record["tasks"] == [{"id": "task-0", **TASKS[0]}, TASKS[1]]
    assert record["modelConfigs"] == MODELS
    assert record["options"] == {"timeoutMs": 5000, "runId": "mine"}
    assert record["persistedAt"].endswith("Z")
    assert {name: record[name] for name in ("summary", "models", "totals", "durationMs")} == {
        name: result[name] for name in ("summary", "models", "totals", "durationMs")
    }
    [line] = (RECORDS / "index.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert list(entry) == ["runId", "createdAt", "path", "totals", "summary"]
    assert (entry["runId"], entry["path"], entry["createdAt"]) == ("mine", str(path), record["persistedAt"])
    assert [list(each)[:8] for each in entry["summary"]] == [list(each)[:8] for each in result["summary"]]
    assert list((RECORDS / "index.jsonl").read_bytes()[-1:]) == [10]


@for_each_row(
    ("option", "empty"),
    [
        ("includeInputs", {"tasks": [], "modelConfigs": []}),
        ("includeOutputs", {"models": []}),
        ("includeOptions", {"options": {}}),
    ],
)
def test_what_is_left_out_is_empty(option: str, empty: JsonDict) -> None:
    result = stored(persist={option: False}, matchMode="exact")
    record: Any = asyncio.run(load_run(result["runId"]))
    nothing = {name: record[name] for name in ("tasks", "modelConfigs", "models", "options") if not record[name]}
    assert nothing == empty
    assert len(record["summary"]) == 2


def test_a_path_of_its_own_loads_back_from_anywhere(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = stored(persist={"path": "mine/record.json"}, persist_dir="records")
    assert result["persist"].get("path") == str(workplace / "mine" / "record.json")
    assert sorted(each.name for each in Path("records").iterdir()) == [".index.lock", "index.jsonl"]
    (workplace / "elsewhere").mkdir()
    monkeypatch.chdir(workplace / "elsewhere")
    record = asyncio.run(load_run(result["runId"], persist_dir=workplace / "records"))
    assert record is not None
    assert record["runId"] == result["runId"]


def test_a_path_that_was_used_again_is_not_taken_for_the_former_evaluation() -> None:
    first, second = (stored(persist={"path": "mine.json"}, run_id=name) for name in ("first", "second"))
    assert (first["runId"], second["runId"]) == ("first", "second")
    record = asyncio.run(load_run("second"))
    assert record is not None and record["runId"] == "second"
    with pytest.raises(StoreError, match=r"^first is no longer stored: second has replaced it in \S+mine\.json"):
        asyncio.run(load_run("first"))


def test_a_folder_of_records_may_be_moved(workplace: Path) -> None:
    result = stored(persist_dir="records")
    (workplace / "records").rename(workplace / "moved")
    assert asyncio.run(load_run(result["runId"], persist_dir="moved")) is not None
    assert asyncio.run(load_run(result["runId"], persist_dir="records")) is None


def test_a_record_without_an_index_loads_by_its_id() -> None:
    result = stored()
    (RECORDS / "index.jsonl").unlink()
    assert asyncio.run(load_run(result["runId"])) is not None
    assert asyncio.run(list_runs()) == []


def test_the_list_is_the_newest_the_oldest_of_them_first(workplace: Path) -> None:
    for number in range(30):
        save_record(record_of(f"run-{number:02d}"), Persist())
    index = RECORDS / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(
        b"".join(
            [
                *lines[:29],
                b'{"torn": \n',
                b"[]\n",
                b'{"runId": 5, "path": "x"}\n',
                b'{"runId": "x", "path": "x"}\n',
                b"\xff\n",
                lines[29],
            ]
        )
    )

    def listed(limit: int) -> list[str]:
        return [entry["runId"] for entry in list_records(limit)]

    every = [f"run-{number:02d}" for number in range(30)]
    assert [entry["runId"] for entry in asyncio.run(list_runs())] == every[-25:]
    assert (listed(0), listed(3), listed(1), listed(99)) == (every, every[-3:], every[-1:], every)
    for limit in (-1, 2.5, True, "5", None):
        with pytest.raises(ConfigError, match=r"^limit = .+: must be 0 \(all\) or a positive integer$"):
            list_records(cast(int, limit))
    assert asyncio.run(list_runs(persist_dir="none")) == []


def test_a_record_is_named_by_id_by_the_beginning_of_one_or_latest() -> None:
    for run_id in ("abc", "abd", "xyz", "abc"):
        save_record(record_of(run_id, durationMs=len(list_records(0))), Persist())

    def found(name: str) -> tuple[str, int] | None:
        record = load_record(name)
        return None if record is None else (record["runId"], record["durationMs"])

    assert (found("x"), found("latest"), found("abc"), found("abd")) == (("xyz", 2), ("abc", 3), ("abc", 3), ("abd", 1))
    assert (found("ab"), found("zz"), found(""), found("../abc"), found(str(RECORDS / "abc"))) == (None,) * 5
    assert find_entry("latest", "none") is None


def test_a_damaged_record_is_said_to_be_one() -> None:
    save_record(record_of("broken"), Persist())
    for text, words in (
        ("{", "not JSON"),
        ("[]", "it is not an evaluation record"),
        ("{}", "it is not an evaluation record"),
    ):
        (RECORDS / "broken.json").write_text(text)
        with pytest.raises(StoreError, match=rf"broken\.json: {words}"):
            load_record("broken")


def test_an_unwritable_folder_costs_no_result(workplace: Path) -> None:
    (workplace / ".memory").write_text("a file")
    result = stored()
    status = result["persist"]
    assert (status["enabled"], status.get("stored")) == (True, False)
    assert status.get("reason") == "Failed to prepare run directory"
    assert "multi-model-eval" in str(status.get("detail"))
    assert len(result["models"]) == 2


def test_a_record_that_cannot_be_written_costs_no_result(workplace: Path) -> None:
    (workplace / "taken").mkdir()
    status = stored(persist={"path": "taken"})["persist"]
    assert (status.get("stored"), status.get("reason"), status.get("path")) == (
        False, "Persist failed", str(workplace / "taken"),
    )  # fmt: skip
    assert "is a folder" in str(status.get("detail"))
    assert list_records(0) == []


def test_text_of_half_a_character_is_stored(workplace: Path) -> None:
    status = save_record(record_of("odd", options={"note": "\ud800", "big": 2**70}), Persist())
    assert status.get("stored") is True
    record: Any = load_record("odd")
    assert record["options"] == {"note": "\ud800", "big": 2**70}


def test_what_merely_looks_like_a_key_is_data(workplace: Path) -> None:
    prompt = "Which provider gives keys such as sk-abcdefghijklmnop1234567?"
    result = asyncio.run(evaluate([{"prompt": prompt}], ["reference/echo"], persist=True))
    record: Any = load_record(result["runId"])
    assert record["tasks"][0]["prompt"] == record["models"][0]["results"][0]["output"] == prompt


def test_a_line_that_a_dying_process_left_unfinished_spoils_no_other() -> None:
    save_record(record_of("first"), Persist())
    with (RECORDS / "index.jsonl").open("ab") as file:
        file.write(b'{"runId": "torn", "pa')
    save_record(record_of("second"), Persist())
    assert [entry["runId"] for entry in list_records(0)] == ["first", "second"]


WRITER = textwrap.dedent("""
    import sys
    sys.path[:0] = [sys.argv[3]]
    from test_persist_parts import record_of
    from harness.multi.options import Persist
    from harness.multi.persist import save_record
    name, number = sys.argv[1], int(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(number):
        status = save_record(record_of(f"{name}-{n}", "x" * 5000), Persist())
        assert status["stored"], status
""")
PARTS = textwrap.dedent("""
    from harness.multi.document import Started, result_document

    def record_of(run_id, filling):
        result = result_document(Started(run_id, 1, 1), [], {"filling": filling})
        summary = [{"modelId": filling, "total": 0}]
        return {**result, "summary": summary, "tasks": [], "modelConfigs": [], "options": {}, "persistedAt": ""}
""")


@pytest.mark.slow
def test_processes_that_write_at_once_lose_no_line(workplace: Path) -> None:
    """Four processes, forty records each with a long line, all begun together: 160 whole lines."""
    (workplace / "test_persist_parts.py").write_text(PARTS)
    names, number = "abcd", 40
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(number), str(workplace)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=workplace,
        )
        for name in names
    ]  # fmt: skip
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            writer.communicate(timeout=90)
        assert [writer.returncode for writer in writers] == [0] * len(names)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    lines = (RECORDS / "index.jsonl").read_bytes().splitlines()
    ids = [json.loads(line)["runId"] for line in lines]
    assert sorted(ids) == sorted(f"{name}-{n}" for name in names for n in range(number))
    for name in names:  # each process's own lines are in its order
        assert [each for each in ids if each.startswith(name)] == [f"{name}-{n}" for n in range(number)]
    assert len(list(RECORDS.glob("?-*.json"))) == len(names) * number


HOLDER = """
import sys, time
from pathlib import Path
from harness.store.rundir import RunLock
lock = RunLock.take(Path(sys.argv[1]), "x")
print("held", flush=True)
time.sleep(600)
"""


def test_a_process_that_is_killed_while_it_holds_the_index_locks_nobody_out(workplace: Path) -> None:
    (workplace / "test_persist_parts.py").write_text(PARTS)
    RECORDS.mkdir(parents=True)
    lock = str(RECORDS / ".index.lock")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE, text=True)
    command = [sys.executable, "-c", WRITER, "patient", "1", str(workplace)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
        until(lambda: (RECORDS / "patient-0.json").exists(), "the record is written")
        assert (list_records(0), writer.poll()) == ([], None)
        holder.send_signal(signal.SIGKILL)
        writer.communicate(timeout=90)
        assert writer.returncode == 0
    finally:
        for process in (holder, writer):
            process.kill()
            process.communicate()
    assert [entry["runId"] for entry in list_records(0)] == ["patient-0"]
