"""Remaining work of a run, according to its plan and its journal: which items (planned rollouts) must still be
generated or scored, and which must be scored together. Finished items are recognized by their keys, so that neither
their dataset rows nor their journal lines must be read before the first request."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, cast

from harness.core.errors import ResumeRefused
from harness.core.records import STATE_LOST, Failed, Generated, Item, Scored
from harness.core.types import value_class
from harness.engine.executors import Finished
from harness.engine.plan import PlannedExample, PlannedRollouts
from harness.engine.progress import RunProgress
from harness.store.journal import JournalReader
from harness.store.journal_index import Recorded, read_rollout
from harness.store.outcome_kinds import OUTCOMES
from harness.store.resume import missing_examples

Need: TypeAlias = Literal["generate", "score"] | None

Stage: TypeAlias = Literal["both", "generate", "score"]
"""Steps of a pass over the plan. After a `generate` pass, a `score` pass scores from the reloaded journal."""

COUNTED_AT_ONCE = 64
"""Number of finished rollouts that are counted in one iteration of the event loop, which takes about a millisecond."""


COUNTED_FIRST = 32
"""Number of finished rollouts that are counted before any work begins, so that a small run shows its full counts at
once."""


@dataclass(slots=True)
class RolloutGroup:
    """Rollouts of one example that must be scored together."""

    size: int
    finished: list[Finished] = field(default_factory=list[Finished])
    lost: int = 0
    """Number of failed rollouts. If any rollout has failed, the group cannot be scored."""

    @property
    def is_closed(self) -> bool:
        """Whether every rollout of the group has been generated or has failed."""
        return len(self.finished) + self.lost == self.size


@value_class
class Todo:
    """One item (planned rollout) that must be generated or scored."""

    item: Item
    introduce: bool = False
    """Whether the item's example is not in the journal yet."""
    recorded: Generated | None = None
    """The recorded rollout if the item only needs to be scored; None if it must be generated."""
    group: RolloutGroup | None = None


Aside: TypeAlias = Callable[[], None]
"""Function that adds some finished rollouts to the live counters, which takes one or two milliseconds."""


class Todos(Iterator[Todo]):
    """Iterator over the remaining work of a resumed run. It also adds finished rollouts to the live counters.

    The scheduler calls `step` for one entry at a time: counting all finished rollouts would delay the first request.

    Args:
        steps: The remaining items in order, and functions that count finished rollouts.
    """

    def __init__(self, steps: Generator[Todo | Aside]) -> None:
        self._steps = steps

    def close(self) -> None:
        """Close the journal, even if not all items were taken."""
        self._steps.close()

    def __next__(self) -> Todo:
        for step in self._steps:
            if isinstance(step, Todo):
                return step
            step()
        raise StopIteration

    def step(self) -> Todo | Aside | None:
        """Return the next item, or the next function that counts finished rollouts; None at the end."""
        return next(self._steps, None)


class Worklist:
    """Remaining work of one run.

    Args:
        plan: All items of the run.
        recorded: The journal's index; None for a new run.
        retry_failed: Whether to retry failed rollouts, and the scoring of unscored ones.
        progress: Counters to which finished rollouts are added; None if they have been counted.
    """

    def __init__(
        self, plan: PlannedRollouts, recorded: Recorded | None, *, retry_failed: bool, progress: RunProgress | None
    ) -> None:
        self._plan = plan
        self._recorded = recorded
        self._retry_failed = retry_failed
        self._progress = progress
        self._early = COUNTED_FIRST
        self._passed = array("q")
        """Journal number (-1 without a line) and example index of each finished rollout that is not counted yet, in
        turn. In an array, since all wait until the first requests are under way."""
        self._settled = frozenset(
            kind.name for kind in OUTCOMES.values() if not kind.resume and not (retry_failed and kind.retry)
        )
        """Statuses of rollouts that need nothing more."""

    def todos(self, stage: Stage) -> Generator[Todo] | Todos:
        """Yield the remaining items lazily, in the plan's order; for a resumed run, the iterator is a `Todos`. Close
        the iterator after use: it has the journal open."""
        if self._recorded is None:
            return self._fresh()
        return Todos(self._left(self._recorded, stage))

    @property
    def _is_enough(self) -> bool:
        """Return whether early stopping needs no further example. An example that has begun is completed."""
        return self._progress is not None and self._progress.target is not None and self._progress.target.is_enough

    def _left(self, recorded: Recorded, stage: Stage) -> Generator[Todo | Aside]:
        with JournalReader(recorded.path) as reader:
            for outline in self._plan.outlines():
                if not self._has_passed(recorded, outline):
                    yield from self._remaining(recorded, reader, outline, stage)
                if self._passed and self._progress is not None and self._progress.target is not None:
                    self._counting(recorded)()  # earlier scores decide whether another example begins
                elif len(self._passed) >= 2 * COUNTED_AT_ONCE:
                    yield self._counting(recorded)
        if self._passed:
            yield self._counting(recorded)

    def _counting(self, recorded: Recorded) -> Aside:
        passed, self._passed = self._passed, array("q")
        return partial(self._count, recorded, passed)

    def _fresh(self) -> Generator[Todo]:
        for example in self._plan.examples():
            if self._is_enough:
                return
            items = self._plan.items(example)
            group = RolloutGroup(len(items)) if self._plan.is_group else None
            for number, item in enumerate(items):
                yield Todo(item, introduce=number == 0, group=group)

    def _has_passed(self, recorded: Recorded, outline: PlannedExample) -> bool:
        """Pass over an example of which every rollout needs nothing more, as is usual. Returns whether that is so."""
        if self._plan.is_group:
            return False  # whether its scores are outdated must be known, too
        numbers = [recorded.number(key) for key in outline.item_keys]
        if any(number < 0 or recorded.status_at(number) not in self._settled for number in numbers):
            return False
        for number in numbers:
            self._pass(number, outline.index)
        return True

    def _pass(self, number: int, index: int) -> None:
        self._passed.append(number)
        self._passed.append(index)

    def _remaining(
        self, recorded: Recorded, reader: JournalReader, outline: PlannedExample, stage: Stage
    ) -> Iterator[Todo | Aside]:
        keys = outline.item_keys
        needs = [self._need(recorded, reader, key, stage) for key in keys]
        if self._is_enough and not any(map(recorded.status, keys)):
            return
        group = None
        if self._plan.is_group and (any(needs) or _is_stale(recorded, keys)):
            # An incomplete group is scored again as a whole: its rewards depend on all members.
            needs = [
                need or (None if recorded.generated_at(key) is None else "score")
                for key, need in zip(keys, needs, strict=True)
            ]
            # If scoring is left to a later pass, form only groups with members to generate: a state that cannot be
            # stored in the journal requires scoring the group while the state is in memory.
            if stage != "generate" or "generate" in needs:
                group = RolloutGroup(len(keys), lost=needs.count(None))
        for key, need in zip(keys, needs, strict=True):
            if need is None:
                self._pass(recorded.number(key), outline.index)
        if not any(needs):
            return
        yield from self._count_passed(recorded)
        introduce = recorded.example_number(outline.key) is None
        for item, need in zip(outline.items(), needs, strict=True):
            if need == "generate" and stage != "score":
                yield Todo(item, introduce=introduce, group=group)
                introduce = False
            elif need == "score":
                offset = recorded.generated_at(item.key)
                assert offset is not None, "only an item with a generated line needs no more than a score"
                generated = cast(Generated, reader.record(offset))
                if self._progress is not None:
                    self._progress.usage += generated.usage
                if stage != "generate" or group is not None:
                    yield Todo(item, recorded=generated, group=group)

    def _need(self, recorded: Recorded, reader: JournalReader, key: str, stage: Stage) -> Need:
        kind = OUTCOMES[recorded.status(key) or "not_run"]
        need: Need = kind.resume or (kind.retry if self._retry_failed else None)
        if need == "score" and not kind.resume and stage != "score" and _has_lost_state(recorded, reader, key):
            need = "generate"  # the state that scoring needs is lost: only a new rollout can be scored
        if need == "generate" and (not self._plan.can_generate or (stage == "score" and kind.name != "not_run")):
            return None
        return need

    def _count_passed(self, recorded: Recorded) -> Iterator[Aside]:
        """Count finished rollouts: a few now, before other work begins, and the others in steps that the scheduler
        takes later."""
        if 0 < len(self._passed) <= 2 * self._early:
            self._early -= len(self._passed) // 2
            self._counting(recorded)()
        elif self._passed:
            yield self._counting(recorded)

    def _count(self, recorded: Recorded, passed: array[int]) -> None:
        if self._progress is None:
            return
        with JournalReader(recorded.path) as reader:
            for number, index in zip(passed[::2], passed[1::2], strict=True):
                self._progress.resumed += 1
                if number >= 0:
                    _count_one(self._progress, recorded, reader, number, index)


def _count_one(progress: RunProgress, recorded: Recorded, reader: JournalReader, number: int, index: int) -> None:
    base, score = read_rollout(reader, recorded.lines(number))
    if isinstance(base, Failed):
        progress.usage += base.usage
        progress.count_failed(index, base)
    elif score is not None:
        progress.usage += base.usage
        progress.count(index, base, score)


def _is_stale(recorded: Recorded, keys: Sequence[str]) -> bool:
    """Return whether a group's scores are outdated: one of its rollouts was generated or failed later."""
    scores = [at for key in keys if (at := recorded.scored_at(key)) is not None]
    members = [at for key in keys for at in (recorded.generated_at(key), recorded.failed_at(key)) if at is not None]
    return bool(scores) and min(scores) < max(members)


def _has_lost_state(recorded: Recorded, reader: JournalReader, key: str) -> bool:
    offset = recorded.scored_at(key)
    reasons = {} if offset is None else cast(Scored, reader.record(offset)).reasons
    return any(words.startswith(STATE_LOST) for words in reasons.values())


def outcomes(recorded: Recorded | None, *, retry_failed: bool) -> int:
    """Return the number of finished rollouts that are kept when the run is resumed. Reads no records."""
    if recorded is None:
        return 0
    counts = recorded.counts()
    kept = (kind for kind in OUTCOMES.values() if not kind.resume and not (retry_failed and kind.retry))
    return sum(counts.get(kind.name, 0) for kind in kept)


def check_growth(plan: PlannedRollouts, recorded: Recorded, planned: dict[str, int]) -> None:
    """Raise an error if the plan of a resumed run does not contain every recorded rollout.

    Args:
        plan: The requested plan.
        recorded: The index of the run's journal.
        planned: `num_examples` and `rollouts_per_example` of the recorded run's manifest.

    Raises:
        ResumeRefused: the plan became smaller, or recorded examples are missing from it.
    """
    now = {"num_examples": plan.num_examples, "rollouts_per_example": plan.rollouts_per_example}
    for name in now:
        if now[name] < planned.get(name, 0) and recorded.example_count > 0:
            raise ResumeRefused(
                f"the earlier value is {planned[name]}, the new one {now[name]}, but a resumed run must not shrink.",
                setting=name,
                remedy=f"Raise {{{name}}} to at least {planned[name]}, or start a new run",
            )
    gone = missing_examples(recorded, plan.example_keys())
    if gone is not None:
        raise ResumeRefused(gone, remedy="start a new run without {resume}")
