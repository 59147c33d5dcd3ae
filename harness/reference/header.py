"""The value of the `X-Bench-Rollout` header, which identifies the run and rollout of a request."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote


class RolloutHeader(NamedTuple):
    """Parsed value of the `X-Bench-Rollout` header: the run and rollout of a request."""

    lane: str
    """Name under which the run's player is registered at the server."""
    example_key: str
    rollout_key: str


def format_header(lane: str, example_key: str, rollout_key: str) -> str:
    """Format the value of the `X-Bench-Rollout` header. Each part is percent-encoded, so any text is allowed."""
    return ";".join([x if x.isalnum() and x.isascii() else _quoted(x) for x in (lane, example_key, rollout_key)])


@lru_cache(maxsize=64)  # names of runs; keys of examples and rollouts are hexadecimal digits
def _quoted(text: str) -> str:
    return quote(text, safe="")


def parse_header(value: str | None) -> RolloutHeader | None:
    """Parse the value of the `X-Bench-Rollout` header; return None if it is missing or malformed."""
    parts = value.split(";") if value else []
    return RolloutHeader(unquote(parts[0]), unquote(parts[1]), unquote(parts[2])) if len(parts) == 3 else None
