"""The endpoints that the models of one evaluation share. Owns how many requests an endpoint is sent at once: as many as
the models that are under way may send together, or fewer where a model says so."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self, cast

from harness.models.pool import CallSettings, ClientPool, Clients, EndpointLike, PooledClient


class SharedEndpoints(Clients):
    """Clients whose limiter of an endpoint has room for several models; without it, two models at one endpoint, each
    with one task under way, would wait for one another.

    Args:
        models: That may be under way at once.
        environ: Where keys are looked up.
    """

    def __init__(self, models: int, environ: Mapping[str, str]) -> None:
        self._models = models
        self._pool = ClientPool(environ=environ)

    @classmethod
    def of(cls, runs: Sequence[object], keys: Mapping[str, str], at_once: int) -> Self:
        """The clients of the models' runs.

        Args:
            runs: One for each model.
            keys: API keys by the name of their variable, over those of the process's environment.
            at_once: Models that may be under way at once.
        """
        return cls(min(at_once, len(runs)), ChainMap(dict(keys), cast("dict[str, str]", os.environ)))

    def get(self, endpoints: Sequence[EndpointLike], settings: CallSettings | None = None) -> PooledClient:
        """A client for these endpoints."""
        asked = settings or CallSettings()
        room = asked.max_in_flight * self._models if asked.max_in_flight > 0 else asked.max_in_flight
        return self._pool.get(endpoints, replace(asked, max_in_flight=room))

    def open(self) -> None:
        """Make every client ready; sends nothing."""
        self._pool.open()

    async def close(self) -> None:
        """Close every client; idempotent."""
        await self._pool.close()
