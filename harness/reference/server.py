"""The embedded OpenAI-compatible server: its life, its players and its statistics. Owns no HTTP (`http`, imported at
start, because aiohttp takes a third of a second) and no answers (`policies`)."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from harness.core.errors import ConfigError
from harness.core.records import Example
from harness.core.types import JsonDict, Prompt
from harness.reference.faults import Fault, Faults, FaultScript, FaultSource, ObservedRequest, RandomFaults
from harness.reference.header import RolloutHeader
from harness.reference.player import Player
from harness.reference.policies import Policy

if TYPE_CHECKING:
    from harness.reference.http import Listener

COUNTED_ROLLOUTS = 200_000
"""Rollouts that are counted one by one when asked for; further ones only in the totals, so that memory is bounded."""

LOGGED = 10_000
"""Requests whose fate is remembered one by one, so that memory is bounded; `ServerStats.faults` counts all."""

REPORTED = 1000
"""The last requests that `GET /faults` lists."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request and its fate."""

    number: int
    """In order of arrival, from 1; 0 for what is no request for a completion."""
    path: str
    model: str
    example: str
    """The example's key, or ""."""
    rollout: str
    """The rollout's key, or ""."""
    fault: str
    """Name of the fault, or "" when it was answered."""


@dataclass(slots=True)
class ServerStats:
    """What the server has seen. Requests for completions only."""

    requests: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    rollouts: Counter[str] = field(default_factory=Counter[str])
    """Requests by rollout key, if `count_rollouts` is on."""
    faults: Counter[str] = field(default_factory=Counter[str])
    """Requests by the fault that they met."""

    def count(self, rollout_key: str) -> None:
        """Add a request of this rollout, as long as there is room for new rollouts."""
        if rollout_key in self.rollouts or len(self.rollouts) < COUNTED_ROLLOUTS:
            self.rollouts[rollout_key] += 1


class ReferenceServer:
    """Answers chat completions and completions on one address.

    A model named `reference/…` is played by that policy; any other name by `policy` if there is one, else it answers a
    fixed plausible text of about 200 tokens, so the server can stand in for any endpoint as a load target.

    Args:
        faults: Latency and failures; none by default. `script.fault_script` reads them as a command line has them.
        host: Address to listen on.
        port: 0 picks a free one.
        policy: How names outside `reference/` are answered.
        count_rollouts: Whether `stats.rollouts` is kept.
    """

    def __init__(
        self,
        *,
        faults: Faults | FaultSource | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        policy: Policy | None = None,
        count_rollouts: bool = False,
    ) -> None:
        self.stats = ServerStats()
        self.faults: FaultSource | None = RandomFaults(faults) if isinstance(faults, Faults) else faults
        # A rule-less script only makes answers late, thousands a second: nothing to remember.
        self._logs = not (isinstance(self.faults, FaultScript) and not self.faults.tallies)
        self.served: deque[ServedRequest] = deque(maxlen=LOGGED)
        """The last requests and their fates, if faults were asked for; oldest first."""
        self.policy = policy
        self.count_rollouts = count_rollouts
        self._host = host
        self._port = port
        self._players: dict[str, Player] = {}
        self._listener: Listener | None = None

    def add(self, lane: str, player: Player) -> None:
        """Let `player` answer for the rollouts that name `lane`."""
        self._players[lane] = player

    def remove(self, lane: str) -> None:
        """Forget the player of `lane`."""
        self._players.pop(lane, None)

    def find(self, rollout: RolloutHeader | None, prompt: Prompt) -> tuple[Player, Example] | None:
        """Who answers a request, and about what: the named lane's player, else any that knows the key or the prompt."""
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
        """Whether any environment is known."""
        return bool(self._players)

    def note(self, asked: ObservedRequest, fault: Fault) -> None:
        """Remember what a request met."""
        name = "" if fault.is_none and not fault.name else fault.name or fault.act
        if name:
            self.stats.faults[name] += 1
        if self._logs:
            example, rollout = asked.key("example"), asked.key("rollout")
            self.served.append(ServedRequest(asked.number, asked.path, asked.model, example, rollout, name))

    def fault_report(self) -> JsonDict:
        """What was served: totals, each rule's share, the last requests one by one."""
        tallies = self.faults.tallies if isinstance(self.faults, FaultScript) else ()
        hit = sum(self.stats.faults.values())
        return {
            "requests": self.stats.requests,
            "faults": hit,
            "rules": [{"fault": t.rule.label, "requests": t.requests, "hits": t.hits} for t in tallies],
            "served": [asdict(each) for each in list(self.served)[-REPORTED:]],
        }

    async def start(self) -> str:
        """Listen.

        Returns:
            The base URL for clients, ending in `/v1`.

        Raises:
            ConfigError: the address cannot be had.
        """
        from harness.reference.http import Listener

        if self._listener is None:
            listener = Listener(self)
            try:
                self._port = await listener.start(self._host, self._port)
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {self._host}:{self._port}: {error.strerror or error}; port 0 picks a free one"
                ) from error
            self._listener = listener
        return self.url

    async def __aenter__(self) -> Self:
        """Listen, as long as the `async with` block."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    @property
    def url(self) -> str:
        """The base URL for clients; its port is the real one only once the server has started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1"

    async def stop(self) -> None:
        """Cut what is in flight and stop listening; idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
