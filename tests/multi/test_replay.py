"""Making a stored evaluation again: the same inputs, options laid over the stored ones, keys and hooks given anew, and
the documented words where it cannot be done."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from model_server import Asked, ModelServer

from harness.core.errors import StateError
from harness.core.types import JsonDict
from harness.multi import EvaluationResult, Options, evaluate, list_runs, load_run, replay_run

TASKS: list[JsonDict] = [
    {"prompt": "first", "expected": "echo"},
    {"id": "named", "messages": [{"role": "user", "content": "Second, please"}], "expected": "second"},
    {"prompt": "third", "schema": {"type": "object"}, "timeoutMs": 60000, "chatOptions": {"maxTokens": 3}},
]


def essence(result: EvaluationResult) -> Any:
    """What a replay reproduces: everything but ids and times."""
    models: list[JsonDict] = json.loads(json.dumps(result["models"]))
    for model in models:
        for each in model["results"]:
            del each["durationMs"]
        for name in ("avgLatencyMs", "meta"):
            del model["summary"][name]
    return models


def test_a_replay_reproduces_the_evaluation() -> None:
    first = asyncio.run(
        evaluate(TASKS, ["reference/echo", {"id": "n", "modelId": "reference/noisy?accuracy=0.5"}], persist=True)
    )
    again = asyncio.run(replay_run(first["runId"]))
    assert essence(again) == essence(first)
    assert again["totals"] == first["totals"]
    assert len(asyncio.run(list_runs())) == 1


def test_options_of_the_replay_win_and_the_others_are_the_stored_ones() -> None:
    async def main() -> None:
        async with ModelServer(lambda asked: asked.text) as server:
            models = [{"id": "m", "endpoint": server.url, "temperature": 0.5, "headers": {"X-Team": "blue"}}]
            options: JsonDict = {"matchMode": "exact", "lengthTarget": -1, "runId": "origin", "persist": True}
            first = await evaluate([{"prompt": "Yes!", "expected": "yes"}], models, options)
            same = await replay_run("origin")
            other = await replay_run("origin", Options(match_mode="contains"), run_id="mine", persist=True)
            scores = [each["models"][0]["results"][0]["score"] for each in (first, same, other)]
            assert scores == [0.3, 0.3, 0.7]
            assert (same["runId"].startswith("mmeval_replay_"), other["runId"]) == (True, "mine")
            assert [each["runId"] for each in await list_runs()] == ["origin", "mine"]
            assert [(each.body["temperature"], each.headers["X-Team"]) for each in server.asked] == [(0.5, "blue")] * 3
            record = await load_run("mine")
            assert record is not None
            assert record["options"] == {"matchMode": "contains", "lengthTarget": -1, "runId": "mine"}

    asyncio.run(main())


def test_latest_is_the_newest_although_the_list_begins_with_the_oldest() -> None:
    async def main() -> None:
        for name in ("a", "b", "c"):
            await evaluate([{"id": name, "prompt": "?"}], ["reference/null"], persist=True, run_id=f"run-{name}")
        assert [each["runId"] for each in await list_runs(2)] == ["run-b", "run-c"]
        replay = await replay_run("latest")
        assert [each["taskId"] for each in replay["models"][0]["results"]] == ["c"]

    asyncio.run(main())


def test_there_is_no_such_run() -> None:
    with pytest.raises(StateError, match=r"^MultiModelEvaluator run not found: mmeval_none$"):
        asyncio.run(replay_run("mmeval_none"))


def test_a_record_without_inputs() -> None:
    persist = {"includeInputs": False}
    result = asyncio.run(evaluate(TASKS, ["reference/null"], persist=persist))
    with pytest.raises(StateError, match=r"^MultiModelEvaluator replay missing inputs"):
        asyncio.run(replay_run(result["runId"]))


def test_a_replay_takes_its_keys_from_variables_or_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with ModelServer(answer) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            models = [
                {"id": "mine", "endpoint": server.url, "apiKey": "literal-key-1"},
                {"id": "gpt", "provider": "openai", "apiKey": "literal-key-2"},
            ]
            await evaluate([{"prompt": "?"}], models, persist=True, run_id="keyed")
            assert keys(server.asked) == {"mine": "literal-key-1", "gpt": "literal-key-2"}
            server.asked.clear()
            monkeypatch.setenv("OPENAI_API_KEY", "variable-key-3")
            await replay_run("keyed")
            assert keys(server.asked) == {"mine": None, "gpt": "variable-key-3"}
            server.asked.clear()
            await replay_run("keyed", api_keys={"mine": "given-key-4"})
            assert keys(server.asked) == {"mine": "given-key-4", "gpt": "variable-key-3"}

    def answer(asked: Asked) -> str:
        return "yes"

    asyncio.run(main())


def keys(asked: list[Asked]) -> dict[str, str | None]:
    return {each.model: each.key for each in asked}


def half(call: Any) -> float:
    return 0.5


def test_a_hook_has_to_be_given_again(caplog: pytest.LogCaptureFixture) -> None:
    first = asyncio.run(evaluate(TASKS[:1], ["reference/echo"], score_output=half, persist=True))
    with caplog.at_level(logging.WARNING, "harness.multi"):
        without = asyncio.run(replay_run(first["runId"]))
        [warning] = [each.getMessage() for each in caplog.records]
        assert warning == (
            f"{first['runId']} was scored by half, which is not stored: this replay is scored by the documented "
            "formula unless score_output is given"
        )
        caplog.clear()
        again = asyncio.run(replay_run(first["runId"], score_output=half))
        assert caplog.records == []
    scores = [each["models"][0]["results"][0]["score"] for each in (first, without, again)]
    assert (scores[0], scores[2]) == (0.5, 0.5)
    assert scores[1] != 0.5


def test_a_record_of_the_documented_system_can_be_replayed(workplace: Path) -> None:
    """As it writes one: without `meta`, without stable task ids, with the keys of its model configs."""
    folder = workplace / ".memory" / "multi-model-eval"
    folder.mkdir(parents=True)
    record = {
        "runId": "mmeval_old",
        "totals": {"tasks": 1, "models": 1, "totalRuns": 1},
        "summary": [],
        "models": [],
        "tasks": [{"prompt": "Say hello", "expected": "hello", "matchMode": "contains"}],
        "modelConfigs": [{"id": "reference/echo"}],
        "options": {"modelConcurrency": 2, "timeoutMs": 0, "theirs": 1, "scoreOutput": "os:abort", "outputDir": "x"},
        "persistedAt": "2026-01-01T00:00:00.000Z",
    }
    (folder / "mmeval_old.json").write_text(json.dumps(record, indent=2))
    result = asyncio.run(replay_run("mmeval_old"))
    assert [(r["taskId"], round(r["score"], 9)) for r in result["models"][0]["results"]] == [("task-0", 0.7045)]
    assert sorted(each.name for each in workplace.iterdir()) == [".memory"]
