"""Comparison of several models on the same tasks: the numbers of each model, pairwise differences, and which of them
are significant. Single estimates come from `intervals` and `paired`.

A task without a score counts as 0 in the documented averages (`Standing.mean`) and is ignored everywhere else, so that
an endpoint that is down does not look like a weak model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.core.types import Usage
from harness.stats.difference import UNKNOWN, Range, paired_scores, scores_of
from harness.stats.distributions import nearest_rank
from harness.stats.intervals import ALPHA, Estimate, same
from harness.stats.paired import Paired, fewest_pairs
from harness.stats.summary import spread
from harness.stats.target import finite_limits

MISSING = 0.0
"""Value of a task without a score in the documented averages."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """Result of one model on one task."""

    task: str
    score: float | None
    """Score of the model's answer; None if the task failed or could not be scored."""
    is_valid: bool = False
    """Whether the attempt counts as a success: it has a score, and the answer was valid."""
    schema_valid: bool | None = None
    """Whether the answer conforms to the task's schema; None without a schema or an answer."""
    seconds: float | None = None
    """Seconds until the answer was complete; None without an answer."""
    usage: Usage = field(default_factory=Usage)
    reason: str = ""
    """Short reason for a missing score, for counting."""
    error: str = ""
    """Full reason for a missing score."""
    cluster: str | None = None
    """Label of the task's cluster; None if tasks are independent."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The numbers of one model. Undefined values are None."""

    name: str
    attempts: tuple[TaskOutcome, ...]
    planned: int
    """Number of planned attempts."""
    mean: float | None
    """Mean over all attempts made, with 0 for those without a score: the documented average."""
    scored: Estimate
    """Estimate over the tasks with a score, each reduced to the mean of its attempts."""
    scores: Mapping[str, float]
    """Scores by task; tasks without one are omitted."""
    success: float | None
    """Share of successful attempts among those made."""
    schema_valid: int
    """Number of answers that conform to their task's schema."""
    schema_answers: int
    """Number of answers to tasks with a schema."""
    p50: float | None
    """Median time until an answer was complete, in seconds."""
    p95: float | None
    usage: Usage
    unpriced: int
    """Number of replies with unknown cost. If there are any, the cost in `usage` is a lower bound."""
    failures: Mapping[str, int]
    """Number of attempts without a score by reason, most frequent first."""
    promised: Range = UNKNOWN
    """Lowest and highest possible score, as the run declares them."""

    @property
    def made(self) -> int:
        """Number of attempts with an outcome."""
        return len(self.attempts)

    @property
    def not_run(self) -> int:
        """Number of planned attempts that did not take place."""
        return max(0, self.planned - self.made)

    @property
    def unscored(self) -> int:
        """Number of attempts without a score."""
        return sum(self.failures.values())

    @property
    def tasks(self) -> int:
        """Number of planned tasks."""
        return len({each.task for each in self.attempts}) + self.not_run

    @property
    def values(self) -> Mapping[str, list[float]]:
        """Scores of the attempts by task; attempts without one are omitted."""
        return _by_task(self.attempts)

    @property
    def counted(self) -> Mapping[str, list[float]]:
        """Scores of all attempts by task, with 0 for attempts without one."""
        return _by_task(self.attempts, missing=MISSING)

    @property
    def clusters(self) -> Mapping[str, str] | None:
        """Label of each task's cluster; None if tasks are independent."""
        return _clusters(self.attempts)

    @property
    def is_whole(self) -> bool:
        """Whether every planned task has a score."""
        return not self.unscored and not self.not_run


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """Difference between two models, task by task."""

    first: str
    second: str
    scored: Paired
    """Comparison over the tasks with a score of both models."""
    counted: Paired
    """Comparison over the tasks that both models ran, with 0 for missing scores."""
    tasks: int
    """Number of tasks planned for both models."""
    alpha: float = ALPHA
    """p-value below which the difference is significant."""

    @property
    def is_signal(self) -> bool:
        """Whether the difference is significant, in either direction."""
        return _is_below(self.scored, self.alpha)

    @property
    def is_better(self) -> bool:
        """Whether the first model is significantly better."""
        return self.is_signal and (self.scored.estimate.mean or 0.0) > 0

    @property
    def is_worse(self) -> bool:
        """Whether the first model is significantly worse."""
        return self.is_signal and not self.is_better

    @property
    def is_level(self) -> bool:
        """Whether both models have equal scores on every common task."""
        return self.scored.pairs > 0 and self.scored.ties == self.scored.pairs

    @property
    def is_tied(self) -> bool:
        """Whether both models have the same mean, but not equal scores on every task."""
        first, second = self.scored.first, self.scored.second
        if first is None or second is None or self.is_level:
            return False
        return same(min(first, second), max(first, second))

    @property
    def can_tell(self) -> bool:
        """Whether there are enough tasks for any significant difference, even if one model won all of them."""
        clusters = self.scored.estimate.clusters
        return (self.scored.pairs if clusters is None else clusters) >= fewest_pairs(self.alpha)

    @property
    def is_partial(self) -> bool:
        """Whether some planned tasks are missing from the comparison."""
        return self.scored.pairs < self.tasks

    @property
    def is_behind_if_counted(self) -> bool:
        """Whether the first model has the lower mean if missing scores count as 0."""
        mean = self.counted.estimate.mean
        return mean is not None and mean < 0

    @property
    def is_signal_if_counted(self) -> bool:
        """Whether the difference is significant if missing scores count as 0."""
        return _is_below(self.counted, self.alpha)


def _is_below(pair: Paired, alpha: float) -> bool:
    return pair.p_value is not None and pair.p_value < alpha


@dataclass(frozen=True, slots=True)
class Standings:
    """All models of one evaluation, in the given order."""

    models: tuple[Standing, ...]
    _known: dict[tuple[int, int], ModelDifference] = field(
        default_factory=dict[tuple[int, int], ModelDifference], init=False, repr=False, compare=False
    )
    """Cache of differences; computing all of them for many models would take minutes."""

    @property
    def pairs(self) -> int:
        """Number of pairs of models that can be compared, that is, with scores."""
        return math.comb(sum(bool(model.scores) for model in self.models), 2)

    @property
    def apart(self) -> list[str]:
        """Tasks on which the models differ, largest difference first."""
        gaps: dict[str, float] = {}
        for task in dict.fromkeys(task for model in self.models for task in model.scores):
            scores = [model.scores[task] for model in self.models if task in model.scores]
            if not same(min(scores), max(scores)):
                gaps[task] = max(scores) - min(scores)
        return sorted(gaps, key=lambda task: -gaps[task])

    def difference(self, first: int, second: int) -> ModelDifference:
        """Difference between the models at two indexes, first minus second."""
        if (first, second) not in self._known:
            alpha = ALPHA / max(1, self.pairs)  # choosing the best model compares all pairs
            self._known[first, second] = _difference(self.models[first], self.models[second], alpha)
        return self._known[first, second]

    @property
    def ranked(self) -> tuple[int, ...]:
        """Indexes of the models with enough scores to be ranked: at least half as many as the model with the most. So a
        model that was stopped early does not limit the tasks on which the others are compared."""
        most = max((len(model.scores) for model in self.models), default=0)
        return tuple(index for index, model in enumerate(self.models) if model.scores and 2 * len(model.scores) >= most)

    @property
    def best(self) -> int | None:
        """Index of the ranked model that leads the most others; ties are broken by the highest mean, then by the order.
        None if fewer than two models are ranked.

        A model leads another by its mean over their common tasks, so that scores missing in one model do not affect the
        comparison of two others. If every task has a score, the best model is that with the highest mean."""
        if len(self.ranked) < 2:
            return None

        def place(index: int) -> tuple[int, float, int]:
            scores = self.models[index].scores
            ahead = 0
            for other in self.ranked:
                tasks = [task for task in scores if task in self.models[other].scores]
                ours, theirs = (math.fsum(self.models[m].scores[task] for task in tasks) for m in (index, other))
                ahead += ours > theirs and not same(theirs, ours)
            return ahead, math.fsum(scores.values()) / len(scores), -index

        return max(self.ranked, key=place)


def standings(models: Sequence[tuple[str, Sequence[TaskOutcome], int]], promised: Sequence[Range] = ()) -> Standings:
    """Compare several models.

    Args:
        models: (name, attempts made, number of planned attempts) of each model.
        promised: Lowest and highest possible score of each model; empty if unknown.
    """
    ranges = list(promised) or [UNKNOWN] * len(models)
    return Standings(tuple(_standing(*model, known) for model, known in zip(models, ranges, strict=True)))


def _standing(name: str, attempts: Sequence[TaskOutcome], planned: int, promised: Range) -> Standing:
    values, owners = _by_task(attempts), _clusters(attempts)
    seconds = sorted(each.seconds for each in attempts if each.seconds is not None)
    checked = [each.schema_valid for each in attempts if each.schema_valid is not None]
    failures = Counter(each.reason or "unknown" for each in attempts if each.score is None)
    return Standing(
        name=name,
        attempts=tuple(attempts),
        planned=planned,
        mean=_mean([MISSING if each.score is None else each.score for each in attempts]),
        scored=spread(
            values.values(), finite_limits(promised), None if owners is None else [owners[task] for task in values]
        ).estimate,
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
    owners = first.clusters
    scored = counted = paired_scores(scores_of(first.values, ours, owners), scores_of(second.values, theirs))
    if first.unscored or second.unscored:
        counted = paired_scores(scores_of(first.counted, ours, owners), scores_of(second.counted, theirs))
    return ModelDifference(first.name, second.name, scored, counted, max(first.tasks, second.tasks), alpha)


def _by_task(attempts: Iterable[TaskOutcome], missing: float | None = None) -> dict[str, list[float]]:
    """Scores by task, in order of appearance; `missing` replaces a missing score, None omits it."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in attempts:
        score = missing if each.score is None else each.score
        if score is not None:
            found[each.task].append(score)
    return dict(found)


def _clusters(attempts: Iterable[TaskOutcome]) -> dict[str, str] | None:
    """Label of each task's cluster; None if a task has none."""
    found = {each.task: each.cluster for each in attempts}
    known = {task: label for task, label in found.items() if label is not None}
    return known if known and len(known) == len(found) else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
