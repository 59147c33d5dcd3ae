"""What a model said in a rollout, as far as the transcript alone does not tell. Owns the rule by which replies are read
off a transcript, and the comparison that decides whether a journal must hold them beside it: an environment may write
assistant messages itself, ask on the side, keep a reply in other words, or live with a request that failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import cast

from harness.core.errors import ContextLengthError, ModelError, ResponseError
from harness.core.keys import digest
from harness.core.redact import redactor
from harness.core.types import JsonDict, Message, ModelResponse, Prompt, Usage

_CUT = frozenset({"length", "content_filter"})
"""Ends of a reply that an environment may act on; all others read as `stop` or `tool_calls`."""

_ERRORS: dict[str, type[ModelError]] = {each.__name__: each for each in (ContextLengthError, ResponseError, ModelError)}
"""Errors that an environment may tell apart, the most special first."""

UNANSWERED = "unanswered"
"""The reason of a request that was given up before it was answered."""

_GIVEN_UP: JsonDict = {"error": "the request was given up", "kind": "ModelError", "reason": UNANSWERED}

_WITHDRAWN: JsonDict = {}
"""In the place of a request that was refused without being sent."""

_USAGE = frozenset(each.name for each in dataclasses.fields(Usage))


class ReplyRecorder:
    """Takes down what the requests of one rollout come to, in the order in which they begin."""

    __slots__ = ("_in_flight", "_overlapped", "taken")

    def __init__(self) -> None:
        self.taken: list[JsonDict] = []
        """Of each request: its reply's `message`, `finish_reason` and `usage`, or its `error`; and `asked`, a digest of
        what was asked, where requests were under way together: their order may be another the next time."""
        self._in_flight: dict[int, Prompt] = {}
        self._overlapped = False

    def begin(self, prompt: Prompt) -> int:
        """A request begins; returns its number, to `end` it."""
        number = len(self.taken)
        self.taken.append(_GIVEN_UP)
        if self._in_flight and not self._overlapped:
            self._overlapped = True
            for other, asked in self._in_flight.items():
                self.taken[other] = {**_GIVEN_UP, "asked": digest(asked)}
        if self._overlapped:
            self.taken[number] = {**_GIVEN_UP, "asked": digest(prompt)}
        self._in_flight[number] = prompt
        return number

    def end(self, number: int, result: ModelResponse | BaseException) -> None:
        """It came to this."""
        del self._in_flight[number]
        if isinstance(result, ModelResponse):
            # A copy: the environment may write into the message.
            told: JsonDict = {
                "message": dict(result.message),
                "finish_reason": result.finish_reason,
                "usage": result.usage,
            }
        elif isinstance(result, ModelError):
            kind = next(name for name, each in _ERRORS.items() if isinstance(result, each))
            told = {"error": redactor.text(str(result)), "kind": kind, "reason": result.reason}
            told |= {"status": result.status, "retryable": result.retryable}
        else:
            return
        if self._overlapped:
            told["asked"] = self.taken[number]["asked"]
        self.taken[number] = told

    def withdraw(self, number: int) -> None:
        """Forget request `number`: it was refused without being sent."""
        del self._in_flight[number]
        self.taken[number] = _WITHDRAWN


def read_off(completion: Prompt, *, is_truncated: bool, usage: Usage | None = None) -> list[JsonDict]:
    """The replies that a transcript suggests: every assistant message, the last one cut short if the rollout was.

    Args:
        completion: The messages after the prompt, or the completed text.
        is_truncated: Whether the rollout was cut short for want of tokens.
        usage: Of all of them. The last one has it: then sums come out right, and so does what ends with them.
    """
    messages = _said(completion)
    last = len(messages) - 1
    return [
        {
            "message": message,
            "finish_reason": _end(message, cut=is_truncated and number == last),
            "usage": usage if number == last else None,
        }
        for number, message in enumerate(messages)
    ]


def to_record(
    taken: Sequence[JsonDict], completion: Prompt, *, is_truncated: bool, error: str | None = None
) -> list[JsonDict] | None:
    """What a journal must hold of the replies beside the transcript.

    Args:
        taken: From `ReplyRecorder.taken`.
        completion: The rollout's transcript.
        is_truncated: Whether the rollout was cut short for want of tokens.
        error: What the rollout failed of; the record of the failure tells that of its last requests.

    Returns:
        None if the transcript tells all; else all of `taken`, without such last requests.
    """
    taken = [told for told in taken if told is not _WITHDRAWN]
    while error is not None and taken and taken[-1].get("error") in (error, _GIVEN_UP["error"]):
        taken = taken[:-1]
    messages = _said(completion)
    if len(messages) != len(taken):
        return list(taken)
    last = len(messages) - 1
    for number, (message, told) in enumerate(zip(messages, taken, strict=True)):
        if "message" not in told or "asked" in told:
            return list(taken)
        end = told["finish_reason"] if told["finish_reason"] in _CUT else _end(told["message"], cut=False)
        if end != _end(message, cut=is_truncated and number == last) or not _alike(message, told["message"]):
            return list(taken)
    return None


class ReplyPlayer:
    """Gives the replies of a rollout again.

    Args:
        recorded: From `to_record`, or `read_off`.
    """

    def __init__(self, recorded: Iterable[JsonDict]) -> None:
        self._left = list(recorded)

    def next(self, prompt: Prompt) -> ModelResponse | ModelError | None:
        """What this prompt was answered with: the first reply that is left, unless requests were under way together.
        None if none is left."""
        asked: str | None = None
        for number, told in enumerate(self._left):
            if "asked" in told:
                asked = asked or digest(prompt)
                if told["asked"] != asked:
                    continue
            del self._left[number]
            return _reply(told)
        return None


def _reply(told: JsonDict) -> ModelResponse | ModelError:
    if "message" in told:
        return ModelResponse(dict(told["message"]), told.get("finish_reason"), _usage(told.get("usage")))
    kind = _ERRORS.get(str(told.get("kind")), ModelError)
    return kind(
        str(told.get("error")),
        status=told.get("status"),
        retryable=bool(told.get("retryable")),
        reason=str(told.get("reason")),
    )


def _usage(told: Usage | JsonDict | None) -> Usage:
    if isinstance(told, Usage):
        return told
    return Usage(**{name: value for name, value in (told or {}).items() if name in _USAGE})


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
