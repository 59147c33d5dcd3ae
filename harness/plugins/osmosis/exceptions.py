"""Exceptions of the SDK `osmosis_ai`, which agents use in `except` and `raise`. They have the same
base class as the errors of bench that `ctx.chat` raises (`harness.core.errors`)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.errors import HarnessError

OsmosisRolloutError = HarnessError
"""Alias, so that `except OsmosisRolloutError` around `ctx.chat` catches failed model calls."""


class OsmosisTransportError(OsmosisRolloutError):
    """A request to the hosted service of osmosis_ai could not be sent. bench does not use that service and never raises
    this."""


class OsmosisTimeoutError(OsmosisRolloutError):
    """Timeout of a request to the hosted service of osmosis_ai; never raised by bench."""


class _StatusError(OsmosisRolloutError):
    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


class OsmosisServerError(_StatusError):
    """The hosted service of osmosis_ai answered with HTTP status 5xx; never raised by bench.

    Args:
        message: The service's error message.
        status_code: Its HTTP status.
    """


class OsmosisValidationError(_StatusError):
    """The hosted service of osmosis_ai answered with HTTP status 4xx; never raised by bench. The arguments are those of
    `OsmosisServerError`."""


class AgentLoopNotFoundError(OsmosisRolloutError):
    """No agent of that name is registered.

    Args:
        name: The requested name.
        available: Names of the registered agents.
    """

    def __init__(self, name: str, available: Sequence[str]) -> None:
        super().__init__(f"no agent {name!r} is registered; registered agents: {', '.join(available) or 'none'}")
        self.name = name
        self.available = list(available)
