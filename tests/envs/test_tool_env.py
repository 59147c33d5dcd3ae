"""Conversations with tools: what is answered, what ends them, what is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from scripted_chat import ScriptedChat, example_of
from tables import for_each_row

from harness import Rubric, State, ToolEnv
from harness.core.errors import (
    EnvironmentFault,
    ModelError,
    SystemicError,
    ThreadsHung,
    ToolCallError,
    ToolError,
    ToolParseError,
)
from harness.core.records import Generated
from harness.core.types import JsonDict, Message, Messages, Prompt
from harness.tools import read_tool

ROWS = [{"question": "q"}]


def call(name: str, arguments: str | dict[str, Any] = "{}", id: str = "c0") -> JsonDict:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def calls(*made: JsonDict) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def begin(env: ToolEnv, **fields: Any) -> State:
    return State.begin(example_of(env.row(0).prompt, **fields), 0, "m", {})


def play(env: ToolEnv, *replies: object, **fields: Any) -> tuple[State, ScriptedChat]:
    state, chat = begin(env, **fields), ScriptedChat([*replies, "done"])
    asyncio.run(env.rollout(state, chat))
    return state, chat


def answers(state: State) -> list[Any]:
    return [message["content"] for message in state["completion"] if message["role"] == "tool"]


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


def env_of(*tools: Callable[..., Any], **options: Any) -> ToolEnv:
    return ToolEnv(tools=tools, dataset=ROWS, **options)


def test_calls_are_answered_in_order_each_under_its_id() -> None:
    reply = calls(call("add", {"a": 1}, "x"), call("shout", {"text": "hi"}, "y"), call("add", {"a": 2, "b": 3}, "z"))
    state, chat = play(env_of(add, shout), reply)
    assert state["completion"] == [
        reply,
        {"role": "tool", "content": "2", "tool_call_id": "x"},
        {"role": "tool", "content": "HI", "tool_call_id": "y"},
        {"role": "tool", "content": "5", "tool_call_id": "z"},
        {"role": "assistant", "content": "done"},
    ]
    assert state["stop_condition"] == "no_tools_called"
    assert [[tool["function"]["name"] for tool in asked.tools or ()] for asked in chat.asked] == [["add", "shout"]] * 2
    assert chat.asked[0].tools == env_of(add, shout).tool_defs


def test_calls_of_one_reply_run_one_after_the_other() -> None:
    trace: list[str] = []

    async def step(name: str) -> str:
        trace.append(f"{name} begins")
        await asyncio.sleep(0)
        trace.append(f"{name} ends")
        return name

    play(env_of(step), calls(call("step", {"name": "one"}), call("step", {"name": "two"})))
    assert trace == ["one begins", "one ends", "two begins", "two ends"]


def test_a_reply_without_calls_ends_the_rollout_and_turns_are_bounded() -> None:
    state, chat = play(env_of(add), "the answer")
    assert (state["stop_condition"], len(chat.asked)) == ("no_tools_called", 1)
    state, chat = play(env_of(add), {"role": "assistant", "content": "no calls", "tool_calls": []})
    assert (state["stop_condition"], len(chat.asked)) == ("no_tools_called", 1)
    state, chat = play(env_of(add), *[calls(call("add", {"a": 1}))] * 20)
    assert (state["stop_condition"], len(chat.asked)) == ("max_turns_reached", 10)
    assert state["completion"][-1]["tool_calls"]  # nobody answers the last one
    state, chat = play(env_of(add, max_turns=2), *[calls(call("add", {"a": 1}))] * 20)
    assert len(chat.asked) == 2


def fails() -> None:
    raise ValueError("it is closed")


def fails_in_silence() -> None:
    raise ValueError


@for_each_row(
    ("made", "told"),
    [
        (call("fails"), "it is closed"),
        (call("fails_in_silence"), "ValueError"),
        (call("add", "{"), "add: the arguments are not valid JSON: Expecting property name enclosed in double quotes: "
                           "line 1 column 2 (char 1)"),
        (call("add", "[]"), "add: the arguments must be a JSON object, not list"),
        (call("add"), "add: argument 'a' is missing"),
        (call("add", {"a": 1, "c": 2}), "add: unknown argument 'c'; it takes a, b"),
        (call("ad"), "there is no tool 'ad'; did you mean 'add'? The tools are add, fails, fails_in_silence"),
        (call("unlike"), "there is no tool 'unlike'; The tools are add, fails, fails_in_silence"),
        ({"id": "c0", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}, "2"),
        ({"id": "c0", "name": "add", "arguments": '{"a": 1}'}, "2"),
    ],
)  # fmt: skip
def test_what_went_wrong_is_told_to_the_model_which_goes_on(made: JsonDict, told: str) -> None:
    state, _ = play(env_of(add, fails, fails_in_silence), calls(made))
    assert state["completion"][1:] == [
        {"role": "tool", "content": told, "tool_call_id": "c0"},
        {"role": "assistant", "content": "done"},
    ]


def test_the_error_formatter_gets_the_tools_own_exception() -> None:
    def words(error: Exception) -> str:
        return f"<{type(error).__name__}> {error}"

    state, _ = play(env_of(fails, error_formatter=words), calls(call("fails"), call("fails", "{")))
    assert answers(state)[0] == "<ValueError> it is closed"
    assert answers(state)[1].startswith("<ToolParseError> fails: the arguments are not valid JSON")


@for_each_row(
    ("formatter", "words"),
    [(lambda error: 1 / 0, "error_formatter raised ZeroDivisionError"), (lambda error: error, "must return a string")],
)
def test_a_broken_error_formatter_is_the_environments_fault(formatter: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        play(env_of(fails, error_formatter=formatter), calls(call("fails")))


@for_each_row(
    ("stop_errors", "made", "raised", "cause"),
    [
        ([ValueError], call("fails"), ToolCallError, ValueError),
        ([Exception], call("fails"), ToolCallError, ValueError),
        ([json.JSONDecodeError], call("add", "{"), ToolParseError, json.JSONDecodeError),
        ([ToolParseError], call("add", "{"), ToolParseError, json.JSONDecodeError),
        ([ToolError], call("nope"), ToolCallError, KeyError),
        ([KeyError], call("nope"), ToolCallError, KeyError),
        ([ToolCallError], call("add"), ToolCallError, ValueError),  # of pydantic
    ],
)
def test_an_error_that_is_to_stop_ends_the_rollout(
    stop_errors: list[type[Exception]], made: JsonDict, raised: type[Exception], cause: type[Exception]
) -> None:
    env = env_of(add, fails, stop_errors=stop_errors)
    state, chat = begin(env), ScriptedChat([calls(made), "done"])
    with pytest.raises(raised) as caught:
        asyncio.run(env.rollout(state, chat))
    assert type(caught.value) is raised and isinstance(caught.value.__cause__, cause)
    assert state["error"] is caught.value
    assert len(chat.asked) == 1 and len(state["completion"]) == 1


def test_other_errors_do_not_stop() -> None:
    state, _ = play(env_of(add, fails, stop_errors=[KeyError]), calls(call("fails"), call("add", "{")))
    assert answers(state)[0] == "it is closed" and len(answers(state)) == 2


class SandboxGone(EnvironmentFault):
    """Stands for any fault of what tools stand on."""


@for_each_row(
    "error",
    [
        ModelError("the judge is down"),
        SystemicError("no such key"),
        ThreadsHung("eight hang"),
        SandboxGone("no bubblewrap"),
    ],
)
@for_each_row("in_a_group", [False, True])
def test_a_fault_that_is_not_the_tools_is_never_told_to_the_model(error: Exception, in_a_group: bool) -> None:
    async def broken() -> None:
        raise ExceptionGroup("several", [ValueError("x"), error]) if in_a_group else error

    with pytest.raises(type(error)) as caught:
        play(env_of(broken), calls(call("broken")))
    assert caught.value is error


def test_a_group_of_the_tools_own_errors_is_told() -> None:
    async def broken() -> None:
        raise ExceptionGroup("several", [ValueError("x")])

    state, _ = play(env_of(broken), calls(call("broken")))
    assert answers(state) == ["several (1 sub-exception)"]


def test_a_cancelled_rollout_is_cancelled_also_inside_a_tool() -> None:
    async def main() -> str:
        started = asyncio.Event()

        async def waits() -> None:
            started.set()
            await asyncio.Event().wait()

        env = env_of(waits)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(env.rollout(begin(env), ScriptedChat([calls(call("waits")), "done"])))
            await started.wait()
            task.cancel()
        return "cancelled" if task.cancelled() else "told"

    assert asyncio.run(main()) == "cancelled"


def test_long_results_and_long_errors_are_capped() -> None:
    def talks(length: int, fail: bool = False) -> str:
        if fail:
            raise ValueError("e" * length)
        return "r" * length

    reply = calls(call("talks", {"length": 50_000}), call("talks", {"length": 50_000, "fail": True}))
    state, _ = play(env_of(talks, max_output_chars=10), reply)
    assert answers(state) == [f"{c * 5}\n[… 49,990 characters left out …]\n{c * 5}" for c in "re"]
    state, _ = play(env_of(talks), reply)
    assert [len(text) for text in answers(state)] == [20_000 + len("\n[… 30,000 characters left out …]\n")] * 2
    state, _ = play(env_of(talks, max_output_chars=None), reply)
    assert [len(text) for text in answers(state)] == [50_000] * 2


# Counts


def score(env: ToolEnv, state: State) -> dict[str, float | None]:
    (scored,) = asyncio.run(env.rubric.score([state]))
    return scored.metrics


def test_calls_are_counted_also_those_that_come_to_nothing() -> None:
    env = env_of(add, shout)
    state, _ = play(env, calls(call("add", {"a": 1}), call("add", "{"), call("nope")), calls(call("shout")))
    assert score(env, state) == {"num_turns": 3.0, "total_tool_calls": 4.0, "add_calls": 2.0, "shout_calls": 1.0}


def test_counts_come_back_with_a_journal() -> None:
    env = env_of(add)
    state, _ = play(env, calls(call("add", {"a": 1})))
    exported, lost = state.export()
    assert (exported, lost) == ({}, ())
    written: JsonDict = json.loads(json.dumps({"completion": state["completion"]}))
    record = Generated("key", "example", 0, written["completion"], state["stop_condition"])
    assert state.example is not None
    restored = State.restore(state.example, record, "m", {})
    assert score(env, restored) == {"num_turns": 2.0, "total_tool_calls": 1.0, "add_calls": 1.0}


def test_a_count_of_the_authors_own_is_left_alone() -> None:
    def add_calls(completion: Prompt) -> float:
        return 7.0

    env = env_of(add, rubric=Rubric([add_calls]))
    assert env.rubric.metric_names == ("add_calls", "num_turns", "total_tool_calls")


def test_the_model_cannot_set_a_hidden_argument() -> None:
    def read(path: str, root: str = "/data") -> str:
        return f"{root}/{path}"

    env = env_of(read_tool(read, hidden=["root"]))
    asked = [call("read", {"path": "a"}), call("read", {"path": "a", "root": "/etc"})]
    state, _ = play(env, calls(*asked))
    assert answers(state) == ["/data/a", "read: unknown argument 'root'; it takes path"]
    filled = asyncio.run(env.call_tool("read", {"path": "a", "root": "/srv"}, "c0"))
    assert filled.get("content") == "/srv/a"  # who calls the method is not the model


def test_a_tool_is_taken_away_by_what_it_was_added_as() -> None:
    one, other = read_tool(add, name="one"), read_tool(add, name="other")
    env = env_of(one, other)
    env.remove_tool(other)
    assert list(env.tool_map) == ["one"]
    with pytest.raises(EnvironmentFault, match="there is no tool 'other'"):
        env.remove_tool(other)


def test_tools_come_and_go_with_their_definitions_and_counts() -> None:
    env = ToolEnv(dataset=ROWS)
    assert (env.tool_defs, env.tools, env.rubric.metric_names) == ([], [], ("num_turns", "total_tool_calls"))
    env.add_tool(add)
    env.add_tool(shout)
    assert env.tools == [add, shout] and list(env.tool_map) == ["add", "shout"]
    assert asyncio.run(env.tool_map["shout"](text="x")) == "X"
    env.remove_tool(add)
    env.remove_tool("shout")
    env.add_tool(add)
    assert [tool["function"]["name"] for tool in env.tool_defs] == ["add"]
    assert env.rubric.metric_names == ("num_turns", "total_tool_calls", "add_calls")
    state, _ = play(env, calls(call("add", {"a": 1}), call("shout", {"text": "x"})))
    assert answers(state) == ["2", "there is no tool 'shout'; The tools are add"]
    with pytest.raises(EnvironmentFault, match="there is no tool 'shout'"):
        env.remove_tool(shout)


# Rows with tools of their own


def test_a_row_offers_some_of_the_tools() -> None:
    env = env_of(add, shout)
    for key, value in (("tool_defs", [env.tool_defs[0]]), ("oai_tools", json.dumps([env.tool_defs[0]]))):
        reply = calls(call("add", {"a": 1}), call("shout", {"text": "x"}))
        state, chat = play(env, reply, info={key: value})
        assert chat.asked[0].tools == [env.tool_defs[0]]
        assert answers(state) == ["2", "there is no tool 'shout'; The tools are add"]


def test_flat_definitions_of_a_row_are_sent_as_endpoints_want_them() -> None:
    flat = {"name": "add", "description": "Plus.", "parameters": {"type": "object"}}
    _, chat = play(env_of(add), "done", info={"tool_defs": [flat]})
    assert chat.asked[0].tools == [{"type": "function", "function": flat}]


def test_a_row_that_offers_what_there_is_not_is_the_environments_fault() -> None:
    flat = {"name": "fly", "parameters": {"type": "object"}}
    with pytest.raises(EnvironmentFault, match="a row's info lists tool 'fly', which is undefined"):
        play(env_of(add), calls(call("fly")), info={"tool_defs": [flat]})


# Overriding


def test_an_author_may_call_tools_in_another_way() -> None:
    class Refusing(ToolEnv):
        async def call_tool(self, tool_name: str, tool_args: JsonDict, tool_call_id: str, **kwargs: Any) -> Message:
            if tool_args.get("a") == 13:
                return {"role": "tool", "content": "not that one", "tool_call_id": tool_call_id}
            return await super().call_tool(tool_name, tool_args, tool_call_id)

        def format_result(self, tool_name: str, result: object) -> str:
            return f"{tool_name} says {result!r}"

    state, _ = play(Refusing(tools=[add], dataset=ROWS), calls(call("add", {"a": 13}), call("add", {"a": 1})))
    assert answers(state) == ["not that one", "add says 2"]


def test_an_author_may_add_to_the_answers() -> None:
    class Chatty(ToolEnv):
        async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
            told = await super().env_response(messages, state)
            assert isinstance(told, list)
            return [*told, {"role": "user", "content": "go on"}]

    state, _ = play(Chatty(tools=[add], dataset=ROWS), calls(call("add", {"a": 1})))
    assert [message["role"] for message in state["completion"]] == ["assistant", "tool", "user", "assistant"]


@for_each_row(
    ("options", "words"),
    [
        ({"message_type": "completion"}, "tools require message_type='chat'"),
        ({"tool_defs": [{"type": "function"}]}, "pass the tools as functions"),
        ({"oai_tools": [{"type": "function"}]}, "pass the tools as functions"),
        ({"tools": [add, add]}, "two tools are called 'add'"),
        ({"tools": ["add"]}, "a tool must be a function"),
        ({"max_output_chars": 0}, "max_output_chars"),
        ({"stop_errors": ["ValueError"]}, "stop_errors"),
        ({"max_trns": 3}, "did you mean 'max_turns'"),
        ({"stop_error": []}, "did you mean 'stop_errors'"),
    ],
)
def test_wrong_options_are_refused_at_construction(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        ToolEnv(dataset=ROWS, **options)


def test_call_tool_must_be_async_and_take_what_it_is_called_with() -> None:
    class Plain(ToolEnv):
        def call_tool(self, tool_name: str, tool_args: JsonDict, tool_call_id: str, **kwargs: Any) -> Any:
            return {}

    class Short(ToolEnv):
        async def call_tool(self, tool_name: str) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            return {}

    with pytest.raises(EnvironmentFault, match=r"Plain\.call_tool must be async def"):
        Plain(dataset=ROWS)
    with pytest.raises(EnvironmentFault, match=r"Short\.call_tool must take"):
        Short(dataset=ROWS)


def test_settings_of_a_run_reach_it() -> None:
    env = env_of(add)
    env.set_kwargs(max_output_chars=5, max_turns=3)
    assert (env.max_output_chars, env.max_turns) == (5, 3)
    for name in ("tool_map", "tools"):
        with pytest.raises(Exception, match="unknown name"):
            env.set_kwargs(**{name: []})
