"""Several models on the same tasks: what each came to, how far any two of them differ task by task, and which of these
differences are more than noise. Owns these definitions; single estimates are made in `intervals` and `paired`.

A task without a score counts 0 where the documented averages are meant (`Standing.mean`) and is left out everywhere
else, so that a dead endpoint is not taken for a weak model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.core.types import Usage
from harness.stats.difference import UNKNOWN, Range, paired_scores, scores_of
from harness.stats.intervals import Estimate, same
from harness.stats.paired import Paired, fewest_pairs
from harness.stats.quantiles import nearest_rank
from harness.stats.summary import spread
from harness.stats.target import finite_limits

ALPHA = 0.05
"""A difference is called more than noise below this p-value, divided by the number of pairs of models that have scores:
whoever picks the best of several looks at all pairs."""

MISSING = 0.0
"""What a task without a score counts in the documented averages."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What became of one task with one model."""

    task: str
    score: float | None
    """None if it has none: it failed, or could not be scored."""
    is_valid: bool = False
    """Whether it counts as a success: it has a score, and nothing was wrong with the answer."""
    schema_valid: bool | None = None
    """Whether the answer satisfies the task's schema; None without a schema, or without an answer."""
    seconds: float | None = None
    """Until the answer was there; None without an answer."""
    usage: Usage = field(default_factory=Usage)
    reason: str = ""
    """Why there is no score, in a word or two that can be counted."""
    error: str = ""
    """Why there is no score, in full."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One model's numbers. What is undefined is None."""

    name: str
    attempts: tuple[TaskOutcome, ...]
    planned: int
    """Attempts that were to be made."""
    mean: float | None
    """Over all attempts made, those without a score as 0: the documented average."""
    scored: Estimate
    """Over the tasks that have a score, each the mean of its attempts."""
    scores: Mapping[str, float]
    """Task → its score; those without one are left out."""
    success: float | None
    """Part of the attempts made that succeeded."""
    schema_valid: int
    """Answers that satisfy the schema of their task."""
    schema_answers: int
    """Answers to tasks that have a schema."""
    p50: float | None
    """Seconds within which half of the answers were there."""
    p95: float | None
    usage: Usage
    unpriced: int
    """Replies whose cost is unknown; that of `usage`, if there is any, is then a lower bound."""
    failures: Mapping[str, int]
    """Reason → attempts without a score, the commonest first."""
    promised: Range = UNKNOWN
    """The least and the greatest score possible, as the run says."""

    @property
    def made(self) -> int:
        """Attempts that came to an outcome."""
        return len(self.attempts)

    @property
    def not_run(self) -> int:
        """Attempts that were to be made and were not."""
        return max(0, self.planned - self.made)

    @property
    def unscored(self) -> int:
        """Attempts without a score."""
        return sum(self.failures.values())

    @property
    def tasks(self) -> int:
        """Tasks that were to be run."""
        return len({each.task for each in self.attempts}) + self.not_run

    @property
    def values(self) -> Mapping[str, list[float]]:
        """Task → the scores of its attempts; those without one are left out."""
        return _by_task((each.task, each.score) for each in self.attempts if each.score is not None)

    @property
    def counted(self) -> Mapping[str, list[float]]:
        """The same of all attempts; one without a score counts 0."""
        return _by_task((each.task, MISSING if each.score is None else each.score) for each in self.attempts)

    @property
    def is_whole(self) -> bool:
        """Whether every task that was to be run has a score."""
        return not self.unscored and not self.not_run


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """One model minus another, task by task."""

    first: str
    second: str
    scored: Paired
    """Over the tasks that both have a score for."""
    counted: Paired
    """Over the tasks that both have run, those without a score as 0."""
    tasks: int
    """Tasks that both were to run."""
    alpha: float = ALPHA
    """The p-value below which it is called more than noise."""

    @property
    def is_signal(self) -> bool:
        """Whether it is more than noise; says nothing of its direction."""
        return _is_below(self.scored, self.alpha)

    @property
    def is_better(self) -> bool:
        """Whether the first is better than the second, and that is more than noise."""
        return self.is_signal and _ahead(self.scored)

    @property
    def is_worse(self) -> bool:
        """The same the other way round."""
        return self.is_signal and not _ahead(self.scored)

    @property
    def is_level(self) -> bool:
        """Whether both have the same score on every task that both have one for."""
        return self.scored.pairs > 0 and self.scored.ties == self.scored.pairs

    @property
    def is_tied(self) -> bool:
        """Whether both have the same mean, and not for being level."""
        first, second = self.scored.first, self.scored.second
        if first is None or second is None or self.is_level:
            return False
        return same(min(first, second), max(first, second))

    @property
    def can_tell(self) -> bool:
        """Whether so few tasks could show anything: if one model won all of them, would that be more than noise?"""
        return self.scored.pairs >= fewest_pairs(self.alpha)

    @property
    def is_partial(self) -> bool:
        """Whether tasks are left out of it."""
        return self.scored.pairs < self.tasks

    @property
    def is_behind_if_counted(self) -> bool:
        """Whether the first has the lower mean where a task without a score counts 0."""
        mean = self.counted.estimate.mean
        return mean is not None and mean < 0

    @property
    def is_signal_if_counted(self) -> bool:
        """Whether that difference is more than noise."""
        return _is_below(self.counted, self.alpha)


def _is_below(pair: Paired, alpha: float) -> bool:
    return pair.p_value is not None and pair.p_value < alpha


def _ahead(pair: Paired) -> bool:
    return pair.estimate.mean is not None and pair.estimate.mean > 0


@dataclass(frozen=True, slots=True)
class Standings:
    """All models of one evaluation, in the order in which they were named."""

    models: tuple[Standing, ...]
    _known: dict[tuple[int, int], ModelDifference] = field(
        default_factory=dict[tuple[int, int], ModelDifference], init=False, repr=False, compare=False
    )
    """Differences that were asked for; all of many models' would take minutes."""

    @property
    def pairs(self) -> int:
        """Pairs of models that can be compared: both have a score."""
        return math.comb(sum(bool(model.scores) for model in self.models), 2)

    @property
    def apart(self) -> list[str]:
        """The tasks on which the models differ, those first on which they are furthest apart."""
        gaps: dict[str, float] = {}
        for task in dict.fromkeys(task for model in self.models for task in model.scores):
            scores = [model.scores[task] for model in self.models if task in model.scores]
            if not same(min(scores), max(scores)):
                gaps[task] = max(scores) - min(scores)
        return sorted(gaps, key=lambda task: -gaps[task])

    def difference(self, first: int, second: int) -> ModelDifference:
        """The model at one index minus that at another."""
        if (first, second) not in self._known:
            alpha = ALPHA / max(1, self.pairs)
            self._known[first, second] = _difference(self.models[first], self.models[second], alpha)
        return self._known[first, second]

    @property
    def ranked(self) -> tuple[int, ...]:
        """Indexes of the models that have enough scores to be ranked: half as many as the one that has most. A model
        that was stopped early must not decide on which tasks the others are compared."""
        most = max((len(model.scores) for model in self.models), default=0)
        return tuple(index for index, model in enumerate(self.models) if model.scores and 2 * len(model.scores) >= most)

    @property
    def best(self) -> int | None:
        """Index of the ranked model that is ahead of most others; of several, that with the highest mean, and of equal
        ones the first. None if fewer than two are ranked.

        A model is ahead of another by its mean over the tasks that both have a score for: what one of them lacks must
        not decide between two others. Where every task has a score, that is the model with the highest mean."""
        if len(self.ranked) < 2:
            return None

        def place(index: int) -> tuple[int, float, int]:
            scores = self.models[index].scores
            ahead = sum(_leads(scores, self.models[other].scores) for other in self.ranked)
            return ahead, math.fsum(scores.values()) / len(scores), -index

        return max(self.ranked, key=place)


def _leads(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Whether the first is ahead on the tasks of both."""
    tasks = [task for task in first if task in second]
    ours, theirs = (math.fsum(scores[task] for task in tasks) for scores in (first, second))
    return ours > theirs and not same(theirs, ours)


def standings(models: Sequence[tuple[str, Sequence[TaskOutcome], int]], promised: Sequence[Range] = ()) -> Standings:
    """Set the models side by side.

    Args:
        models: (name, attempts made, attempts planned) of each.
        promised: The least and the greatest score possible of each model; unknown if there are none.
    """
    ranges = list(promised) or [UNKNOWN] * len(models)
    return Standings(tuple(_standing(*model, known) for model, known in zip(models, ranges, strict=True)))


def _standing(name: str, attempts: Sequence[TaskOutcome], planned: int, promised: Range) -> Standing:
    values = _by_task((each.task, each.score) for each in attempts if each.score is not None)
    seconds = sorted(each.seconds for each in attempts if each.seconds is not None)
    checked = [each.schema_valid for each in attempts if each.schema_valid is not None]
    failures = Counter(each.reason or "unknown" for each in attempts if each.score is None)
    return Standing(
        name=name,
        attempts=tuple(attempts),
        planned=planned,
        mean=_mean([MISSING if each.score is None else each.score for each in attempts]),
        scored=spread(values.values(), finite_limits(promised)).estimate,
        scores=scores_of(values).means,
        success=_mean([float(each.is_valid) for each in attempts]),
        schema_valid=sum(checked),
        schema_answers=len(checked),
        p50=nearest_rank(seconds, 0.5) if seconds else None,
        p95=nearest_rank(seconds, 0.95) if seconds else None,
        usage=sum((each.usage for each in attempts), Usage()),
        unpriced=sum(each.usage.requests for each in attempts if each.usage.cost is None),
        failures=dict(failures.most_common()),
        promised=promised,
    )


def _difference(first: Standing, second: Standing, alpha: float) -> ModelDifference:
    ours, theirs = first.promised, second.promised
    scored = counted = paired_scores(scores_of(first.values, ours), scores_of(second.values, theirs))
    if first.unscored or second.unscored:
        counted = paired_scores(scores_of(first.counted, ours), scores_of(second.counted, theirs))
    return ModelDifference(first.name, second.name, scored, counted, max(first.tasks, second.tasks), alpha)


def _by_task(scores: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Each task's scores, tasks in the order in which they come."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for task, score in scores:
        found[task].append(score)
    return dict(found)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
