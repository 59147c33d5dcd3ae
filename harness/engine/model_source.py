"""Connect a run to its model: one chat per rollout, and, for the embedded server, the rollout's example. The client
enforces rate limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Protocol

from harness.core.loopback import is_loopback_url
from harness.core.records import Item
from harness.core.types import ROLLOUT_HEADER, Chat, JsonDict
from harness.engine.budget import Budget
from harness.engine.prices import PricedChat, pricing_of
from harness.engine.spending import SpendTracker
from harness.envs.environment import Environment
from harness.models.pool import BoundChat, CallSettings, ClientPool, PooledClient
from harness.models.wire import merge_sampling_args
from harness.reference.header import write_rollout
from harness.reference.player import EnvironmentPlayer
from harness.reference.server import ReferenceServer
from harness.settings.resolver import ResolvedRun


class ModelSource(Protocol):
    """Source of model replies for a run's rollouts."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    @property
    def sampling_args(self) -> JsonDict:
        """Sampling arguments of the requests."""
        ...

    def waiting_note(self) -> str:
        """Reason why the run's requests are delayed, or ""."""
        ...

    def chat(self, item: Item) -> Chat:
        """Return the chat of one rollout; call `close` afterwards."""
        ...

    def close(self, item: Item) -> None:
        """Release the resources of a rollout that makes no more calls."""
        ...


class RunClient:
    """Model source of a run that calls an endpoint.

    Args:
        name: Unique among the runs of the process; the limiter shares its slots fairly between these names.
        resolved: The run's settings.
        environment: Provides default sampling arguments, which the run's own override.
        pool: Source of clients.
        server: The embedded server, if it plays this run's model.
        till: Tracker of the run's spending.
    """

    def __init__(
        self,
        name: str,
        resolved: ResolvedRun,
        environment: Environment,
        pool: ClientPool,
        server: ReferenceServer | None,
        till: SpendTracker | None = None,
    ) -> None:
        settings = resolved.settings.model
        endpoints = resolved.endpoints
        self._pricing = pricing_of(endpoints)
        self._till = till or SpendTracker(Budget().charge)
        self._name = name
        self._player: EnvironmentPlayer | None = None
        self._open: Counter[str] = Counter()
        if server is not None:
            endpoints = tuple(replace(endpoint, url=server.url, key_var=None) for endpoint in endpoints)
            self._player = EnvironmentPlayer(environment)
            server.add(name, self._player)
        self.model = endpoints[0].model
        self.sampling_args: JsonDict = merge_sampling_args(environment.sampling_args, settings.sampling_args)
        self._told = all(is_loopback_url(endpoint.url) for endpoint in endpoints)
        self._client: PooledClient = pool.get(
            endpoints,
            CallSettings(
                # Rates and headers belong to the endpoint: replicas may differ in them.
                max_in_flight=settings.max_concurrent_generation,
                request_timeout=settings.request_timeout,
                request_retries=settings.request_retries,
            ),
        )

    def waiting_note(self) -> str:
        """Reason why the run's requests are delayed, or ""."""
        return self._client.waiting_note()

    def chat(self, item: Item) -> Chat:
        """Return the model's chat for one rollout; call `close` afterwards."""
        headers: dict[str, str] = {}
        if self._told:
            headers[ROLLOUT_HEADER] = write_rollout(self._name, item.example.key, item.key)
        if self._player is not None:
            self._open[item.example.key] += 1
            self._player.learn(item.example)
        bound = BoundChat(
            self._client, self.model, self.sampling_args, self._name, headers, check=self._till.check_queued
        )
        return PricedChat(bound, self._pricing, self._till.charge, self._till.check)

    def close(self, item: Item) -> None:
        """Release a rollout that makes no more calls; its example is dropped with its last rollout."""
        if self._player is None:
            return
        self._open[item.example.key] -= 1
        if self._open[item.example.key] <= 0:
            del self._open[item.example.key]
            self._player.forget(item.example.key)
