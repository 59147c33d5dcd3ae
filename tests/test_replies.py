"""What a journal holds of a model's replies beside the transcript: nothing, unless that does not tell them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.replies import from_record, read_off, to_record
from harness.types import ModelResponse


def said(text: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


CALL = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

TOLD = {
    "one reply": ([said("yes")], [ModelResponse(said("yes"), "stop")], False),
    "no reason given": ([said("yes")], [ModelResponse(said("yes"), None)], False),
    "a word of the provider's own": ([said("yes")], [ModelResponse(said("yes"), "eos")], False),
    "a tool's turn between": (
        [said(None, tool_calls=CALL), {"role": "tool", "content": "1"}, said("done")],
        [ModelResponse(said(None, tool_calls=CALL), "tool_calls"), ModelResponse(said("done"), "stop")],
        False,
    ),
    "cut short at the end": (
        [said("a"), said("b")],
        [ModelResponse(said("a")), ModelResponse(said("b"), "length")],
        True,
    ),
    "keys without a value left out": (
        [said("yes")],
        [ModelResponse(said("yes", refusal=None, tool_calls=None))],
        False,
    ),
    "completed text": ("yes", [ModelResponse(said("yes"), "stop")], False),
    "nothing": ([], [], False),
    "no text": ("", [], False),
}

UNTOLD = {
    "a question on the side": ([said("yes")], [ModelResponse(said("hm")), ModelResponse(said("yes"))], False),
    "an assistant message of the environment's": ([said("I am B"), said("yes")], [ModelResponse(said("yes"))], False),
    "kept in other words": ([said("YES")], [ModelResponse(said("yes"))], False),
    "cut short on the way": (
        [said("a"), said("b")],
        [ModelResponse(said("a"), "length"), ModelResponse(said("b"))],
        False,
    ),
    "called cut short without being so": ([said("a")], [ModelResponse(said("a"), "stop")], True),
    "refused by a filter": ([said("a")], [ModelResponse(said("a"), "content_filter")], False),
    "text of two turns": ("yes\nno", [ModelResponse(said("yes")), ModelResponse(said("no"))], False),
    "an empty text": ("", [ModelResponse(said(""))], False),
    "calls that were taken out": ([said("a")], [ModelResponse(said("a", tool_calls=CALL), "tool_calls")], False),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_a_transcript_tells_is_not_recorded_again(case: str) -> None:
    completion, replies, is_truncated = TOLD[case]
    assert to_record(replies, completion, is_truncated=is_truncated) is None
    found = read_off(completion, is_truncated=is_truncated)
    assert [each.message["content"] for each in found] == [each.message["content"] for each in replies]
    assert [each.is_truncated for each in found] == [each.is_truncated for each in replies]


@pytest.mark.parametrize("case", UNTOLD)
def test_what_it_does_not_tell_is_recorded(case: str) -> None:
    completion, replies, is_truncated = UNTOLD[case]
    recorded = to_record(replies, completion, is_truncated=is_truncated)
    assert recorded is not None
    found = from_record(recorded)
    assert [(each.message, each.finish_reason) for each in found] == [
        (each.message, each.finish_reason) for each in replies
    ]


messages = st.builds(said, st.one_of(st.none(), st.text(max_size=3)))
ends = st.sampled_from(["stop", "length", "content_filter", None])


@given(
    st.lists(st.builds(ModelResponse, messages, ends), max_size=4),
    st.lists(messages, max_size=4),
    st.booleans(),
)
def test_the_replies_always_come_back(replies: list[ModelResponse], completion: list[Any], is_truncated: bool) -> None:
    recorded = to_record(replies, completion, is_truncated=is_truncated)
    found = read_off(completion, is_truncated=is_truncated) if recorded is None else from_record(recorded)
    assert [(each.message, each.is_truncated) for each in found] == [
        (each.message, each.is_truncated) for each in replies
    ]
