"""Tasks as an environment: rows and requests, time, and what of a rollout is scored and recorded."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scripted_chat import ScriptedChat
from tables import for_each_row
from workplace import here

from harness.core.errors import (
    ConfigError,
    ContextLengthError,
    EnvironmentFault,
    EvalFnError,
    ModelError,
    TaskTimeout,
    ValidationError,
)
from harness.core.keys import ExampleKeys, RolloutKeys
from harness.core.records import Example, Failed, Generated, Item, Row, Score
from harness.core.state import State
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Usage
from harness.engine import rollout
from harness.engine.environment_loader import load_environment
from harness.multi.environment import TaskEnv
from harness.multi.scoring import TaskOptions
from harness.multi.scoring_hook import HookCall, ScoringHook
from harness.multi.tasks import Task, TaskScore
from harness.rubrics.rubric import Rubric
from harness.store.codec import decode, encode
from harness.usercode.deadline import waiting

__all__ = ["here"]

OK = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}

TASKS: list[dict[str, Any]] = [
    {"id": "schema-task", "prompt": 'Return JSON: {"ok": true}', "schema": OK},
    {"prompt": "Say hello", "expected": "hello", "metadata": {"level": 3}},
    {"id": "free", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]},
]

TOOL = {"type": "function", "function": {"name": "lookup", "parameters": OK}}


def item_of(env: TaskEnv, index: int = 0) -> Item:
    keys = ExampleKeys()
    examples = [keys.example(env.row(each), each) for each in range(env.row_count)]
    return RolloutKeys({}).item(examples[index], 0)


def attempt(
    env: TaskEnv, chat: Chat, index: int = 0, *, timeout: float | None = None, retries: int = 0
) -> rollout.Attempt:
    return asyncio.run(
        rollout.generate(
            env, item_of(env, index), chat, sampling_args={"seed": 1}, timeout=timeout, max_retries=retries
        )
    )


def score(env: TaskEnv, state: State) -> Score:
    [said] = asyncio.run(rollout.score(env.rubric, [state], None))
    return said


def played(env: TaskEnv, reply: object, index: int = 0) -> tuple[State, Score]:
    made = attempt(env, ScriptedChat([reply]), index)
    assert isinstance(made.record, Generated), made.record
    return made.state, score(env, made.state)


# Rows


def test_a_task_becomes_a_row() -> None:
    env = TaskEnv(TASKS)
    assert env.row_count == 3
    assert env.row(0) == Row(
        "schema-task", [{"role": "user", "content": TASKS[0]["prompt"]}], "", "multi-eval", {"task": TASKS[0]}
    )
    assert env.row(1) == Row(
        "task-1",
        [{"role": "user", "content": "Say hello"}],
        "hello",
        "multi-eval",
        {"task": {"id": "task-1", **TASKS[1]}},
    )
    assert env.row(2).prompt == TASKS[2]["messages"]
    assert TaskEnv([{"prompt": "p", "expected": None}]).row(0).answer == "null"


def test_tasks_are_checked_with_their_options_before_the_run() -> None:
    for tasks, options, words in [
        ([{"id": "a", "prompt": "p", "schema": "lookup"}], {}, "task 'a': schema = \"lookup\": must be a schema"),
        (
            [{"id": "a", "prompt": "p", "schema": {"type": "bool"}}],
            {"schema_mode": "jsonschema"},
            "task 'a': the schema is",
        ),
        ([{"id": "a", "prompt": "p", "chatOptions": {"n": 3}}], {}, "task 'a': sampling_args.n is 3"),
        ([{"id": "a", "prompt": "p"}], {"chat_options": {"tools": 5}}, "task 'a': chatOptions.tools must be a list"),
        ([{"prompt": "p", "shema": 1}], {}, "task 0: unknown key 'shema'; did you mean \"schema\"?"),
    ]:
        with pytest.raises(ConfigError) as refused:
            TaskEnv(tasks, options=TaskOptions(**options))
        assert words in str(refused.value)
    with pytest.raises(ValidationError, match=r"^Task list required$"):
        TaskEnv([])


def test_only_what_acts_can_be_set() -> None:
    env = TaskEnv(TASKS)
    env.set_kwargs(sampling_args={"temperature": 0})
    with pytest.raises(ConfigError, match="unknown name; "):
        env.set_kwargs(system_prompt="no")


# Requests


def test_a_request_has_the_tasks_own_chat_options_or_those_of_all() -> None:
    common = {"temperature": 0.5, "maxTokens": 9, "tools": [TOOL]}
    tasks = [
        {"prompt": "a"},
        {"prompt": "b", "chatOptions": {"topP": 0.1, "seed": 7}},
        {"prompt": "c", "chatOptions": {}},
    ]
    env = TaskEnv(tasks, options=TaskOptions(chat_options=common))
    asked: list[tuple[object, object]] = []
    for index in range(3):
        chat = ScriptedChat(["x"])
        state = attempt(env, chat, index).state
        [request] = chat.asked
        assert request.prompt == [{"role": "user", "content": "abc"[index]}]
        assert state["sampling_args"] == {"seed": 1}
        asked.append((request.sampling_args, request.tools))
    assert asked == [
        ({"seed": 1, "temperature": 0.5, "max_tokens": 9}, [TOOL]),
        ({"seed": 7, "top_p": 0.1}, None),
        ({"seed": 1}, None),
    ]


def test_how_a_rollout_ends() -> None:
    env = TaskEnv(TASKS)
    state, _ = played(env, "hello", 1)
    assert state["completion"] == [{"role": "assistant", "content": "hello"}]
    assert (state["is_completed"], state["is_truncated"], state["stop_condition"]) == (True, False, "max_turns_reached")
    assert [step["completion"] for step in state["trajectory"]] == [state["completion"]]
    assert state["trajectory"][0]["prompt"] == state["prompt"]
    assert state["input"]["info"] == {"task": {"id": "task-1", **TASKS[1]}}


# What counts as an answer


@for_each_row(
    ("reply", "output_score", "valid", "is_truncated"),
    [
        ("<think>hello?</think> Hello.", 0.7 + 6 / 400 * 0.2, 1.0, False),
        ("<think>hello</think>", 0.3, 0.0, False),
        ("", 0.3, 0.0, False),
        ({"role": "assistant", "content": None, "refusal": "I will not say hello."}, 0.3, 0.0, False),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}, 0.3, 0.0, False),
        ({"role": "assistant", "content": [{"type": "text", "text": "hello"}]}, 0.7 + 5 / 400 * 0.2, 1.0, False),
        (
            ModelResponse({"role": "assistant", "content": "hel"}, "length", Usage(1, 1, requests=1)),
            0.3 + 3 / 400 * 0.2,
            0.0,
            True,
        ),
        (ModelResponse({"role": "assistant", "content": ""}, "content_filter"), 0.3, 0.0, False),
    ],
)
def test_whatever_a_model_says_is_scored_as_its_answer(
    reply: object, output_score: float, valid: float, is_truncated: bool
) -> None:
    state, said = played(TaskEnv(TASKS), reply, 1)
    assert said.reward == pytest.approx(output_score, abs=1e-15)
    assert said.metrics["valid"] == said.metrics["matched"] == valid
    assert said.reasons == {}
    assert state["is_truncated"] is is_truncated
    assert state["errors"] == ([] if valid else ["Expected output mismatch"])


@for_each_row(
    ("error", "reason"),
    [
        (ContextLengthError("the prompt is too long", status=400, reason="bad_request"), "bad_request"),
        (ModelError("429", status=429, retryable=True, reason="rate_limit"), "rate_limit"),
    ],
)
def test_a_request_that_fails_is_no_answer(error: ModelError, reason: str) -> None:
    record = attempt(TaskEnv(TASKS), ScriptedChat([error])).record
    assert isinstance(record, Failed)
    assert (record.reason, record.error, record.completion) == (reason, str(error), "")


# Metrics


def test_a_metric_that_does_not_apply_is_no_failure() -> None:
    env = TaskEnv(TASKS)
    assert env.rubric.metric_names == ("valid", "schema_valid", "matched", "tokens_estimate")
    assert env.rubric.reward_range == (0.0, 1.0)
    assert env.rubric.weights == {}
    assert [played(env, '{"ok": true}', index)[1] for index in range(3)] == [
        Score(0.7 + 12 / 400 * 0.2, {"valid": 1.0, "schema_valid": 1.0, "matched": None, "tokens_estimate": 3.0}),
        Score(0.3 + 12 / 400 * 0.2, {"valid": 0.0, "schema_valid": None, "matched": 0.0, "tokens_estimate": 3.0}),
        Score(0.5 + 12 / 400 * 0.2, {"valid": 1.0, "schema_valid": None, "matched": None, "tokens_estimate": 3.0}),
    ]


def test_a_metric_that_no_task_has_is_not_there() -> None:
    assert TaskEnv([{"prompt": "p"}]).rubric.metric_names == ("valid", "tokens_estimate")
    assert TaskEnv([{"prompt": "p", "expected": None}]).rubric.metric_names == ("valid", "matched", "tokens_estimate")


def test_errors_of_a_schema_name_the_model() -> None:
    words = ["Output is not valid JSON"]
    state, _ = played(TaskEnv(TASKS), "no")
    assert state["errors"] == [{"expertId": "scripted", "errors": words}]
    state, _ = played(TaskEnv(TASKS, options=TaskOptions(model_id="fast")), "no")
    assert state["errors"] == [{"expertId": "fast", "errors": words}]


def test_a_rubric_of_ones_own_comes_on_top_but_not_into_the_formula() -> None:
    env = TaskEnv(TASKS)
    with pytest.raises(EnvironmentFault, match="tasks are scored by the documented formula or the hook score_output"):
        env.rubric.add_reward_func(lambda state: 1.0)

    async def shouted(completion: Any) -> float:
        return float(completion[-1]["content"].isupper())

    env.add_rubric(Rubric([shouted], [0.0]))
    _, said = played(env, "HELLO", 1)
    assert (said.reward, said.metrics["shouted"], said.metrics["matched"]) == (0.7 + 5 / 400 * 0.2, 1.0, 1.0)


def test_an_option_acts_on_tasks_that_do_not_say() -> None:
    tasks = [
        {"prompt": "p", "expected": "hello"},
        {"prompt": "p", "expected": "hello", "matchMode": "contains"},
    ]
    env = TaskEnv(tasks, options=TaskOptions(match_mode="exact", length_target=-1))
    assert [played(env, "hello you", index)[1].reward for index in range(2)] == [0.3, 0.7]
    env = TaskEnv([{"prompt": "p", "schema": {"type": "integer"}}], options=TaskOptions(schema_mode="jsonschema"))
    assert played(env, "```\n3\n```")[1].metrics["schema_valid"] == 1.0


# From the journal


def restored(env: TaskEnv, index: int, reply: object) -> State:
    """The state of a rollout as a later process has it."""
    item = item_of(env, index)
    made = asyncio.run(
        rollout.generate(env, item, ScriptedChat([reply]), sampling_args={}, timeout=None, max_retries=0)
    )
    example, record = decode(encode(item.example)), decode(encode(made.record))
    assert isinstance(example, Example)
    assert isinstance(record, Generated)
    return State.restore(example, record, "scripted", {})


@for_each_row("expected", [None, True, 7, 7.0, 1e21, 2**70, "x", "", [1, "a"], "\ud83d"])
def test_a_restored_rollout_has_the_same_score(expected: object) -> None:
    tasks = [
        {
            "prompt": "p",
            "expected": expected,
            "schema": {"type": "string"},
            "matchMode": "exact",
            "metadata": {"a": [1]},
        }
    ]
    env = TaskEnv(tasks)
    reply = '"<think>no</think>7"'
    state = restored(env, 0, reply)
    known = set(state)
    live_state, live = played(env, reply)
    assert score(env, state) == live
    assert set(state) - known == {"errors"}
    assert state["errors"] == live_state["errors"]


# Hooks


def hooked(function: Callable[..., Any], **options: Any) -> TaskEnv:
    return TaskEnv(TASKS, options=TaskOptions(score_output=ScoringHook(function, "hooks:score"), **options))


def test_a_hook_scores_in_place_of_the_formula() -> None:
    calls: list[HookCall] = []

    def hook(call: HookCall) -> dict[str, Any]:
        calls.append(call)
        verdict = call.SchemaRegistry.validateCombinedOutput({call.modelId: call.output}, call.task["schema"])
        return {"score": 12.5, "valid": verdict["valid"], "errors": verdict["errors"]}

    env = hooked(hook, model_id="fast", schema_mode="jsonschema")
    assert env.rubric.metric_names == ("valid", "tokens_estimate")
    assert env.rubric.reward_range == (-math.inf, math.inf)
    state, said = played(env, '<think>x</think>```json\n{"ok": 1}\n```')
    assert said == Score(12.5, {"valid": 0.0, "tokens_estimate": 6.0})
    assert state["errors"] == [{"expertId": "fast", "errors": ["$.ok: 1 is not of type 'boolean'"]}]
    [call] = calls
    assert (call.task, call.output, call.modelId) == (env.tasks[0], '```json\n{"ok": 1}\n```', "fast")


def test_an_async_hook_is_awaited() -> None:
    async def hook(task: Task, output: str) -> bool:
        await asyncio.sleep(0)
        return task.metadata.get("level") == 3 and output == "hello"

    assert played(hooked(hook), "hello", 1)[1].reward == 1.0
    assert played(hooked(hook), "hello", 2)[1] == Score(0.0, {"valid": 0.0, "tokens_estimate": 2.0})


async def leaves() -> TaskScore:
    raise SystemExit(3)


async def cancels() -> None:
    raise asyncio.CancelledError


def _raises(error: BaseException) -> Callable[..., Any]:
    def hook(output: str) -> float:
        raise error

    return hook


@for_each_row(
    ("hook", "reason"),
    [
        (_raises(ValueError("boom")), "raised ValueError: boom"),
        (_raises(KeyError("x")), "raised KeyError: 'x'"),
        (lambda output: None, "returned None"),
        (lambda output: {"valid": True}, "returned a dict without 'score'; its keys: valid"),
        (lambda output: leaves(), "raised SystemExit: 3"),
        (lambda output: cancels(), "raised CancelledError: "),
    ],
)
def test_a_hook_that_fails_gives_no_score(hook: Callable[..., Any], reason: str) -> None:
    state, said = played(hooked(hook), "hello")
    assert said == Score(None, {"valid": None, "tokens_estimate": 2.0}, {"hooks:score": reason})
    assert "errors" not in state


def test_a_scorer_of_ours_that_fails_is_no_score_either() -> None:
    env = TaskEnv(TASKS)
    state, _ = played(env, "hello")
    state["info"]["task"] = {"id": "t"}
    said = score(env, state)
    assert said.reward is None
    assert said.reasons["*"].startswith("ConfigError: task 0 ('t'): the task has neither a prompt nor messages")


# Time


class Slow:
    """A model that never answers; it may wait in our own queue before."""

    model = "slow"

    def __init__(self, queue: float = 0.0, work: float = math.inf) -> None:
        self._queue, self._work = queue, work
        self.asked = self.cancelled = 0

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        self.asked += 1
        try:
            with waiting():
                await asyncio.sleep(self._queue)
            if self._work:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ModelResponse({"role": "assistant", "content": "at last"}, "stop")


@for_each_row(
    ("own", "common", "words"),
    [
        (10, 60_000, "10ms"),
        (None, 10, "10ms"),
        (0, 10.5, "10.5ms"),
        (-5, 10.0, "10ms"),
        (10, 0, "10ms"),
    ],
)
def test_a_task_that_takes_too_long_is_stopped(own: float | None, common: float, words: str) -> None:
    env = TaskEnv([{"prompt": "p", "timeoutMs": own}], options=TaskOptions(timeout_ms=common))
    chat = Slow()
    record = attempt(env, chat).record
    assert isinstance(record, Failed)
    assert (record.reason, record.retryable) == ("timeout", True)
    assert record.error == f"MultiModelEvaluator timeout after {words}"
    assert (chat.asked, chat.cancelled) == (1, 1)


def test_a_timeout_is_an_error_of_its_own_kind_and_tried_again() -> None:
    env = TaskEnv([{"prompt": "p", "timeoutMs": 5}])
    chat = Slow()
    record = attempt(env, chat, retries=2).record
    assert isinstance(record, Failed)
    assert (record.attempts, chat.asked, chat.cancelled) == (3, 3, 3)
    with pytest.raises(TaskTimeout):
        asyncio.run(env.rollout(State.begin(item_of(env).example, 0, "slow", {}), chat))


@for_each_row(("own", "common"), [(None, 0), (0, 0), (None, -1), (-1, -1)])
def test_without_a_bound_only_the_rollouts_own_counts(own: float | None, common: float) -> None:
    env = TaskEnv([{"prompt": "p", "timeoutMs": own}], options=TaskOptions(timeout_ms=common))
    record = attempt(env, Slow(), timeout=0.01).record
    assert isinstance(record, Failed)
    assert record.error == "the rollout took longer than 0.01 s"


def test_waiting_in_our_own_queue_is_not_the_models_time() -> None:
    env = TaskEnv([{"prompt": "p", "timeoutMs": 100}])
    made = attempt(env, Slow(queue=0.3, work=0), timeout=0.1)
    assert isinstance(made.record, Generated), made.record
    assert made.record.timing.waiting >= 0.3


def test_a_timeout_of_the_models_own_is_not_ours() -> None:
    env = TaskEnv([{"prompt": "p", "timeoutMs": 60_000}])
    record = attempt(env, ScriptedChat([TimeoutError("its own")])).record
    assert isinstance(record, Failed)
    assert record.reason == "environment_error"
    assert record.error.startswith("TimeoutError: its own")


# What a run is about


def test_a_fingerprint_says_what_the_arguments_do_not() -> None:
    plain = TaskEnv(TASKS)
    assert set(plain.fingerprint) == {"tasks_content", "options"}
    assert plain.fingerprint["options"] == {}
    same = [{**TASKS[0]}, {"id": "task-1", **TASKS[1]}, TASKS[2]]
    assert TaskEnv(same).fingerprint == plain.fingerprint
    assert TaskEnv(TASKS[:2]).fingerprint != plain.fingerprint
    assert TaskEnv([{**TASKS[0], "schema": {}}, *TASKS[1:]]).fingerprint != plain.fingerprint
    options = TaskOptions(match_mode="exact", timeout_ms=5, model_id="m")
    assert TaskEnv(TASKS, options=options).fingerprint["options"] == {"match_mode": "exact", "timeout_ms": 5}


def test_a_fingerprint_knows_the_hooks_code() -> None:
    first = hooked(print_nothing).fingerprint["score_output_source"]
    assert first == hooked(print_nothing).fingerprint["score_output_source"]
    assert first != hooked(print_little).fingerprint["score_output_source"]
    assert hooked(Nameless()).fingerprint["score_output_source"] != first
    assert (
        hooked(Nameless()).fingerprint["score_output_source"] == hooked(Nameless()).fingerprint["score_output_source"]
    )
    assert hooked(partial(print_nothing)).fingerprint["score_output_source"] == first


def test_a_fingerprint_knows_the_code_of_a_hook_that_was_typed_in() -> None:
    """Its source is nowhere, so a resume after a change has to see it in what was compiled."""
    bodies = (
        "return 0.0",
        "return 1.0",
        "return float(output in {'yes', 'no', 'may be'})",
        "return float(any(part == 'a' for part in output))",
        "return float(any(part == 'b' for part in output))",
    )
    program = (
        "import json, sys\n"
        "from harness.multi.environment import TaskEnv\n"
        "from harness.multi.scoring_hook import ScoringHook\n"
        "from harness.multi.scoring import TaskOptions\n"
        "for body in json.loads(sys.argv[1]):\n"
        "    names = {}\n"
        "    exec(f'def score(output):\\n    {body}', names)\n"
        "    options = TaskOptions(score_output=ScoringHook(names['score'], 'typed'))\n"
        "    print(TaskEnv([{'prompt': 'p'}], options=options).fingerprint['score_output_source'])\n"
    )

    def printed(seed: str) -> list[str]:
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program, json.dumps(bodies)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout.split()

    hashes = printed("1")
    assert len(set(hashes)) == len(bodies)
    assert "typed" not in hashes
    assert printed("2") == hashes


def print_nothing(output: str) -> float:
    return 0.0


def print_little(output: str) -> float:
    return 1.0


class Nameless:
    def __call__(self, output: str) -> float:
        return 0.0


# Loading


def test_an_environment_is_loaded_from_files(here: Path) -> None:
    (here / "tasks.json").write_text('[{"prompt": "p", "expected": "x"}]')
    (here / "hooks.py").write_text("def score(output): return 1.0\n")
    env = load_environment(
        "multi-eval",
        tasks="tasks.json",
        match_mode="exact",
        length_target=10,
        score_output="hooks:score",
        schema_mode="jsonschema",
        timeout_ms=5,
        chat_options={"temperature": 0},
        model_id="fast",
    )
    assert isinstance(env, TaskEnv)
    assert env.env_id == "multi-eval"
    assert [task.id for task in env.tasks] == ["task-0"]
    hook = env.options.score_output
    assert hook is not None
    assert (hook.name, [file.name for file in env.source_files]) == ("hooks:score", ["hooks.py"])
    assert (env.options.match_mode, env.options.length_target, env.options.schema_mode) == ("exact", 10, "jsonschema")
    assert (env.options.timeout_ms, env.options.chat_options, env.options.model_id) == (5, {"temperature": 0}, "fast")
    assert set(env.fingerprint) == {"tasks_content", "score_output_source"}
    assert list(env.fingerprint["score_output_source"]) == ["hooks.py"]
    assert env.fingerprint["tasks_content"] == TaskEnv([{"prompt": "p", "expected": "x"}]).fingerprint["tasks_content"]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"tasks": "taks.json"}, ConfigError, 'taks.json does not exist; did you mean "tasks.json"?'),
        ({"tasks": "tasks.json", "match_mode": "fuzzy"}, ConfigError, 'match_mode = "fuzzy": valid here: exact'),
        ({"tasks": "tasks.json", "score_output": "hooks"}, EvalFnError, "Invalid scoring hook 'hooks'"),
        ({"tasks": "tasks.json", "score_output": 5}, ConfigError, "score_output must be 'module:function', not 5"),
        ({"tasks": ["tasks.json"]}, ConfigError, "tasks must be the path of a file, not ['tasks.json']"),
        ({"tasks": "tasks.json", "chat_options": 5}, ConfigError, "chat_options = 5: must be a table"),
    ],
)
def test_wrong_arguments_are_told_as_they_are(
    here: Path, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    (here / "tasks.json").write_text('[{"prompt": "p"}]')
    with pytest.raises(kind) as refused:
        load_environment("multi-eval", **arguments)
    assert str(refused.value).startswith(words)
