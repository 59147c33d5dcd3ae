"""`harness.evaluate`: runs from Python, as the command makes them."""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from bench_runs import served
from workplace import MODULES

import harness
from harness import Rubric, SingleTurnEnv, aevaluate, evaluate
from harness.core.errors import ConfigError, EnvironmentLoadError, EnvironmentNotFound, UsageError
from harness.core.types import ModelCall, ModelResponse, Usage


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(MODULES))


def right(completion: list[dict[str, str]], answer: str) -> float:
    return float(completion[-1]["content"] == answer)


class Sums(SingleTurnEnv):
    def __init__(self, count: int = 4, **options: object) -> None:
        rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(count)]
        super().__init__(dataset=rows, rubric=Rubric([right]), **options)  # pyright: ignore[reportArgumentType]

    def reference_reply(self, example: harness.Example, messages: object) -> str:
        return example.answer


class Adder:
    """A client of the caller's own."""

    asked = 0

    async def request(self, call: ModelCall) -> ModelResponse:
        self.asked += 1
        question = call.prompt if isinstance(call.prompt, str) else str(call.prompt[-1].get("content"))
        number = int(question.split()[0]) + 1
        return ModelResponse({"role": "assistant", "content": str(number)}, "stop", Usage(3, 1, requests=1))


def test_names_and_settings_are_those_of_the_command() -> None:
    runs = evaluate("reverse-text,wordle", "reference/oracle", num_examples=3, rollouts_per_example=2, progress=False)
    assert [(run.env_id, run.state, run.note) for run in runs] == [("reverse-text", "done", ""), ("wordle", "done", "")]
    assert [run.summary.scored for run in runs if run.summary] == [6, 6]
    assert len(runs.rows()) == 12 and set(runs.rows()["reward"]) == {1.0}
    assert all((path / "summary.json").exists() for path in runs.paths)
    [suite] = Path("outputs/suites").glob("*.json")
    assert len(json.loads(suite.read_text())["runs"]) == 2
    assert "reverse-text" in repr(runs) and "6 of 6" in repr(runs)


def test_an_object_and_a_client_of_ones_own_and_resume() -> None:
    client = Adder()
    [run] = evaluate(Sums(), client=client, rollouts_per_example=2, num_examples=-1, progress=False)
    assert (run.env_id, run.model, run.state) == ("sums", "Adder", "done")
    assert run.summary is not None and (run.summary.scored, run.summary.reward.estimate.mean) == (8, 1.0)
    assert client.asked == 8 and list(run.messages()["role"]).count("assistant") == 8
    [again] = Sums().evaluate(client=client, rollouts_per_example=2, num_examples=-1, resume=True, progress=False)
    assert again.path == run.path and client.asked == 8


def test_a_client_of_another_loop_is_told_so() -> None:
    class Queued(Adder):
        def __init__(self) -> None:
            self.slots = asyncio.Queue[None](1)

        async def request(self, call: ModelCall) -> ModelResponse:
            await self.slots.get()
            return await super().request(call)

    async def made() -> Queued:
        client = Queued()
        asyncio.get_running_loop().call_soon(client.slots.put_nowait, None)
        await client.slots.get()  # from here on the queue belongs to this loop
        return client

    [run] = evaluate(Sums(1), client=asyncio.run(made()), num_examples=1, rollouts_per_example=1, progress=False)
    [error] = run.rows()["error"]
    assert error.startswith("environment_error: Queued.request: <Queue at ")
    assert "the client belongs to another event loop: call `await aevaluate(…)` in that loop, or open " in error


def test_a_changed_environment_is_another_run() -> None:
    [run] = evaluate(Sums(), "reference/oracle", num_examples=-1, progress=False)
    [other] = evaluate(Sums(5), "reference/oracle", num_examples=-1, resume=True, progress=False)
    assert other.path == run.path and other.summary is not None and other.summary.resumed == 12
    assert other.summary.scored == 15


def test_a_notebooks_loop_may_run() -> None:
    async def cell() -> list[str]:
        inside = evaluate(Sums(), "reference/oracle", num_examples=2, progress=False)
        awaited = await aevaluate(Sums(), "reference/oracle", num_examples=2, progress=False)
        return [run.state for run in (*inside, *awaited)]

    assert asyncio.run(cell()) == ["done", "done"]


def test_an_openai_client_lends_its_address_and_key(tmp_path: Path) -> None:
    from openai import AsyncOpenAI

    with served(
        ["bench", "serve", "--port", "0", "--env", "reverse-text", "--policy", "oracle"], tmp_path, os.environ
    ) as server:
        client = AsyncOpenAI(base_url=server.url, api_key="sk-of-a-program-0123456789")
        [run] = evaluate("reverse-text", "some-model", client=client, num_examples=2, progress=False)
        with pytest.raises(UsageError, match="model is missing"):
            evaluate("reverse-text", client=client, progress=False)
    assert run.state == "done" and run.summary is not None and run.summary.reward.estimate.mean == 1.0
    assert run.path is not None
    assert not [path for path in run.path.rglob("*") if path.is_file() and b"of-a-program" in path.read_bytes()]


def test_a_budget_stops_and_says_so() -> None:
    [run] = evaluate(
        "reverse-text", "reference/oracle", num_examples=50, max_concurrent=1, max_tokens_total=200, progress=False
    )
    assert run.state == "stopped" and "budget" in run.note


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_exmaples": 3}, ConfigError, "num_exmaples: unknown setting; did you mean"),
        ({"num_examples": 0}, ConfigError, "num_examples 0: num_examples must be -1"),
        ({"client": object()}, UsageError, "client must be an openai client"),
        ({"client": Adder(), "environments": "suite.toml"}, UsageError, "a suite file already names its models"),
        ({"environments": "revrse-text"}, EnvironmentNotFound, "did you mean 'reverse-text'?"),
        ({"environments": [Sums(), Sums()]}, UsageError, "two environments are called 'sums'"),
        ({"environments": []}, UsageError, "environments: is empty; give at least one name"),
        ({"environments": Sums}, UsageError, "not the class Sums; call it: Sums"),
        ({"environments": right}, UsageError, "not the function right; call it: right"),
        ({"environments": ["wordle", None]}, UsageError, r"environments\[1\]: must be a name, .*not NoneType"),
        ({"environments": Sums(env_id="a,b")}, UsageError, "env_id 'a,b': must not contain a comma"),
        ({"environments": "a b"}, ConfigError, 'environments "a b": env_id must be'),
        ({"model": Adder()}, UsageError, "model: must be the name of a model, not Adder; pass a client as client="),
        ({"env_args": [1]}, ConfigError, r"env_args \[1\]: env_args must be a table"),
        ({"state_columns": 3}, ConfigError, "state_columns 3: state_columns must be a list"),
        ({"max_cost": "five"}, ConfigError, "max_cost=five: must be an amount"),
        ({"retry_failed": True}, UsageError, "retry_failed=True requires resume=True or resume_from"),
        ({"resume": True, "resume_from": "x"}, UsageError, "resume=True and resume_from are mutually exclusive"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("?", r"\?")):
        environments, model = arguments.pop("environments", "reverse-text"), arguments.pop("model", None)
        evaluate(cast("str", environments), cast("str", model), progress=False, **arguments)
    assert not Path("outputs").exists()


def test_unsaved_runs_have_no_rows() -> None:
    runs = evaluate("reverse-text", "reference/oracle", num_examples=2, save_results=False, progress=False)
    [run] = runs
    assert run.path is None and run.summary is not None and run.summary.scored == 6
    for read in (run.rows, run.messages, runs.rows, runs.messages):
        with pytest.raises(UsageError, match="save_results=False"):
            read()


def test_numbers_of_numpy_and_paths_are_values_of_settings(tmp_path: Path) -> None:
    [run] = evaluate(
        "reverse-text",
        "reference/oracle",
        num_examples=np.int64(2),
        rollouts_per_example=np.int32(1),
        env_args={"seed": np.int64(3)},
        sampling_args={"temperature": np.float32(0.5), "stop": np.array(["x"])},
        shuffle=np.bool_(True),
        output_dir=tmp_path / "here",
        max_tokens_total=np.int64(10_000),
        progress=False,
    )
    assert run.path is not None and run.path.is_relative_to(tmp_path / "here") and len(run.rows()) == 2
    settings = tomllib.loads((run.path / "config.toml").read_text())["eval"][0]
    assert settings["env"]["env_args"] == {"seed": 3} and settings["env"]["shuffle"] is True
    assert settings["model"]["sampling_args"] == {"temperature": 0.5, "stop": ["x"]}


def test_environments_that_cannot_be_loaded_are_failed_runs_beside_others(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def load_environment():\n    raise ValueError('no dataset')\n")
    runs = evaluate([broken, "reverse-text"], "reference/oracle", num_examples=2, progress=False)
    assert [(run.name, run.state) for run in runs] == [("broken", "failed"), ("reverse-text", "done")]
    assert "no dataset" in runs[0].note and (runs[0].path, runs[0].summary) == (None, None)
    assert len(runs.rows()) == 6 and "no dataset" in " ".join(repr(runs).split())
    [suite] = Path("outputs/suites").glob("*.json")
    assert json.loads(suite.read_text())["failed"] == ["broken"]
    with pytest.raises(EnvironmentLoadError, match="no dataset"):
        evaluate([broken, broken], "reference/oracle", num_examples=2, progress=False)
