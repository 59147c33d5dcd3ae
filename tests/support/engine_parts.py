"""A schedule in a test's hands: an executor whose rollouts end when the test says so, the real journal, and waiting for
conditions instead of for time."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.errors import SystemicError
from harness.core.records import Example, Failed, Generated, Item, Record, Scored
from harness.engine.executors import Finished
from harness.engine.progress import RunProgress
from harness.engine.remaining_work import RolloutGroup, Todo
from harness.engine.scheduler import Bounds, Schedule
from harness.store.atomic import durable_sync
from harness.store.journal import Journal, read

PATIENCE = 60.0
"""Seconds after which a condition that has not come true is a failure. Generous: the machine may be busy."""


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Return when `condition` holds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - any condition, also one that no event tells of
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"never came true: {what or condition}") from None


async def settled(journal: Journal | None = None) -> None:
    """Return when nothing moves any more by itself: what is queued is on disk, and every task has had its turns."""
    for _ in range(3):
        if journal is not None:
            await journal.flush()
        for _ in range(20):
            await asyncio.sleep(0)


def generated(item: Item, text: str = "yes", **fields: Any) -> Generated:
    """A rollout whose last message is in."""
    said = [{"role": "assistant", "content": text}]
    return Generated(item.key, item.example.key, item.rollout_index, said, "max_turns_reached", **fields)


def failed(item: Item, reason: str = "timeout", *, retryable: bool = True) -> Failed:
    """A rollout that came to no end."""
    return Failed(item.key, item.example.key, item.rollout_index, "generation", reason, f"{reason}!", retryable)


def scored(key: str, reward: float = 1.0) -> Scored:
    return Scored(key, "scored", reward, {"reward": reward}, {})


def name_of(item: Item) -> str:
    """`3.1`: the second rollout of the fourth example."""
    return f"{item.example.index}.{item.rollout_index}"


def items_of(index: int, rollouts: int = 1) -> list[Item]:
    """The rollouts of one example."""
    example = Example(f"example-{index}", index, [{"role": "user", "content": f"question {index}"}], index=index)
    return [Item(f"key-{index}.{rollout}", example, rollout) for rollout in range(rollouts)]


def fresh(examples: int, rollouts: int = 1, *, grouped: bool = False) -> Iterator[Todo]:
    """The todos of a new run."""
    for index in range(examples):
        group = RolloutGroup(rollouts) if grouped else None
        for number, item in enumerate(items_of(index, rollouts)):
            yield Todo(item, introduce=number == 0, group=group)


class Stage:
    """Calls that came in, each until the test lets it go."""

    def __init__(self) -> None:
        self.open: dict[str, Future[Any]] = {}
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.running = 0
        self.peak = 0

    async def enter(self, name: str) -> Any:
        assert name not in self.open, f"{name} twice at once"
        self.open[name] = asyncio.get_running_loop().create_future()
        self.started.append(name)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self.open[name]
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.running -= 1
            self.open.pop(name, None)

    def end(self, *names: str, result: object = None) -> None:
        """Let calls go: with what they are to return, with an exception to raise, or with None for the usual."""
        for name in names:
            call = self.open.pop(name)
            if call.cancelled():
                continue  # the run has failed in the meantime
            if isinstance(result, BaseException):
                call.set_exception(result)
            else:
                call.set_result(result)


class HeldExecutor:
    """Rollouts are named as in `name_of`; groups `0.0+0.1`. `generate` and `score` wait in their stage."""

    def __init__(self) -> None:
        self.generation = Stage()
        self.scoring = Stage()
        self.forgotten: list[str] = []
        self.holders: dict[str, str] = {}
        """The process that a rollout is scored in, by the rollout's key."""

    def holder_of(self, key: str) -> str | None:
        return self.holders.get(key)

    async def generate(self, item: Item) -> Generated | Failed:
        result = await self.generation.enter(name_of(item))
        if isinstance(result, str):
            return failed(item, result)
        return result or generated(item)

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        names = [f"{each.example.index}.{each.record.rollout_index}" for each in rollouts]
        reward = await self.scoring.enter("+".join(names))
        return [scored(each.record.key, 1.0 if reward is None else reward) for each in rollouts]

    def forget(self, key: str) -> None:
        self.forgotten.append(key)


class HastyExecutor:
    """Carries out whatever comes, each call after its own number of turns of the loop.

    Args:
        turns: Turns by the name of the call.
        failures: What becomes of a rollout instead of being generated: a reason, or an error to raise.
    """

    def __init__(self, turns: Callable[[str], int], failures: dict[str, str | SystemicError] | None = None) -> None:
        self.turns = turns
        self.failures = failures or {}
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self.groups: list[tuple[str, ...]] = []
        self.forgotten: list[str] = []
        self.watch: Callable[[], None] = lambda: None

    async def generate(self, item: Item) -> Generated | Failed:
        name = name_of(item)
        await self._work("generation", 1, self.turns(name))
        failure = self.failures.get(name)
        if isinstance(failure, SystemicError):
            raise failure
        return generated(item) if failure is None else failed(item, failure)

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        names = tuple(f"{each.example.index}.{each.record.rollout_index}" for each in rollouts)
        self.groups.append(names)
        await self._work("scoring", 1, self.turns(f"score {names[0]}"))
        return [scored(each.record.key) for each in rollouts]

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    async def _work(self, stage: str, number: int, turns: int) -> None:
        self.now[stage] += number
        self.peak[stage] = max(self.peak[stage], self.now[stage])
        try:
            for _ in range(turns):
                self.watch()
                await asyncio.sleep(0)
        finally:
            self.now[stage] -= number


@dataclass
class Stand:
    """A schedule that runs, with all that a test looks at."""

    executor: HeldExecutor
    journal: Journal
    progress: RunProgress
    schedule: Schedule
    outcomes: list[int] = field(default_factory=list[int])
    """Outcomes so far, at each call of `on_outcome`."""
    result: Task[SystemicError | None] = field(init=False)

    @property
    def generation(self) -> Stage:
        return self.executor.generation

    @property
    def scoring(self) -> Stage:
        return self.executor.scoring

    async def settled(self) -> None:
        await settled(self.journal)

    async def finish(self, *, failures: dict[str, str] | None = None) -> SystemicError | None:
        """Let everything go that comes, and wait for the end."""
        async with asyncio.timeout(PATIENCE):
            while not self.result.done():
                for name in list(self.generation.open):
                    self.generation.end(name, result=(failures or {}).get(name))
                self.scoring.end(*self.scoring.open)
                await asyncio.sleep(0)
        return self.result.result()


@asynccontextmanager
async def standing(
    path: Path, todos: Iterable[Todo], bounds: Bounds, *, score: bool = True, fsync: Callable[[int], None] | None = None
) -> AsyncGenerator[Stand]:
    """A schedule over `todos` that writes a real journal at `path`; the block may end while it runs."""
    journal = Journal.open(path, fsync=fsync or durable_sync)
    executor, progress = HeldExecutor(), RunProgress("test", "test", "model", bounds.total)
    outcomes: list[int] = []
    schedule = Schedule(
        iter(todos),
        executor,
        journal,
        progress,
        bounds,
        on_outcome=lambda *_: outcomes.append(progress.done),
        score=score,
    )
    stand = Stand(executor, journal, progress, schedule, outcomes)
    try:
        stand.result = asyncio.get_running_loop().create_task(schedule.run())
        yield stand
    finally:
        if not stand.result.done():
            stand.result.cancel()
            await asyncio.wait([stand.result])
        await asyncio.to_thread(_close, journal)


def _close(journal: Journal) -> None:
    try:
        journal.close()
    except Exception as error:
        # What a test wants to know of a journal that fails, it asks the schedule.
        print(f"journal: {error}")


def play(main: Callable[[], Awaitable[None]]) -> None:
    """`asyncio.run` of a test's body; whatever it leaves running is a failure of the test."""

    async def checked() -> None:
        await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(checked())


def records(path: Path) -> list[Record]:
    """All records of a journal."""
    return [record for _, record in read(path)]


def outline(path: Path) -> list[str]:
    """A journal in words: `example-0`, `generated key-0.0`, `scored key-0.0`, `unscored key-0.1`, `failed key-1.0`."""
    lines: list[str] = []
    for record in records(path):
        if isinstance(record, Example):
            lines.append(record.key)
        else:
            lines.append(f"{record.outcome if isinstance(record, Scored) else record.kind} {record.key}")
    return lines
