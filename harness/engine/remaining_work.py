"""Remaining work of a plan by its journal: the missing steps of each item, and the groups of items that must be scored
together. Reads the journal, writes nothing. Finished items are skipped by their keys: neither their rows nor their
lines are read before the first request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, cast

from harness.core.errors import ResumeRefused
from harness.core.records import STATE_LOST, Failed, Generated, Item, Scored
from harness.engine.executors import Finished
from harness.engine.plan import PlannedExample, PlannedRollouts
from harness.engine.progress import RunProgress
from harness.store.journal import JournalReader
from harness.store.journal_index import Recorded
from harness.store.outcome_kinds import OUTCOMES
from harness.store.resume import missing_examples

Need: TypeAlias = Literal["generate", "score"] | None

Stage: TypeAlias = Literal["both", "generate", "score"]
"""Pass over the plan; `generate` leaves scoring to a later `score` pass over the reloaded journal."""

COUNTED_AT_ONCE = 64
"""Number of skipped rollouts that are counted in one turn of the event loop: about a millisecond."""


COUNTED_FIRST = 32
"""Number of skipped rollouts that are counted before any work begins, so that a small run shows its full counts at
once."""


@dataclass(slots=True)
class RolloutGroup:
    """The rollouts of one example that must be scored together."""

    size: int
    finished: list[Finished] = field(default_factory=list[Finished])
    lost: int = 0
    """Number of failed members: a group reward over the others would concern another group."""

    @property
    def is_closed(self) -> bool:
        """Whether every member has been generated or has failed."""
        return len(self.finished) + self.lost == self.size


@dataclass(frozen=True, slots=True)
class Todo:
    """One item that must be generated or scored."""

    item: Item
    introduce: bool = False
    """Whether the journal lacks the item's example."""
    recorded: Generated | None = None
    """The recorded rollout if the item only needs scoring; None otherwise."""
    group: RolloutGroup | None = None


Aside: TypeAlias = Callable[[], None]
"""Function that adds some finished rollouts to the live counters; takes a millisecond or two."""


class Todos(Iterator[Todo]):
    """Iterator over the remaining work of a resumed run, which also counts finished rollouts.

    A schedule takes single steps instead: counting a large run takes seconds, which would delay the first request.

    Args:
        steps: The work in order, and the pending counts.
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
        """Return the next item of work or pending count; None at the end."""
        return next(self._steps, None)


class Worklist:
    """Remaining work of one run.

    Args:
        plan: All items of the run.
        recorded: The journal's index; None for a new run.
        retry_failed: Whether failed rollouts are retried and unscored ones scored again.
        progress: Counters for finished rollouts; None if they were counted before.
    """

    def __init__(
        self, plan: PlannedRollouts, recorded: Recorded | None, *, retry_failed: bool, progress: RunProgress | None
    ) -> None:
        self._plan = plan
        self._recorded = recorded
        self._retry_failed = retry_failed
        self._progress = progress
        self._early = COUNTED_FIRST
        self._passed: list[tuple[str, int]] = []
        """Key and example index of finished rollouts that are not counted yet."""

    def todos(self, stage: Stage) -> Iterator[Todo]:
        """Yield the remaining items lazily, in the plan's order; for a resumed run, the iterator is a `Todos`."""
        if self._recorded is None:
            return self._fresh()
        return Todos(self._left(self._recorded, stage))

    @property
    def _is_enough(self) -> bool:
        """Whether early stopping allows no further example; an example that has begun is completed."""
        return self._progress is not None and self._progress.target is not None and self._progress.target.is_enough

    def _left(self, recorded: Recorded, stage: Stage) -> Iterator[Todo | Aside]:
        with JournalReader(recorded.path) as reader:
            for outline in self._plan.outlines():
                yield from self._remaining(recorded, reader, outline, stage)
                if self._passed and self._progress is not None and self._progress.target is not None:
                    self._counting(recorded)()  # earlier scores decide whether another example begins
                elif len(self._passed) >= COUNTED_AT_ONCE:
                    yield self._counting(recorded)
        if self._passed:
            yield self._counting(recorded)

    def _counting(self, recorded: Recorded) -> Aside:
        passed, self._passed = self._passed, []
        return partial(self._count, recorded, passed)

    def _fresh(self) -> Iterator[Todo]:
        for example in self._plan.examples():
            if self._is_enough:
                return
            items = self._plan.items(example)
            group = RolloutGroup(len(items)) if self._plan.is_group else None
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
            # An incomplete group is scored again as a whole: its rewards depend on all members.
            needs = [
                need or (None if recorded.generated_at(key) is None else "score")
                for key, need in zip(keys, needs, strict=True)
            ]
            # If scoring is left to a later pass, form only groups with members to generate: a state that cannot be
            # stored in the journal requires scoring the group while the state is in memory.
            if stage != "generate" or "generate" in needs:
                group = RolloutGroup(len(keys), lost=needs.count(None))
        self._passed += [(key, outline.index) for key, need in zip(keys, needs, strict=True) if need is None]
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
        """Count skipped rollouts before work begins, so that the counters are not too low for long: a few at once, more
        as a pending count."""
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
    """Whether a group's scores are outdated: a member was generated or failed after one of them was written."""
    scores = [at for key in keys if (at := recorded.scored_at(key)) is not None]
    members = [at for key in keys for at in (recorded.generated_at(key), recorded.failed_at(key)) if at is not None]
    return bool(scores) and min(scores) < max(members)


def _has_lost_state(recorded: Recorded, reader: JournalReader, key: str) -> bool:
    offset = recorded.scored_at(key)
    reasons = {} if offset is None else cast(Scored, reader.record(offset)).reasons
    return any(words.startswith(STATE_LOST) for words in reasons.values())


def outcomes(recorded: Recorded | None, *, retry_failed: bool) -> int:
    """Number of finished rollouts that a resume keeps; known before any record is read."""
    if recorded is None:
        return 0
    counts = recorded.counts()
    kept = (kind for kind in OUTCOMES.values() if not kind.resume and not (retry_failed and kind.retry))
    return sum(counts.get(kind.name, 0) for kind in kept)


def check_growth(plan: PlannedRollouts, recorded: Recorded, planned: dict[str, int]) -> None:
    """Refuse a resume whose plan does not contain every recorded rollout.

    Args:
        plan: The requested plan.
        recorded: The index of the run's journal.
        planned: `num_examples` and `rollouts_per_example` of the recorded run's manifest.

    Raises:
        ResumeRefused: the plan shrank, or recorded examples are gone.
    """
    now = {"num_examples": plan.num_examples, "rollouts_per_example": plan.rollouts_per_example}
    for name in now:
        if now[name] < planned.get(name, 0) and recorded.example_count > 0:
            raise ResumeRefused(
                f"was {planned[name]} and is now {now[name]}; a resumed run may grow, not shrink.",
                setting=name,
                remedy=f"Raise {{{name}}} to at least {planned[name]}, or start a new run",
            )
    gone = missing_examples(recorded, plan.example_keys())
    if gone is not None:
        raise ResumeRefused(gone, remedy="start a new run without {resume}")
