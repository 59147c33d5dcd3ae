"""Exceptions of the SDK's rollout protocol that agents name in `except` and `raise`. Owns their hierarchy; what
`ctx.chat` raises is `harness.core.errors`, all of which the base here stands for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.errors import HarnessError

OsmosisRolloutError = HarnessError
"""`except OsmosisRolloutError` around `ctx.chat` catches what the agents that say so mean: a model call that failed."""


class OsmosisTransportError(OsmosisRolloutError):
    """A request of the hosted protocol found no way; bench does not speak it, and raises this nowhere."""


class OsmosisTimeoutError(OsmosisRolloutError):
    """A request of the hosted protocol took too long; raised nowhere in bench."""


class _StatusError(OsmosisRolloutError):
    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


class OsmosisServerError(_StatusError):
    """The hosted service answered 5xx; raised nowhere in bench.

    Args:
        message: What it said.
        status_code: Its status.
    """


class OsmosisValidationError(_StatusError):
    """The hosted service answered 4xx; raised nowhere in bench. Arguments as above."""


class AgentLoopNotFoundError(OsmosisRolloutError):
    """No agent of that name was registered.

    Args:
        name: What was asked for.
        available: What there is.
    """

    def __init__(self, name: str, available: Sequence[str]) -> None:
        super().__init__(f"no agent {name!r} is registered; registered: {', '.join(available) or 'none'}")
        self.name = name
        self.available = list(available)
