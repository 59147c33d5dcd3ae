"""What a model said in a rollout, as far as the transcript alone does not tell. Owns the rule by which replies are read
off a transcript, and the comparison that decides whether a journal must hold them beside it: an environment may write
assistant messages itself, ask questions on the side, or keep a reply in other words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from harness.types import JsonDict, Message, ModelResponse, Prompt

_CUT = frozenset({"length", "content_filter"})
"""Ends of a reply that an environment may act on; all others read as `stop` or `tool_calls`."""


def read_off(completion: Prompt, *, is_truncated: bool) -> list[ModelResponse]:
    """The replies that a transcript suggests: every assistant message, the last one cut short if the rollout was.

    Args:
        completion: The messages after the prompt, or the completed text.
        is_truncated: Whether the rollout was cut short for want of tokens.
    """
    messages = _said(completion)
    return [
        ModelResponse(dict(message), _end(message, cut=is_truncated and number == len(messages)))
        for number, message in enumerate(messages, 1)
    ]


def to_record(replies: Sequence[ModelResponse], completion: Prompt, *, is_truncated: bool) -> list[JsonDict] | None:
    """What a journal must hold of the replies beside the transcript.

    Args:
        replies: As they came, in their order.
        completion: The rollout's transcript.
        is_truncated: Whether the rollout was cut short for want of tokens.

    Returns:
        None if the transcript tells all; else each reply's `message` and `finish_reason`.
    """
    messages = _said(completion)
    if len(messages) == len(replies):
        last = len(messages) - 1
        for number, (message, reply) in enumerate(zip(messages, replies, strict=True)):
            end = reply.finish_reason if reply.finish_reason in _CUT else _end(reply.message, cut=False)
            if end != _end(message, cut=is_truncated and number == last) or not _alike(message, reply.message):
                break
        else:
            return None
    return [{"message": reply.message, "finish_reason": reply.finish_reason} for reply in replies]


def from_record(recorded: Iterable[JsonDict]) -> list[ModelResponse]:
    """The replies that a journal holds.

    Raises:
        KeyError, TypeError: they are none.
    """
    return [ModelResponse(dict(each["message"]), each.get("finish_reason")) for each in recorded]


def _said(completion: object) -> list[Message]:
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}] if completion else []
    # Code of an environment may leave anything there.
    found = cast("Iterable[object]", completion) if isinstance(completion, list | tuple) else ()
    messages = [cast(Message, message) for message in found if isinstance(message, dict)]
    return [message for message in messages if message.get("role") == "assistant"]


def _alike(one: Message, other: Message) -> bool:
    """Whether two messages say the same; a key without a value says as much as no key."""
    if one is other or one == other:
        return True
    names = {*one, *other}
    return all(one.get(name) == other.get(name) for name in names)


def _end(message: Message, *, cut: bool) -> str:
    return "length" if cut else "tool_calls" if message.get("tool_calls") else "stop"
