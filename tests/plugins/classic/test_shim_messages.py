"""Messages, tool calls, replies and states of both generations: read in every way that the API's tables name."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from scripted_chat import example_of

from harness.core.errors import EnvironmentFault, StateLost
from harness.core.records import Generated
from harness.core.state import State
from harness.core.types import ModelResponse, Usage
from harness.plugins.classic.context import current
from harness.plugins.classic.messages import (
    AssistantMessage,
    SystemMessage,
    Tool,
    ToolCall,
    ToolMessage,
    TypedMessage,
    UserMessage,
    message_of,
    messages_of,
    tools_of,
    tools_to_wire,
)
from harness.plugins.classic.responses import as_response, response_of
from harness.plugins.classic.state import Milliseconds, RolloutTiming, classic_state

WIRE: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}],
}


@pytest.fixture(params=["B", "C"])
def kind(request: pytest.FixtureRequest) -> Iterator[Any]:
    token = current.set(request.param)
    yield request.param
    current.reset(token)


def test_a_message_is_read_in_three_ways_and_equals_its_dict(kind: Any) -> None:
    message = message_of({"role": "user", "content": "hi", "name": "Ann"})
    assert (message["content"], message.get("content"), message.content) == ("hi", "hi", "hi")
    assert message == {"role": "user", "content": "hi", "name": "Ann"}
    assert (message.get("absent"), message.get("absent", 3)) == (None, 3)
    message.content = "ho"
    assert message["content"] == "ho"
    with pytest.raises(AttributeError):
        _ = message.absent
    with pytest.raises(KeyError):
        message["absent"]


def test_a_tool_call_is_read_flat_and_nested(kind: Any) -> None:
    call = message_of(WIRE)["tool_calls"][0]
    assert call["function"]["name"] == call.function.name == call.name == call["name"] == "add"
    assert call["function"]["arguments"] == call.arguments == call.get("arguments") == '{"x": 1}'
    assert (call.id, call["id"], call.get("type")) == ("c1", "c1", "function")
    call.arguments = "{}"
    assert call["function"] == {"name": "add", "arguments": "{}"}


def test_whether_there_are_tool_calls_is_asked_as_each_generation_asks() -> None:
    said = {"role": "assistant", "content": "hi", "tool_calls": None}
    plain, typed = message_of(said, "B"), message_of(said, "C")
    assert ("tool_calls" in plain, "tool_calls" in typed) == (False, True)
    assert plain.get("tool_calls", []) == []
    with pytest.raises(KeyError):
        plain["tool_calls"]
    assert typed["tool_calls"] is typed.tool_calls is typed.reasoning_content is None
    assert "tool_calls" not in message_of({"role": "user", "content": ""}, "C")
    assert message_of(WIRE, "B")["content"] == ""
    assert message_of(WIRE, "C")["content"] is None


def test_typed_messages_are_what_their_role_says() -> None:
    kinds = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage}
    for role, made in kinds.items():
        assert type(message_of({"role": role, "content": "x"}, "C")) is made
    answer = message_of({"role": "tool", "content": "3", "tool_call_id": "c1"}, "C")
    assert isinstance(answer, ToolMessage) and answer.tool_call_id == "c1"
    assert isinstance(message_of(WIRE, "C").tool_calls[0], ToolCall)
    assert not isinstance(message_of(WIRE, "B"), TypedMessage)


def test_messages_that_authors_make_go_out_as_the_wire_wants_them() -> None:
    call = ToolCall(id="c1", name="add", arguments='{"x": 1}')
    assert call.model_dump() == {"id": "c1", "name": "add", "arguments": '{"x": 1}'}
    message = AssistantMessage(content=None, tool_calls=[call])
    assert json.loads(orjson.dumps(message)) == json.loads(json.dumps(message)) == WIRE
    assert UserMessage(content="x").model_dump(exclude_none=True) == {"role": "user", "content": "x"}
    assert AssistantMessage(content="x").model_dump()["tool_calls"] is None
    parts = UserMessage(content=[{"type": "text", "text": "look"}])
    assert parts.content[0].text == parts["content"][0]["text"] == "look"
    with pytest.raises(TypeError, match="requires the argument `content`"):
        UserMessage()


def test_a_message_survives_copying(kind: Any) -> None:
    message = message_of(WIRE)
    for made in (copy.deepcopy(message), copy.copy(message), message.copy(), pickle.loads(pickle.dumps(message))):
        assert made == message and type(made) is type(message) and made.tool_calls[0].name == "add"
    assert message.model_copy(update={"content": "x"}).content == "x"


def test_what_is_no_message_is_refused(kind: Any) -> None:
    assert messages_of("text") == "text"
    assert messages_of({"role": "user", "content": "x"}) == [{"role": "user", "content": "x"}]
    for wrong in (5, [5], [{"content": "no role"}], None):
        with pytest.raises(EnvironmentFault, match="message"):
            messages_of(wrong)


def test_tools_go_over_and_back() -> None:
    wire = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]
    [typed] = tools_of(wire, "C")
    assert isinstance(typed, Tool) and (typed.name, typed["parameters"], typed.strict) == (
        "f",
        {"type": "object"},
        None,
    )
    assert tools_to_wire([typed]) == tools_to_wire(wire) == tools_of(wire, "B") == wire


def test_a_reply_is_read_as_both_generations_read_it(kind: Any) -> None:
    usage = Usage(input_tokens=7, output_tokens=5, reasoning_tokens=2, requests=1)
    reply = response_of(ModelResponse(dict(WIRE), "length", usage, "m-1", "r1"), is_text=False, model="m")
    message = reply.choices[0].message
    assert (message.content, message.tool_calls[0].function.name, message.refusal) == (None, "add", None)
    assert (reply.choices[0].finish_reason, reply.id, reply.model, reply.object) == (
        "length", "r1", "m-1", "chat.completion",
    )  # fmt: skip
    assert (reply.message.tool_calls[0].name, reply.message.finish_reason, reply.message.is_truncated) == (
        "add", "length", True,
    )  # fmt: skip
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage["total_tokens"]) == (7, 5, 12)
    assert reply.is_truncated and reply.said == messages_of([WIRE])
    text = response_of(ModelResponse({"content": "so"}, "stop", Usage(unreported=1)), is_text=True, model="m")
    assert (text.choices[0].text, text.said, text.usage, text.model) == ("so", "so", None, "m")


def test_a_reply_of_the_openai_package_is_read_too() -> None:
    from openai.types.chat import ChatCompletion

    fields = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    theirs = ChatCompletion.model_validate(
        {**fields, "choices": [{"index": 0, "finish_reason": "stop", "message": WIRE}]}
    )
    reply = as_response(theirs)
    assert (reply.id, reply.choices[0].message.tool_calls[0].name, reply.is_truncated) == ("x", "add", False)


# States


def adopted(kind: Any, columns: dict[str, Any] | None = None) -> State:
    return classic_state(State.begin(example_of(answer="5", info={"a": 1}), 0, "m", {"t": 1}), kind, columns)


def test_a_state_forwards_reading_but_not_asking(kind: Any) -> None:
    state = adopted(kind)
    assert (state["answer"], state.get("info"), state["input"]["answer"]) == ("5", {"a": 1}, "5")
    assert "answer" not in state and "answer" in state["input"]
    state["answer"] = "6"
    assert state["input"]["answer"] == "6"
    assert (state.setdefault("info", {}), state.setdefault("mine", 1), state["mine"]) == ({"a": 1}, 1, 1)
    assert state.get("absent", 4) == 4
    with pytest.raises(KeyError):
        state["absent"]


def test_the_authors_own_row_is_in_the_input(kind: Any) -> None:
    state = adopted(kind, {"answer": 5, "info": {"a": 1}, "level": "hard"})
    assert (state["answer"], state["input"]["level"]) == (5, "hard")
    bare = classic_state(State.begin(example_of(), 0, "m", {}), kind, {"question": "?"})
    assert "info" not in bare["input"] and (bare["info"], bare["answer"]) == ({}, "")


def test_a_state_that_is_adopted_twice_is_the_same(kind: Any) -> None:
    state = adopted(kind)
    again = classic_state(state, kind, None)
    assert again is state and isinstance(state["prompt"][0], TypedMessage) == (kind == "C")


def test_timings_of_generation_b_are_milliseconds() -> None:
    state = adopted("B")
    assert isinstance(state["timing"], Milliseconds)
    state["timing"]["generation"] = 1.5
    assert (state["timing"]["generation_ms"], state["timing"]["total_ms"], state["timing"]["scoring_ms"]) == (
        1500,
        1500,
        0,
    )


def test_timings_of_generation_c_are_spans() -> None:
    timing = RolloutTiming({"started_at": 100.0, "generation": 0.0, "model": 0.0})
    assert (timing.generation.start, timing.generation.duration, timing.total) == (100.0, 0.0, 0.0)
    timing["generation"] = 2.0
    timing.scoring.update(start=102.0, end=103.0)
    assert (timing.generation.duration, timing["total"], timing.overhead) == (2.0, 3.0, 2.0)


def test_a_state_comes_back_from_the_journal_as_it_was(kind: Any) -> None:
    state = adopted(kind)
    state["kept"] = messages_of([{"role": "user", "content": "note"}], kind)
    state["gone"] = object()
    completion = messages_of([WIRE, {"role": "tool", "content": "2", "tool_call_id": "c1"}], kind)
    step = {"prompt": state["prompt"], "completion": completion[:1], "extras": {"n": 1}, "reward": None}
    state["trajectory"].append(step)
    exported, lost = state.export()
    assert lost == ("gone",)
    line = json.loads(orjson.dumps(exported))
    generated = Generated("k", "k", 0, json.loads(orjson.dumps(completion)), state=line, lost=lost)
    back = classic_state(State.restore(example_of(answer="5", info={"a": 1}), generated, "m", {}), kind, None)
    assert back["completion"] == completion and [type(m) for m in back["completion"]] == [type(m) for m in completion]
    assert back["kept"] == [{"role": "user", "content": "note"}]
    [again] = back["trajectory"]
    assert again["extras"] == {"n": 1} and again["response"].choices[0].message.tool_calls[0].name == "add"
    assert back["responses"] == [again["response"]] and "trajectory_steps" not in back
    with pytest.raises(StateLost):
        back["gone"]


def test_a_trajectory_that_is_no_single_conversation_comes_back_too(kind: Any) -> None:
    state = adopted(kind)
    for number in range(2):
        asked = messages_of([{"role": "user", "content": f"question {number}"}], kind)
        said = messages_of([{"role": "assistant", "content": f"answer {number}"}], kind)
        state["trajectory"].append({"prompt": asked, "completion": said, "extras": {}})
    exported, _ = state.export()
    completion = [{"role": "assistant", "content": "answer 1"}]
    generated = Generated("k", "k", 0, completion, state=json.loads(orjson.dumps(exported)))
    back = classic_state(State.restore(example_of(), generated, "m", {}), kind, None)
    assert [step["prompt"][0]["content"] for step in back["trajectory"]] == ["question 0", "question 1"]
    assert [step["response"].choices[0].message.content for step in back["trajectory"]] == ["answer 0", "answer 1"]
