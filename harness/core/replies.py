"""Record and replay the replies of a model in a rollout.

Normally the replies can be derived from the transcript. They cannot if an environment writes assistant messages itself,
makes extra requests, changes a reply, or continues after a failed request. Then the journal stores the replies as
well."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import cast

from harness.core.calls import table_of
from harness.core.errors import ContextLengthError, ModelError, ResponseError
from harness.core.keys import digest
from harness.core.redact import redactor
from harness.core.types import JsonDict, Message, ModelResponse, Prompt, Usage

_CUT = frozenset({"length", "content_filter"})
"""Finish reasons that a replay preserves. All others are replaced by `stop` or `tool_calls`."""

_ERRORS: dict[str, type[ModelError]] = {each.__name__: each for each in (ContextLengthError, ResponseError, ModelError)}
"""Classes of model errors that an environment may catch, by name; subclasses first."""

UNANSWERED = "unanswered"
"""Reason of a request that was cancelled before its reply arrived."""

_GIVEN_UP: JsonDict = {"error": "the request was cancelled", "kind": "ModelError", "reason": UNANSWERED}

_WITHDRAWN: JsonDict = {}
"""Placeholder for a request that was refused without being sent."""

_USAGE = frozenset(each.name for each in dataclasses.fields(Usage))


class ReplyRecorder:
    """Records the replies and errors of one rollout's requests, in the order in which the requests start."""

    __slots__ = ("_in_flight", "_overlapped", "_seconds", "taken")

    def __init__(self) -> None:
        self.taken: list[JsonDict] = []
        """One dict per request: the reply's `message`, `finish_reason` and `usage`, or its `error`. Requests that ran
        concurrently also have `asked`, a digest of the prompt, since their order may differ in another run."""
        self._seconds: dict[int, float] = {}
        """Seconds of each answered request, by its number."""
        self._in_flight: dict[int, Prompt] = {}
        self._overlapped = False

    def begin(self, prompt: Prompt) -> int:
        """Register a new request, and return its number for `end`."""
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
        """Record the reply or error of request `number`."""
        del self._in_flight[number]
        if isinstance(result, ModelResponse):
            message = dict(result.message)  # a copy, since the environment may change the message
            reply: JsonDict = {"message": message, "finish_reason": result.finish_reason, "usage": result.usage}
            self._seconds[number] = result.seconds
        elif isinstance(result, ModelError):
            kind = next(name for name, each in _ERRORS.items() if isinstance(result, each))
            reply = {"error": redactor.text(str(result)), "kind": kind, "reason": result.reason}
            reply |= {"status": result.status, "retryable": result.retryable}
        else:
            return
        if self._overlapped:
            reply["asked"] = self.taken[number]["asked"]
        self.taken[number] = reply

    def withdraw(self, number: int) -> None:
        """Remove request `number`, which was refused without being sent."""
        del self._in_flight[number]
        self.taken[number] = _WITHDRAWN

    def calls(self, total: Usage) -> JsonDict | None:
        """Return tokens, cost and seconds of each request that was sent, for the journal (see `core.calls`).

        Args:
            total: Usage of the rollout with all its attempts.

        Returns:
            None if `total` is the usage of the only request.
        """
        if len(self.taken) < 2 and total.requests < 2:
            return None
        sent = [number for number, reply in enumerate(self.taken) if reply is not _WITHDRAWN]
        if len(sent) < 2 and total.requests < 2:
            return None
        usages = [cast("Usage | None", self.taken[number].get("usage")) for number in sent]
        return table_of(usages, [self._seconds.get(number) for number in sent])


def read_off(completion: Prompt, *, is_truncated: bool, usage: Usage | None = None) -> list[JsonDict]:
    """Derive the replies from a transcript: every assistant message is a reply, and the last one is truncated if the
    rollout was truncated.

    Args:
        completion: The messages after the prompt, or the completed text.
        is_truncated: Whether the rollout was truncated by the token limit.
        usage: Usage of all replies together. It is assigned to the last reply, so that sums and token limits are right.
    """
    replies: list[JsonDict] = [
        {"message": each, "finish_reason": _end(each, cut=False), "usage": None} for each in _replies(completion)
    ]
    if replies:
        replies[-1] |= {"finish_reason": _end(replies[-1]["message"], cut=is_truncated), "usage": usage}
    return replies


def to_record(
    taken: Sequence[JsonDict], completion: Prompt, *, is_truncated: bool, error: str | None = None
) -> list[JsonDict] | None:
    """Select the replies that the journal must store because the transcript alone does not determine them.

    Args:
        taken: The replies of all requests, as in `ReplyRecorder.taken`.
        completion: The rollout's transcript.
        is_truncated: Whether the rollout was truncated by the token limit.
        error: Error message of a failed rollout. Trailing requests with this error are omitted, since the failure
            record contains it.

    Returns:
        None if the transcript is sufficient; otherwise `taken` without such trailing requests.
    """
    taken = [reply for reply in taken if reply is not _WITHDRAWN]
    while error is not None and taken and taken[-1].get("error") in (error, _GIVEN_UP["error"]):
        taken = taken[:-1]
    messages = _replies(completion)
    if len(messages) != len(taken):
        return list(taken)
    last = len(messages) - 1
    for number, (message, reply) in enumerate(zip(messages, taken, strict=True)):
        if "message" not in reply or "asked" in reply:
            return list(taken)
        end = reply["finish_reason"] if reply["finish_reason"] in _CUT else _end(reply["message"], cut=False)
        recorded = reply["message"]
        # A key with the value None equals a missing key.
        is_same = message == recorded or all(message.get(n) == recorded.get(n) for n in {*message, *recorded})
        if end != _end(message, cut=is_truncated and number == last) or not is_same:
            return list(taken)
    return None


class ReplyPlayer:
    """Replays the recorded replies of a rollout.

    Args:
        recorded: The replies, as returned by `to_record` or `read_off`.
    """

    def __init__(self, recorded: Iterable[JsonDict]) -> None:
        self._left = list(recorded)

    def next(self, prompt: Prompt) -> ModelResponse | ModelError | None:
        """Return the next recorded reply or error for `prompt`; None at the end. Concurrent requests are matched by
        their prompts, others by their order."""
        asked: str | None = None
        for number, reply in enumerate(self._left):
            if "asked" in reply:
                asked = asked or digest(prompt)
                if reply["asked"] != asked:
                    continue
            del self._left[number]
            if "message" in reply:
                usage: Usage | JsonDict = reply.get("usage") or {}
                if not isinstance(usage, Usage):
                    usage = Usage(**{name: value for name, value in usage.items() if name in _USAGE})
                seconds = reply.get("seconds") or 0.0
                return ModelResponse(dict(reply["message"]), reply.get("finish_reason"), usage, seconds=seconds)
            kind = _ERRORS.get(str(reply.get("kind")), ModelError)
            return kind(
                str(reply.get("error")),
                status=reply.get("status"),
                retryable=bool(reply.get("retryable")),
                reason=str(reply.get("reason")),
            )
        return None


def _replies(completion: object) -> list[Message]:
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}] if completion else []
    # An environment's code may store any value here.
    found = cast("Iterable[object]", completion) if isinstance(completion, list | tuple) else ()
    messages = [cast(Message, message) for message in found if isinstance(message, dict)]
    return [message for message in messages if message.get("role") == "assistant"]


def _end(message: Message, *, cut: bool) -> str:
    return "length" if cut else "tool_calls" if message.get("tool_calls") else "stop"
