"""Interface of fault injection: objects that choose and send the faults of the reference server. Plugins of the group
`bench.fault_sources` implement it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

import orjson

from harness.core.types import JsonDict
from harness.reference.header import RolloutHeader

if TYPE_CHECKING:
    from aiohttp import web

FAULT_SOURCES = "bench.fault_sources"
"""Entry-point group of plugins. Each is a function whose parameters are options of `bench serve`, as typer reads them.
It returns a `FaultSource`, or None for no faults."""

Per: TypeAlias = Literal["", "rollout", "example", "model"]


class ObservedRequest:
    """A request to the reference server, as fault sources get it. The body is parsed on first use."""

    __slots__ = ("_body", "number", "path", "raw", "rollout")

    def __init__(
        self,
        number: int = 0,
        path: str = "/v1/chat/completions",
        raw: bytes = b"",
        rollout: RolloutHeader | None = None,
    ) -> None:
        self.number = number
        self.path = path
        self.raw = raw
        self.rollout = rollout
        self._body: JsonDict | None = None

    @property
    def body(self) -> JsonDict:
        """The parsed body; empty if it is not a JSON object."""
        if self._body is None:
            try:
                value: object = orjson.loads(self.raw)
            except orjson.JSONDecodeError:
                value = None
            self._body = cast("JsonDict", value) if isinstance(value, dict) else {}
        return self._body

    @property
    def model(self) -> str:
        """The model's name, or ""."""
        model: object = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def prompt(self) -> str:
        """The messages or the prompt of the request, as text that filters can search."""
        asked: object = self.body.get("messages", self.body.get("prompt", ""))
        return asked if isinstance(asked, str) else orjson.dumps(asked).decode()

    def key(self, of: Per) -> str:
        """Return the key of the request's rollout or example, or its model's name; "" if unknown or if `of` is ""."""
        if of == "model":
            return self.model
        if not of or self.rollout is None:
            return ""
        return self.rollout.rollout_key if of == "rollout" else self.rollout.example_key


class InjectedFault(Protocol):
    """The response to one request, which may be faulty."""

    @property
    def label(self) -> str:
        """Name of the fault in reports; "" if the request gets its normal answer."""
        ...

    async def send(
        self, request: web.BaseRequest, asked: ObservedRequest, answer: Callable[[], JsonDict]
    ) -> web.StreamResponse | None:
        """Send the fault; return None for the normal answer.

        Args:
            request: The request.
            asked: The same request, with its parsed body.
            answer: Makes the normal reply; may raise to refuse the request.
        """
        ...


class FaultSource(Protocol):
    """Source of faults: chooses the fault of each request, in the order of arrival.

    An attribute `tallies` may be a tuple of counters with `rule.label`, `requests` and `hits`, for reports. If it is
    empty, the server keeps no list of requests."""

    def next(self, asked: ObservedRequest, /) -> InjectedFault:
        """Return the fault of the next request."""
        ...
