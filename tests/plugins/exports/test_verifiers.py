"""`results.jsonl` and `metadata.json` as verifiers 0.1 has them: their keys, and what becomes of all that has no place
there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from odd_runs import CALL, PICTURE, SETTINGS, odd_lines, odd_run
from store_samples import example, failed, generated, make_run, rollouts, scored, write

from harness.core.records import Record
from harness.store.export_formats import Exported, export_run, formats
from harness.store.rundir import RunDir

C_KEYS = {
    "example_id", "prompt", "completion", "answer", "info", "reward", "error", "timing", "is_completed",
    "is_truncated", "stop_condition", "metrics", "tool_defs", "token_usage", "error_chain", "long_error_chain",
}  # fmt: skip
"""Keys of a line of 0.1.14, beside metrics and state columns."""

METADATA_KEYS = {
    "env_id", "env_args", "model", "base_url", "num_examples", "rollouts_per_example", "sampling_args", "time",
    "avg_reward", "avg_metrics", "avg_error", "pass_at_k", "pass_all_k", "pass_threshold", "usage", "version_info",
    "state_columns", "tools",
}  # fmt: skip
"""Keys of `metadata.json` of 0.1.14."""


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def read(exported: Exported) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    results, metadata = exported.paths
    assert (results.name, metadata.name) == ("results.jsonl", "metadata.json")
    lines = results.read_text().split("\n")
    assert lines.pop() == ""
    return [json.loads(line, parse_constant=_refuse) for line in lines], json.loads(metadata.read_text())


def exported(run: RunDir, tmp_path: Path) -> Exported:
    return export_run(run, formats()["verifiers"], tmp_path / "vf")


def of(
    tmp_path: Path, lines: list[Record] | None = None, **manifest: Any
) -> tuple[list[dict[str, Any]], Any, Exported]:
    done = exported(odd_run(tmp_path, lines, **manifest), tmp_path)
    return *read(done), done


def test_a_line_has_the_keys_of_the_last_classic_release(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out", status="done", planned={"num_examples": 2, "rollouts_per_example": 2})
    write(run.journal_path, rollouts(2, 2))
    done = exported(run, tmp_path)
    rows, metadata = read(done)
    assert (done.rows, done.notes) == (4, ())
    assert all(set(row) == {*C_KEYS, "task", "correct", "turn"} for row in rows)
    assert [(row["example_id"], row["reward"]) for row in rows] == [(0, 0.0), (0, 0.0), (1, 1.0), (1, 1.0)]
    assert rows[3] == {
        "example_id": 1,
        "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "What is 1 + 1?"}],
        "completion": [{"role": "assistant", "content": "#### 2"}],
        "answer": "2",
        "info": {"n": 1},
        "task": "sums",
        "reward": 1.0,
        "error": None,
        "timing": {
            "start_time": 1.79e9,
            "setup": {"start": 1.79e9, "end": 1.79e9, "duration": 0.0},
            "generation": {"start": 1.79e9, "end": 1.79e9 + 0.5, "duration": 0.5},
            "scoring": {"start": 1.79e9 + 0.5, "end": 1.79e9 + 0.51, "duration": 0.01},
            "model": {"spans": [], "duration": 0.25},
            "env": {"spans": [], "duration": 0.0},
            "total": 0.51,
            "overhead": 0.25,
        },
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "stop",
        "metrics": {"correct": 1.0},
        "tool_defs": None,
        "token_usage": {"input_tokens": 10.0, "output_tokens": 5.0},
        "error_chain": None,
        "long_error_chain": None,
        "correct": 1.0,
        "turn": 1,
    }
    assert set(metadata) == {*METADATA_KEYS, "date", "time_ms", "bench"}
    assert (metadata["num_examples"], metadata["rollouts_per_example"], metadata["avg_reward"]) == (2, 2, 0.5)
    assert (metadata["avg_metrics"], metadata["avg_error"]) == ({"correct": 0.5}, 0.0)
    assert (metadata["pass_at_k"], metadata["pass_all_k"]) == ({"1": 0.5, "2": 0.5}, {"1": 0.5, "2": 0.5})


def test_a_rollout_without_a_score_has_null_and_says_why(tmp_path: Path) -> None:
    rows, metadata, done = of(tmp_path)
    assert [(row["reward"], row["is_completed"]) for row in rows] == [
        (1.0, True), (-1.5, True), (None, False), (None, True), (0.0, True), (None, True),
    ]  # fmt: skip
    assert [row["error"] and row["error"]["error"] for row in rows] == [
        None, None, "timeout", "correct judge refused", None, "not scored",
    ]  # fmt: skip
    told = {"error": "timeout", "error_chain_repr": "timeout: no reply in 600 s"}
    assert rows[2]["error"] == {**told, "error_chain_str": "timeout: no reply in 600 s"}
    assert (rows[2]["error_chain"], rows[2]["completion"]) == ("timeout: no reply in 600 s", [])
    assert rows[3]["metrics"] == {"correct": None, "style": 0.5}
    assert (rows[3]["correct"], rows[3]["style"]) == (None, 0.5)
    assert (metadata["avg_error"], metadata["bench"]["rollouts"]) == (0.5, 6)
    assert metadata["bench"]["unscored"] == {"timeout": 1, "correct judge refused": 1, "not scored": 1}
    assert metadata["avg_reward"] == -0.125  # examples a: -0.25, c: 0.0
    assert metadata["usage"] == {"input_tokens": 10.0, "output_tokens": 5.0}
    assert rows[1]["token_usage"] is None
    assert done.notes[0].startswith("3 of 6 rollouts have no score: their reward is null")


def test_messages_are_whole_but_for_tool_calls_as_texts(tmp_path: Path) -> None:
    rows, _, _ = of(tmp_path)
    assert rows[0]["completion"][0] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "One needs a sum.",
        "tool_calls": [json.dumps(CALL, separators=(",", ":"))],
    }
    assert rows[0]["completion"][1] == {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "2"}
    assert rows[2]["prompt"] == [{"role": "user", "content": PICTURE}]
    assert (rows[4]["prompt"], rows[4]["completion"]) == ("Once upon", " a time")


def test_settings_and_state_columns_are_told(tmp_path: Path) -> None:
    rows, metadata, done = of(tmp_path)
    assert (metadata["env_args"], metadata["sampling_args"]) == (
        SETTINGS["env.env_args"],
        SETTINGS["model.sampling_args"],
    )
    assert (metadata["base_url"], metadata["pass_threshold"]) == (SETTINGS["model.api_base_url"], 0.5)
    assert (metadata["date"], metadata["model"], metadata["env_id"]) == (
        "2026-11-21T09:15:03.000000Z", "lab/m-1", "sums",
    )  # fmt: skip
    assert metadata["state_columns"] == ["turn", "board"]
    assert [(row["turn"], row["board"]) for row in rows[:4]] == [
        (3, [1, "ü"]), (1, None), (None, None), (-1, {"x": "=1"}),
    ]  # fmt: skip
    assert metadata["bench"]["run"] == next((tmp_path / "evals").glob("*/*/run.json")).parent.name
    assert done.paths[0].parent == tmp_path / "vf"


def test_ids_that_are_no_integers_are_numbered_as_classic_datasets_are(tmp_path: Path) -> None:
    rows, _, done = of(tmp_path)
    assert [(row["example_id"], row["src_id"]) for row in rows[::2]] == [(0, "a"), (1, "b"), (2, "c")]
    assert done.notes[-1] == (
        "this format requires an integer example_id, so it is the number in the run; src_id is the original id"
    )


def test_an_id_that_two_examples_have_does_not_make_one_of_them(tmp_path: Path) -> None:
    lines: list[Record] = []
    for index in range(2):
        lines += [example(index, example_id=5), generated(index), scored(index)]
    rows, _, _ = of(tmp_path, lines)
    assert [(row["example_id"], row["src_id"]) for row in rows] == [(0, 5), (1, 5)]


def test_integers_that_are_ids_stay(tmp_path: Path) -> None:
    lines = [example(0, example_id=40, answer="", info={}, task=""), generated(0), scored(0)]
    rows, _, _ = of(tmp_path, lines)
    assert rows[0]["example_id"] == 40
    assert not {"src_id", "answer", "info", "task"} & set(rows[0])


def test_metrics_and_state_columns_named_like_a_key_overwrite_nothing(tmp_path: Path) -> None:
    lines = [
        example(0),
        generated(0, state={"error_chain": "mine", "turn": 2}),
        scored(0, 0, 1.0, metrics={"token_usage": 9.0, "is_completed": 0.0}),
    ]
    names = {"metric_names": ("token_usage", "is_completed"), "state_columns": ("error_chain", "turn")}
    [row], metadata, done = of(tmp_path, lines, **names, planned={"num_examples": 1, "rollouts_per_example": 1})
    assert (row["token_usage"], row["is_completed"]) == ({"input_tokens": 10.0, "output_tokens": 5.0}, True)
    assert row["metrics"] == {"token_usage": 9.0, "is_completed": 0.0}
    assert (row["error_chain"], row["state_error_chain"], row["turn"]) == (None, "mine", 2)
    assert metadata["state_columns"] == ["state_error_chain", "turn"]
    assert done.notes == (
        "metric 'token_usage' has the name of a format key, so it is only in `metrics`",
        "metric 'is_completed' has the name of a format key, so it is only in `metrics`",
        "state column 'error_chain' has the name of a format key, so it is renamed to 'state_error_chain'",
    )


def test_a_run_without_one_score_has_no_average(tmp_path: Path) -> None:
    rows, metadata, _ = of(tmp_path, [example(0), failed(0, completion=[{"role": "assistant", "content": "So"}])])
    assert rows[0]["completion"] == [{"role": "assistant", "content": "So"}]
    assert (metadata["avg_reward"], metadata["avg_error"], metadata["usage"]) == (None, 1.0, None)


def test_the_time_of_the_run_is_that_of_its_summary(tmp_path: Path) -> None:
    run = odd_run(tmp_path / "outputs", versions={"sums": "0.2.0"}, reward_range=(0.0, None))
    _, before = read(export_run(run, formats()["verifiers"], tmp_path / "before"))
    run.write_summary({"wall_s": 2.5})
    _, after = read(export_run(run, formats()["verifiers"], tmp_path / "after"))
    assert [(told["time"], told["time_ms"]) for told in (before, after)] == [(None, None), (2.5, 2500.0)]
    assert after["version_info"]["env_version"] == "0.2.0"


def test_a_line_is_one_to_every_reader(tmp_path: Path) -> None:
    said = "a\u2028b\u2029c\x85d\x0b\x0c\x1ce\ud800"
    done = exported(odd_run(tmp_path, [example(0), generated(0, completion=said), scored(0)]), tmp_path)
    [line] = done.paths[0].read_text().splitlines()
    assert json.loads(line)["completion"] == said.replace("\ud800", "\ufffd")


def test_an_empty_run_is_two_valid_files(tmp_path: Path) -> None:
    rows, metadata = read(exported(make_run(tmp_path / "out"), tmp_path))
    assert rows == []
    assert (metadata["avg_reward"], metadata["avg_error"], metadata["bench"]["rollouts"]) == (None, None, 0)


def test_every_line_of_the_odd_run_has_the_same_keys(tmp_path: Path) -> None:
    rows, _, _ = of(tmp_path, odd_lines())
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
