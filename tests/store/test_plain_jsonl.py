"""JSON Lines: the dataset's columns, with every JSON value as itself."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from odd_runs import CALL, PICTURE, TOOLS, odd_run
from store_samples import example, generated, make_run, scored, write

from harness.store.export_formats import Exported
from harness.store.export_plain import stream_jsonl
from harness.store.rundir import RunDir


def jsonl_of(run: RunDir) -> tuple[Exported, list[dict[str, Any]]]:
    stream = io.BytesIO()
    exported = stream_jsonl(run, stream)
    text = stream.getvalue().decode()
    assert text.endswith("\n") or not text
    # By splitlines: a line is one also to those who break lines where Unicode does.
    return exported, [json.loads(line, parse_constant=_refuse) for line in text.splitlines()]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_a_line_is_a_rollout_with_everything_in_it(tmp_path: Path) -> None:
    run = odd_run(tmp_path)
    exported, rows = jsonl_of(run)
    assert (exported.paths, exported.rows, exported.notes) == ((), 6, ())
    assert rows[0] == {
        "example_id": "a",
        "rollout_index": 0,
        "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "What is 0 + 1?"}],
        "completion": TOOLS,
        "answer": "1",
        "task": "sums",
        "info": {"n": 0},
        "reward": 1.0,
        "correct": 1.0,
        "style": -0.25,
        "outcome": "scored",
        "error": None,
        "stop_condition": "stop",
        "is_truncated": False,
        "usage": {
            "input_tokens": 10, "output_tokens": 5, "reasoning_tokens": 0, "cached_tokens": 0, "requests": 1,
            "unreported": 0, "cost": None,
        },
        "timing": {"started_at": 1.79e9, "generation": 0.5, "model": 0.25, "waiting": 0.0, "scoring": 0.01},
        "model": "lab/m-1",
        "env_id": "sums",
        "turn": 3,
        "board": [1, "ü"],
        "run_id": run.id,
    }  # fmt: skip
    assert list(rows[0])[-1] == "run_id"
    assert rows[0]["completion"][0]["tool_calls"] == [CALL]


def test_rows_stand_in_order_and_unscored_ones_have_no_reward(tmp_path: Path) -> None:
    _, rows = jsonl_of(odd_run(tmp_path))
    assert [(r["example_id"], r["rollout_index"], r["reward"], r["outcome"], r["error"]) for r in rows] == [
        ("a", 0, 1.0, "scored", None),
        ("a", 1, -1.5, "scored", "style: ValueError: boom"),
        ("b", 0, None, "unscored", "timeout: no reply in 600 s"),
        ("b", 1, None, "unscored", "correct: judge refused: no"),
        ("c", 0, 0.0, "scored", None),
        ("c", 1, None, "unscored", "not scored"),
    ]
    assert rows[2]["completion"] == []
    assert rows[2]["prompt"] == [{"role": "user", "content": PICTURE}]
    assert (rows[4]["prompt"], rows[4]["completion"]) == (
        [{"role": "user", "content": "Once upon"}],
        [{"role": "assistant", "content": " a time"}],
    )
    assert all(list(row) == list(rows[0]) for row in rows)


def test_values_that_are_hard_to_write_survive(tmp_path: Path) -> None:
    run = make_run(tmp_path, state_columns=("big", "half"))
    said = "\u2028\u2029\x85 \ud83d\ude00 \x00 \r\n"
    lines = [example(0, example_id=7), generated(0, completion=said, state={"big": 2**70, "half": "\ud800"}), scored(0)]
    write(run.journal_path, lines)
    _, [row] = jsonl_of(run)
    assert (row["example_id"], row["big"], row["half"]) == (7, 2**70, "\ud800")
    assert row["completion"] == [{"role": "assistant", "content": "\u2028\u2029\x85 \U0001f600 \x00 \r\n"}]


def test_a_column_called_run_id_keeps_its_name(tmp_path: Path) -> None:
    run = odd_run(tmp_path, [example(0), generated(0, state={"run_id": 5}), scored(0)], state_columns=("run_id",))
    exported, [row] = jsonl_of(run)
    assert (row["run_id"], row["bench_run_id"]) == (5, run.id)
    assert exported.notes == (
        "the run has its own column 'run_id'; the additional column of this name is called 'bench_run_id'",
    )


def test_an_empty_run_is_an_empty_file(tmp_path: Path) -> None:
    exported, rows = jsonl_of(make_run(tmp_path))
    assert (exported.rows, rows) == (0, [])
