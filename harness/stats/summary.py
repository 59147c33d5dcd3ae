"""The numbers of a run in `summary.json`, `--json` and the final table. Single estimates come from `intervals` and
`passk`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from harness.core.types import JsonDict, Usage
from harness.stats.clusters import Clusters, clustered_mean
from harness.stats.distributions import nearest_rank
from harness.stats.intervals import Estimate, mean_interval, missing_bounds, same, sample_std
from harness.stats.methods import SUMMARY as METHODS
from harness.stats.paired_target import rule_of
from harness.stats.passk import (
    THRESHOLD_SLACK,
    Estimator,
    PassRate,
    clustered_pass_rate,
    pass_at_k,
    pass_counts,
    pass_hat_k,
    pass_measures,
    pass_rate,
    powers_of_two,
)
from harness.stats.scores import EMPTY, REFUSED, TRUNCATED, ScoreTable
from harness.stats.target import Aim, StoppingRule, finite_limits

__all__ = ["METHODS", "THRESHOLD_SLACK", "Clusters", "Distribution", "ScoreTable", "Spread", "Summary", "summarize"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of the reward, or of one metric, over the scored rollouts of a run."""

    estimate: Estimate
    std: float | None = None
    """Sample standard deviation over rollouts (ddof = 1), both between and within examples."""
    min: float | None = None
    max: float | None = None
    count: int = 0
    """Number of rollouts with a value."""

    def to_json(self) -> JsonDict:
        """Convert to the format of `summary.json`."""
        e = self.estimate
        return {
            "mean": number(e.mean),
            "stderr": number(e.stderr),
            "ci95": e.ends,
            "std": number(self.std),
            "min": number(self.min),
            "max": number(self.max),
            "count": self.count,
            "examples": e.examples,
            "method": e.method,
            **({} if e.clusters is None else {"clusters": e.clusters}),
        }


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of the rollouts' durations, in seconds."""

    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary statistics of one run. Undefined values are None."""

    num_examples: int
    """Number of examples with at least one outcome."""
    num_rollouts: int
    """Number of rollouts with an outcome: scored + unscored."""
    planned: int
    """Number of planned rollouts."""
    scored: int
    unscored: dict[str, int]
    """Number of unscored rollouts by reason, most frequent first."""
    reward: Spread
    metrics: dict[str, Spread]
    pass_threshold: float
    pass_at_k: dict[int, PassRate]
    pass_hat_k: dict[int, PassRate]
    bounds: tuple[float, float] | None
    """Mean reward if all unscored rollouts had the lowest, or the highest, reward; None if the range is not finite."""
    truncated: int
    """Number of scored rollouts that were truncated by a limit."""
    empty: int
    """Number of scored rollouts with an empty last answer."""
    refused: int
    """Number of scored rollouts with a refusal as the last answer."""
    usage: Usage = field(default_factory=Usage)
    wall_s: float | None = None
    """Wall time in seconds; None if unknown."""
    resumed: int = 0
    """Number of rollouts that were finished before the time that `wall_s` measures."""
    rollout_seconds: Distribution | None = None
    """Generation times of rollouts."""
    judge_usage: Usage | None = None
    """Usage of judges, which no other number includes; None if no judge was asked."""
    target: StoppingRule | None = None
    """Set for a run that was stopped early, because its mean was known precisely enough or its comparison with a
    baseline was decided; `reward` then has its interval."""
    judge_unpriced: int = 0
    """Number of judge replies with unknown cost. If there are any, the cost in `judge_usage` is a lower bound."""

    figures: dict[str, float] = field(default_factory=dict[str, float])
    """Figures that are no means over examples, as the environment computes them (`Environment.figures`)."""

    clusters: Clusters | None = None
    """Clusters of the examples, which all intervals account for; None if examples are independent."""

    @property
    def pass_rates(self) -> dict[str, PassRate]:
        """Rates by name, such as `pass@2`: pass@k and pass^k for each k, without pass^1."""
        return {
            each.name: (self.pass_hat_k if each.of_all else self.pass_at_k)[each.k]
            for each in pass_measures(self.pass_at_k)
        }

    @property
    def not_run(self) -> int:
        """Number of planned rollouts without an outcome."""
        return max(0, self.planned - self.num_rollouts)

    @property
    def coverage(self) -> float | None:
        """Scored rollouts as a share of the planned ones; None if nothing was planned."""
        return self.scored / self.planned if self.planned else None

    @property
    def rollouts_per_s(self) -> float | None:
        """Rollouts per second of wall time, without those of earlier attempts; None if there were no rollouts or the
        time is unknown."""
        made = self.num_rollouts - self.resumed
        return made / self.wall_s if self.wall_s and made > 0 else None

    def to_json(self) -> JsonDict:
        """Convert to the format of `summary.json`: no NaN, no infinity, string keys."""
        judge_usage = None
        if self.judge_usage is not None:
            judge_usage = {**usage_json(self.judge_usage), "unpriced": self.judge_unpriced}
        return {
            "num_examples": self.num_examples,
            "num_rollouts": self.num_rollouts,
            "planned": self.planned,
            "scored": self.scored,
            "unscored": dict(self.unscored),
            "not_run": self.not_run,
            "coverage": number(self.coverage),
            "reward": self.reward.to_json(),
            "bounds": None if self.bounds is None else [number(self.bounds[0]), number(self.bounds[1])],
            "metrics": {name: spread.to_json() for name, spread in self.metrics.items()},
            **({"figures": {name: number(value) for name, value in self.figures.items()}} if self.figures else {}),
            "pass_threshold": number(self.pass_threshold),
            "pass_at_k": {str(k): number(rate.value) for k, rate in self.pass_at_k.items()},
            "pass_hat_k": {str(k): number(rate.value) for k, rate in self.pass_hat_k.items()},
            "pass_excluded": {str(k): rate.excluded for k, rate in self.pass_at_k.items()},
            "pass_estimates": {name: _rate_json(rate) for name, rate in self.pass_rates.items()},
            "truncated": self.truncated,
            "empty": self.empty,
            "refused": self.refused,
            "usage": usage_json(self.usage),
            "judge_usage": judge_usage,
            "wall_s": number(self.wall_s),
            "resumed": self.resumed,
            "rollouts_per_s": number(self.rollouts_per_s),
            "rollout_seconds": None if self.rollout_seconds is None else asdict(self.rollout_seconds),
            "until_ci": None if self.target is None else self.target.to_json(),
            **({} if self.clusters is None else {"clusters": self.clusters.to_json()}),
            "methods": dict(METHODS),
        }


def _rate_json(rate: PassRate) -> JsonDict:
    e = rate.estimate
    return {
        "mean": number(e.mean), "stderr": number(e.stderr), "ci95": e.ends, "examples": e.examples,
        "excluded": rate.excluded, "method": e.method,
    }  # fmt: skip


def tokens_known(usage: Usage) -> bool:
    """Return whether token counts are known, because a reply reported them or no reply was requested."""
    return usage.requests == 0 or usage.unreported < usage.requests


def usage_json(usage: Usage) -> JsonDict:
    """Convert to the format of `summary.json`; unknown values are null."""
    tokens = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens")
    known = tokens_known(usage)
    return {
        **{name: getattr(usage, name) if known else None for name in tokens},
        "requests": usage.requests,
        "unreported": usage.unreported,
        "cost": number(usage.cost),
    }


def summarize(  # noqa: PLR0913 - the data of a summary
    table: ScoreTable,
    *,
    pass_threshold: float,
    rollouts_per_example: int,
    planned: int,
    reward_range: tuple[float, float],
    wall_s: float | None,
    resumed: int = 0,
    aim: Aim | None = None,
    pass_k: Sequence[int] = (),
    clusters: Clusters | None = None,
) -> Summary:
    """Compute all numbers of a run.

    Args:
        table: The outcomes.
        pass_threshold: A rollout passes if its reward is at least this.
        rollouts_per_example: Planned rollouts per example.
        planned: Number of planned rollouts.
        reward_range: Lowest and highest possible reward; infinite if unknown. Extended to rewards outside it.
        wall_s: Wall time in seconds; None if unknown.
        resumed: Number of outcomes from before the measured wall time (0 if it covers all attempts at the run).
        aim: Condition for stopping early, if any.
        pass_k: Numbers of attempts for pass@k; empty for k = 1, 2, 4, … up to the rollouts per example.
        clusters: Clusters of the examples, if examples of one cluster are correlated; all intervals then allow for it.
    """
    owners = None if clusters is None else [clusters.labels[index] for index in table.examples()]
    reward, target = _headline(table, reward_range, owners, aim)
    unscored, rates = table.unscored(), _pass_rates(table, pass_threshold, owners)
    ks = tuple(pass_k) or powers_of_two(rollouts_per_example)
    return Summary(
        num_examples=sum(1 for _ in table.examples()),
        num_rollouts=len(table),
        planned=planned if target is None else len(table) + target.lacking,
        scored=reward.count,
        unscored=dict(unscored),
        reward=reward,
        metrics={
            name: reward
            if target is None and table.is_reward(name)
            else _without_interval(metric_spread(table.metric(name), owners), target)
            for name in table.metric_names
        },
        pass_threshold=pass_threshold,
        pass_at_k={k: _without_interval(rates(k, pass_at_k), target) for k in ks},
        pass_hat_k={k: _without_interval(rates(k, pass_hat_k), target) for k in ks},
        bounds=_bounds(table, reward, reward_range, is_complete=not unscored),
        truncated=table.marked(TRUNCATED),
        empty=table.marked(EMPTY),
        refused=table.marked(REFUSED),
        usage=table.usage(),
        wall_s=wall_s,
        resumed=resumed,
        rollout_seconds=_distribution(table.seconds()),
        judge_usage=table.judged(),
        judge_unpriced=table.judged_unpriced(),
        target=target,
        clusters=clusters,
    )


def _headline(
    table: ScoreTable, reward_range: tuple[float, float], owners: Sequence[Hashable] | None, aim: Aim | None
) -> tuple[Spread, StoppingRule | None]:
    """The reward of a run, and the rule by which it was stopped early, if it was. The interval of such a run needs
    independent examples, so there is none with clusters."""
    reward = spread(table.rewards(), finite_limits(reward_range), owners)
    if aim is None or not (rule := stopping_rule(table, aim)).ended_early:
        return reward, None
    reward = replace(reward, estimate=rule.estimate)
    return (reward if owners is None else _without_interval(reward, rule)), rule


def _pass_rates(
    table: ScoreTable, threshold: float, owners: Sequence[Hashable] | None
) -> Callable[[int, Estimator], PassRate]:
    """Return a function that computes the pass rate of a run for k and an estimator."""
    if owners is not None:
        return lambda k, estimator: clustered_pass_rate(table.rewards(), owners, threshold, k, estimator)
    passes = pass_counts(table.rewards(), threshold)
    return lambda k, estimator: pass_rate(passes, k, estimator)


def stopping_rule(table: ScoreTable, aim: Aim) -> StoppingRule:
    """Build the early stopping rule of a run, and count all recorded outcomes in it."""
    rule = rule_of(aim)
    for index, rewards, total in zip(table.examples(), table.rewards(), table.outcomes(), strict=True):
        for value in [*rewards, *[None] * (total - len(rewards))]:
            rule.count(index, value)
    return rule


def spread(
    groups: Iterable[list[float]],
    limits: tuple[float, float] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Spread:
    """Reduce each example to its mean, estimate the mean over examples, and describe the single values.

    Args:
        groups: The values of each example; examples without values are ignored.
        limits: Lowest and highest possible value; None if unknown. Extended to values outside.
        clusters: Label of each group's cluster, if examples of one cluster are correlated.
    """
    means, values, owners = array("d"), array("d"), list[Hashable]()
    single = True
    for place, group in enumerate(groups):
        if group:
            if clusters is not None:
                owners.append(clusters[place])
            means.append(group[0] if len(group) == 1 else math.fsum(group) / len(group))
            values.extend(group)
            single = single and len(group) == 1
    if not values:
        return Spread(Estimate())
    low, high = min(values), max(values)
    if limits is not None:
        limits = min(limits[0], low), max(limits[1], high)
    if clusters is None:
        binary = low in (0.0, 1.0) and high in (0.0, 1.0) and all(value in (0.0, 1.0) for value in values)
        estimate = mean_interval(means, single_rollout=single, binary=binary, limits=limits)
    else:
        estimate = clustered_mean(means, owners, limits=limits)
    if len(values) < 2:
        std = None
    elif same(low, high):
        std = 0.0
    elif single and clusters is None and estimate.stderr is not None:
        std = estimate.stderr * math.sqrt(len(values))
    else:
        std = sample_std(values, math.fsum(values) / len(values))
    return Spread(estimate, std, low, high, len(values))


def metric_spread(groups: Iterable[list[float]], clusters: Sequence[Hashable] | None = None) -> Spread:
    """Describe a metric like `spread`, but without an interval if all values are 0 or all are 1: it may be a count."""
    metric = spread(groups, clusters=clusters)
    if metric.estimate.method == "wilson" and metric.min == metric.max:
        return replace(metric, estimate=Estimate(mean=metric.estimate.mean, examples=metric.estimate.examples))
    return metric


Estimated = TypeVar("Estimated", Spread, PassRate)


def _without_interval(value: Estimated, target: StoppingRule | None) -> Estimated:
    """Remove the interval if the run was stopped early, since the ordinary interval is not valid then."""
    if target is None:
        return value
    e = value.estimate
    return replace(value, estimate=Estimate(e.mean, e.stderr, examples=e.examples, level=e.level))


def number(value: float | None) -> float | None:
    """Return `value` for JSON, or None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def _bounds(
    table: ScoreTable, reward: Spread, reward_range: tuple[float, float], *, is_complete: bool
) -> tuple[float, float] | None:
    """Bounds of the mean for missing scores; if none is missing, both are the measured mean."""
    if is_complete:
        mean = reward.estimate.mean
        return None if mean is None else (mean, mean)
    low, high = reward_range
    if reward.min is not None and reward.max is not None:
        low, high = min(low, reward.min), max(high, reward.max)
    pairs = zip(table.rewards(), table.outcomes(), strict=True)
    return missing_bounds(((math.fsum(group), len(group), total - len(group)) for group, total in pairs), low, high)


def _distribution(seconds: list[float]) -> Distribution | None:
    if not seconds:
        return None
    seconds.sort()
    p50, p95 = nearest_rank(seconds, 0.5), nearest_rank(seconds, 0.95)
    return Distribution(math.fsum(seconds) / len(seconds), p50, p95, seconds[-1])
