"""The part of a plan that a journal does not hold yet. Owns what each item still needs, and the grouping of items that
must be scored together; reads the journal, writes nothing.

What needs nothing is passed over by its key alone: neither its row nor its lines are read before the first request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, cast

from harness.core.errors import ResumeRefused
from harness.core.records import STATE_LOST, Failed, Generated, Item, Scored
from harness.engine.executors import Finished
from harness.engine.plan import Plan, PlannedExample
from harness.engine.progress import RunProgress
from harness.store.journal import JournalReader
from harness.store.recorded import Recorded
from harness.store.resume import missing_examples

Need: TypeAlias = Literal["generate", "score"] | None

Stage: TypeAlias = Literal["both", "generate", "score"]
"""`generate` leaves scoring to a later pass with `score`, over a journal that was read anew."""

COUNTED_AT_ONCE = 64
"""Rollouts that are passed over, and later counted, in one turn of the event loop: about a millisecond."""


COUNTED_FIRST = 32
"""Rollouts that are counted before anything begins, so that a small run never seems to have less than it has."""


@dataclass(slots=True)
class RolloutGroup:
    """The rollouts of one example that must be scored together."""

    size: int
    finished: list[Finished] = field(default_factory=list[Finished])
    lost: int = 0
    """Members that failed: a group reward over the rest would be about another group."""

    @property
    def is_closed(self) -> bool:
        """Whether every member has come to its end."""
        return len(self.finished) + self.lost == self.size


@dataclass(frozen=True, slots=True)
class Todo:
    """One item that still needs work."""

    item: Item
    introduce: bool = False
    """Whether the journal does not know the item's example yet."""
    recorded: Generated | None = None
    """What the journal already holds: the item is only scored."""
    group: RolloutGroup | None = None


Aside: TypeAlias = Callable[[], None]
"""Counts some rollouts that need nothing any more; takes a millisecond or two."""


class Todos(Iterator[Todo]):
    """What is left to do of a run that goes on.

    An iterator that counts, on the way, what needs nothing any more. A schedule takes single steps instead: of a large
    run, counting takes seconds, in which the first request could long be under way.

    Args:
        steps: The work in its order, and what is to be counted.
    """

    def __init__(self, steps: Iterator[Todo | Aside]) -> None:
        self._steps = steps

    def __next__(self) -> Todo:
        for step in self._steps:
            if isinstance(step, Todo):
                return step
            step()
        raise StopIteration

    def step(self) -> Todo | Aside | None:
        """The next piece of work, or something to be counted; None at the end."""
        return next(self._steps, None)


class Worklist:
    """What is left to do of one run.

    Args:
        plan: All items of the run.
        recorded: What the journal holds; None for a new run.
        retry_failed: Whether failed rollouts are made again and unscored ones scored again.
        progress: Told of the items that need nothing any more; None if they were counted before.
    """

    def __init__(
        self, plan: Plan, recorded: Recorded | None, *, retry_failed: bool, progress: RunProgress | None
    ) -> None:
        self._plan = plan
        self._recorded = recorded
        self._retry_failed = retry_failed
        self._progress = progress
        self._early = COUNTED_FIRST
        self._passed: list[tuple[str, int]] = []
        """Key, and example's place, of rollouts that need nothing and are not counted yet."""

    def todos(self, stage: Stage) -> Iterator[Todo]:
        """The work, lazily and in the plan's order; `Todos` if the journal holds anything."""
        if self._recorded is None:
            return self._fresh(grouped=self._plan.is_group)
        return Todos(self._left(self._recorded, stage))

    @property
    def _is_enough(self) -> bool:
        """Whether no further example is to begin; one that has begun is made whole."""
        return self._progress is not None and self._progress.target is not None and self._progress.target.is_enough

    def _left(self, recorded: Recorded, stage: Stage) -> Iterator[Todo | Aside]:
        with JournalReader(recorded.path) as reader:
            for outline in self._plan.outlines():
                yield from self._remaining(recorded, reader, outline, stage)
                if self._passed and self._progress is not None and self._progress.target is not None:
                    self._counting(recorded)()  # what was scored before decides whether more is to begin
                elif len(self._passed) >= COUNTED_AT_ONCE:
                    yield self._counting(recorded)
        if self._passed:
            yield self._counting(recorded)

    def _counting(self, recorded: Recorded) -> Aside:
        passed, self._passed = self._passed, []
        return partial(self._count, recorded, passed)

    def _fresh(self, *, grouped: bool) -> Iterator[Todo]:
        for example in self._plan.examples():
            if self._is_enough:
                return
            items = self._plan.items(example)
            group = RolloutGroup(len(items)) if grouped else None
            for number, item in enumerate(items):
                yield Todo(item, introduce=number == 0, group=group)

    def _remaining(
        self, recorded: Recorded, reader: JournalReader, outline: PlannedExample, stage: Stage
    ) -> Iterator[Todo | Aside]:
        keys = outline.item_keys
        needs = [self._need(recorded, reader, key, stage) for key in keys]
        if self._is_enough and not any(map(recorded.status, keys)):
            return
        group = None
        if self._plan.is_group and (any(needs) or _is_stale(recorded, keys)):
            # A group that lacks anything is scored anew as a whole: its rewards are about each other.
            needs = [need or self._rescore(recorded, key) for key, need in zip(keys, needs, strict=True)]
            # Where scoring is left to a later pass, only a group with members still to be made is put together: one of
            # them may have a state that no journal can hold, and then the group is scored while that is there.
            if stage != "generate" or "generate" in needs:
                group = RolloutGroup(len(keys), lost=needs.count(None))
        self._passed += [(key, outline.index) for key, need in zip(keys, needs, strict=True) if need is None]
        if not any(needs):
            return
        yield from self._count_passed(recorded)
        introduce = not recorded.has_example(outline.key)
        for item, need in zip(outline.items(), needs, strict=True):
            if need == "generate" and stage != "score":
                yield Todo(item, introduce=introduce, group=group)
                introduce = False
            elif need == "score":
                generated = _generated(recorded, reader, item)
                if self._progress is not None:
                    self._progress.usage += generated.usage
                if stage != "generate" or group is not None:
                    yield Todo(item, recorded=generated, group=group)

    def _need(self, recorded: Recorded, reader: JournalReader, key: str, stage: Stage) -> Need:
        status = recorded.status(key)
        if status is None:
            return "generate" if self._plan.can_generate else None
        if status == "failed":
            again = self._retry_failed or recorded.is_open(key)
            return "generate" if again and self._plan.can_generate and stage != "score" else None
        if status == "unscored" and self._retry_failed and stage != "score":
            # What scoring would read is gone for good: only a new rollout can be scored.
            if not _has_lost_state(recorded, reader, key):
                return "score"
            return "generate" if self._plan.can_generate else None
        if status == "generated" or (status == "unscored" and self._retry_failed):
            return "score"
        return None

    def _rescore(self, recorded: Recorded, key: str) -> Need:
        return None if recorded.generated_at(key) is None else "score"

    def _count_passed(self, recorded: Recorded) -> Iterator[Aside]:
        """Have what was passed over counted before work begins: the end may be a while away, and until then the run
        would seem to have less than it has. At once, if it is so little that nobody waits for it."""
        if 0 < len(self._passed) <= self._early:
            self._early -= len(self._passed)
            self._count(recorded, self._passed)
            self._passed = []
        elif self._passed:
            yield self._counting(recorded)

    def _count(self, recorded: Recorded, passed: Sequence[tuple[str, int]]) -> None:
        if self._progress is None:
            return
        with JournalReader(recorded.path) as reader:
            for key, index in passed:
                self._progress.resumed += 1
                _count_one(self._progress, recorded, reader, key, index)


def _count_one(progress: RunProgress, recorded: Recorded, reader: JournalReader, key: str, index: int) -> None:
    scored_at = recorded.scored_at(key)
    generated_at = recorded.generated_at(key)
    if scored_at is not None and generated_at is not None:
        generated = cast(Generated, reader.record(generated_at))
        progress.usage += generated.usage
        progress.count(index, generated, cast(Scored, reader.record(scored_at)))
        return
    failed_at = recorded.failed_at(key)
    if failed_at is not None:
        failed = cast(Failed, reader.record(failed_at))
        progress.usage += failed.usage
        progress.count_failed(index, failed)


def _is_stale(recorded: Recorded, keys: Sequence[str]) -> bool:
    """Whether a group's scores are about another group: a member was made, or lost, after one of them was written."""
    scores: list[int] = []
    members: list[int] = []
    for key in keys:
        for offset, found in (
            (recorded.scored_at(key), scores),
            (recorded.generated_at(key), members),
            (recorded.failed_at(key), members),
        ):
            if offset is not None:
                found.append(offset)
    return bool(scores) and min(scores) < max(members)


def _has_lost_state(recorded: Recorded, reader: JournalReader, key: str) -> bool:
    offset = recorded.scored_at(key)
    if offset is None:
        return False
    scored = cast(Scored, reader.record(offset))
    return any(words.startswith(STATE_LOST) for words in scored.reasons.values())


def _generated(recorded: Recorded, reader: JournalReader, item: Item) -> Generated:
    offset = recorded.generated_at(item.key)
    assert offset is not None, "only an item with a generated line needs no more than a score"
    return cast(Generated, reader.record(offset))


def outcomes(recorded: Recorded | None, *, retry_failed: bool) -> int:
    """How many rollouts have an outcome that a resume leaves as it is; known before any of them is read."""
    if recorded is None:
        return 0
    counts = recorded.counts()
    return counts["scored"] + (0 if retry_failed else counts["unscored"] + counts["failed"] - recorded.open_count)


def check_growth(plan: Plan, recorded: Recorded, planned: dict[str, int]) -> None:
    """Refuse a resume whose plan does not hold everything that the run recorded.

    Args:
        plan: The plan that is asked for.
        recorded: What the run's journal holds.
        planned: `num_examples` and `rollouts_per_example` of the recorded run's manifest.

    Raises:
        ResumeRefused: the plan shrank, or recorded examples are gone.
    """
    now = {"num_examples": plan.num_examples, "rollouts_per_example": plan.rollouts_per_example}
    flags = {"num_examples": "-n", "rollouts_per_example": "-r"}
    for name, flag in flags.items():
        if now[name] < planned.get(name, 0) and recorded.example_count > 0:
            raise ResumeRefused(
                f"{flag}: {name} was {planned[name]} and is now {now[name]}; a resumed run may grow, not shrink. "
                f"Give {flag} {planned[name]} or more, or start a new run"
            )
    gone = missing_examples(recorded, plan.example_keys())
    if gone is not None:
        raise ResumeRefused(f"{gone}; start a new run without --resume")
