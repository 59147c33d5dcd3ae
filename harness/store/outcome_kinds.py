"""The ways in which a rollout can end. For each, `OUTCOMES` defines its names, its explanation, whether it is retried,
and whether its reward counts. All other modules use that table, so a new kind needs only a new line there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.core.records import BUDGET_SPENT, Failed, Generated, Score, Scored
from harness.core.types import JsonDict
from harness.stats.scores import NO_REASON

Work: TypeAlias = Literal["generate", "score"]


@dataclass(frozen=True, slots=True)
class OutcomeKind:
    """How a rollout can end."""

    name: str
    """Status of the rollout in the journal's index; for a scored rollout, also `outcome` of its journal line."""
    column: str
    """Value of the column `outcome` in the dataset and in exports."""
    words: str
    """Explanation, used as the reason in tables, cards and reports if the record gives no reason."""
    counts: bool = False
    """Whether the reward of such a rollout counts in the mean; if not, no reward is recorded."""
    resume: Work | None = None
    """Work that every resume does for a rollout of this kind; None for nothing."""
    retry: Work | None = None
    """Work that a resume does for a rollout of this kind if failed ones are retried; None for nothing."""


OUTCOMES: dict[str, OutcomeKind] = {
    kind.name: kind
    for kind in (
        OutcomeKind("scored", "scored", "", counts=True),
        OutcomeKind("unscored", "unscored", NO_REASON, retry="score"),
        OutcomeKind("failed", "unscored", "failed", retry="generate"),
        OutcomeKind("budget", "unscored", BUDGET_SPENT, resume="generate"),
        OutcomeKind("generated", "unscored", "not scored", resume="score"),
        OutcomeKind("not_run", "not_run", "not run", resume="generate"),
    )
}


def outcome_kind(base: Generated | Failed, score: Scored | None) -> OutcomeKind:
    """Return how a rollout ended, given its newest journal records.

    Args:
        base: The rollout's newest `generated` or `failed` record.
        score: The rollout's newest score; None if it failed or is not scored yet.
    """
    if isinstance(base, Failed):
        return OUTCOMES["budget" if base.reason == BUDGET_SPENT else "failed"]
    if score is None:
        return OUTCOMES["generated"]
    kind = OUTCOMES.get(score.outcome, OUTCOMES["unscored"])  # a newer version may know more kinds
    return OUTCOMES["unscored"] if kind.counts and score.reward is None else kind  # JSON has no NaN


def missing_reason(base: Generated | Failed, score: Scored | None) -> str:
    """Short reason for a missing score, for counting; "" if the rollout has one. Arguments as for `outcome_kind`."""
    if isinstance(base, Failed):
        return base.reason
    if score is not None and (score.reward is not None or score.reason):
        return score.reason
    return outcome_kind(base, score).words


def scored(key: str, score: Score, seconds: float = 0.0, extra: JsonDict | None = None) -> Scored:
    """Build the journal record of a rubric's result.

    Args:
        key: Key of the rollout.
        score: The result.
        seconds: Wall time of scoring.
        extra: State that scoring added.
    """
    kind = OUTCOMES["unscored" if score.reward is None else "scored"]
    reward = score.reward if kind.counts else None
    return Scored(key, kind.name, reward, score.metrics, score.reasons, seconds, extra or {})


def unscored(key: str, reason: str) -> Scored:
    """Build the journal record of a rollout that could not be scored."""
    return scored(key, Score(None, reasons={"*": reason}))
