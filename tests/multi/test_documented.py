"""docs of the multi-model evaluator, line by line: the JavaScript examples have twins here, and every documented field,
option, result key and event is there."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from typing import Any, cast

import pytest
from eval_samples import blocks, document
from model_server import Asked, ModelServer

from harness.core.types import JsonDict
from harness.multi import evaluate, list_runs, load_run, replay_run
from harness.multi.fields import camel
from harness.multi.options import Options, Persist
from harness.multi.tasks import Task

PAGE = "multi-model-evaluation.md"

TASK_SUITE: list[JsonDict] = [
    {
        "id": "schema-task",
        "prompt": 'Return JSON: {"ok": true}',
        "schema": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}},
    },
    {"id": "expected-task", "prompt": "Say hello to Reploid", "expected": "hello"},
]
MODEL_CONFIGS: list[JsonDict] = [
    {"id": "fast", "provider": "openai", "modelId": "gpt-4.1-mini"},
    {"id": "deep", "provider": "anthropic", "modelId": "claude-3-7-sonnet"},
]


def as_python(javascript: str) -> Any:
    """A JavaScript literal."""
    parts = re.split(r"('[^']*')", javascript)
    text = "".join(
        json.dumps(part[1:-1]) if part.startswith("'") else re.sub(r"(\w+):", r'"\1":', part) for part in parts
    )
    return json.loads(text)


def constant(name: str, code: str) -> Any:
    """What a block of the document sets `name` to."""
    match = re.search(rf"const {name} = (\[.*?^\]);", code, re.MULTILINE | re.DOTALL)
    assert match is not None
    return as_python(match[1])


def says(asked: Asked) -> str:
    if asked.model == "gpt-4.1-mini":
        return '{"ok": true}' if "JSON" in asked.text else "Hello, Reploid!"
    return '```json\n{"ok": true}\n```' if "JSON" in asked.text else "<think>hello</think>Good day."


def test_the_twins_ask_what_the_document_asks() -> None:
    persistence, example = blocks(PAGE, "javascript")
    assert constant("taskSuite", example) == TASK_SUITE
    assert constant("modelConfigs", example) == MODEL_CONFIGS
    assert re.findall(r"MultiModelEvaluator\.(\w+)", persistence) == ["evaluate", "listRuns", "replayRun"]
    assert re.findall(r"(\w+): ([\w']+)", example.partition("MultiModelEvaluator")[2]) == [
        ("modelConcurrency", "2"), ("matchMode", "'contains'"),
    ]  # fmt: skip
    assert re.findall(r"(\w+): (\w+)", persistence) == [("persist", "true"), ("modelConcurrency", "1")]


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[Any, ModelServer]:
        async with ModelServer(says) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")

            result = await evaluate(TASK_SUITE, MODEL_CONFIGS, {"modelConcurrency": 2, "matchMode": "contains"})

            return result, server

    result, server = asyncio.run(main())
    assert {(each.model, each.key) for each in server.asked} == {
        ("gpt-4.1-mini", "key-of-openai"), ("claude-3-7-sonnet", "key-of-anthropic"),
    }  # fmt: skip
    assert [summary["modelId"] for summary in result["summary"]] == ["fast", "deep"]
    outcomes = [
        [(r["taskId"], round(r["score"], 12), r["valid"], r["errors"]) for r in model["results"]]
        for model in result["models"]
    ]
    not_json = {"expertId": "deep", "errors": ["Output is not valid JSON"]}
    assert outcomes == [
        [("schema-task", 0.706, True, []), ("expected-task", 0.7075, True, [])],
        [("schema-task", 0.112, False, [not_json]), ("expected-task", 0.3045, False, ["Expected output mismatch"])],
    ]


def test_the_example_of_persistence_and_replay() -> None:
    async def main() -> None:
        models = ["reference/oracle", "reference/null"]
        result = await evaluate(TASK_SUITE, models, persist=True)

        runs = await list_runs(5)
        replay = await replay_run(runs[0]["runId"], model_concurrency=1)

        assert [run["runId"] for run in runs] == [result["runId"]]
        assert replay["runId"].startswith("mmeval_replay_")
        assert replay["persist"] == {"enabled": False}
        outcomes = [[(r["taskId"], r["output"], r["score"]) for r in m["results"]] for m in result["models"]]
        assert [[(r["taskId"], r["output"], r["score"]) for r in m["results"]] for m in replay["models"]] == outcomes
        record = await load_run(result["runId"])
        assert record is not None
        assert record["tasks"] == TASK_SUITE
        assert record["modelConfigs"] == [{"id": "reference/oracle"}, {"id": "reference/null"}]

    asyncio.run(main())


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = document(PAGE).partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_every_documented_field_of_a_task_is_one() -> None:
    assert {row[0] for row in rows_of("Task Format")} < {camel(each.name) for each in dataclasses.fields(Task)}


def test_every_documented_option_has_the_documented_default() -> None:
    from harness.multi.fields import snake

    rows = rows_of("Options")
    assert len(rows) == 7
    default = Options()
    for name, _, value, _ in rows:
        ours = getattr(default, snake(name))
        assert {"-": None, "contains": "contains"}.get(value, value) == (
            ours if ours is None or isinstance(ours, str) else json.dumps(ours)
        ), name
    stored = re.findall(r"`persist\.(\w+)` - .*?(?:default: (\w+))?\)?$", document(PAGE), re.MULTILINE)
    assert [name for name, _ in stored] == ["includeInputs", "includeOutputs", "includeOptions", "path"]
    assert Persist() == Persist(include_inputs=True, include_outputs=True, include_options=True, path=None)


def test_every_documented_key_of_the_result_is_there_and_first() -> None:
    events: list[tuple[str, JsonDict]] = []
    result = asyncio.run(
        evaluate(TASK_SUITE, ["reference/oracle"], on_event=lambda name, payload: events.append((name, payload)))
    )
    section = document(PAGE).partition("## Results\n")[2].partition("---")[0]
    assert [key for key in re.findall(r"^- `(\w+)", section, re.MULTILINE) if key not in result] == []
    assert list(result) == [
        "runId", "startedAt", "finishedAt", "durationMs", "totals", "summary", "models", "persist", "meta",
    ]  # fmt: skip
    assert result["totals"] == {"tasks": 2, "models": 1, "totalRuns": 2}
    assert list(result["summary"][0])[:8] == [
        "modelId", "total", "successRate", "avgScore", "avgLatencyMs", "avgTokens", "errorCount", "aborted",
    ]  # fmt: skip
    assert list(result["models"][0]) == ["modelId", "results", "summary"]
    assert result["models"][0]["summary"] == result["summary"][0]
    assert list(result["models"][0]["results"][0])[:8] == [
        "taskId", "modelId", "output", "score", "valid", "errors", "durationMs", "tokens",
    ]  # fmt: skip
    assert [row[0] for row in rows_of("Events")] == list(dict.fromkeys(name for name, _ in events))
    assert re.fullmatch(r"mmeval_[0-9a-z]+_[0-9a-z]{8}", result["runId"])
    assert result["finishedAt"] - result["startedAt"] == result["durationMs"]
    assert json.loads(json.dumps(cast(object, result), allow_nan=False)) == result
