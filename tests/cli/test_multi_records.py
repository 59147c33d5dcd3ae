"""`bench multi runs`, `show` and `replay`: evaluations that were stored, seen and made again."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from multi_evals import Multi

PLACE = ".memory/multi-model-eval"


def persisted(multi: Multi, *args: str) -> dict[str, Any]:
    return multi.json("--persist", *args)


def record_of(multi: Multi, run_id: str) -> dict[str, Any]:
    return json.loads((multi.cwd / PLACE / f"{run_id}.json").read_text())


def test_a_record_has_the_documented_keys_and_its_line_in_the_index(multi: Multi) -> None:
    result = persisted(multi, "--length-target", "100")
    assert result["persist"] == {
        "enabled": True, "stored": True, "path": f"{PLACE}/{result['runId']}.json", "reason": None,
    }  # fmt: skip
    record = record_of(multi, result["runId"])
    documented = [
        "runId", "startedAt", "finishedAt", "durationMs", "totals", "summary", "models", "tasks", "modelConfigs",
        "options", "persistedAt",
    ]  # fmt: skip
    assert list(record)[: len(documented)] == documented
    assert record["models"] == result["models"] and record["summary"] == result["summary"]
    assert record["tasks"][1] == {"id": "sum-1", "prompt": "12 + 12", "expected": "24", "matchMode": "exact"}
    assert record["options"] == {"lengthTarget": 100.0}
    [line] = (multi.cwd / PLACE / "index.jsonl").read_text().splitlines()
    assert list(json.loads(line)) == ["runId", "createdAt", "path", "totals", "summary"]


@pytest.mark.parametrize(
    ("option", "key", "empty"),
    [
        ("--no-include-inputs", "tasks", []),
        ("--no-include-inputs", "modelConfigs", []),
        ("--no-include-outputs", "models", []),
        ("--no-include-options", "options", {}),
    ],
)
def test_what_is_not_to_be_stored_is_empty(multi: Multi, option: str, key: str, empty: object) -> None:
    result = persisted(multi, "--match-mode", "exact", option)
    others = {"tasks", "modelConfigs", "models", "options"} - {
        key,
        "tasks" if key == "modelConfigs" else "modelConfigs",
    }
    record = record_of(multi, result["runId"])
    assert record[key] == empty
    assert key in ("tasks", "modelConfigs") or all(record[other] for other in others)


def test_records_are_listed_the_newest_last(multi: Multi) -> None:
    none = multi.bench("multi", "runs")
    assert (none.code, none.out) == (0, "")
    assert none.err == f"no records in {PLACE}: `bench multi TASKS MODELS --persist` stores one\n"
    ids = [persisted(multi)["runId"] for _ in range(3)]
    lines = multi.bench("multi", "runs").out.splitlines()
    assert lines[0].split() == ["record", "when", "tasks", "models", "best"]
    assert [line.split()[0] for line in lines[2:]] == ids
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", " ".join(lines[2].split()[1:3]))
    assert lines[2].split()[3:] == ["6", "2", "strong", "0.701"]
    assert [each["runId"] for each in json.loads(multi.bench("multi", "runs", "-n", "2", "--json").out)] == ids[1:]
    assert len(json.loads(multi.bench("multi", "runs", "--limit", "0", "--json").out)) == 3
    refused = multi.bench("multi", "runs", "-n", "-1")
    assert (refused.code, refused.err) == (2, "error: --limit must be >= 0.\n")


def test_a_record_is_shown_as_its_evaluation_ended(multi: Multi) -> None:
    ended = multi.multi("--persist")
    shown = multi.bench("multi", "show", "latest")
    assert shown.code == 0
    table = ended.out.splitlines()[1 : ended.out.splitlines().index("Run folders") - 1]
    assert shown.out.splitlines()[1 : len(table) + 1] == table
    [record] = (multi.cwd / PLACE).glob("mmeval_*.json")
    assert shown.out.startswith(f"{record.stem}: 2 models on 6 tasks, ")
    assert json.loads(multi.bench("multi", "show", record.stem, "--json").out) == json.loads(record.read_text())
    assert multi.bench("multi", "show", record.stem[:14]).out == shown.out, "the beginning of an id will do"


def test_a_record_with_failures_tells_them_apart_from_low_scores(multi: Multi) -> None:
    multi.multi("--persist", "--score-output", "scoring:strict")
    shown = multi.bench("multi", "show", "latest").out
    assert "one without a score counts 0" in shown
    assert "  weak: failed 1 of 6; e.g. sum-1: " in shown and "KeyError" in shown


def test_a_record_without_outputs_shows_its_averages(multi: Multi) -> None:
    persisted(multi, "--no-include-outputs")
    lines = multi.bench("multi", "show", "latest").out.splitlines()
    assert "note: stored without outputs: only the averages are known" in lines
    [weak] = [line.split() for line in lines if line.startswith("weak")]
    assert weak[1:4] == ["0.503", "50", "%"] and weak[-2:] == ["0", "6"]


def test_a_record_that_another_program_wrote_is_shown_as_far_as_it_goes(multi: Multi) -> None:
    summary = {"modelId": "m", "total": 2, "successRate": 0.5, "avgScore": 0.35, "avgLatencyMs": 20, "avgTokens": 1,
               "errorCount": 1, "aborted": False}  # fmt: skip
    good = {"taskId": "a", "modelId": "m", "output": "hi", "score": 0.7, "valid": True, "errors": [], "durationMs": 30,
            "tokens": 2}  # fmt: skip
    late = {
        **good,
        "taskId": "b",
        "output": "",
        "score": 0,
        "valid": False,
        "error": "timeout after 5ms",
        "timeout": True,
    }
    record = {
        "runId": "mmeval_foreign", "startedAt": 1, "finishedAt": 2, "durationMs": 1, "options": {}, "tasks": [],
        "totals": {"tasks": 2, "models": 1, "totalRuns": 2}, "summary": [summary], "modelConfigs": [],
        "models": [{"modelId": "m", "results": [good, late], "summary": summary}], "persistedAt": "1970",
    }  # fmt: skip
    (multi.cwd / PLACE).mkdir(parents=True)
    (multi.cwd / PLACE / "mmeval_foreign.json").write_text(json.dumps(record))
    shown = multi.bench("multi", "show", "mmeval_foreign")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "mmeval_foreign: 1 model on 2 tasks, 1970-01-01 00:00 UTC, in 0.0 s"
    assert lines[4].split()[:4] == ["m", "0.350", "50", "%"]
    assert lines[-1] == "  m: timeout 1 of 2; e.g. b: timeout after 5ms"


def test_a_replay_asks_the_same_again(multi: Multi) -> None:
    first = persisted(multi, "--length-target", "10")
    (multi.cwd / "sums.json").unlink()
    (multi.cwd / "models.toml").unlink()
    before = len(multi.asked())
    done = multi.bench("multi", "replay", first["runId"], "--json")
    assert done.code == 0, done.err
    again = json.loads(done.out)
    assert again["runId"].startswith("mmeval_replay_") and again["meta"]["replayOf"] == first["runId"]
    assert len(multi.asked()) - before == 12
    scores = [[each["score"] for each in model["results"]] for model in first["models"]]
    assert [[each["score"] for each in model["results"]] for model in again["models"]] == scores
    assert again["persist"] == {"enabled": False}
    assert len(multi.bench("multi", "runs", "--json").out.splitlines()) > 0
    assert len(json.loads(multi.bench("multi", "runs", "--json").out)) == 1, "a replay is not stored unless asked to"


def test_a_replay_may_differ_in_options_and_models(multi: Multi) -> None:
    persisted(multi, "--length-target", "10")
    done = multi.bench("multi", "replay", "latest", "--length-target", "-1", "--persist", "--json", "-m", "weak",
                       "-b", multi.model.url)  # fmt: skip
    assert done.code == 0, done.err
    again = json.loads(done.out)
    [weak] = again["models"]
    assert [each["score"] for each in weak["results"]] == pytest.approx([0.7, 0.3] * 3)
    assert record_of(multi, again["runId"])["options"] == {"lengthTarget": -1.0, "runId": again["runId"]}
    assert multi.bench("multi", "show", "latest").out.startswith(again["runId"])


def test_an_interrupted_replay_is_resumed_like_any_evaluation(multi: Multi) -> None:
    persisted(multi)
    first = multi.bench("multi", "replay", "latest")
    assert first.code == 0, first.err
    before = len(multi.asked())
    again = multi.bench("multi", "replay", "latest", "--resume")
    assert again.code == 0 and "12 of them earlier" in again.out
    assert len(multi.asked()) == before


def test_the_shown_replay_command_works(multi: Multi) -> None:
    done = multi.multi("--persist-dir", "records of mine")
    [shown] = [line.strip() for line in done.out.splitlines() if "again: " in line]
    words = shlex.split(shown.removeprefix("again: "))
    assert words[:3] == ["bench", "multi", "replay"] and words[-2:] == ["--persist-dir", "records of mine"]
    assert multi.bench(*words[1:], "--no-save").code == 0


def test_a_replay_without_its_function_says_so(multi: Multi) -> None:
    run_id = persisted(multi, "--score-output", "scoring:words")["runId"]
    plain = multi.bench("multi", "replay", "latest", "--json")
    assert plain.code == 0
    assert plain.err.splitlines()[0] == (
        f"note: {run_id} was scored by scoring:words, this replay is scored by the documented formula; "
        "to score the replay in the same way, add --score-output scoring:words"
    )
    assert "score_output" not in plain.err
    same = multi.bench("multi", "replay", "latest", "--json", "--score-output", "scoring:words")
    assert [each["score"] for each in json.loads(same.out)["models"][1]["results"]] == [1.0, 2.0] * 3
    assert "was scored by" not in same.err


@pytest.mark.parametrize("command", ["show", "replay"])
def test_a_record_that_is_not_there_is_refused_with_what_is(multi: Multi, command: str) -> None:
    none = multi.bench("multi", command, "mmeval_x")
    assert none.code == 2
    assert none.err.startswith("error: MultiModelEvaluator run not found: mmeval_x; no records in ")
    ids = [persisted(multi)["runId"] for _ in range(2)]
    typo = multi.bench("multi", command, ids[0][:-1] + "-")
    assert typo.code == 2 and f'did you mean "{ids[0]}"?' in typo.err
    many = multi.bench("multi", command, "mmeval_")
    assert "2 ids begin with this text; give more characters" in many.err
    outside = multi.bench("multi", command, "../../etc/passwd")
    assert outside.code == 2 and "run not found" in outside.err


def test_a_record_without_inputs_cannot_be_replayed(multi: Multi) -> None:
    result = persisted(multi, "--no-include-inputs")
    done = multi.bench("multi", "replay", "latest")
    assert done.code == 2
    assert done.err == f"error: MultiModelEvaluator replay missing inputs: {result['runId']}\n"


def test_a_record_that_is_damaged_is_refused_by_name(multi: Multi) -> None:
    result = persisted(multi)
    (multi.cwd / PLACE / f"{result['runId']}.json").write_text("{")
    done = multi.bench("multi", "show", "latest")
    assert done.code != 0 and f"{result['runId']}.json: not JSON" in done.err and "Traceback" not in done.err
