"""Environments of the classic API against scripted models: the loop and its hooks, tools, groups, datasets, and what an
author's own `rollout` may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from datasets import Dataset
from scripted_chat import ScriptedChat

from harness.core.errors import ConfigError, ContextLengthError, EnvironmentFault, ModelError, SystemicError, UsageError
from harness.core.records import Example
from harness.core.state import State
from harness.plugins.classic.context import current
from harness.plugins.classic.modules import module_of

ROWS = [{"question": "one", "answer": "1"}, {"question": "two", "answer": "2"}]


@pytest.fixture(params=["B", "C"])
def vf(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    token = current.set(request.param)
    yield module_of(request.param, "verifiers")  # type: ignore[misc]
    current.reset(token)


def is_b(vf: ModuleType) -> bool:
    return vf.__version__ == "0.1.9.post3"


def begin(env: Any, index: int = 0, **sampling_args: Any) -> State:
    row = env.row(index)
    example = Example("k", row.example_id, row.prompt, row.answer, row.task, row.info)
    return State.begin(example, 0, "scripted", {**env.sampling_args, **sampling_args})


def play(env: Any, *replies: object, index: int = 0, **sampling_args: Any) -> tuple[State, ScriptedChat]:
    env.settle()
    chat, state = ScriptedChat(replies), begin(env, index, **sampling_args)
    asyncio.run(env.rollout(state, chat))
    return state, chat


def calling(*calls: tuple[str, str]) -> dict[str, Any]:
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def test_a_single_turn(vf: ModuleType) -> None:
    few = [{"role": "user", "content": "zero"}, {"role": "assistant", "content": "0"}]
    env = vf.SingleTurnEnv(
        dataset=Dataset.from_list(ROWS), system_prompt="S", few_shot=few, rubric=vf.Rubric(), odd=5, max_workers=3
    )
    state, chat = play(env, "1", temperature=0.5)
    assert chat.asked[0].prompt == [
        {"role": "system", "content": "S"}, *few, {"role": "user", "content": "one"},
    ]  # fmt: skip
    assert chat.asked[0].sampling_args == {"temperature": 0.5}
    assert state["completion"] == [{"role": "assistant", "content": "1"}]
    assert (state["stop_condition"], state["is_completed"], env.odd, env.max_workers) == (
        "max_turns_reached",
        True,
        5,
        3,
    )
    assert state["trajectory"][0]["response"].choices[0].message.content == state["responses"][0].message.content == "1"
    assert isinstance(state, vf.State) and isinstance(state["trajectory"][0]["prompt"], list)


def test_a_completion_environment(vf: ModuleType) -> None:
    env = vf.SingleTurnEnv(dataset=[{"prompt": "once", "answer": ""}], message_type="completion", rubric=vf.Rubric())
    state, chat = play(env, " upon")
    assert (chat.asked[0].prompt, state["completion"], state["trajectory"][0]["completion"]) == (
        "once",
        " upon",
        " upon",
    )
    with pytest.raises(ValueError, match="message_type"):
        vf.SingleTurnEnv(dataset=ROWS, message_type="completion", system_prompt="S")
    with pytest.raises(ValueError, match="Either dataset or eval_dataset"):
        vf.SingleTurnEnv(rubric=vf.Rubric())


def counting(vf: ModuleType) -> Any:
    class Counting(vf.MultiTurnEnv):  # type: ignore[misc,name-defined]
        async def setup_state(self, state: Any, **kwargs: Any) -> Any:
            state["log"] = ["setup"]
            return state if is_b(vf) else None

        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            state["log"].append(f"env {len(messages)} {messages[-1]['content']}")
            if messages[-1]["content"] == "end":
                state["final_env_response"] = [{"role": "user", "content": "bye"}]
                return []
            return [{"role": "user", "content": "more"}]

        @vf.stop(priority=5)
        async def said_stop(self, state: Any) -> bool:
            return bool(state["trajectory"]) and state["trajectory"][-1]["completion"][-1]["content"] == "stop"

        @vf.cleanup
        async def second(self, state: Any) -> None:
            state["log"].append("second")

        @vf.cleanup(priority=1)
        async def first(self, state: Any) -> None:
            state["log"].append("first")

    return Counting


def test_the_loop_calls_the_hooks_in_order(vf: ModuleType) -> None:
    state, chat = play(counting(vf)(dataset=ROWS, rubric=vf.Rubric(), max_turns=5), "a", "end")
    assert state["log"] == ["setup", "env 2 a", "env 4 end", "first", "second"]
    assert [message["content"] for message in state["completion"]] == ["a", "more", "end", "bye"]
    assert (state["stop_condition"], len(chat.asked)) == ("has_final_env_response", 2)
    assert [message["content"] for message in cast(Any, chat.asked[1].prompt)] == ["one", "a", "more"]
    stopped, _ = play(counting(vf)(dataset=ROWS, rubric=vf.Rubric()), "a", "b", "stop")
    assert (stopped["stop_condition"], len(stopped["trajectory"])) == ("said_stop", 3)
    bounded, _ = play(counting(vf)(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a")
    assert (bounded["stop_condition"], len(bounded["trajectory"])) == ("max_turns_reached", 2)


def test_an_override_without_the_mark_is_no_stop_condition(vf: ModuleType) -> None:
    class Endless(counting(vf)):  # type: ignore[misc]
        async def max_turns_reached(self, state: Any) -> bool:
            return True

    state, _ = play(Endless(dataset=ROWS, rubric=vf.Rubric(), max_turns=1), "a", "stop")
    assert (state["stop_condition"], len(state["trajectory"])) == ("said_stop", 2)


def test_messages_are_of_the_packages_generation(vf: ModuleType) -> None:
    seen: list[bool] = []

    class Looking(counting(vf)):  # type: ignore[misc]
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            seen.extend("tool_calls" in message for message in messages)
            assert messages[-1].content == messages[-1]["content"] == "a"
            return {"role": "user", "content": "a single message"}

    state, _ = play(Looking(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a", "b")
    assert seen == ([False, False] if is_b(vf) else [False, True])
    assert [message["content"] for message in state["completion"]] == ["a", "a single message", "b"]


def test_an_error_of_the_api_fails_the_rollout_and_clean_up_still_runs(vf: ModuleType) -> None:
    cleaned: list[object] = []

    class Failing(counting(vf)):  # type: ignore[misc]
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            raise vf.SandboxError("down")

        @vf.cleanup
        async def put_away(self, state: Any) -> None:
            cleaned.append(state["error"])

    with pytest.raises(vf.InfraError, match="down"):
        play(Failing(dataset=ROWS, rubric=vf.Rubric()), "a")
    assert [str(error) for error in cleaned] == ["down"]


def test_a_prompt_that_no_longer_fits_ends_the_rollout_truncated(vf: ModuleType) -> None:
    env = counting(vf)(dataset=ROWS, rubric=vf.Rubric())
    state, _ = play(env, "a", ContextLengthError("too long"))
    assert (state["stop_condition"], state["is_truncated"], len(state["trajectory"])) == ("prompt_too_long", True, 1)


def test_a_failed_call_is_an_error_of_the_api_and_of_ours(vf: ModuleType) -> None:
    caught: list[BaseException] = []

    class Catching(counting(vf)):  # type: ignore[misc]
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            try:
                await self.get_model_response(state, [{"role": "user", "content": "aside"}])
            except vf.ModelError as error:
                caught.append(error)
            return [{"role": "user", "content": "go on"}]

    slow = ModelError("slow", status=503, retryable=True, reason="server_error")
    state, chat = play(Catching(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a", slow, "b")
    assert [(type(e).__name__, str(e)) for e in caught] == [("ModelError", "slow")] and caught[0].__cause__ is slow
    assert [message["content"] for message in cast(Any, chat.asked[1].prompt)] == ["aside"]
    assert len(state["trajectory"]) == 2
    with pytest.raises(ModelError) as failed:
        play(vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric()), slow)
    assert (failed.value.status, failed.value.retryable, failed.value.reason) == (503, True, "server_error")
    with pytest.raises(SystemicError):
        play(Catching(dataset=ROWS, rubric=vf.Rubric()), "a", SystemicError("dead"))


def test_an_author_may_ask_their_own_client(vf: ModuleType) -> None:
    class Own:
        def __init__(self) -> None:
            self.chat = self.completions = self

        async def create(self, **request: Any) -> Any:
            from openai.types.chat import ChatCompletion

            message = {"role": "assistant", "content": f"{request['model']}: {request['messages'][0]['content']}"}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            fields = {"id": "x", "object": "chat.completion", "created": 1, "model": "user", "choices": [choice]}
            return ChatCompletion.model_validate(fields)

    class Simulated(vf.MultiTurnEnv):  # type: ignore[misc,name-defined]
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            reply = await self.get_model_response(state, [messages[-1]], client=Own(), model="user")
            return [{"role": "user", "content": reply.choices[0].message.content}]

    state, chat = play(Simulated(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a", "b")
    assert state["completion"][1]["content"] == "user: a" and len(chat.asked) == 2

    class Other(Simulated):  # type: ignore[misc,valid-type]
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            return await self.get_model_response(state, messages, model="another")

    with pytest.raises(EnvironmentFault, match="'another'"):
        play(Other(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a", "b")


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
SAID = {"role": "assistant", "content": "mine"}


def _openai(message: dict[str, Any], **fields: Any) -> Any:
    from openai.types.chat import ChatCompletion

    choice = {"index": 0, "finish_reason": "stop", "message": message}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **fields}
    return ChatCompletion.model_validate(whole)


def _c() -> Any:
    return module_of("C", "verifiers")


def _typed(vf: ModuleType, **message: Any) -> Any:
    """As generation C builds a reply; the class answers to another name in generation B."""
    module = _c()
    made = module.ResponseMessage(**{"content": "mine", "finish_reason": "stop", "is_truncated": False, **message})
    return module.Response(id="r", created=1, model="m", usage=None, message=made)


REPLIES: dict[str, tuple[Callable[[ModuleType], Any], dict[str, Any]]] = {
    "a typed reply": (_typed, SAID),
    "one with reasoning": (lambda vf: _typed(vf, reasoning_content="hm"), {**SAID, "reasoning_content": "hm"}),
    "one with calls": (
        lambda vf: _typed(vf, tool_calls=[_c().ToolCall(id="c1", name="look", arguments='{"at": 1}')]),
        {**SAID, "tool_calls": [CALL]},
    ),
    "one cut off": (lambda vf: _typed(vf, is_truncated=True, finish_reason="length"), SAID),
    "an assistant message": (
        lambda vf: _c().Response(message=_c().AssistantMessage(content="mine")),
        SAID,
    ),
    "openai's": (lambda vf: _openai(SAID), SAID),
    "openai's with calls": (lambda vf: _openai({**SAID, "tool_calls": [CALL]}), {**SAID, "tool_calls": [CALL]}),
    "a dict of the wire": (lambda vf: {"choices": [{"message": SAID}]}, SAID),
    "a dict of the wire with usage": (
        lambda vf: {"choices": [{"message": SAID}], "usage": {"prompt_tokens": 3, "completion_tokens": None}}, SAID,
    ),
    "a dict with a message": (lambda vf: {"message": SAID, "usage": {"input_tokens": 3, "output_tokens": 1}}, SAID),
    "objects": (lambda vf: SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content="mine"))]), SAID),
    "an object with a message": (lambda vf: SimpleNamespace(message=SimpleNamespace(content="mine")), SAID),
    "an object with a dict": (lambda vf: SimpleNamespace(message=dict(SAID), usage=None), SAID),
}  # fmt: skip


@pytest.mark.parametrize("way", ["async", "plain", "mixin", "client", "client class"])
@pytest.mark.parametrize("kind", REPLIES)
def test_an_author_may_build_the_reply(vf: ModuleType, kind: str, way: str) -> None:
    make, expected = REPLIES[kind]

    class Mixin:
        async def get_model_response(self, state: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            return make(vf)

    class Plain:
        def get_model_response(self, state: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            return make(vf)

    class Asking:
        async def get_model_response(self, state: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().get_model_response(state, prompt, client=client, model="own")  # type: ignore[misc]

    class Raw:
        def __init__(self) -> None:
            self.chat = self.completions = self

        def create(self, **request: Any) -> Any:
            return make(vf)

    class Own(module_of("C", "verifiers").Client):  # type: ignore[misc,name-defined]
        async def get_native_response(self, prompt: Any, model: str, *args: Any, **kwargs: Any) -> Any:
            assert (prompt[0]["content"], model) == ("one", "own")
            return make(vf)

    client = Own(Raw()) if way == "client class" else Raw()
    mixin = {"plain": Plain, "mixin": Mixin, "async": Mixin}.get(way, Asking)
    body = dict(vars(mixin)) if way == "async" else {}
    bases = (vf.SingleTurnEnv,) if way == "async" else (mixin, vf.SingleTurnEnv)
    own = type("Authors", bases, {name: body[name] for name in body if name == "get_model_response"})
    state, chat = play(own(dataset=ROWS, rubric=vf.Rubric()), "unused")
    assert (chat.asked, state["completion"]) == ([], [expected])
    assert state["is_truncated"] is (kind == "one cut off")
    json.dumps(state.export()[0])
    assert (state["responses"][0] is not None) and state["stop_condition"] == "max_turns_reached"


def test_a_reply_that_is_none_is_the_environments_fault(vf: ModuleType) -> None:
    class Wrong(vf.SingleTurnEnv):  # type: ignore[misc,name-defined]
        async def get_model_response(self, state: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            return "a text"

    with pytest.raises(EnvironmentFault, match="a reply must have `choices` or a `message`, but str 'a text'"):
        play(Wrong(dataset=ROWS, rubric=vf.Rubric()), "unused")


def test_what_is_changed_in_a_reply_is_in_the_transcript(vf: ModuleType) -> None:
    class Trimming(vf.SingleTurnEnv):  # type: ignore[misc,name-defined]
        async def get_model_response(self, state: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            reply = await super().get_model_response(state, prompt, *args, **kwargs)
            message = reply.choices[0].message if is_b(vf) else reply.message
            message.content = message.content.strip()
            return reply

    state, _ = play(Trimming(dataset=ROWS, rubric=vf.Rubric()), " 1 ")
    assert state["completion"][0]["content"] == "1"

    class Swapping(vf.SingleTurnEnv):  # type: ignore[misc,name-defined]
        async def get_model_response(self, state: Any, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            reply = await super().get_model_response(state, prompt, *args, **kwargs)
            return reply.model_copy(update={"message": _c().AssistantMessage(content="other")})

    state, _ = play(Swapping(dataset=ROWS, rubric=vf.Rubric()), "1")
    assert state["completion"][0]["content"] == "other"


def test_an_author_may_play_the_rollout_alone(vf: ModuleType) -> None:
    class Alone(vf.Environment):  # type: ignore[misc,name-defined]
        async def rollout(self, input: Any, client: Any, model: Any, sampling_args: Any = None) -> Any:
            state = await self.init_state(input, client, model, sampling_args)
            reply = await client.chat.completions.create(model=model, messages=[dict(m) for m in state["prompt"]])
            state["completion"] = [{"role": "assistant", "content": reply.choices[0].message.content + "!"}]
            state["mine"] = sampling_args
            return state

    state, chat = play(Alone(dataset=ROWS, rubric=vf.Rubric()), "a", temperature=0.5)
    assert state["completion"] == [{"role": "assistant", "content": "a!"}]
    assert (state["mine"], chat.asked[0].prompt) == ({"temperature": 0.5}, [{"role": "user", "content": "one"}])

    class Twice(counting(vf)):  # type: ignore[misc]
        async def rollout(self, input: Any, client: Any, model: Any, sampling_args: Any = None) -> Any:
            state = await super().rollout(input, client, model, sampling_args)
            state["wrapped"] = True
            return state

    state, _ = play(Twice(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a", "b")
    assert state["wrapped"] and [m["content"] for m in state["completion"]] == ["a", "more", "b"]

    class Dict(vf.Environment):  # type: ignore[misc,name-defined]
        async def rollout(self, input: Any, client: Any, model: Any, sampling_args: Any = None) -> Any:
            return vf.State(input=dict(input), completion=[{"role": "assistant", "content": "made up"}], trajectory=[])

    state, _ = play(Dict(dataset=ROWS, rubric=vf.Rubric()))
    assert state["completion"][0]["content"] == "made up"


def test_blocking_hooks_do_not_hold_the_loop_up(vf: ModuleType) -> None:
    import threading

    threads: list[str] = []

    class Sync(vf.MultiTurnEnv):  # type: ignore[misc,name-defined]
        def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            threads.append(threading.current_thread().name)
            return [vf.Parser and {"role": "user", "content": "more"}]

    play(Sync(dataset=ROWS, rubric=vf.Rubric(), max_turns=2), "a", "b")
    assert threads == ["bench-offload"]


# Tools


def add(x: int, y: int = 1) -> int:
    """Add.

    Args:
        x: One number.
        y: Another.
    """
    return x + y


async def boom() -> str:
    """Fail."""
    raise RuntimeError("no")


def test_tools_are_called_in_order_and_told_as_messages(vf: ModuleType) -> None:
    env = vf.ToolEnv(tools=[add, boom], dataset=ROWS, rubric=vf.Rubric())
    state, chat = play(env, calling(("add", '{"x": 2}'), ("boom", "{}"), ("add", "no json"), ("none", "{}")), "done")
    told = state["completion"][1:5]
    assert [message["tool_call_id"] for message in told] == ["c0", "c1", "c2", "c3"]
    assert [message["content"] for message in told] == [
        "3",
        "no",
        "Expecting value: line 1 column 1 (char 0)",
        "'none'",
    ]
    assert [tool["function"]["name"] for tool in chat.asked[0].tools or []] == ["add", "boom"]
    assert (state["stop_condition"], list(env.tool_map)) == ("no_tools_called", ["add", "boom"])
    [score] = asyncio.run(env.rubric.score([state]))
    assert score.metrics == {"num_turns": 2.0, "total_tool_calls": 4.0, "add_calls": 2.0, "boom_calls": 1.0}
    shown = state["oai_tools"][0]["function"] if is_b(vf) else state["tool_defs"][0]
    assert shown["name"] == "add" and (is_b(vf) or shown.parameters["properties"]["x"]["description"] == "One number.")


def test_errors_may_end_the_rollout_and_are_told_as_the_author_likes(vf: ModuleType) -> None:
    env = vf.ToolEnv(tools=[boom], dataset=ROWS, rubric=vf.Rubric(), error_formatter=lambda e: type(e).__name__)
    state, _ = play(env, calling(("boom", "{}")), "done")
    assert state["completion"][1]["content"] == "RuntimeError"
    env = vf.ToolEnv(tools=[boom], dataset=ROWS, rubric=vf.Rubric(), stop_errors=[RuntimeError])
    with pytest.raises(vf.ToolCallError) as failed:
        play(env, calling(("boom", "{}")))
    assert isinstance(failed.value.__cause__, RuntimeError)
    env = vf.ToolEnv(tools=[boom], dataset=ROWS, rubric=vf.Rubric(), stop_errors=[ValueError])
    with pytest.raises(vf.ToolParseError):
        play(env, calling(("boom", "{")))


def test_tools_come_and_go(vf: ModuleType) -> None:
    env = vf.ToolEnv(dataset=ROWS, rubric=vf.Rubric())
    env.add_tool(add)
    env.add_tool(boom)
    env.remove_tool(add)
    _, chat = play(env, calling(("boom", "{}")), "done")
    assert [tool["function"]["name"] for tool in chat.asked[0].tools or []] == ["boom"]
    assert env.rubric.metric_names == ("num_turns", "total_tool_calls", "boom_calls")


def test_hidden_arguments_are_filled_in(vf: ModuleType) -> None:
    class Stateful(vf.StatefulToolEnv):  # type: ignore[misc,name-defined]
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(tools=[], **kwargs)
            self.add_tool(self.note, args_to_skip=["shelf"])

        async def setup_state(self, state: Any, **kwargs: Any) -> Any:
            state["shelf"] = []
            return await super().setup_state(state, **kwargs)

        def note(self, text: str, shelf: list[str]) -> str:
            """Keep a text."""
            shelf.append(text)
            return f"{len(shelf)} kept"

        def update_tool_args(self, tool_name: str, tool_args: Any, messages: Any, state: Any, **kwargs: Any) -> Any:
            assert tool_name == "note" and messages[-1]["tool_calls"]
            return {**tool_args, "shelf": state["shelf"]}

    state, chat = play(
        Stateful(dataset=ROWS, rubric=vf.Rubric()),
        calling(("note", '{"text": "a"}'), ("note", '{"text": "b"}')),
        "done",
    )
    assert state["shelf"] == ["a", "b"] and [m["content"] for m in state["completion"][1:3]] == ["1 kept", "2 kept"]
    assert list((chat.asked[0].tools or [])[0]["function"]["parameters"]["properties"]) == ["text"]


# Datasets and groups


def test_answers_and_columns_of_any_type_reach_reward_functions(vf: ModuleType) -> None:
    def right(completion: Any, answer: Any, info: Any, state: Any) -> float:
        assert state["input"]["level"] == ["hard"] and info == {"unit": "m"}
        return float(int(completion[-1]["content"]) == answer)

    rows = [{"question": "six", "answer": 6, "level": ["hard"], "info": '{"unit": "m"}', "example_id": "a"}]
    env = vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[right]))
    state, _ = play(env, "6")
    assert asyncio.run(env.rubric.score([state]))[0].reward == 1.0
    assert (env.row(0).answer, env.row(0).example_id) == ("6", 0)


def test_the_datasets_are_there_as_datasets(vf: ModuleType) -> None:
    env = vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS * 3), rubric=vf.Rubric(), system_prompt="S")
    assert env.get_dataset(n=2)["prompt"][1] == [
        {"role": "system", "content": "S"}, {"role": "user", "content": "two"},
    ]  # fmt: skip
    assert len(env.get_eval_dataset()) == len(env.dataset) == 6 and env.eval_dataset is None
    before = list(env.get_dataset()["example_id"])
    assert list(env.get_dataset(seed=1)["example_id"]) != before == list(env.get_dataset()["example_id"])
    env.dataset = [{"question": "another"}]
    assert env.row(0).prompt[-1]["content"] == "another" and env.row_count == 1


def test_rows_without_numbers_that_tell_them_apart_are_numbered_anew(vf: ModuleType) -> None:
    env = vf.SingleTurnEnv(dataset=[{**row, "example_id": 7} for row in ROWS], rubric=vf.Rubric())
    assert [env.row(index).example_id for index in range(2)] == [0, 1]


def test_a_dataset_may_be_built_late(vf: ModuleType) -> None:
    built: list[int] = []

    def build() -> Any:
        built.append(1)
        return Dataset.from_list(ROWS)

    env = vf.SingleTurnEnv(dataset=build, rubric=vf.Rubric())
    env.settle()
    assert built == []
    assert (env.row_count, built) == (2, [1])


def test_a_group_plays_and_scores_with_its_members(vf: ModuleType) -> None:
    seen: list[Any] = []

    def one(task: Any, info: Any, answer: Any) -> float:
        seen.append(task if is_b(vf) else info["env_id"])
        return float(answer == 1)

    def two(completion: Any) -> float:
        return 0.5

    first = vf.SingleTurnEnv(dataset=[{"question": "q", "answer": 1, "info": {"x": 1}}], rubric=vf.Rubric(funcs=[one]))
    second = vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[two]), system_prompt="S")
    group = vf.EnvGroup(envs=[first, second], env_names=["a", "b"])
    assert group.row_count == 3 and group.get_env_for_task("b") is second and group.env_map["a"] is first
    state, _ = play(group, "x")
    [score] = asyncio.run(group.rubric.score([state]))
    assert (score.reward, score.metrics, seen) == (1.0, {"one": 1.0, "num_turns": 1.0, "two": None}, ["a"])
    state, chat = play(group, "x", index=2)
    assert asyncio.run(group.rubric.score([state]))[0].metrics == {"one": None, "num_turns": 1.0, "two": 0.5}
    assert chat.asked[0].prompt == [{"role": "system", "content": "S"}, {"role": "user", "content": "two"}]
    for wrong in ({"envs": []}, {"envs": [first], "env_names": ["a", "b"]}):
        with pytest.raises(ValueError, match=r"at least one|must match"):
            vf.EnvGroup(**wrong)


# What is the run's business


def test_evaluating_is_what_bench_run_does(vf: ModuleType) -> None:
    env = vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(), env_id="kit")
    for name in ("evaluate", "generate", "evaluate_sync", "generate_sync"):
        with pytest.raises(UsageError, match="bench run kit"):
            getattr(env, name)(None, "model")


def test_a_run_changes_only_what_there_is_and_an_author_anything(vf: ModuleType) -> None:
    env = counting(vf)(dataset=ROWS, rubric=vf.Rubric())
    env.set_kwargs(max_turns=3, of_my_own=1)
    assert (env.max_turns, env.of_my_own) == (3, 1)
    token = current.set(None)
    try:
        env.set_kwargs(max_turns=4, score_rollouts=False)
        with pytest.raises(ConfigError, match="max_turns"):
            env.set_kwargs(max_turn=4)
    finally:
        current.reset(token)
    assert (env.max_turns, env.score_rollouts) == (4, False)


def test_sampling_args_are_nobody_elses(vf: ModuleType) -> None:
    given = {"temperature": 1.0, "extra_body": {"top_k": 3}}
    env = vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(), sampling_args=given)
    state, _ = play(env, "a")
    state["sampling_args"]["extra_body"]["top_k"] = 4
    env.sampling_args["temperature"] = 0.0
    assert given == {"temperature": 1.0, "extra_body": {"top_k": 3}}
    assert env.sampling_args["extra_body"] == {"top_k": 3}
