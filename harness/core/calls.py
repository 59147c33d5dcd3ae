"""Tokens, cost and seconds of each model call of a rollout, as the journal stores them: one list per quantity, with an
entry for each request in the order in which the requests started. The entries belong to the rollout's replies (see
`core.replies`): entry i is about reply i."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from harness.core.types import JsonDict, Usage

_COUNTS = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens")

COLUMNS = (*_COUNTS, "cost", "seconds")
"""Names of the lists."""


def table_of(usages: Sequence[Usage | None], seconds: Sequence[float | None]) -> JsonDict | None:
    """Build the table of a rollout's calls, without lists that have no value above 0; None if there are no others.

    Args:
        usages: The usage of each call; None if the call failed.
        seconds: Seconds of each request; None if the call failed.
    """
    told = [usage if usage is not None and usage.requests > usage.unreported else None for usage in usages]
    table: JsonDict = {
        "input_tokens": [None if usage is None else usage.input_tokens for usage in told],
        "output_tokens": [None if usage is None else usage.output_tokens for usage in told],
        "reasoning_tokens": [None if usage is None else usage.reasoning_tokens for usage in told],
        "cached_tokens": [None if usage is None else usage.cached_tokens for usage in told],
        "cost": [None if usage is None else usage.cost for usage in usages],
        "seconds": [None if each is None else round(each, 4) for each in seconds],
    }
    return {name: values for name, values in table.items() if any(values)} or None


def read_calls(table: object) -> list[JsonDict]:
    """The calls in a journal line: for each its `COLUMNS`, None if unknown. Values that are not valid count as unknown.

    Args:
        table: The field `calls` of the line; any value, since a journal may be from somebody else.
    """
    known = cast(JsonDict, table) if isinstance(table, dict) else {}
    columns = [cast("list[object]", held) if isinstance(held := known.get(n), list) else [] for n in COLUMNS]
    count = max(map(len, columns))
    padded = [[*map(_amount, column), *[None] * (count - len(column))] for column in columns]
    return [dict(zip(COLUMNS, values, strict=True)) for values in zip(*padded, strict=True)]


def usage_of(call: Mapping[str, float | None]) -> Usage | None:
    """The usage of a call of `read_calls`; None if it is unknown."""
    is_unknown = call["input_tokens"] is None and call["output_tokens"] is None
    if is_unknown and call["cost"] is None:
        return None
    counts = {name: int(call[name] or 0) for name in _COUNTS}
    return Usage(**counts, requests=1, unreported=int(is_unknown), cost=call["cost"])


def _amount(value: object) -> float | None:
    """Return a number from 0 that JSON readers can represent; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < 1e15 else None
