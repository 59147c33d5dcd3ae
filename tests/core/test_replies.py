"""What a journal holds of a model's replies beside the transcript: nothing, unless that does not tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.errors import ContextLengthError, ModelError, ResponseError
from harness.core.replies import UNANSWERED, ReplyPlayer, ReplyRecorder, read_off, to_record
from harness.core.types import ModelResponse, Usage

Reply: TypeAlias = ModelResponse | ModelError


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


def taken_down(replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """What is noted of requests that came one after the other."""
    dictation = ReplyRecorder()
    for number, reply in enumerate(replies):
        dictation.end(dictation.begin(f"prompt {number}"), reply)
    return dictation.taken


def given_again(recorded: Sequence[dict[str, Any]]) -> list[Reply | None]:
    """A recital to its end, of requests that come one after the other."""
    recital = ReplyPlayer(recorded)
    return [recital.next(f"prompt {number}") for number in range(len(recorded) + 1)]


def as_json(value: Any) -> Any:
    """What a journal makes of it."""
    return orjson.loads(orjson.dumps(value))


@for_each_row("case", TOLD)
def test_what_a_transcript_tells_is_not_recorded_again(case: str) -> None:
    completion, replies, is_truncated = TOLD[case]
    assert to_record(taken_down(replies), completion, is_truncated=is_truncated) is None
    found = given_again(read_off(completion, is_truncated=is_truncated))
    assert found.pop() is None
    assert [(each.message["content"], each.is_truncated) for each in cast(list[ModelResponse], found)] == [
        (each.message["content"], each.is_truncated) for each in replies
    ]


@for_each_row("case", UNTOLD)
def test_what_it_does_not_tell_is_recorded(case: str) -> None:
    completion, replies, is_truncated = UNTOLD[case]
    recorded = to_record(taken_down(replies), completion, is_truncated=is_truncated)
    assert recorded is not None
    found = given_again(as_json(recorded))
    assert found.pop() is None
    assert [(each.message, each.finish_reason) for each in cast(list[ModelResponse], found)] == [
        (each.message, each.finish_reason) for each in replies
    ]


def test_a_message_that_is_written_into_afterwards_is_kept_as_it_came() -> None:
    reply = ModelResponse(said("yes"), "stop")
    taken = taken_down([reply])
    reply.message["content"] = "YES"
    assert to_record(taken, [reply.message], is_truncated=False) == [
        {"message": said("yes"), "finish_reason": "stop", "usage": Usage()}
    ]


@for_each_row("kind", [ModelError, ContextLengthError, ResponseError])
def test_a_request_that_failed_fails_again(kind: type[ModelError]) -> None:
    error = kind("too much", status=400, retryable=True, reason="bad_request")
    completion = [said("never mind")]
    recorded = to_record(taken_down([error]), completion, is_truncated=False)
    assert recorded == [
        {"error": "too much", "kind": kind.__name__, "reason": "bad_request", "status": 400, "retryable": True}
    ]
    [again, nothing] = given_again(as_json(recorded))
    assert nothing is None
    assert isinstance(again, ModelError)
    assert type(again) is kind
    assert (str(again), again.status, again.retryable, again.reason) == ("too much", 400, True, "bad_request")


def test_of_a_failed_rollout_the_failure_tells_the_last_requests() -> None:
    taken = taken_down([ModelResponse(said("a")), ModelError("gone", reason="connection")])
    assert to_record(taken, [said("a")], is_truncated=False, error="gone") is None
    assert to_record(taken, [said("a")], is_truncated=False, error="ValueError: x") == taken
    late = ReplyRecorder()
    late.begin("cut off by the clock")
    assert to_record(late.taken, "", is_truncated=False, error="longer than 3 s") is None


def test_requests_that_were_under_way_together_are_told_apart_by_what_they_asked() -> None:
    dictation = ReplyRecorder()
    first, second = dictation.begin("one"), dictation.begin("two")
    third = dictation.begin("given up")
    dictation.end(second, ModelResponse(said("2")))
    dictation.end(third, asyncio.CancelledError())
    dictation.end(first, ModelResponse(said("1")))
    dictation.end(dictation.begin("after"), ModelResponse(said("3")))
    recorded = to_record(dictation.taken, [said("1"), said("2"), said("?"), said("3")], is_truncated=False)
    assert recorded is not None
    recital = ReplyPlayer(as_json(recorded))
    after, two, one = (recital.next(prompt) for prompt in ("after", "two", "one"))
    assert [cast(ModelResponse, each).message["content"] for each in (after, two, one)] == ["3", "2", "1"]
    assert recital.next("one") is None, "it was asked once"
    assert cast(ModelError, recital.next("given up")).reason == UNANSWERED


def test_usage_comes_back_reply_by_reply_or_with_the_last() -> None:
    each = [ModelResponse(said("a"), usage=Usage(3, 1)), ModelResponse(said("b"), usage=Usage(9, 2))]
    recorded = to_record(taken_down(each), [said("b")], is_truncated=False)
    assert recorded is not None
    found = cast(list[ModelResponse], given_again(as_json(recorded))[:-1])
    assert [reply.usage for reply in found] == [Usage(3, 1), Usage(9, 2)]
    read = given_again(read_off([said("a"), said("b")], is_truncated=False, usage=Usage(12, 3, requests=2)))
    found = cast(list[ModelResponse], read[:-1])
    assert [reply.usage for reply in found] == [Usage(), Usage(12, 3, requests=2)]


messages = st.builds(said, st.one_of(st.none(), st.text(max_size=3)))
ends = st.sampled_from(["stop", "length", "content_filter", None])


@given(
    st.lists(st.builds(ModelResponse, messages, ends), max_size=4),
    st.lists(messages, max_size=4),
    st.booleans(),
)
def test_the_replies_always_come_back(replies: list[ModelResponse], completion: list[Any], is_truncated: bool) -> None:
    recorded = to_record(taken_down(replies), completion, is_truncated=is_truncated)
    found = given_again(read_off(completion, is_truncated=is_truncated) if recorded is None else as_json(recorded))
    assert found.pop() is None
    assert [(each.message, each.is_truncated) for each in cast(list[ModelResponse], found)] == [
        (each.message, each.is_truncated) for each in replies
    ]
