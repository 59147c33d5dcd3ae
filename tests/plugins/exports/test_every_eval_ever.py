"""Records of Every Eval Ever: checked by its own validator and its own schemas, and one by one for what they say."""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import store_samples as samples
import strange_runs
from exported_runs import exported_runs
from reader_env import reader, reader_python
from strange_runs import BREAKS, HUGE, strange_run

from harness.plugins.exports.every_eval_ever import write
from harness.plugins.exports.every_eval_ever_records import sample_hash
from harness.store.rundir import RunDir

SCHEMAS = """
import json
from every_eval_ever.schema import get_schema_version, schema_json
print(json.dumps([get_schema_version(), schema_json(), schema_json("instance_level_eval.schema.json")]))
"""


@dataclass(frozen=True)
class Record:
    """An export, read back."""

    folder: Path
    notes: tuple[str, ...]
    rows: int

    @property
    def files(self) -> list[Path]:
        """Both files, the aggregate first."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    @property
    def aggregate(self) -> dict[str, Any]:
        return json.loads(self.files[0].read_text())

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[1].read_text().splitlines()]

    def line(self, sample_id: str, rollout: int = 0, **metadata: str) -> dict[str, Any]:
        """The only line of one rollout."""
        wanted = {"rollout_index": str(rollout), **metadata}
        [found] = [
            line for line in self.lines
            if line["sample_id"] == sample_id and wanted.items() <= line["metadata"].items()
        ]  # fmt: skip
        return found

    def result(self, name: str) -> dict[str, Any]:
        """The only aggregate result of that name."""
        [found] = [r for r in self.aggregate["evaluation_results"] if r["metric_config"]["metric_name"] == name]
        return found


def export(run: RunDir, folder: Path) -> Record:
    exported = write(run, folder)
    record = Record(folder, exported.notes, exported.rows)
    assert sorted(exported.paths) == record.files
    return record


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    folder = tmp_path_factory.mktemp("odd")
    return export(strange_run(folder / "outputs"), folder / "record")


# Its own validator


@dataclass(frozen=True)
class Judged:
    """Records of runs of every kind, and what the project's own code says of them."""

    records: dict[str, Record]
    reports: dict[str, list[dict[str, Any]]]
    code: int
    schemas: list[Any]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, record: Record) -> Judged:
    reader_python()
    folder = tmp_path_factory.mktemp("records")
    runs = exported_runs(folder / "shop")
    unscored = samples.make_run(folder / "more", env_id="NUL", model="a:b/c?d/e.", reward_range=(-math.inf, math.inf))
    samples.write(unscored.journal_path, [samples.example(), samples.failed(), samples.generated(0, 1)])
    runs |= {"unscored": unscored, "empty": samples.make_run(folder / "more", env_id="data", model="gpt-x")}
    records = {"odd": record} | {name: export(run, folder / name) for name, run in runs.items()}
    files = [file for each in records.values() for file in each.files]
    done = reader("-m", "every_eval_ever", "validate", "--format", "json", *files, cwd=folder)
    reports = {name: [] for name in records}
    for file, report in zip(files, json.loads(done.stdout), strict=True):
        reports[next(name for name, each in records.items() if each.folder in file.parents)].append(report)
    told = reader("-c", SCHEMAS, cwd=folder)
    assert told.returncode == 0, told.stderr
    return Judged(records, reports, done.returncode, json.loads(told.stdout))


@pytest.mark.slow
def test_the_validator_accepts_the_records_of_every_run(judged: Judged) -> None:
    assert {
        name: [len(reports), [r["errors"] for r in reports if r["errors"]]] for name, reports in judged.reports.items()
    } == {name: [1 if name == "empty" else 2, []] for name in judged.records}
    warned = {name: w["msg"] for name, reports in judged.reports.items() for r in reports for w in r["warnings"]}
    assert list(warned) == ["empty"] and "developer" in warned["empty"]  # who made gpt-x is not known
    assert judged.code == 2
    counts = {name: reports[-1]["line_count"] for name, reports in judged.reports.items()}
    assert counts == {
        "odd": strange_runs.ROLLOUTS, "run": 6, "group": 12, "agent": 40, "multi": 8, "unscored": 2, "empty": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_the_schemas_accept_them_too_where_the_validator_is_lenient(judged: Judged) -> None:
    version, aggregate, instance = judged.schemas
    assert version == "0.3.0"
    checks = jsonschema.Draft7Validator(aggregate), jsonschema.Draft7Validator(instance)
    for name, each in judged.records.items():
        assert each.aggregate["schema_version"] == version
        assert [error.message for error in checks[0].iter_errors(each.aggregate)] == [], name
        for line in each.lines if len(each.files) > 1 else []:
            assert [error.message for error in checks[1].iter_errors(line)] == [], name


@pytest.mark.slow
def test_the_schema_would_have_found_a_fault(judged: Judged) -> None:
    document = judged.records["odd"].aggregate
    document["source_metadata"]["additional_details"]["status"] = 1
    assert not jsonschema.Draft7Validator(judged.schemas[1]).is_valid(document)


@pytest.mark.slow
def test_runs_of_every_kind_keep_their_turns_and_scores(judged: Judged) -> None:
    kinds = {
        name: {line["interaction_type"] for line in judged.records[name].lines} for name in ("run", "group", "agent")
    }
    assert kinds == {"run": {"single_turn"}, "group": {"single_turn"}, "agent": {"single_turn"}}
    assert judged.records["group"].result("reward")["score_details"]["score"] == 1.0
    assert judged.records["group"].result("place")["score_details"]["score"] == 1.0
    assert judged.records["multi"].aggregate["source_metadata"]["additional_details"]["kind"] == "multi"
    for name in ("group", "agent"):
        assert all(line["evaluation"]["is_correct"] for line in judged.records[name].lines)


# What the aggregate says


def test_files_lie_where_the_datastore_wants_them(record: Record) -> None:
    aggregate, lines = (path.relative_to(record.folder) for path in record.files)
    mark = aggregate.stem
    assert uuid.UUID(mark).version == 4 and str(uuid.UUID(mark)) == mark
    assert str(aggregate) == f"data/odd/lab/m-1/{mark}.json"
    detail = record.aggregate["detailed_evaluation_results"]
    assert str(lines) == detail["file_path"] == f"data/odd/lab/m-1/{mark}_samples.jsonl"
    data = record.files[1].read_bytes()
    assert (detail["checksum"], detail["hash_algorithm"]) == (hashlib.sha256(data).hexdigest(), "sha256")
    assert detail["total_rows"] == record.rows == len(data.splitlines()) == strange_runs.ROLLOUTS


def test_a_second_export_has_the_same_names_and_lines(tmp_path: Path) -> None:
    run = strange_run(tmp_path)
    one, two = export(run, tmp_path / "one"), export(run, tmp_path / "two")
    assert [path.relative_to(one.folder) for path in one.files] == [path.relative_to(two.folder) for path in two.files]
    assert one.files[1].read_bytes() == two.files[1].read_bytes()
    assert one.aggregate["evaluation_id"] == two.aggregate["evaluation_id"] == f"odd/lab/m-1/{run.id}"


def test_the_aggregate_says_what_was_asked_and_how(record: Record) -> None:
    document = record.aggregate
    assert document["evaluation_timestamp"] == "1795252503.25"
    assert re.fullmatch(r"\d{10}\.\d+", document["retrieved_timestamp"])
    assert (document["eval_library"]["name"], document["eval_library"]["version"]) == ("bench-harness", "0.1.0")
    model = document["model_info"]
    assert (model["id"], model["name"], model["developer"]) == ("lab/m-1", "lab/m-1", "lab")
    assert model["inference_platform"] == "openai"
    assert model["additional_details"] == {"deployment_type": "externally_managed", "model_availability": "unknown"}
    config = record.result("reward")["generation_config"]
    assert config["generation_args"] == {
        "temperature": 0.5, "max_tokens": 64, "execution_command": "bench run odd -m lab/m-1",
        "eval_limits": {"time_limit": 91},
    }  # fmt: skip
    assert config["additional_details"] == {
        "stop": "END", "seed": "3", "top_k": "many", "vendor": "[1]", "env_args": json.dumps({"size": HUGE}),
    }  # fmt: skip


def test_every_number_has_its_uncertainty_and_its_coverage(record: Record) -> None:
    reward = record.result("reward")
    score = reward["score_details"]
    assert score["score"] == pytest.approx(0.475)
    assert score["uncertainty"]["num_samples"] == 10
    assert score["uncertainty"]["standard_error"]["value"] == pytest.approx(0.16853, abs=1e-5)
    interval = score["uncertainty"]["confidence_interval"]
    assert (interval["confidence_level"], interval["lower"] < 0.475 < interval["upper"]) == (0.95, True)
    assert {name: score["details"][name] for name in ("planned", "scored", "not_run", "pass_threshold")} == {
        "planned": "48", "scored": str(strange_runs.SCORED), "not_run": "32", "pass_threshold": "1.0",
    }  # fmt: skip
    unscored = json.loads(score["details"]["unscored"])
    assert unscored == {"timeout": 1, "rate_limit": 1, "correct JudgeError": 1, "not scored": 1, "environment_error": 1}
    config = reward["metric_config"]
    assert (config["metric_id"], config["min_score"], config["max_score"]) == ("odd.reward", -0.5, 1.0)
    assert reward["evaluation_result_id"] == "odd.reward"
    metric = record.result("correct")["metric_config"]
    assert (metric["metric_id"], metric["min_score"], metric["max_score"]) == ("odd.correct", "-Infinity", "Infinity")
    passed = record.result("pass@2")["metric_config"]
    assert (passed["metric_id"], passed["metric_parameters"]) == ("pass_at_k", {"k": 2})
    names = [result["metric_config"]["metric_name"] for result in record.aggregate["evaluation_results"]]
    assert names == ["reward", "correct", "pass@1", "pass@2", "pass^2"]


def texts(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value under a key that holds details."""
    if isinstance(value, dict):
        for name, item in value.items():
            if place.rpartition(".")[2] in ("additional_details", "details", "metadata", "arguments"):
                yield f"{place}.{name}", item
            else:
                yield from texts(item, f"{place}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, place)


def test_details_are_text_all_of_them(record: Record) -> None:
    found = [pair for document in (record.aggregate, *record.lines) for pair in texts(document)]
    assert len(found) > 100
    assert [pair for pair in found if not isinstance(pair[1], str)] == []


# What the lines say


def test_a_rollout_without_a_score_has_an_error(record: Record) -> None:
    errors = {
        (line["sample_id"], line["metadata"]["rollout_index"]): line["error"]
        for line in record.lines
        if "error" in line
    }
    assert errors == {
        ("7", "0"): "timeout: no reply in 600 s",
        ("7", "1"): "rate_limit: HTTP 429 a\ufffdb",
        ("7", "2"): "correct: JudgeError: the judge did not answer",
        ("7", "3"): "not scored",
        ("11", "0"): "environment_error: no board",
    }
    for sample_id, index in errors:
        line = record.line(sample_id, int(index))
        assert line["evaluation"]["score"] == 0.0 and line["evaluation"]["is_correct"] is False
        assert line["metadata"]["outcome"] == "unscored"
    assert record.line("7", 0)["output"] == {"raw": ["Let me th"]}
    assert record.line("7", 1)["output"] == {"raw": []}
    assert any(note.startswith("5 rollouts have no score") and "the score 0" in note for note in record.notes)


def test_a_score_near_the_threshold_passes_as_it_does_in_the_summary(record: Record) -> None:
    assert record.line("10")["evaluation"] == {
        "score": 1.0 - 1e-12, "is_correct": True, "num_turns": 2, "tool_calls_count": 0,
    }  # fmt: skip
    scores = [line["evaluation"] for line in record.lines if "error" not in line]
    assert [each["is_correct"] for each in scores] == [each["score"] > 0.99 for each in scores]


def test_a_sample_is_known_again_by_its_question_and_answer(record: Record) -> None:
    for line in record.lines:
        document = {"raw": line["input"]["raw"], "reference": line["input"]["reference"]}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        assert line["sample_hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert sample_hash("2 + 2?", ["4"]) == "4dbd0eac9ebcc759f12691cca1dc1306ab8bcc5d328f8be4eaad033b581e7ded"
    images = [record.line(name) for name in ("3", "4")]
    assert all(image["input"]["raw"].startswith("What is this?\n[image_url sha256:") for image in images)
    assert images[0]["sample_hash"] != images[1]["sample_hash"]
    same = [line["sample_hash"] for line in record.lines if line["sample_id"] == "same"]
    assert len(same) == 3 and len(set(same)) == 2  # two rollouts of one example, and another example of that id


def test_the_question_is_free_of_instructions_and_answers(record: Record) -> None:
    plain = record.line("same", 1)
    assert plain["input"]["raw"] == "What is 0 + 1?"
    assert json.loads(plain["input"]["formatted"])[0] == {"role": "system", "content": "Think."}
    assert record.line(str(2**60))["input"]["raw"] == "a\ufffdb" + BREAKS + "🙂"
    story = record.line("same", 0, task="story")["input"]
    assert (story["raw"], story["reference"], "formatted" in story) == ("Once upon a", [], False)


def test_one_turn_several_and_an_agent_s_are_told_apart(record: Record) -> None:
    talk = record.line("10")
    assert (talk["interaction_type"], "output" in talk) == ("multi_turn", False)
    assert [(m["turn_idx"], m["role"]) for m in talk["messages"]] == [
        (0, "system"), (1, "user"), (2, "assistant"), (3, "user"), (4, "assistant"),
    ]  # fmt: skip
    agent = record.line("5")
    assert (agent["interaction_type"], agent["evaluation"]["num_turns"]) == ("agentic", 2)
    assert agent["evaluation"]["tool_calls_count"] == 6
    first = agent["messages"][2]
    assert (first["content"], first["reasoning_trace"]) == (None, "I need two tools.")
    arguments = [call["arguments"] for call in first["tool_calls"]]
    assert arguments[:4] == [{"a": "2", "b": "[1,2]"}, {"arguments": '{"a": '}, {"arguments": "[1]"}, {"input": "x.*"}]
    assert arguments[4] == {"arguments": "[" * 400 + "]" * 400}
    assert agent["messages"][3]["tool_call_id"] == ["c1"]
    single = [line for line in record.lines if line["interaction_type"] == "single_turn"]
    assert len(single) == strange_runs.ROLLOUTS - 2 and all("messages" not in line for line in single)
    assert record.line("6")["output"] == {"raw": ["I will not."]}


def test_odd_text_stays_one_line_a_rollout(record: Record) -> None:
    text = record.files[1].read_text(encoding="utf-8")
    assert len(text.splitlines()) == text.count("\n") == strange_runs.ROLLOUTS
    odd = record.lines[2]
    assert odd["sample_id"].startswith("naïve/🙂\x00\n")
    assert (odd["input"]["reference"], odd["output"]["raw"]) == (["a\ufffdb"], [""])
    info = json.loads(odd["metadata"]["info"])
    assert info["huge"] == HUGE
    far = record.line(str(2**60))
    assert far["output"]["raw"] == [BREAKS + "a\ufffdb"]


def test_tokens_and_times_are_there_where_they_are_known(record: Record) -> None:
    usage = record.line("same", 1)["token_usage"]
    assert usage == {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_cache_read": 4, "reasoning_tokens": 2,
    }  # fmt: skip
    assert "token_usage" not in record.line("same", 0, task="story")
    talk = record.line("10")["performance"]
    assert (talk["latency_ms"], talk["generation_time_ms"]) == (4000.0, 1500.0)
    assert talk["additional_details"] == {"waiting_ms": "2000.0", "scoring_ms": "500.0"}
    judged = json.loads(record.line("8")["metadata"]["judgements"])
    assert [each["text"] for each in judged] == ["CORRECT", "yes"]
    assert record.line("same", 1)["metadata"]["metric.correct"] == "0.0"


# Names


HOSTED, OWN, UNKNOWN = "externally_managed", "self_deployed", "unknown"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"


@pytest.mark.parametrize(
    ("model", "url", "identity", "folder", "deployment"),
    [
        ("lab/m-1", "http://localhost:8000/v1", "lab/m-1", "lab/m-1", OWN),
        ("gpt-5-mini", "https://api.openai.com/v1", "openai/gpt-5-mini", "openai/gpt-5-mini", HOSTED),
        ("gemini-3", GEMINI, "google/gemini-3", "google/gemini-3", HOSTED),
        ("llama-4", "https://api.groq.com/openai/v1", "unknown/llama-4", "unknown/llama-4", HOSTED),
        ("m", "https://example.org/v1", "unknown/m", "unknown/m", UNKNOWN),
        ("org/fam/m:8b", "litellm://replicate", "org/fam/m_8b", "org/fam_m_8b", HOSTED),
        ("reference/noisy?p=0.5", "", "reference/noisy_p=0.5", "reference/noisy_p=0.5", OWN),
        ("../con", "", "_/_con", "_/_con", UNKNOWN),
        ("a\ud800", None, "unknown/a\ufffd", "unknown/a\ufffd", UNKNOWN),
    ],
)
def test_a_model_has_a_developer_and_a_folder(
    tmp_path: Path, model: str, url: str | None, identity: str, folder: str, deployment: str
) -> None:
    settings = {} if url is None else {"model.api_base_url": url}
    run = samples.make_run(tmp_path, model=model, settings=settings, status="done")
    samples.write(run.journal_path, samples.rollouts(1))
    made = export(run, tmp_path / "record")
    info = made.aggregate["model_info"]
    assert (info["id"], info["additional_details"]["deployment_type"]) == (identity, deployment)
    assert made.files[0].parent.relative_to(made.folder).as_posix() == f"data/sums/{folder}"
    assert {line["model_id"] for line in made.lines} == {identity}
    assert any("is not known" in note for note in made.notes) == identity.startswith("unknown/")


@pytest.mark.parametrize(
    ("env_id", "folder"), [("NUL.x", "_NUL.x"), ("data", "_data"), ("a/b c.", "a_b c"), ("...", "_"), (".git", "_.git")]
)
def test_an_environment_s_folder_has_a_name_that_every_system_allows(tmp_path: Path, env_id: str, folder: str) -> None:
    run = samples.make_run(tmp_path, env_id=env_id)
    samples.write(run.journal_path, samples.rollouts(1))
    assert export(run, tmp_path / "record").files[0].relative_to(tmp_path / "record").parts[1] == folder


def test_without_a_score_there_is_no_result_and_without_a_rollout_no_second_file(tmp_path: Path) -> None:
    run = samples.make_run(tmp_path)
    samples.write(run.journal_path, [samples.example(), samples.failed()])
    made = export(run, tmp_path / "record")
    assert (made.aggregate["evaluation_results"], len(made.files)) == ([], 2)
    assert made.notes[-1] == "no rollout has a score, so there is no aggregate result"
    empty = export(samples.make_run(tmp_path), tmp_path / "empty")
    assert (len(empty.files), empty.rows, "detailed_evaluation_results" in empty.aggregate) == (1, 0, False)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    run = samples.make_run(tmp_path)
    said = [{"role": "assistant", "content": "word " * 40_000}]
    made = ([samples.generated(0, n, completion=said), samples.scored(0, n)] for n in range(200))
    samples.write(run.journal_path, [samples.example(), *(record for pair in made for record in pair)])
    code = f"""
{samples.PEAK}
import sys
from pathlib import Path
from harness.plugins.exports.every_eval_ever import write
from harness.store.rundir import RunDir
before = peak()
print(write(RunDir(Path(sys.argv[1])), Path(sys.argv[2])).rows, peak() - before)
"""
    done = samples.python(code, run.path, tmp_path / "record")
    assert done.returncode == 0, done.stderr
    rows, grown = done.stdout.split()
    assert (int(rows), run.journal_path.stat().st_size > 38 << 20) == (200, True)
    assert float(grown) < 25
