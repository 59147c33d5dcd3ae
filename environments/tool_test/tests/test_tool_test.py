"""Calls that are right, nearly right and wrong, and what a conversation with tools leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness import JsonDict, Message, ModelResponse, Prompt, State
from harness.keys import ExampleKeys
from harness.tools import read_tool
from tool_test import load_environment
from tool_test.requests import DRAWS, matching
from tool_test.tools import TOOLS

TIMER = {"name": "set_timer", "arguments": {"minutes": 12, "label": "tea"}}
FLIGHT = {
    "name": "search_flights",
    "arguments": {"origin": "Oslo", "destination": "Lima", "passengers": {"adults": 1, "children": 0}},
}
MESSAGE = {"name": "send_message", "arguments": {"recipients": ["Hugo", "Rosa"], "text": "Happy birthday!"}}


class Calling:
    """A model that makes the given calls in its first replies, and is then done."""

    model = "calling"

    def __init__(self, *replies: Sequence[JsonDict]) -> None:
        self.replies = list(replies)
        self.asked: list[list[Message]] = []

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        assert isinstance(prompt, list)
        self.asked.append(list(prompt))
        calls = self.replies.pop(0) if self.replies else ()
        message: Message = {"role": "assistant", "content": None if calls else "Done."}
        if calls:
            message["tool_calls"] = [written(call, number) for number, call in enumerate(calls)]
        return ModelResponse(message, "stop")


def written(call: JsonDict, number: int) -> JsonDict:
    arguments = call["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"c{number}", "type": "function", "function": {"name": call["name"], "arguments": text}}


def play(model: Calling, wanted: Sequence[JsonDict]) -> State:
    env = load_environment(num_examples=1)
    state = State.begin(ExampleKeys().example(env.row(0), 0), 0, "calling", {})
    state["info"]["calls"] = list(wanted)

    async def main() -> None:
        await env.rollout(state, model)
        await env.rubric.score([state])

    asyncio.run(main())
    return state


def with_arguments(call: JsonDict, **changed: object) -> JsonDict:
    return {**call, "arguments": {**call["arguments"], **changed}}


@for_each_row(
    ("made", "exact", "share"),
    [
        ([TIMER, FLIGHT], 1.0, 1.0),
        ([FLIGHT, TIMER], 1.0, 1.0),  # in any order
        ([with_arguments(TIMER, minutes=12.0), FLIGHT], 1.0, 1.0),
        ([TIMER], 0.0, 0.5),
        ([TIMER, FLIGHT, FLIGHT], 0.0, 2 / 3),  # one too many
        ([TIMER, TIMER], 0.0, 0.5),
        ([TIMER, FLIGHT, MESSAGE], 0.0, 2 / 3),
        ([with_arguments(TIMER, minutes="12"), FLIGHT], 0.0, 0.5),  # a text is no number
        ([with_arguments(TIMER, label="Tea"), FLIGHT], 0.0, 0.5),
        ([with_arguments(TIMER, loud=True), FLIGHT], 0.0, 0.5),
        ([TIMER, with_arguments(FLIGHT, passengers={"adults": True, "children": 0})], 0.0, 0.5),  # nor is true
        ([{"name": "set_timer", "arguments": {"minutes": 12}}, FLIGHT], 0.0, 0.5),
        ([{"name": "set_timers", "arguments": TIMER["arguments"]}, FLIGHT], 0.0, 0.5),
        ([{"name": "set_timer", "arguments": '{"minutes": 12, "label": "tea"'}, FLIGHT], 0.0, 0.5),
        ([{"name": "set_timer", "arguments": "[" * 100_000}, FLIGHT], 0.0, 0.5),
        ([{"name": "set_timer", "arguments": "[]"}], 0.0, 0.0),
        ([], 0.0, 0.0),
    ],
)
def test_the_calls_of_the_first_reply_are_compared_with_those_asked_for(
    made: list[JsonDict], exact: float, share: float
) -> None:
    metrics = play(Calling(made), [TIMER, FLIGHT])["metrics"]
    assert (metrics["exact_calls"], metrics["matching_calls"]) == (exact, share)


def test_lists_count_in_their_order() -> None:
    swapped = with_arguments(MESSAGE, recipients=["Rosa", "Hugo"])
    assert play(Calling([swapped]), [MESSAGE])["reward"] == 0.0


def test_calls_in_a_second_reply_come_too_late() -> None:
    state = play(Calling([TIMER], [FLIGHT]), [TIMER, FLIGHT])
    assert (state["reward"], state["stop_condition"]) == (0.0, "max_turns_reached")
    assert state["metrics"]["total_tool_calls"] == 2.0


def test_the_calls_are_carried_out_and_counted() -> None:
    model = Calling([TIMER, MESSAGE])
    state = play(model, [TIMER, MESSAGE])
    assert state["completion"][-1] == {"role": "assistant", "content": "Done."}
    assert model.asked[1][-2:] == [
        {"role": "tool", "content": "The timer 'tea' rings in 12 minutes.", "tool_call_id": "c0"},
        {"role": "tool", "content": "The message went to Hugo, Rosa.", "tool_call_id": "c1"},
    ]
    counts = {name: value for name, value in state["metrics"].items() if value and name.endswith("_calls")}
    assert counts == {
        "exact_calls": 1.0,
        "matching_calls": 1.0,
        "total_tool_calls": 2.0,
        "set_timer_calls": 1.0,
        "send_message_calls": 1.0,
    }


def test_every_call_that_is_asked_for_can_be_made_as_it_is_asked_for() -> None:
    tools = {tool.name: tool for tool in map(read_tool, TOOLS)}
    assert [name for name, _ in DRAWS] == list(tools)
    for index in range(50):
        for name, draw in DRAWS:
            arguments = draw(Random(index))
            assert tools[name].read(arguments) == arguments


def test_requests_are_as_long_as_asked_and_never_ask_for_a_call_twice() -> None:
    env = load_environment(num_examples=200, min_calls=3, max_calls=6)
    sizes: set[int] = set()
    for index in range(200):
        row = env.row(index)
        calls: list[Any] = row.info["calls"]
        sizes.add(len(calls))
        assert len({json.dumps(call) for call in calls}) == len(calls)
        assert json.loads(row.answer) == calls
        for number, call in enumerate(calls, 1):
            assert f"{number}. {call['name']} with " in str(row.prompt[-1]["content"])  # type: ignore[index]
    assert sizes == {3, 4, 5, 6}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
some_calls = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("ab"), "arguments": st.dictionaries(st.text(), json_values, max_size=2)}
    ),
    max_size=4,
)


@pytest.mark.slow
@given(some_calls, some_calls, st.randoms())
def test_matching_is_symmetric_blind_to_order_and_full_for_the_same_calls(
    one: list[JsonDict], other: list[JsonDict], random: Random
) -> None:
    shuffled = list(one)
    random.shuffle(shuffled)
    assert matching(one, other) == matching(other, one) <= min(len(one), len(other))
    assert matching(one, shuffled) == len(one)
    assert matching(json.loads(json.dumps(one)), one) == len(one)
