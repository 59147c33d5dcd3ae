"""Exceptions of the SDK's rollout protocol, as agents name them in `except` and `raise`. `ctx.chat` raises errors of
`harness.core.errors`; their base class is the base class here, too."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.errors import HarnessError

OsmosisRolloutError = HarnessError
"""Alias, so that `except OsmosisRolloutError` around `ctx.chat` catches failed model calls."""


class OsmosisTransportError(OsmosisRolloutError):
    """A request of the hosted protocol could not be sent; bench does not support that protocol and never raises
    this."""


class OsmosisTimeoutError(OsmosisRolloutError):
    """Timeout of a request of the hosted protocol; never raised by bench."""


class _StatusError(OsmosisRolloutError):
    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


class OsmosisServerError(_StatusError):
    """The hosted service answered 5xx; never raised by bench.

    Args:
        message: The service's error message.
        status_code: Its HTTP status.
    """


class OsmosisValidationError(_StatusError):
    """The hosted service answered 4xx; never raised by bench. Arguments as in `OsmosisServerError`."""


class AgentLoopNotFoundError(OsmosisRolloutError):
    """No agent of that name is registered.

    Args:
        name: The requested name.
        available: Names of the registered agents.
    """

    def __init__(self, name: str, available: Sequence[str]) -> None:
        super().__init__(f"no agent {name!r} is registered; registered: {', '.join(available) or 'none'}")
        self.name = name
        self.available = list(available)
