"""The value of `X-Bench-Rollout`: which rollout of which run asks. Owns its format; the name is in `types`."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote


class RolloutHeader(NamedTuple):
    """Who asks."""

    lane: str
    """Name under which the run's player is known to the server."""
    example_key: str
    rollout_key: str


def write_rollout(lane: str, example_key: str, rollout_key: str) -> str:
    """The header's value; each part is percent-encoded, so any text fits."""
    return f"{quote(lane, safe='')};{quote(example_key, safe='')};{quote(rollout_key, safe='')}"


def read_rollout(value: str | None) -> RolloutHeader | None:
    """Parse a header's value; None when it is absent or of another form."""
    parts = value.split(";") if value else []
    return RolloutHeader(unquote(parts[0]), unquote(parts[1]), unquote(parts[2])) if len(parts) == 3 else None
