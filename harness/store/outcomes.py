"""Iteration over the rollouts of a run in table order: example, rollout and newest score together. Keeps one rollout in
memory at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from harness.core.errors import StoreError
from harness.core.records import Example, Failed, Generated, Scored
from harness.core.types import JsonDict, value_class
from harness.stats.scores import LARGEST_SCORE, NO_REASON, UNUSABLE
from harness.store.journal import JournalReader
from harness.store.journal_index import Recorded, read_rollout
from harness.store.outcome_kinds import OUTCOMES, missing_reason, outcome_kind
from harness.store.rundir import RunDir


@value_class
class Outcome:
    """One rollout with its example and score, from the journal."""

    example: Example
    base: Generated | Failed
    score: Scored | None
    """Newest score of the rollout; None if it failed or is not scored yet."""

    @property
    def reward(self) -> float | None:
        """The reward; None if missing, or too large for statistics."""
        reward = None if self.score is None else self.score.reward
        return reward if reward is not None and abs(reward) <= LARGEST_SCORE else None

    def measured(self, metric: str) -> Outcome:
        """The same rollout with a metric in place of the reward.

        Args:
            metric: Name of the metric.
        """
        if self.score is None:
            return self
        value, reasons = self.score.metrics.get(metric), self.score.reasons
        why = {} if value is not None else {metric: reasons.get(metric) or reasons.get("*") or NO_REASON}
        return replace(self, score=replace(self.score, reward=value, reasons=why))

    @property
    def column(self) -> str:
        """Value of the column `outcome` in the dataset and in exports. A rollout whose reward is not a usable number
        is not shown as scored."""
        kind = outcome_kind(self.base, self.score)
        return OUTCOMES["unscored"].column if kind.counts and self.reward is None else kind.column

    @property
    def state(self) -> JsonDict:
        """State of the rollout; values that were set during scoring take precedence."""
        state = self.base.state if isinstance(self.base, Generated) else {}
        return {**state, **self.score.extra} if self.score is not None and self.score.extra else state

    @property
    def no_text(self) -> str:
        """Words in place of a reply without text: an imported run may have no messages."""
        is_known = isinstance(self.base, Failed) or "completion" not in self.base.lost
        return "(empty)" if is_known else "(not recorded)"

    @property
    def is_scored(self) -> bool:
        """Whether the rollout has a reward."""
        return self.reward is not None

    @property
    def reason(self) -> str:
        """Reason for a missing score, in the short words of tables; "" if the rollout has one."""
        is_unusable = self.reward is None and self.score is not None and self.score.reward is not None
        return UNUSABLE if is_unusable else missing_reason(self.base, self.score)

    @property
    def error(self) -> str | None:
        """Full error message about a missing score or another scoring failure; None if there is no error."""
        base, score = self.base, self.score
        if score is not None:
            reasons = [why if name == "*" else f"{name}: {why}" for name, why in score.reasons.items()]
            if score.reward is not None and self.reward is None:
                reasons.insert(0, f"the reward is {score.reward!r}")
            if score.reward is None and not reasons:
                return outcome_kind(base, score).words  # from an author's own rubric
            return "; ".join(reasons) or None
        if isinstance(base, Failed):
            return f"{base.reason}: {base.error}" if base.error else base.reason
        return missing_reason(base, score)


def read_journal(folder: RunDir) -> Recorded:
    """Read the state of a run's journal; empty if there is no journal.

    Raises:
        StoreError: the journal cannot be read.
    """
    try:
        return Recorded.load(folder.journal_path)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Recorded(folder.journal_path)
        raise


def in_order(recorded: Recorded) -> Sequence[int]:
    """Journal numbers of all rollouts, sorted by example and rollout index."""
    # Machine integers instead of tuples, which would need most of the memory at 100,000 rollouts.
    places = array("q", (index << 24 | rollout for index, rollout in map(recorded.place, range(len(recorded)))))
    return sorted(range(len(places)), key=places.__getitem__)


def outcomes(recorded: Recorded, numbers: Iterable[int] | None = None) -> Iterator[Outcome]:
    """Iterate over rollouts in table order: by example, then by rollout index.

    Args:
        recorded: The journal's content, read to its end.
        numbers: Journal numbers of the rollouts to read, in order; None for all.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    if not len(recorded):
        return  # a run without rollouts may have no journal
    with JournalReader(recorded.path) as reader:
        known: tuple[int, Example] | None = None
        for number in in_order(recorded) if numbers is None else numbers:
            lines = recorded.lines(number)
            if known is None or known[0] != lines.example:
                known = (lines.example, cast(Example, reader.record(lines.example)))
            yield Outcome(known[1], *read_rollout(reader, lines))
