"""The part of a plan that a journal does not hold yet. Owns what each item still needs, and the grouping of items that
must be scored together; reads the journal, writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, cast

from harness.engine.plan import Plan
from harness.engine.progress import RunProgress
from harness.engine.scheduler import Group, Todo
from harness.errors import ResumeRefused
from harness.records import STATE_LOST, Example, Failed, Generated, Item, Scored
from harness.store.journal import JournalReader
from harness.store.recorded import Recorded

Need: TypeAlias = Literal["generate", "score"] | None

Stage: TypeAlias = Literal["both", "generate", "score"]
"""`generate` leaves scoring to a later pass with `score`, over a journal that was read anew."""


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

    def todos(self, stage: Stage) -> Iterator[Todo]:
        """The work, lazily and in the plan's order."""
        if self._recorded is None:
            yield from self._fresh(grouped=self._plan.is_group)
            return
        with JournalReader(self._recorded.path) as reader:
            for example in self._plan.examples():
                yield from self._remaining(self._recorded, reader, example, stage)

    def _fresh(self, *, grouped: bool) -> Iterator[Todo]:
        for example in self._plan.examples():
            items = self._plan.items(example)
            group = Group(len(items)) if grouped else None
            for number, item in enumerate(items):
                yield Todo(item, introduce=number == 0, group=group)

    def _remaining(self, recorded: Recorded, reader: JournalReader, example: Example, stage: Stage) -> Iterator[Todo]:
        items = self._plan.items(example)
        needs = [self._need(recorded, reader, item, stage) for item in items]
        group = None
        if self._plan.is_group and (any(needs) or _is_stale(recorded, items)):
            # A group that lacks anything is scored anew as a whole: its rewards are about each other.
            needs = [need or self._rescore(recorded, item) for item, need in zip(items, needs, strict=True)]
            # Where scoring is left to a later pass, only a group with members still to be made is put together: one of
            # them may have a state that no journal can hold, and then the group is scored while that is there.
            if stage != "generate" or "generate" in needs:
                group = Group(len(items), lost=needs.count(None))
        introduce = not recorded.has_example(example.key)
        for item, need in zip(items, needs, strict=True):
            if need == "generate" and stage != "score":
                yield Todo(item, introduce=introduce, group=group)
                introduce = False
            elif need == "score":
                generated = _generated(recorded, reader, item)
                if self._progress is not None:
                    self._progress.usage += generated.usage
                if stage != "generate" or group is not None:
                    yield Todo(item, recorded=generated, group=group)
            elif need is None:
                self._count(recorded, reader, item)

    def _need(self, recorded: Recorded, reader: JournalReader, item: Item, stage: Stage) -> Need:
        status = recorded.status(item.key)
        if status is None:
            return "generate" if self._plan.can_generate else None
        if status == "failed":
            return "generate" if self._retry_failed and self._plan.can_generate and stage != "score" else None
        if status == "unscored" and self._retry_failed and stage != "score":
            # What scoring would read is gone for good: only a new rollout can be scored.
            if not _has_lost_state(recorded, reader, item):
                return "score"
            return "generate" if self._plan.can_generate else None
        if status == "generated" or (status == "unscored" and self._retry_failed):
            return "score"
        return None

    def _rescore(self, recorded: Recorded, item: Item) -> Need:
        return None if recorded.generated_at(item.key) is None else "score"

    def _count(self, recorded: Recorded, reader: JournalReader, item: Item) -> None:
        if self._progress is None:
            return
        scored_at = recorded.scored_at(item.key)
        generated_at = recorded.generated_at(item.key)
        self._progress.resumed += 1
        if scored_at is not None and generated_at is not None:
            generated = cast(Generated, reader.record(generated_at))
            self._progress.usage += generated.usage
            self._progress.count(item.example.index, generated, cast(Scored, reader.record(scored_at)))
            return
        failed_at = recorded.failed_at(item.key)
        if failed_at is not None:
            failed = cast(Failed, reader.record(failed_at))
            self._progress.usage += failed.usage
            self._progress.unscored[failed.reason] += 1


def _is_stale(recorded: Recorded, items: Sequence[Item]) -> bool:
    """Whether a group's scores are about another group: a member was made, or lost, after one of them was written."""
    scores: list[int] = []
    members: list[int] = []
    for item in items:
        for offset, found in (
            (recorded.scored_at(item.key), scores),
            (recorded.generated_at(item.key), members),
            (recorded.failed_at(item.key), members),
        ):
            if offset is not None:
                found.append(offset)
    return bool(scores) and min(scores) < max(members)


def _has_lost_state(recorded: Recorded, reader: JournalReader, item: Item) -> bool:
    offset = recorded.scored_at(item.key)
    if offset is None:
        return False
    scored = cast(Scored, reader.record(offset))
    return any(words.startswith(STATE_LOST) for words in scored.reasons.values())


def _generated(recorded: Recorded, reader: JournalReader, item: Item) -> Generated:
    offset = recorded.generated_at(item.key)
    assert offset is not None, "only an item with a generated line needs no more than a score"
    return cast(Generated, reader.record(offset))


def check_growth(plan: Plan, recorded: Recorded, planned: dict[str, int]) -> None:
    """Refuse a resume whose plan does not hold everything that the run recorded.

    Args:
        plan: The plan that is asked for.
        recorded: What the run's journal holds.
        planned: `num_examples` and `rollouts_per_example` of the recorded run's manifest.

    Raises:
        ResumeRefused: the plan shrank, or recorded examples are gone.
    """
    from harness.store.resume import missing_examples

    now = {"num_examples": plan.num_examples, "rollouts_per_example": plan.rollouts_per_example}
    flags = {"num_examples": "-n", "rollouts_per_example": "-r"}
    for name, flag in flags.items():
        if now[name] < planned.get(name, 0) and recorded.example_count > 0:
            raise ResumeRefused(
                f"{flag}: {name} was {planned[name]} and is now {now[name]}; a resumed run may grow, not shrink. "
                f"Give {flag} {planned[name]} or more, or start a new run"
            )
    gone = missing_examples(recorded, (example.key for example in plan.examples()))
    if gone is not None:
        raise ResumeRefused(f"{gone}; start a new run without --resume")
