"""`evaluate` against a real server: order and bounds of requests, endpoints that are shared, timeouts, stopping at the
first error, failures, hooks, keys, events and resuming."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from model_server import Asked, ModelServer, never
from tables import for_each_row

from harness.core.errors import ConfigError, ValidationError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.environment_loader import load_environment
from harness.engine.plan import identity_of
from harness.multi import EvaluationResult, Model, Options, Persist, Task, evaluate
from harness.settings.resolver import resolve

T = TypeVar("T")


def served(answer: Callable[[Asked], Any], use: Callable[[ModelServer], Coroutine[None, None, T]]) -> T:
    """What `use` returns, with a server that answers so."""

    async def main() -> T:
        async with ModelServer(answer) as server:
            return await use(server)

    return asyncio.run(main())


def tasks(number: int) -> list[JsonDict]:
    return [{"prompt": f"question {n}"} for n in range(number)]


def outcomes(result: EvaluationResult) -> list[list[tuple[str, str]]]:
    return [[(each["taskId"], each["output"]) for each in model["results"]] for model in result["models"]]


# Options of every evaluation


def test_an_evaluation_takes_the_options_of_every_evaluation() -> None:
    async def use(server: ModelServer) -> None:
        models = [Model(id="a", base_url=server.url)]
        result = await evaluate(tasks(3), models, settings={"token_limit": 7, "max_tokens_total": 1})
        assert {asked.body["max_tokens"] for asked in server.asked} == {7}
        assert "1" in str(result["models"][0]["summary"]["stopReason"]) and len(server.asked) == 1
        for wrong, words in (
            ({"rpm": 3}, "rpm: unknown setting"),
            (3, "settings: must be a dict"),
            ({"cost_limit": 1}, "cost.limit.*the price of a .*is unknown"),
        ):
            with pytest.raises(ConfigError, match=words):
                await evaluate(tasks(1), models, settings=wrong)

    served(lambda asked: f"answer to {asked.text}", use)


# Order and bounds


def test_a_models_tasks_run_in_order_and_results_keep_the_order_of_models() -> None:
    async def use(server: ModelServer) -> None:
        models = [Model(id=name, base_url=server.url) for name in ("c", "a", "b")]
        result = await evaluate(tasks(4), models, model_concurrency=3)
        assert [model["modelId"] for model in result["models"]] == ["c", "a", "b"]
        expected = [(f"task-{n}", f"answer to question {n}") for n in range(4)]
        assert outcomes(result) == [expected] * 3
        for name in ("a", "b", "c"):
            asked = [each.text for each in server.asked if each.model == name]
            assert asked == [f"question {n}" for n in range(4)]

    served(lambda asked: f"answer to {asked.text}", use)


def test_two_models_at_one_endpoint_are_asked_at_once_and_no_third() -> None:
    both = asyncio.Event()

    async def use(server: ModelServer) -> None:
        async def gate() -> None:
            await server.until(lambda: server.in_flight == 2, "two models are asked at once")
            both.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(gate())
            models = [{"id": f"m{n}", "endpoint": server.url} for n in range(4)]
            result = await evaluate(tasks(2), models)
        assert server.peak == 2
        assert [model["total"] for model in result["summary"]] == [2, 2, 2, 2]
        # The first two come first; the next begins when one of them is done.
        assert {each.model for each in server.asked[:4]} == {"m0", "m1"}

    async def answer() -> str:
        await both.wait()
        return "yes"

    served(lambda _: answer(), use)


def test_model_concurrency_1_asks_one_model_after_the_other() -> None:
    async def use(server: ModelServer) -> None:
        models = [{"id": f"m{n}", "endpoint": server.url} for n in range(3)]
        await evaluate(tasks(2), models, modelConcurrency=1)
        assert [each.model for each in server.asked] == ["m0", "m0", "m1", "m1", "m2", "m2"]
        assert server.peak == 1

    served(lambda _: "yes", use)


def test_models_at_one_endpoint_share_its_bound() -> None:
    """Three models, four tasks each at once, at an endpoint that takes two requests: never more than two."""

    both = asyncio.Event()

    async def use(server: ModelServer) -> None:
        async def gate() -> None:
            await server.until(lambda: server.in_flight == 2, "the endpoint is asked twice at once")
            both.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(gate())
            models = [Model(id=f"m{n}", base_url=server.url, max_concurrent=2) for n in range(3)]
            result = await evaluate(tasks(6), models, model_concurrency=3, task_concurrency=4)
        assert server.peak == 2
        assert [model["total"] for model in result["summary"]] == [6, 6, 6]

    async def answer() -> str:
        await both.wait()
        await asyncio.sleep(0.005)  # time in which a third request would arrive
        return "yes"

    served(lambda _: answer(), use)


def test_task_concurrency_is_how_many_tasks_of_a_model_are_asked_at_once() -> None:
    async def use(server: ModelServer) -> None:
        async def gate() -> None:
            await server.until(lambda: server.in_flight == 3, "three tasks are asked at once")
            opened.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(gate())
            result = await evaluate(tasks(7), [{"id": "m", "endpoint": server.url}], task_concurrency=3)
        assert server.peak == 3
        assert [each["taskId"] for each in result["models"][0]["results"]] == [f"task-{n}" for n in range(7)]

    opened = asyncio.Event()

    async def answer() -> str:
        await opened.wait()
        return "yes"

    served(lambda _: answer(), use)


# What goes wrong


def test_a_timeout_cancels_the_request_and_counts_0() -> None:
    async def use(server: ModelServer) -> None:
        suite = [
            {"id": "slow", "prompt": "wait", "timeoutMs": 300},
            {"id": "quick", "prompt": "go", "expected": "gone"},
        ]
        result = await evaluate(suite, [{"id": "m", "endpoint": server.url}], timeout_ms=60_000)
        await server.until(lambda: server.left, "the server sees the client go")
        assert [each.text for each in server.left] == ["wait"]
        slow, quick = result["models"][0]["results"]
        assert slow["durationMs"] >= 300
        assert (slow["output"], slow["score"], slow["valid"], slow["tokens"]) == ("", 0.0, False, 0)
        words = "MultiModelEvaluator timeout after 300ms"
        assert (slow["errors"], slow.get("error"), slow.get("timeout")) == ([words], words, True)
        assert (quick["valid"], "error" in quick, "timeout" in quick) == (True, False, False)
        summary = result["summary"][0]
        assert (summary["total"], summary["errorCount"], summary["successRate"]) == (2, 1, 0.5)
        assert summary["avgScore"] == pytest.approx(quick["score"] / 2)
        assert summary["avgLatencyMs"] == (slow["durationMs"] + quick["durationMs"]) / 2
        assert (summary["aborted"], summary["notRun"], summary["stopReason"]) == (False, 0, None)
        meta = summary.get("meta") or {}
        assert (meta["scored"], meta["coverage"], meta["failures"], meta["timeouts"]) == (1, 0.5, {"timeout": 1}, 1)
        assert meta["score"]["mean"] == quick["score"]

    served(lambda asked: never() if asked.text == "wait" else "gone", use)


def test_the_timeout_of_the_options_is_for_tasks_that_do_not_say() -> None:
    async def use(server: ModelServer) -> None:
        suite = [{"prompt": "wait"}, {"prompt": "wait", "timeoutMs": 90}]
        result = await evaluate(suite, [{"id": "m", "endpoint": server.url}], {"timeoutMs": 50})
        assert [each.get("error") for each in result["models"][0]["results"]] == [
            "MultiModelEvaluator timeout after 50ms", "MultiModelEvaluator timeout after 90ms",
        ]  # fmt: skip
        used = result["summary"][0]["usage"]
        assert (used["inputTokens"], used["outputTokens"]) == (None, None), "what no reply reported is unknown, not 0"

    served(lambda _: never(), use)


def test_abort_on_error_stops_that_model_alone_and_says_what_was_not_run() -> None:
    async def use(server: ModelServer) -> None:
        models = [{"id": name, "endpoint": server.url} for name in ("good", "bad", "fine")]
        result = await evaluate(tasks(5), models, abort_on_error=True)
        totals = {model["modelId"]: (model["total"], model["aborted"], model["notRun"]) for model in result["summary"]}
        assert totals == {"good": (5, False, 0), "bad": (2, True, 3), "fine": (5, False, 0)}
        assert [each.text for each in server.asked if each.model == "bad"] == ["question 0", "question 1"]
        bad = result["models"][1]
        assert [each["taskId"] for each in bad["results"]] == ["task-0", "task-1"]
        assert "no such thing" in str(bad["results"][1].get("error"))
        assert "no such thing" in str(bad["summary"]["stopReason"])
        assert (bad["summary"]["errorCount"], bad["summary"]["successRate"]) == (1, 0.5)
        assert result["totals"] == {"tasks": 5, "models": 3, "totalRuns": 15}

    def answer(asked: Asked) -> str | tuple[int, str]:
        return (400, "no such thing") if (asked.model, asked.text) == ("bad", "question 1") else "yes"

    served(answer, use)


def test_a_model_that_fails_at_its_last_task_is_aborted_too() -> None:
    """As the documents have it, although nothing was left to be run."""

    async def use(server: ModelServer) -> None:
        result = await evaluate(tasks(2), [{"id": "m", "endpoint": server.url}], abort_on_error=True)
        [summary] = result["summary"]
        assert (summary["total"], summary["aborted"], summary["notRun"], summary["stopReason"]) == (2, True, 0, None)

    served(lambda asked: (400, "no such thing") if asked.text == "question 1" else "yes", use)


def test_without_it_the_other_tasks_go_on() -> None:
    async def use(server: ModelServer) -> None:
        result = await evaluate(tasks(3), [{"id": "bad", "endpoint": server.url}])
        assert [("error" in each) for each in result["models"][0]["results"]] == [False, True, False]
        assert result["summary"][0]["aborted"] is False

    served(lambda asked: (400, "no such thing") if asked.text == "question 1" else "yes", use)


def test_an_invalid_answer_is_no_error() -> None:
    """abortOnError is about failures; an answer that is merely wrong stops nothing."""

    async def use(server: ModelServer) -> None:
        suite = [{"prompt": "say a", "expected": "b"}, {"prompt": "say a", "expected": "a"}]
        result = await evaluate(suite, [{"id": "m", "endpoint": server.url}], abort_on_error=True)
        assert [each["valid"] for each in result["models"][0]["results"]] == [False, True]
        assert (result["summary"][0]["total"], result["summary"][0]["errorCount"]) == (2, 0)

    served(lambda _: "a", use)


def test_a_dead_key_stops_its_model_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def use(server: ModelServer) -> None:
        models = [
            {"id": "shut", "endpoint": server.url, "apiKey": "wrong-key-1234"},
            {"id": "open", "endpoint": server.url, "apiKey": "right-key-1234"},
        ]
        result = await evaluate(tasks(3), models)
        shut, fine = result["summary"]
        assert (shut["total"], shut["notRun"], shut["aborted"], shut["avgScore"]) == (0, 3, True, 0.0)
        assert "401" in str(shut["stopReason"])
        assert "wrong-key-1234" not in json.dumps(result)
        assert (fine["total"], fine["aborted"], fine["stopReason"]) == (3, False, None)

    with caplog.at_level(logging.WARNING, "harness.multi"):
        served(lambda asked: (401, "who are you?") if asked.key == "wrong-key-1234" else "yes", use)
    assert ["shut: stopped" in each.getMessage() for each in caplog.records] == [True]


# Hooks


def test_a_hook_replaces_the_formula_and_is_told_the_model() -> None:
    seen: list[tuple[str, str, str]] = []

    def score(task: Any, output: str, modelId: str) -> dict[str, object]:
        seen.append((task["id"], output, modelId))
        return {"score": len(output) / 10, "valid": modelId == "x", "errors": [f"seen for {modelId}"]}

    async def use(server: ModelServer) -> None:
        models = [{"id": name, "model": "served", "endpoint": server.url} for name in ("x", "y")]
        result = await evaluate([{"id": "t", "prompt": "?", "expected": "no"}], models, {"scoreOutput": score})
        assert sorted(seen) == [("t", "words", "x"), ("t", "words", "y")]
        assert [(r["score"], r["valid"], r["errors"]) for m in result["models"] for r in m["results"]] == [
            (0.5, True, ["seen for x"]), (0.5, False, ["seen for y"]),
        ]  # fmt: skip
        assert result["meta"]["scoreOutput"] == "score"

    served(lambda _: "<think>long thoughts</think> words", use)


def test_an_async_hook_is_awaited() -> None:
    async def score(call: Any) -> float:
        await asyncio.sleep(0)
        return 0.25

    result = asyncio.run(evaluate(tasks(1), ["reference/echo"], score_output=score))
    assert [each["score"] for each in result["models"][0]["results"]] == [0.25]


def test_a_hook_that_raises_is_an_error_and_never_a_score_in_the_run_folder(workplace: Path) -> None:
    def score(call: Any) -> float:
        raise RuntimeError(f"cannot judge {call['task']['id']}")

    result = asyncio.run(evaluate(tasks(1), ["reference/echo"], score_output=score, output_dir="outputs"))
    [only] = result["models"][0]["results"]
    assert (only["score"], only["valid"], only["output"], only.get("timeout")) == (0.0, False, "", False)
    assert "cannot judge task-0" in str(only.get("error"))
    assert result["summary"][0]["errorCount"] == 1
    meta = result["summary"][0].get("meta") or {}
    assert (meta["score"]["mean"], meta["scored"]) == (None, 0)
    [journal] = workplace.glob("outputs/evals/*/*/journal.jsonl")
    [line] = [line for each in journal.read_text().splitlines() if (line := json.loads(each))["type"] == "scored"]
    assert (line["outcome"], line["reward"]) == ("unscored", None)


# Models


def test_two_models_of_one_id_are_two_models() -> None:
    async def use(server: ModelServer) -> None:
        models = [{"id": "twin", "modelId": name, "endpoint": server.url} for name in ("one", "two")]
        result = await evaluate(tasks(1), models)
        assert [model["modelId"] for model in result["models"]] == ["twin", "twin"]
        assert [r["output"] for m in result["models"] for r in m["results"]] == ["I am one", "I am two"]
        assert [each["name"] for each in result["meta"]["models"]] == ["twin", "twin[2]"]

    served(lambda asked: f"I am {asked.model}", use)


def test_what_a_model_says_of_itself_is_in_its_requests() -> None:
    async def use(server: ModelServer) -> None:
        model = Model(
            "label", model_id="served-name", base_url=server.url, headers={"X-Team": "blue"},
            sampling_args={"top_p": 0.5}, temperature=0.25, max_tokens=7,
            price={"input": 1.0, "output": 2.0},
        )  # fmt: skip
        chat_options = {"maxTokens": 9, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
        suite = [{"prompt": "a"}, {"prompt": "b", "chatOptions": chat_options}]
        result = await evaluate(suite, [model])
        first, second = server.asked
        assert (first.body["model"], first.headers["X-Team"], first.key) == ("served-name", "blue", None)
        assert {name: first.body[name] for name in ("top_p", "temperature", "max_tokens")} == {
            "top_p": 0.5, "temperature": 0.25, "max_tokens": 7,
        }  # fmt: skip
        assert "tools" not in first.body
        assert (second.body["max_tokens"], second.body["temperature"]) == (9, 0.25)
        assert second.body["tools"] == chat_options["tools"]
        summary = result["summary"][0]
        assert summary["usage"] == {
            "inputTokens": 20, "outputTokens": 10, "reasoningTokens": 0, "cachedTokens": 0, "requests": 2,
            "unreported": 0,
        }  # fmt: skip
        assert summary["cost"] == pytest.approx((20 * 1.0 + 10 * 2.0) / 1e6)

    served(lambda _: "yes", use)


def test_an_alias_of_the_registry_is_a_model(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(server: ModelServer) -> None:
        (workplace / "configs").mkdir()
        (workplace / "configs" / "endpoints.toml").write_text(
            f'[[endpoint]]\nendpoint_id = "house"\nmodel = "served"\nurl = "{server.url}"\nkey = "HOUSE_KEY"\n'
            'price = { input = 1.0, output = 1.0 }\n'
        )  # fmt: skip
        monkeypatch.setenv("HOUSE_KEY", "key-of-the-house")
        result = await evaluate(tasks(1), ["house", {"id": "again", "modelId": "house", "temperature": 0.5}])
        assert [each.key for each in server.asked] == ["key-of-the-house"] * 2
        assert {each.model for each in server.asked} == {"served"}
        assert sorted(each.body.get("temperature", -1) for each in server.asked) == [-1, 0.5]
        assert [model["modelId"] for model in result["summary"]] == ["house", "again"]
        assert [model["cost"] for model in result["summary"]] == [pytest.approx(15e-6)] * 2

    served(lambda _: "yes", use)


@dataclass
class MyTask:
    prompt: str
    expected: str
    match_mode: str = "exact"


@dataclass
class MyModel:
    id: str
    endpoint: str


@dataclass
class MyOptions:
    length_target: int = -1


def test_dataclasses_of_the_callers_will_do() -> None:
    async def use(server: ModelServer) -> None:
        result = await evaluate([MyTask("?", " YES ")], [MyModel("mine", server.url)], MyOptions())
        assert [(r["score"], r["valid"]) for r in result["models"][0]["results"]] == [(0.7, True)]

    served(lambda _: "yes", use)


def test_ours_will_do_and_options_by_keyword_win() -> None:
    suite = [Task(id="t", prompt="?", expected="yes", match_mode="exact")]
    options = Options(length_target=-1, persist=Persist(path="here.json"), run_id="first")
    result = asyncio.run(evaluate(suite, [Model("reference/oracle")], options, run_id="second"))
    assert [r["score"] for r in result["models"][0]["results"]] == [0.7]
    assert result["runId"] == "second"
    assert Path("here.json").is_file()


def test_files_of_tasks_and_models(workplace: Path) -> None:
    (workplace / "sums.json").write_text(json.dumps([{"id": "s", "prompt": "1 + 1", "expected": 2}]))
    (workplace / "models.toml").write_text(
        '[[model]]\nid = "good"\nmodel_id = "reference/oracle"\n[[model]]\nid = "reference/null"\n'
    )
    result = asyncio.run(evaluate("sums.json", "models.toml", output_dir="outputs"))
    assert [(m["modelId"], m["results"][0]["valid"]) for m in result["models"]] == [
        ("good", True), ("reference/null", False),
    ]  # fmt: skip
    folders = sorted(path.name for path in (workplace / "outputs" / "evals").iterdir())
    assert folders == ["sums--reference--null", "sums--reference--oracle"]


def test_a_run_of_files_is_one_that_a_command_can_go_on_with(workplace: Path) -> None:
    (workplace / "sums.json").write_text(json.dumps([{"id": "s", "prompt": "1 + 1", "expected": 2}]))
    (workplace / "judging.py").write_text("def score(call):\n    return len(call.output) / 1000\n")
    options = {"timeoutMs": 5000, "scoreOutput": "judging:score", "outputDir": "outputs"}
    asyncio.run(evaluate("sums.json", [{"id": "m", "modelId": "reference/oracle"}], options))
    [folder] = workplace.glob("outputs/evals/*/*/")
    [run] = resolve(str(folder / "config.toml"), {}).runs
    assert run.settings.env.env_args == {
        "tasks": "sums.json", "timeout_ms": 5000, "score_output": "judging:score", "model_id": "m",
    }  # fmt: skip
    environment = load_environment("multi-eval", **run.settings.env.env_args)
    assert identity_of(run, environment) == json.loads((folder / "run.json").read_text())["identity"]


@pytest.mark.parametrize("is_file", [True, False])
def test_errors_of_a_schema_name_the_model_as_results_do(is_file: bool, workplace: Path) -> None:
    suite = [{"prompt": "?", "schema": {"type": "object"}}]
    (workplace / "suite.json").write_text(json.dumps(suite))
    models = [{"id": "fast", "modelId": "reference/echo"}]
    result = asyncio.run(evaluate("suite.json" if is_file else suite, models))
    [[error]] = [each["errors"] for each in result["models"][0]["results"]]
    assert error == {"expertId": "fast", "errors": ["Output is not valid JSON"]}


# Refusals


def said_of(nothing: object) -> str:
    if not nothing:
        return "$"
    words = f'"{nothing}"' if isinstance(nothing, str) else f"a {type(nothing).__name__}"
    return f": {words} is neither a list, nor the path of a file that ends with .json, .jsonl, .toml$"


@for_each_row("nothing", [None, [], (), "tasks", {"id": "t"}, 7])
def test_tasks_are_required(nothing: Any) -> None:
    with pytest.raises(ValidationError, match=r"^Task list required" + said_of(nothing)):
        asyncio.run(evaluate(nothing, ["reference/oracle"]))


@for_each_row("nothing", [None, [], (), "gpt", {"id": "m"}, 7])
def test_models_are_required(nothing: Any) -> None:
    with pytest.raises(ValidationError, match=r"^Model configs required" + said_of(nothing)):
        asyncio.run(evaluate(tasks(1), nothing))


@for_each_row(
    ("models", "options", "words"),
    [
        ([{"provider": "openai", "id": "m"}], {}, r"^models\[0\] \(m\): Missing API key for provider 'openai'\. Set "
         r"OPENAI_API_KEY or LITELLM_API_KEY, or pass apiKey\.$"),
        ([{"provider": "opnai", "id": "m"}], {},
         r"^models\[0\] \(m\): unknown provider 'opnai'; did you mean 'openai'\?$"),
        (["reference/oracel"], {}, r"unknown reference model 'reference/oracel'; did you mean reference/oracle\?"),
        ([{"id": "m", "modelid": "x", "endpoit": "y"}], {}, "unknown key 'modelid'; did you mean \"modelId\""),
        ([{"modelId": "a", "model_id": "b"}], {}, r"^models\[0\]: 'model_id' means the same as 'modelId'; keep one"),
        ([{"provider": "openai"}], {}, r"^models\[0\]: the model has no name"),
        (["reference/oracle"], {"lengthTraget": 3},
         "options: unknown key 'lengthTraget'; did you mean \"lengthTarget\""),
        (["reference/oracle"], {"matchMode": "exakt"}, "did you mean \"exact\""),
        (["reference/oracle"], {"scoreOutput": 3}, "options: scoreOutput = 3: must be a function"),
        (["reference/oracle"], {"runId": "../x"}, "options: runId = \"../x\": must be a string of letters"),
        (["reference/oracle"], {"modelConcurrency": -1}, "options: modelConcurrency = -1: must be an integer of"),
        (["reference/oracle"], {"resume": True}, "options: resume and retryFailed need the folder of the earlier runs"),
        ([{"id": "reference/oracle", "samplingArgs": {"model": "other"}}], {}, r"^sampling_args\.model would replace"),
        (["reference/oracle"], {"apiKeys": {"no one": "k"}}, "options: apiKeys: 'no one' is neither the id of a model"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_sent(models: Any, options: JsonDict, words: str) -> None:
    events: list[str] = []
    with pytest.raises(ConfigError, match=words):
        asyncio.run(evaluate(tasks(1), models, options, on_event=lambda name, _: events.append(name)))
    assert events == []


# Keys


def test_a_literal_key_is_sent_and_written_nowhere(workplace: Path) -> None:
    secret, other = "tk-very-secret-1", "tk-very-secret-2"
    heard: list[JsonDict] = []

    async def use(server: ModelServer) -> None:
        models = [
            {"id": "a", "endpoint": server.url, "apiKey": secret, "headers": {"X-Api-Token": "tk-header-secret"}},
            {"id": "b", "endpoint": server.url, "api_key": other},
            {"id": "c", "endpoint": server.url},
        ]
        result = await evaluate(
            [{"id": "t", "prompt": "what is my key?"}], models, persist=True, output_dir="outputs",
            events="events.jsonl", on_event=lambda _, payload: heard.append(payload),
        )  # fmt: skip
        assert sorted(each.key or "" for each in server.asked) == ["", secret, other]
        assert {each.headers.get("X-Api-Token") for each in server.asked} == {"tk-header-secret", None}
        assert [r["output"] for m in result["models"] for r in m["results"]] == [
            "it is [redacted]", "it is [redacted]", "it is None",
        ]  # fmt: skip
        assert (result["persist"].get("stored"), len(heard)) == (True, 5)
        assert "tk-" not in json.dumps([result, heard])

    served(lambda asked: f"it is {asked.key}", use)
    files = [path for path in workplace.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"run.json", "config.toml", "journal.jsonl", "index.jsonl", "events.jsonl"}
    holding = [path for path in files if b"tk-very-secret" in path.read_bytes() or b"tk-header" in path.read_bytes()]
    assert holding == []


@for_each_row("url", ["http://me:{secret}@host/v1", "https://host/v1?key={secret}"])
def test_a_refused_address_is_told_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^models\[0\] \(m\): baseUrl = \S+ must not contain ") as refused:
        asyncio.run(evaluate(tasks(1), [{"id": "m", "baseUrl": url.format(secret="tk-in-the-address")}]))
    assert "tk-in-the-address" not in str(refused.value)


def test_a_literal_key_goes_to_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_API_KEY", "key-of-the-variable")

    async def use(server: ModelServer) -> None:
        async with ModelServer(lambda _: "yes") as other:
            models = [
                {"id": "a", "endpoint": server.url, "apiKey": "key-as-given"},
                {"id": "b", "endpoint": other.url, "apiKeyVar": "BENCH_API_KEY"},
            ]
            await evaluate(tasks(1), models)
            assert [each.key for each in server.asked] == ["key-as-given"]
            assert [each.key for each in other.asked] == ["key-of-the-variable"]

    served(lambda _: "yes", use)


def test_api_keys_are_given_by_id_or_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(server: ModelServer) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models = [{"id": "mine", "endpoint": server.url}, {"id": "gpt-x", "provider": "openai"}]
        await evaluate(tasks(1), models, api_keys={"mine": "key-by-id", "OPENAI_API_KEY": "key-by-variable"})
        assert {each.model: each.key for each in server.asked} == {"mine": "key-by-id", "gpt-x": "key-by-variable"}

    served(lambda _: "yes", use)
    assert redactor.text("key-by-id, key-by-variable") == "[redacted], [redacted]"


# Events


def test_events_come_in_order_and_an_async_listener_is_awaited(workplace: Path) -> None:
    heard: list[tuple[str, JsonDict]] = []

    async def listen(name: str, payload: JsonDict) -> None:
        await asyncio.sleep(0)
        heard.append((name, payload))

    result = asyncio.run(
        evaluate(
            tasks(2), ["reference/oracle", "reference/null"], persist=True, model_concurrency=1, on_event=listen,
            events="log/events.jsonl",
        )
    )  # fmt: skip
    run = {"runId": result["runId"]}
    assert heard == [
        ("multi-model:eval:start", {**run, "tasks": 2, "models": 2, "totalRuns": 4}),
        *[
            (
                "multi-model:eval:progress",
                {**run, "modelId": model, "taskId": task, "completed": number, "totalRuns": 4},
            )
            for number, (model, task) in enumerate(
                [(m, t) for m in ("reference/oracle", "reference/null") for t in ("task-0", "task-1")], 1
            )
        ],
        ("multi-model:eval:complete", {**run, "durationMs": result["durationMs"], "summary": result["summary"]}),
    ]
    lines = [json.loads(line) for line in (workplace / "log" / "events.jsonl").read_text().splitlines()]
    assert [(line["event"], line["payload"]) for line in lines] == heard
    assert all(list(line) == ["event", "at", "payload"] for line in lines)


def test_complete_is_told_before_anything_is_stored(workplace: Path) -> None:
    there: list[tuple[str, bool]] = []
    index = workplace / ".memory" / "multi-model-eval" / "index.jsonl"

    def listen(name: str, payload: JsonDict) -> None:
        there.append((name.rpartition(":")[2], index.exists()))

    asyncio.run(evaluate(tasks(1), ["reference/null"], persist=True, on_event=listen))
    assert there == [("start", False), ("progress", False), ("complete", False)]
    assert index.exists()


def test_a_listener_that_raises_costs_no_result(caplog: pytest.LogCaptureFixture) -> None:
    def listen(name: str, payload: JsonDict) -> None:
        raise ZeroDivisionError(name)

    with caplog.at_level(logging.WARNING, "harness.multi.events"):
        result = asyncio.run(evaluate(tasks(2), ["reference/null"], on_event=listen))
    assert result["summary"][0]["total"] == 2
    assert [each.getMessage() for each in caplog.records] == [
        "on_event failed at event multi-model:eval:start; later errors are not logged"
    ]


def test_a_listener_that_changes_what_it_is_told_changes_no_result() -> None:
    def listen(name: str, payload: JsonDict) -> None:
        for summary in payload.pop("summary", []):
            summary.clear()

    result = asyncio.run(evaluate(tasks(1), ["reference/null"], on_event=listen))
    assert result["summary"][0]["total"] == 1


# Folders


def test_without_an_output_folder_nothing_is_left(workplace: Path) -> None:
    result = asyncio.run(evaluate(tasks(1), ["reference/oracle"]))
    assert list(workplace.iterdir()) == []
    assert result["persist"] == {"enabled": False}
    assert (result["summary"][0].get("meta") or {})["run"] is None


FULL_DISK = """
import asyncio, json, resource, signal
from harness.multi import evaluate
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
tasks = [{"prompt": f"question {n} " * 20} for n in range(40)]
print(json.dumps(asyncio.run(evaluate(tasks, ["reference/echo"], persist=True, outputDir="outputs"))))
"""


@pytest.mark.slow
def test_a_journal_that_cannot_go_on_stops_its_model_and_what_there_is_is_told(workplace: Path) -> None:
    own_state = os.environ | {"XDG_STATE_HOME": str(workplace / "state")}  # that of all tests may be over the limit
    command = [sys.executable, "-c", FULL_DISK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True, env=own_state)
    result = json.loads(done.stdout)
    [summary] = result["summary"]
    assert (summary["aborted"], summary["meta"]["state"]) == (True, "failed")
    assert "journal.jsonl: File too large" in summary["stopReason"]
    assert summary["total"] == len(result["models"][0]["results"])
    assert 0 < summary["total"] == 40 - summary["notRun"] < 40
    assert (result["persist"]["stored"], result["persist"]["reason"]) == (False, "Persist failed")
    assert done.stderr.startswith("reference/echo: failed: cannot write outputs")


def test_a_journal_that_is_damaged_costs_the_other_models_nothing(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def damage(_: str, payload: JsonDict) -> None:
        if (payload.get("modelId"), payload.get("completed")) == ("bad", 1):
            [journal] = workplace.glob("outputs/evals/*--null/*/journal.jsonl")
            with journal.open("r+b") as file:
                file.write(b"no JSON")

    async def use(server: ModelServer) -> EvaluationResult:
        models = [{"id": "bad", "modelId": "reference/null"}, {"id": "good", "endpoint": server.url}]
        return await evaluate(tasks(3), models, output_dir="outputs", model_concurrency=1, on_event=damage)

    result = served(lambda _: "yes", use)
    bad, good = result["summary"]
    assert (bad["total"], bad["aborted"], bad["notRun"], good["total"]) == (0, True, 3, 3)
    assert "journal.jsonl" in str(bad["stopReason"]) and "byte 0" in str(bad["stopReason"])
    assert (bad["usage"]["inputTokens"], bad["cost"], good["usage"]["inputTokens"]) == (None, None, 30)
    assert [each.getMessage() for each in caplog.records] == [f"bad: failed: {bad['stopReason']}"]


def test_a_cancelled_evaluation_leaves_no_lock_and_is_gone_on_with(workplace: Path) -> None:
    hold = True

    async def answer(asked: Asked) -> str:
        return await never() if hold and asked.text == "question 2" else f"answer to {asked.text}"

    async def use(server: ModelServer) -> None:
        nonlocal hold
        models = [{"id": "m", "endpoint": server.url}]
        scored = asyncio.Event()

        def listen(_: str, payload: JsonDict) -> None:
            if payload.get("completed") == 2:
                scored.set()

        first = asyncio.ensure_future(evaluate(tasks(4), models, output_dir="outputs", on_event=listen))
        await server.until(lambda: len(server.asked) == 3, "the third task is asked")
        await scored.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await server.until(lambda: server.left, "its request is cut off")
        hold = False
        events: list[JsonDict] = []
        result = await evaluate(
            tasks(4), models, output_dir="outputs", resume=True, on_event=lambda _, payload: events.append(payload)
        )
        assert server.texts == [f"question {n}" for n in (0, 1, 2, 2, 3)]
        assert outcomes(result) == [[(f"task-{n}", f"answer to question {n}") for n in range(4)]]
        assert [payload.get("completed") for payload in events] == [None, 3, 4, None]

    served(answer, use)
    assert len(list(workplace.glob("outputs/evals/*/*/run.json"))) == 1


def test_the_run_folders_are_those_of_multi_runs(workplace: Path) -> None:
    asyncio.run(evaluate(tasks(1), [{"id": "m", "modelId": "reference/oracle"}], output_dir="outputs"))
    [manifest] = [json.loads(path.read_text()) for path in workplace.glob("outputs/evals/*/*/run.json")]
    assert (manifest["kind"], manifest["env_id"], manifest["name"]) == ("multi", "tasks", "m")
    assert manifest["model"] == "reference/oracle"
    [config] = workplace.glob("outputs/evals/*/*/config.toml")
    assert "of a Python program" in config.read_text()


def names(records: Sequence[JsonDict]) -> list[str]:
    return [each["modelId"] for each in records]


def test_the_models_are_compared_with_the_first() -> None:
    suite = [{"id": f"t{n}", "prompt": "?", "expected": "yes"} for n in range(6)]
    result = asyncio.run(evaluate(suite, ["reference/oracle", "reference/null", "reference/oracle"]))
    worse, same = result["meta"]["paired"]
    assert names([worse, same]) == ["reference/null", "reference/oracle"]
    assert (worse["baseline"], worse["model"], same["model"]) == ("reference/oracle", 1, 2)
    assert (worse["counted"]["losses"], worse["counted"]["wins"]) == (6, 0)
    assert (same["counted"]["difference"], same["counted"]["ties"]) == (0.0, 6)
    first, second = result["summary"][:2]
    assert worse["counted"]["difference"] == pytest.approx(second["avgScore"] - first["avgScore"])
