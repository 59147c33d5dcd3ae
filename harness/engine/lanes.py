"""Joins a run to its model: one chat a rollout, and, where the embedded server plays, the example that the rollout is
about. Owns who is told what of a rollout; the client and its limits are `clients`' business."""

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
from harness.models.pool import BoundChat, CallSettings, Clients, PooledClient
from harness.models.wire import merge_sampling_args
from harness.reference.header import write_rollout
from harness.reference.player import EnvironmentPlayer
from harness.reference.server import ReferenceServer
from harness.settings.resolver import ResolvedRun


class ModelSource(Protocol):
    """A run's way to whoever answers its rollouts."""

    @property
    def model(self) -> str:
        """The name of who answers."""
        ...

    @property
    def sampling_args(self) -> JsonDict:
        """What is asked with."""
        ...

    def waiting_note(self) -> str:
        """What holds the run's requests up, or ""."""
        ...

    def chat(self, item: Item) -> Chat:
        """Who answers one rollout; `close` it afterwards."""
        ...

    def close(self, item: Item) -> None:
        """The rollout asks no more."""
        ...


class RunClient:
    """One run's way to its model.

    Args:
        name: Unique among the runs of the process; the limiter shares its slots fairly between lanes.
        resolved: The run's settings.
        environment: Whose sampling arguments lie under the run's own.
        pool: Where clients come from.
        server: The embedded server, if it plays this run's model.
        till: Where the run pays for its replies.
    """

    def __init__(
        self,
        name: str,
        resolved: ResolvedRun,
        environment: Environment,
        pool: Clients,
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
                # Rates and headers are the endpoint's own: replicas may differ in them.
                max_in_flight=settings.max_concurrent_generation,
                request_timeout=settings.request_timeout,
                request_retries=settings.request_retries,
            ),
        )

    def waiting_note(self) -> str:
        """What holds the run's requests up, or ""."""
        return self._client.waiting_note()

    def chat(self, item: Item) -> Chat:
        """The model, bound to one rollout; `close` it afterwards."""
        headers: dict[str, str] = {}
        if self._told:
            headers[ROLLOUT_HEADER] = write_rollout(self._name, item.example.key, item.key)
        if self._player is not None:
            self._open[item.example.key] += 1
            self._player.learn(item.example)
        chat = BoundChat(
            self._client, self.model, self.sampling_args, self._name, headers, check=self._till.check_queued
        )
        return PricedChat(chat, self._pricing, self._till.charge, self._till.check)

    def close(self, item: Item) -> None:
        """The rollout asks no more; its example is forgotten with the last rollout that is about it."""
        if self._player is None:
            return
        self._open[item.example.key] -= 1
        if self._open[item.example.key] <= 0:
            del self._open[item.example.key]
            self._player.forget(item.example.key)
