"""Several models on the same tasks: what each came to, how far any two of them differ task by task, and which of these
differences are more than noise. Owns these definitions; single estimates are made in `intervals` and `paired`.

A task without a score counts 0 where the documented averages are meant (`Standing.mean`) and is left out everywhere
else, so that a dead endpoint is not taken for a weak model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from harness.stats.intervals import Estimate, mean_interval
from harness.stats.paired import Paired, paired_by_key
from harness.types import Usage

ALPHA = 0.05
"""A difference is called more than noise below this p-value, divided by the number of pairs of models."""

MISSING = 0.0
"""What a task without a score counts in the documented averages."""


@dataclass(frozen=True, slots=True)
class Attempt:
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
    attempts: tuple[Attempt, ...]
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
    def is_whole(self) -> bool:
        """Whether every task that was to be run has a score."""
        return not self.unscored and not self.not_run


@dataclass(frozen=True, slots=True)
class Difference:
    """One model minus another, task by task."""

    first: str
    second: str
    scored: Paired
    """Over the tasks that both have a score for."""
    counted: Paired
    """Over the tasks that both have run, those without a score as 0."""
    alpha: float = ALPHA
    """The p-value below which it is called more than noise."""

    @property
    def is_signal(self) -> bool:
        """Whether it is more than noise."""
        return self.scored.p_value is not None and self.scored.p_value < self.alpha

    @property
    def can_tell(self) -> bool:
        """Whether so few tasks could show anything: if one model won all of them, would that be more than noise?"""
        return 2.0 ** (1 - self.scored.pairs) < self.alpha

    @property
    def is_partial(self) -> bool:
        """Whether tasks without a score are left out of it."""
        return self.scored != self.counted

    @property
    def turned(self) -> Difference:
        """The same with the models exchanged."""
        return Difference(self.second, self.first, _turned(self.scored), _turned(self.counted), self.alpha)


@dataclass(frozen=True, slots=True)
class Standings:
    """All models of one evaluation, in the order in which they were named."""

    models: tuple[Standing, ...]
    differences: tuple[Difference, ...]
    """Of every pair of models, the one that was named later minus the earlier."""

    def difference(self, first: int, second: int) -> Difference:
        """The model at one index minus that at another."""
        low, high = sorted((first, second))
        place = list(combinations(range(len(self.models)), 2)).index((low, high))
        found = self.differences[place]
        return found if first == high else found.turned

    @property
    def ranked(self) -> tuple[int, ...]:
        """Indexes of the models that have enough scores to be ranked: half as many as the one that has most. A model
        that was stopped early must not decide on which tasks the others are compared."""
        most = max((len(model.scores) for model in self.models), default=0)
        return tuple(index for index, model in enumerate(self.models) if model.scores and 2 * len(model.scores) >= most)

    @property
    def best(self) -> int | None:
        """Index of the ranked model with the highest mean; of equal ones the first. None if fewer than two are ranked.

        Means are taken over the tasks that all ranked models have a score for; where there is none, each model's own
        tasks have to do."""
        if len(self.ranked) < 2:
            return None
        first, *others = [self.models[index].scores for index in self.ranked]
        shared = [task for task in first if all(task in scores for scores in others)]

        def mean(index: int) -> float:
            scores = self.models[index].scores
            return math.fsum(scores[task] for task in shared or scores) / len(shared or scores)

        return max(self.ranked, key=lambda index: (mean(index), -index))


def standings(models: Sequence[tuple[str, Sequence[Attempt], int]]) -> Standings:
    """Set the models side by side.

    Args:
        models: (name, attempts made, attempts planned) of each.
    """
    rows = tuple(_standing(name, attempts, planned) for name, attempts, planned in models)
    pairs = list(combinations(rows, 2))
    alpha = ALPHA / max(1, len(pairs))
    return Standings(rows, tuple(_difference(later, earlier, alpha) for earlier, later in pairs))


def _standing(name: str, attempts: Sequence[Attempt], planned: int) -> Standing:
    scores = _by_task((each.task, each.score) for each in attempts if each.score is not None)
    single = len(scores) == sum(each.score is not None for each in attempts)
    seconds = sorted(each.seconds for each in attempts if each.seconds is not None)
    checked = [each.schema_valid for each in attempts if each.schema_valid is not None]
    failures = Counter(each.reason or "unknown" for each in attempts if each.score is None)
    return Standing(
        name=name,
        attempts=tuple(attempts),
        planned=planned,
        mean=_mean([MISSING if each.score is None else each.score for each in attempts]),
        scored=mean_interval(list(scores.values()), single_rollout=single),
        scores=scores,
        success=_mean([float(each.is_valid) for each in attempts]),
        schema_valid=sum(checked),
        schema_answers=len(checked),
        p50=_quantile(seconds, 0.5),
        p95=_quantile(seconds, 0.95),
        usage=sum((each.usage for each in attempts), Usage()),
        unpriced=sum(each.usage.requests for each in attempts if each.usage.cost is None),
        failures=dict(failures.most_common()),
    )


def _difference(first: Standing, second: Standing, alpha: float) -> Difference:
    counted = [
        _by_task((each.task, MISSING if each.score is None else each.score) for each in model.attempts)
        for model in (first, second)
    ]
    return Difference(
        first.name, second.name, paired_by_key(first.scores, second.scores), paired_by_key(*counted), alpha
    )


def _by_task(scores: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The mean of each task's scores, tasks in the order in which they come."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for task, score in scores:
        found[task].append(score)
    return {task: math.fsum(values) / len(values) for task, values in found.items()}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    """The nearest-rank quantile: a value that there was."""
    return ordered[math.ceil(part * len(ordered)) - 1] if ordered else None


def _turned(pair: Paired) -> Paired:
    old = pair.estimate
    estimate = Estimate(
        None if old.mean is None else -old.mean,
        old.stderr,
        None if old.high is None else -old.high,
        None if old.low is None else -old.low,
        old.method,
        old.examples,
    )
    return Paired(
        estimate, pair.p_value, pair.test, pair.losses, pair.wins, pair.ties, pair.second, pair.first,
        pair.correlation, pair.only_second, pair.only_first,
    )  # fmt: skip
