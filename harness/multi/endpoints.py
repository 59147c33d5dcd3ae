"""Clients for endpoints that several models of an evaluation share. The limit of concurrent requests per endpoint is
the sum over the models that run at once, or lower if a model sets a limit."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self, cast

from harness.models.pool import CallSettings, ClientPool, Clients, EndpointLike, PooledClient


class SharedEndpoints(Clients):
    """Clients whose limit per endpoint has room for several models; otherwise two models at one endpoint, each with one

    concurrent task, would wait for each other.

    Args:
        models: Maximum number of models that run at once.
        environ: Variables in which keys are looked up.
    """

    def __init__(self, models: int, environ: Mapping[str, str]) -> None:
        self._models = models
        self._pool = ClientPool(environ=environ)

    @classmethod
    def of(cls, runs: Sequence[object], keys: Mapping[str, str], at_once: int) -> Self:
        """Create the clients for the models' runs.

        Args:
            runs: One for each model.
            keys: API keys by variable name; they override the process's environment.
            at_once: Maximum number of models that run at once.
        """
        return cls(min(at_once, len(runs)), ChainMap(dict(keys), cast("dict[str, str]", os.environ)))

    def get(self, endpoints: Sequence[EndpointLike], settings: CallSettings | None = None) -> PooledClient:
        """A client for these endpoints."""
        asked = settings or CallSettings()
        room = asked.max_in_flight * self._models if asked.max_in_flight > 0 else asked.max_in_flight
        return self._pool.get(endpoints, replace(asked, max_in_flight=room))

    def open(self) -> None:
        """Prepare every client; sends nothing."""
        self._pool.open()

    async def close(self) -> None:
        """Close every client. May be called repeatedly."""
        await self._pool.close()
