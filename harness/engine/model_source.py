"""Connect a run to its model and judges: create a chat for each rollout, and pass the rollout's example to the embedded
reference server if that answers. Rate limits are enforced by the client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from harness.core.loopback import is_loopback_url
from harness.core.records import Example, Item
from harness.core.types import ROLLOUT_HEADER, Chat, JsonDict
from harness.engine.prices import pricing_of
from harness.engine.spending import SpendTracker
from harness.envs.environment import Environment
from harness.models.delays import Delay
from harness.models.pool import BoundChat, CallSettings, ClientPool, PooledClient
from harness.models.wire import merge_sampling_args
from harness.reference.header import format_header
from harness.reference.player import EnvironmentPlayer
from harness.reference.server import ReferenceServer
from harness.settings.endpoints import Endpoint
from harness.settings.resolver import ResolvedRun


class ModelSource(Protocol):
    """Source of the model replies for a run's rollouts: a model or a recording."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    @property
    def sampling_args(self) -> JsonDict:
        """Sampling arguments of the requests."""
        ...

    def delays(self) -> list[Delay]:
        """Reasons why the run's requests are delayed; empty if they are not."""
        ...

    def chat(self, item: Item) -> Chat:
        """Return the chat of one rollout. Call `close` when the rollout has ended."""
        ...

    def close(self, item: Item) -> None:
        """Release the resources of a rollout that makes no more calls."""
        ...


class CountingPlayer(EnvironmentPlayer):
    """Reference player that keeps an example until `forget` has been called as often as `learn` for this example."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._uses: Counter[str] = Counter()

    def learn(self, example: Example) -> None:
        """Register `example` under its key."""
        self._uses[example.key] += 1
        super().learn(example)

    def forget(self, example_key: str) -> None:
        """Remove the example when this was called as often as `learn` for its key."""
        self._uses[example_key] -= 1
        if not self._uses[example_key]:
            del self._uses[example_key]
            super().forget(example_key)


class Connection:
    """Connection of a run to its model or to a judge: its client, prices and request headers.

    Args:
        name: A name that is unique among the runs of the process; the limiter divides its slots fairly between names.
        endpoints: Endpoints of the model; an endpoint without a URL is the embedded reference server.
        settings: Call settings of the run.
        pool: Source of clients.
        server: The embedded reference server; None if no run of the invocation needs it.
        tracker: Tracker of the run's spending.
    """

    def __init__(
        self,
        name: str,
        endpoints: Sequence[Endpoint],
        settings: CallSettings,
        pool: ClientPool,
        server: ReferenceServer | None,
        tracker: SpendTracker,
    ) -> None:
        self._name = name
        pricing = pricing_of(endpoints)
        if server is not None:
            endpoints = tuple(each if each.url else replace(each, url=server.url, key_var=None) for each in endpoints)
        self.model = endpoints[0].model
        self.is_local = all(is_loopback_url(endpoint.url) for endpoint in endpoints)
        """Whether every endpoint is on this machine, so that requests may name their rollout in a header."""
        self._client: PooledClient = pool.get(endpoints, settings)
        self._check = tracker.check
        self._charge = partial(tracker.charge, pricing, self.model)

    def delays(self) -> list[Delay]:
        """Reasons why requests are delayed; empty if they are not."""
        return self._client.delays()

    def chat(self, item: Item | None, sampling_args: Mapping[str, Any], *, urgent: bool = False) -> Chat:
        """Return the chat of one rollout.

        Args:
            item: The rollout that the requests name in a header; None for no header.
            sampling_args: Sampling arguments of each request.
            urgent: Whether these requests are sent before waiting requests that are not urgent.
        """
        headers = {} if item is None else {ROLLOUT_HEADER: format_header(self._name, item.example.key, item.key)}
        return BoundChat(
            self._client, self.model, sampling_args, self._name, headers, urgent, None, self._check, self._charge
        )


class RunClient:
    """Model source of a run that calls an endpoint.

    Args:
        name: A name that is unique among the runs of the process.
        resolved: The run's settings.
        environment: The environment; its default sampling arguments are overridden by the run's.
        pool: Source of clients.
        server: The embedded reference server, if it answers as this run's model.
        tracker: Tracker of the run's spending.
    """

    def __init__(
        self,
        name: str,
        resolved: ResolvedRun,
        environment: Environment,
        pool: ClientPool,
        server: ReferenceServer | None,
        tracker: SpendTracker,
    ) -> None:
        settings = resolved.settings.model
        self.sampling_args: JsonDict = merge_sampling_args(environment.sampling_args, settings.sampling_args)
        # Rates and headers belong to the endpoint: replicas may differ in them.
        calls = CallSettings(
            max_in_flight=settings.max_concurrent_generation,
            request_timeout=settings.request_timeout,
            request_retries=settings.request_retries,
        )
        self._player: CountingPlayer | None = None
        if server is not None:
            self._player = CountingPlayer(environment)
            server.add(name, self._player)
        self._connection = Connection(name, resolved.endpoints, calls, pool, server, tracker)
        self.model = self._connection.model

    def delays(self) -> list[Delay]:
        """Reasons why the run's requests are delayed; empty if they are not."""
        return self._connection.delays()

    def chat(self, item: Item) -> Chat:
        """Return the model's chat for one rollout. Call `close` when the rollout has ended."""
        if self._player is not None:
            self._player.learn(item.example)
        return self._connection.chat(item if self._connection.is_local else None, self.sampling_args)

    def close(self, item: Item) -> None:
        """Release a rollout that makes no more calls."""
        if self._player is not None:
            self._player.forget(item.example.key)
