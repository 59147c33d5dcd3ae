"""Tokens, cost and seconds beside the turns of a rollout: which recorded model call made which assistant message."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import cast

from harness.core.calls import COLUMNS, read_calls
from harness.core.records import Failed, Generated
from harness.core.types import JsonDict
from harness.report.transcript import message_text
from harness.store.codec import to_text
from harness.store.values import number, table

LISTED = 500
"""Maximum number of calls to list that made no message."""

_BEGINNING = 200
"""Number of characters of a reply to show in the list."""


def turn_figures(base: Generated | Failed, said: Sequence[object]) -> tuple[list[JsonDict], JsonDict | None]:
    """The figures of each turn, and what is in no turn.

    Args:
        base: The rollout.
        said: Its assistant messages.

    Returns:
        `tokens`, `cost` and `seconds` of each message, null if unknown; and an object with `others` (calls that made no
        message of the transcript, at most `LISTED`), their `count`, and `rest` (usage of the rollout that is in none of
        its calls, null if nothing). The object is None if the journal does not say what each call took.
    """
    replies = cast("list[object]", base.replies) if isinstance(base.replies, list) else None
    calls = read_calls(base.calls)
    is_recorded = bool(calls)
    if not is_recorded and base.usage.requests == 1 and len(said if replies is None else replies) == 1:
        calls = [_only_call(base)]  # the journal stores no calls if the totals say the same
    call_of = _matched(len(calls), replies, said)
    turns = [_figures(calls[call_of[turn]] if turn in call_of else {}) for turn in range(len(said))]
    if not is_recorded:
        return turns, None
    others = sorted(set(range(len(calls))).difference(call_of.values()))
    listed = [{"number": place + 1, **_figures(calls[place]), **_reply(replies, place)} for place in others[:LISTED]]
    return turns, {"others": listed, "count": len(others), "rest": _rest(base, calls, _answered(replies, call_of))}


def _only_call(base: Generated | Failed) -> JsonDict:
    usage = base.usage
    known = {} if usage.unreported else asdict(usage)
    values = {**known, "cost": usage.cost, "seconds": base.timing.model}
    return read_calls({name: [values.get(name)] for name in COLUMNS})[0]


def _figures(call: JsonDict) -> JsonDict:
    taken, given = call.get("input_tokens"), call.get("output_tokens")
    tokens: JsonDict | None = None
    if taken is not None or given is not None:
        more = {"reasoning": call["reasoning_tokens"], "cached": call["cached_tokens"]}
        tokens = {"input": taken, "output": given, **more}
    return {"tokens": tokens, "cost": call.get("cost"), "seconds": call.get("seconds")}


def _matched(calls: int, replies: Sequence[object] | None, said: Sequence[object]) -> dict[int, int]:
    """The number of the call that made each assistant message, by the number of the message, both from 0.

    Without stored replies, each message is a reply. Else a message belongs to the first reply that is equal. If as many
    messages as replies are left, they are paired in order; a pair counts if one text contains the other.
    """
    if replies is None:
        return {turn: turn for turn in range(min(calls, len(said)))}
    messages = {
        place: cast("object", reply["message"])
        for place, each in enumerate(replies[:calls])
        if "message" in (reply := table(each))
    }
    waiting: dict[str, deque[int]] = {}
    for place, message in messages.items():
        waiting.setdefault(_content(message), deque()).append(place)
    found: dict[int, int] = {}
    for turn, message in enumerate(said):
        if held := waiting.get(_content(message)):
            found[turn] = held.popleft()
    turns = [turn for turn in range(len(said)) if turn not in found]
    places = sorted(set(messages).difference(found.values()))
    if len(turns) == len(places):
        pairs = zip(turns, places, strict=True)
        found |= {turn: place for turn, place in pairs if _is_reworded(said[turn], messages[place])}
    return found


def _content(message: object) -> str:
    """A text that is equal for equal messages; a field without a value equals a missing field."""
    return to_text(sorted((name, value) for name, value in table(message).items() if value is not None))


def _is_reworded(message: object, reply: object) -> bool:
    one, other = message_text(message).strip(), message_text(reply).strip()
    return bool(one and other) and (one in other or other in one)


def _reply(replies: Sequence[object] | None, place: int) -> JsonDict:
    """Beginning of the text of a reply, or why the call failed."""
    reply = table(replies[place]) if replies is not None and place < len(replies) else {}
    error = reply.get("reason") or reply.get("error")
    text = message_text(reply["message"]) if "message" in reply else ""
    return {"text": text[:_BEGINNING], "error": None if error is None else str(error)[:_BEGINNING]}


def _answered(replies: Sequence[object] | None, call_of: Mapping[int, int]) -> int:
    """Number of calls with a reply. Without stored replies each made a message; the others failed."""
    return len(call_of) if replies is None else sum("message" in table(each) for each in replies)


def _rest(base: Generated | Failed, calls: Sequence[JsonDict], answered: int) -> JsonDict | None:
    """Usage of the rollout that none of its calls has: of discarded replies and of earlier attempts."""
    total = {name: number(value) or 0 for name, value in asdict(base.usage).items()}
    left: JsonDict = {"requests": max(0, round(total["requests"]) - answered)}
    for name in ("input_tokens", "output_tokens"):
        left[name] = max(0, round(total[name]) - round(sum(call[name] or 0 for call in calls)))
    cost = total["cost"] - math.fsum(call["cost"] or 0.0 for call in calls)
    left["cost"] = cost if cost > 1e-9 * total["cost"] else None  # not a rounding error
    return left if any(left.values()) else None
