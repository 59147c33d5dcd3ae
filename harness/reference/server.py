"""The embedded OpenAI-compatible server: start and stop, players and statistics. `http` handles the requests and is
imported on start, because importing aiohttp takes a third of a second."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from harness.core.errors import ConfigError
from harness.core.records import Example
from harness.core.types import JsonDict, Prompt
from harness.reference.fault_sources import FaultSource, ObservedRequest
from harness.reference.header import RolloutHeader
from harness.reference.player import EnvironmentPlayer
from harness.reference.policies import Policy

if TYPE_CHECKING:
    from harness.reference.http import Listener

COUNTED_ROLLOUTS = 200_000
"""Maximum number of rollouts with their own request counter. Further rollouts count only in the totals, so that memory
is bounded."""

LOGGED = 10_000
"""Number of recent requests that are stored with their faults, so that memory is bounded. `ServerStats.faults` counts
all requests with a fault."""

REPORTED = 1000
"""Number of recent requests in the reply to `GET /faults`."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request and its fault, if any."""

    number: int
    """Number in order of arrival, from 1; 0 for requests other than completions."""
    path: str
    model: str
    example: str
    """The example's key, or ""."""
    rollout: str
    """The rollout's key, or ""."""
    fault: str
    """Name of the fault, or "" if the request was answered normally."""


@dataclass(slots=True)
class ServerStats:
    """Counters of the server; completion requests only."""

    requests: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    rollouts: Counter[str] = field(default_factory=Counter[str])
    """Requests by rollout key, if `count_rollouts` is on."""
    faults: Counter[str] = field(default_factory=Counter[str])
    """Requests by injected fault."""

    def count(self, rollout_key: str) -> None:
        """Count a request of this rollout, unless there are too many rollouts."""
        if rollout_key in self.rollouts or len(self.rollouts) < COUNTED_ROLLOUTS:
            self.rollouts[rollout_key] += 1


class ReferenceServer:
    """Server for chat completions and completions on one address.

    A model named `reference/…` is answered by that policy, any other name by `policy`. Without `policy` the answer is a
    fixed text of about 200 tokens, so that the server can replace any endpoint in a load test.

    Args:
        faults: Injected latency and failures; none by default. `script.fault_script` parses those of a command line.
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        policy: Policy for model names outside `reference/`.
        count_rollouts: Whether to count requests in `stats.rollouts`.
    """

    def __init__(
        self,
        *,
        faults: FaultSource | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        policy: Policy | None = None,
        count_rollouts: bool = False,
    ) -> None:
        self.stats = ServerStats()
        self.faults = faults
        self.served: deque[ServedRequest] = deque(maxlen=LOGGED)
        """The last requests with their faults, oldest first, if faults are injected."""
        self.policy = policy
        self.count_rollouts = count_rollouts
        self._host = host
        self._port = port
        self._players: dict[str, EnvironmentPlayer] = {}
        self._listener: Listener | None = None

    def add(self, lane: str, player: EnvironmentPlayer) -> None:
        """Register the player that answers the requests of run `lane`."""
        self._players[lane] = player

    def remove(self, lane: str) -> None:
        """Remove the player of run `lane`, which has ended."""
        self._players.pop(lane, None)

    def find(self, rollout: RolloutHeader | None, prompt: Prompt) -> tuple[EnvironmentPlayer, Example] | None:
        """Find the player and the example of a request: the named run's player, or else any that knows the key or the
        prompt."""
        key = rollout.example_key if rollout is not None else None
        named = self._players.get(rollout.lane) if rollout is not None else None
        if named is not None and (example := named.find(key, prompt)) is not None:
            return named, example
        for player in self._players.values():
            if player is not named and (example := player.find(key, prompt)) is not None:
                return player, example
        return None

    @property
    def has_players(self) -> bool:
        """Whether any player is registered."""
        return bool(self._players)

    def note(self, asked: ObservedRequest, label: str) -> None:
        """Log a request with the label of its injected fault ("" for none), if faults are injected."""
        if label:
            self.stats.faults[label] += 1
        if getattr(self.faults, "tallies", None) != ():  # only delays: thousands per second, nothing to log
            example, rollout = asked.key("example"), asked.key("rollout")
            self.served.append(ServedRequest(asked.number, asked.path, asked.model, example, rollout, label))

    def fault_report(self) -> JsonDict:
        """Statistics as JSON: totals, requests and hits per rule, and the last requests."""
        tallies = getattr(self.faults, "tallies", ())
        return {
            "requests": self.stats.requests,
            "faults": sum(self.stats.faults.values()),
            "rules": [{"fault": t.rule.label, "requests": t.requests, "hits": t.hits} for t in tallies],
            "served": [asdict(each) for each in list(self.served)[-REPORTED:]],
        }

    async def start(self) -> str:
        """Start listening.

        Returns:
            The base URL for clients, ending in `/v1`.

        Raises:
            ConfigError: the address is not available.
        """
        from harness.reference.http import Listener

        if self._listener is None:
            listener = Listener(self)
            try:
                self._port = await listener.start(self._host, self._port)
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {self._host}:{self._port}: {error.strerror or error}; port 0 selects a free port"
                ) from error
            self._listener = listener
        return self.url

    async def __aenter__(self) -> Self:
        """Start the server for an `async with` block."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        await self.stop()

    @property
    def url(self) -> str:
        """The base URL for clients. A free port is chosen on start, so read it afterwards."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1"

    async def stop(self) -> None:
        """Stop listening and abort open requests; idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
