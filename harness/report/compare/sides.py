"""Data of runs for comparisons (score of each example, tokens, times), and the comparison of two runs: their
difference, the examples on which they differ, and the examples that only one of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.core.errors import UsageError
from harness.core.records import Generated
from harness.core.types import Usage
from harness.report.compare.example_scores import ExampleScores
from harness.settings.wording import nearest
from harness.stats.difference import Difference, Range, Scores, difference_of, limits_of, scores_of
from harness.stats.distributions import nearest_rank
from harness.stats.intervals import Estimate, same
from harness.stats.paired_target import PairedStoppingRule
from harness.stats.passk import THRESHOLD_SLACK, PassMeasure, pass_measure
from harness.stats.scores import LARGEST_SCORE
from harness.stats.summary import Spread, metric_spread, spread, stopping_rule
from harness.stats.target import finite_limits
from harness.store.clusters import ClusterLabels
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import aim_of, summary_of, tally
from harness.store.values import number

if TYPE_CHECKING:
    from harness.report.compare.equal import EqualityRuling

REWARD = "reward"


@dataclass(slots=True)
class ComparedRun:
    """Scores, token counts and times of one run, for a comparison."""

    run: RunDir
    manifest: Manifest
    recorded: Recorded
    """Content of the run's journal."""
    measure: str
    """Value to compare: `reward`, the name of a metric, or a pass rate such as `pass@3`."""
    cells: dict[str, ExampleScores] = field(default_factory=dict[str, ExampleScores])
    """Scores by example key, which is a hash of the example's content."""
    unscored: Counter[str] = field(default_factory=Counter[str])
    """Number of unscored rollouts by reason."""
    usage: Usage = field(default_factory=Usage)
    seconds: list[float] = field(default_factory=list[float])
    """Generation time of each rollout, without waiting in queues."""

    is_reward: bool = True
    """Whether the measure equals the reward in every rollout."""

    ended_early: Spread | None = None
    """Mean with its interval, for a run that ended early because of its results (`--until-ci` or a sequential gate);
    None for other runs."""

    sequential: PairedStoppingRule | None = None
    """Comparison with the run's own baseline so far, for a run with a sequential gate that does not have all of its
    examples; None for other runs, and for metrics."""

    attempts: PassMeasure | None = None
    """The pass rate to compare; None for other measures."""

    cluster_key: str = ""
    """Key of the examples' clusters; "" if examples are independent."""

    alone: int = 0
    """Number of examples without that key, each of which is a cluster of its own."""

    @property
    def label(self) -> str:
        """Label of the run in tables."""
        return self.manifest.model

    @property
    def range(self) -> Range:
        """Minimum and maximum possible value of the measure, as declared by the run."""
        if self.attempts is not None:
            return 0.0, 1.0
        return self.manifest.reward_range if self.is_reward else self.manifest.range_of(self.measure)

    @property
    def threshold(self) -> float:
        """Reward from which a rollout passes."""
        threshold = number(self.manifest.settings.get("env.pass_threshold"))
        return 1.0 if threshold is None else threshold

    @property
    def means(self) -> dict[str, float]:
        """Value of each example by key; examples without a value are omitted."""
        return {key: mean for key, cell in self.cells.items() if (mean := cell.mean) is not None}

    @property
    def rollouts(self) -> int:
        """Number of rollouts with an outcome."""
        return len(self.seconds)

    @property
    def examples(self) -> int:
        """Number of planned examples."""
        return max(len(self.cells), self.manifest.planned.get("num_examples", 0))

    @property
    def planned(self) -> int:
        """Number of planned rollouts; for a run that ended early, the number of executed rollouts."""
        if self.ended_early is not None:
            return self.rollouts
        return max(self.rollouts, self.manifest.planned.get("num_examples", 0) * self.planned_each)

    @property
    def planned_each(self) -> int:
        """Number of planned rollouts per example."""
        return max(1, self.manifest.planned.get("rollouts_per_example", 1))

    @property
    def coverage(self) -> float:
        """Share of planned rollouts with a value."""
        return self.scored / self.planned if self.planned else 0.0

    @property
    def spread(self) -> Spread:
        """Mean, interval and other statistics of the run; with clusters, the interval accounts for them."""
        if self.ended_early is not None:
            return self.ended_early
        return self.spread_over([cell for cell in self.cells.values() if cell.values])

    def spread_over(self, cells: Sequence[ExampleScores]) -> Spread:
        """Mean, interval and other statistics of these examples of the run, each of which has values."""
        named = [cell.cluster for cell in cells]
        clusters = None if None in named or not named else named
        groups = (cell.values for cell in cells)
        if (attempts := self.attempts) is not None:
            count = sum(len(cell.values) for cell in cells)
            return Spread(attempts.rate(list(groups), clusters).estimate, count=count)
        limits = finite_limits(self.range)
        if limits is None and not self.is_reward:
            return metric_spread(groups, clusters)
        return spread(groups, limits, clusters)

    @property
    def typical(self) -> int:
        """Median number of scored rollouts per example."""
        counts = sorted(len(cell.values) for cell in self.cells.values() if cell.values)
        return counts[len(counts) // 2] if counts else 1

    @property
    def scored(self) -> int:
        """Number of rollouts with a value."""
        return sum(len(cell.values) for cell in self.cells.values())

    def latency(self, part: float) -> float | None:
        """Quantile `part` of the generation time in seconds; None if no time is known."""
        known = sorted(value for value in self.seconds if value > 0)
        return nearest_rank(known, part) if known else None

    def filled(self, key: str, value: float) -> list[float]:
        """Values of an example's rollouts, with `value` substituted for each planned rollout without a score; for a
        pass rate, the rate of these."""
        cell = self.cells.get(key) or ExampleScores(key, 0, attempts=self.attempts)
        missing = max(cell.unscored, self.planned_each - len(cell.values))
        return replace(cell, values=cell.values + [value] * missing).counted

    @property
    def scores(self) -> Scores:
        """Scores of the run, in the form that `stats.difference` takes."""
        clusters = {key: cell.cluster for key, cell in self.cells.items() if cell.cluster is not None}
        return scores_of({key: cell.counted for key, cell in self.cells.items()}, self.range, clusters or None)

    def check_within_range(self, flag: str, size: float) -> None:
        """Check that two runs can differ by as much as the user asked for, given the range of the measure.

        Raises:
            UsageError: no two runs can differ by that much, for example because 5 was given to mean 5 %.
        """
        limits = limits_of(self.scores)
        if limits is not None and size >= limits[1] - limits[0]:
            low, high = limits
            raise UsageError(
                f"{flag} {size:g}: rewards of {self.manifest.env_id} lie between {low:g} and {high:g}, so no two runs "
                "differ by more; give a value in units of the reward, such as 0.01"
            )


def worst_scores(candidate: ComparedRun, baseline: ComparedRun) -> tuple[Scores, Scores]:
    """Scores if every planned rollout without one had the worst reward in the candidate's run, and the best in the
    baseline's. The worst and best rewards are the ends of the range or, if it is unknown, the observed extremes."""
    ours, theirs = candidate.scores, baseline.scores
    low, high = limits_of(ours, theirs) or (min(ours.seen | theirs.seen), max(ours.seen | theirs.seen))
    keys = dict.fromkeys([*candidate.cells, *baseline.cells])
    neither = range(len(keys), max(candidate.examples, baseline.examples))
    keys |= dict.fromkeys(f"example {number} of neither" for number in neither)
    clusters = None
    if ours.clusters is not None and theirs.clusters is not None:
        clusters = {key: key for key in keys} | {**theirs.clusters, **ours.clusters}
    worst, best = (
        scores_of({key: side.filled(key, value) for key in keys}, (low, high), clusters)
        for side, value in ((candidate, low), (baseline, high))
    )
    return worst, best


def read_side(run: RunDir, measure: str = REWARD, *, cluster: str | None = None) -> ComparedRun:
    """Read a run's scores, tokens and times from its journal, for a comparison.

    Args:
        run: The run's folder.
        measure: Value to compare: the reward, a metric, or a pass rate such as `pass@3` or `pass^3`.
        cluster: Key of the clusters: `task`, or a key of the examples' `info`; "" for no clusters, None for those that
            the run declares.

    Raises:
        UsageError: the run has no such metric, or no example has the given cluster key.
        StoreError: the run cannot be read.
    """
    manifest = run.read_manifest()
    attempts = None if measure in manifest.metric_names else pass_measure(measure)
    if measure != REWARD and measure not in manifest.metric_names and attempts is None:
        raise UsageError(f"{run.path} has no metric {measure!r}; {_choice(measure, manifest.metric_names)}")
    key = manifest.cluster_key if cluster is None else cluster
    recorded, labels = read_journal(run), ClusterLabels(key)
    side = ComparedRun(run, manifest, recorded, measure, attempts=attempts, cluster_key=key)
    for outcome in outcomes(recorded):
        _take(side, outcome, labels)
    side.alone = labels.alone
    if cluster and cluster != manifest.cluster_key and (fault := labels.fault(str(run.path))):
        raise UsageError(f"--cluster {cluster}: {fault}")
    if (aim := aim_of(manifest)) is not None:
        table = tally(recorded)
        summary = summary_of(replace(manifest, cluster_key=key), recorded, table=table)
        if summary.target is not None:
            side.ended_early = summary.reward if measure == REWARD else summary.metrics.get(measure, Spread(Estimate()))
            if attempts is not None:  # without an interval, as in the summary
                side.ended_early = None
                rate = side.spread
                plain = Estimate(rate.estimate.mean, examples=rate.estimate.examples)
                side.ended_early = replace(rate, estimate=plain)
        rule = stopping_rule(table, aim)
        if isinstance(rule, PairedStoppingRule) and rule.outside is None and rule.used < aim.examples:
            side.sequential = rule if measure == REWARD else None
    return side


def check_thresholds(sides: Sequence[ComparedRun]) -> None:
    """Check that pass rates of runs of one environment count the same rollouts as passed.

    Raises:
        UsageError: the runs have different thresholds.
    """
    thresholds = {side.threshold: side for side in sides if side.attempts is not None}
    if len(thresholds) > 1:
        (first, one), (second, other), *_ = thresholds.items()
        raise UsageError(
            f"a rollout of {one.run.id} passes with a reward of at least {first:g}, one of {other.run.id} with "
            f"{second:g}, so their pass rates cannot be compared",
            remedy=f"make one alike: bench rescore {other.run.id} --set env.pass_threshold={first:g}",
        )


def rollouts_of(side: ComparedRun, key: str) -> list[Outcome]:
    """Rollouts of one example that have an outcome."""
    recorded = side.recorded
    place = recorded.example_index(key)
    numbers = (number for number in range(len(recorded)) if recorded.place(number)[0] == place)
    return list(outcomes(recorded, sorted(numbers, key=recorded.place)))


def _take(side: ComparedRun, outcome: Outcome, labels: ClusterLabels) -> None:
    """Add the score, tokens and time of one rollout to a run's data."""
    example, base, score = outcome.example, outcome.base, outcome.score
    cell = side.cells.get(example.key)
    if cell is None:
        named = labels.add(example, example.key) if labels.key else None
        place = side.recorded.example_index(example.key)
        cell = ExampleScores(example.example_id, place or 0, named, attempts=side.attempts)
        side.cells[example.key] = cell
    side.usage += base.usage
    side.seconds.append(max(0.0, base.timing.generation - base.timing.waiting))
    value = outcome.reward
    if side.attempts is not None:
        value = None if value is None else float(value >= side.threshold - THRESHOLD_SLACK)
    elif side.measure != REWARD:
        value = score.metrics.get(side.measure) if score is not None and isinstance(base, Generated) else None
        value = value if value is not None and abs(value) <= LARGEST_SCORE else None
    side.is_reward = side.is_reward and value == outcome.reward
    if value is None:
        cell.unscored += 1
        side.unscored[outcome.reason or f"{side.measure} has no value"] += 1
    else:
        cell.values.append(value)


def _choice(name: str, names: Sequence[str]) -> str:
    near = nearest(name, names)
    return f"{f'did you mean {near!r}? ' if near else ''}it has {', '.join(names) or 'none'}"


@dataclass(frozen=True, slots=True)
class Flip:
    """An example on which two runs differ."""

    key: str
    first: ExampleScores
    second: ExampleScores
    difference: float
    """Value of the first run minus that of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(Difference):
    """Comparison of a candidate with its baseline, on one environment."""

    name: str
    """Name of the environment's run."""
    candidate: ComparedRun
    baseline: ComparedRun
    flips: tuple[Flip, ...]
    """Examples on which the two runs differ, largest difference first."""
    only_candidate: int
    """Number of examples that have a value in the candidate's run and are missing from the baseline's."""
    only_baseline: int
    lost: int
    """Number of examples that both runs have, but that have a value in at most one of them."""
    column: str = ""
    """Label shared by the candidates of all environments."""
    equality: EqualityRuling | None = None
    """Whether both are equal within a margin; None if that was not asked."""

    @property
    def lack(self) -> str:
        """What `lost` examples lack on one side, as text."""
        attempts = self.candidate.attempts
        return "without a score" if attempts is None else f"with fewer than {attempts.k} scored rollouts"


def match(name: str, candidate: ComparedRun, baseline: ComparedRun, column: str = "") -> Match:
    """Compare a candidate with its baseline, on one environment.

    Args:
        name: Name of the comparison.
        candidate: The run to evaluate.
        baseline: The run to compare with.
        column: Label shared by the candidates of all environments.

    Raises:
        UsageError: the runs have no example in common and belong to different environments, or they have different
            thresholds of passing.
    """
    check_thresholds([baseline, candidate])
    difference = difference_of(candidate.scores, baseline.scores)
    first, second = candidate.means, baseline.means
    common = [key for key in candidate.cells if key in baseline.cells]
    ours, theirs = candidate.manifest.env_id, baseline.manifest.env_id
    if candidate.cells and baseline.cells and not common and ours != theirs:
        raise UsageError(
            f"{candidate.run.path} and {baseline.run.path} have no example in common, and are of different "
            f"environments ({ours}, {theirs}): their scores cannot be compared"
        )
    both = [key for key in common if key in first and key in second]
    flips = [
        Flip(key, candidate.cells[key], baseline.cells[key], first[key] - second[key])
        for key in both
        if not same(min(first[key], second[key]), max(first[key], second[key]))
    ]
    flips.sort(key=lambda flip: (-abs(flip.difference), flip.first.index))
    return Match(
        paired=difference.paired,
        unpaired=difference.unpaired,
        name=name,
        candidate=candidate,
        baseline=baseline,
        flips=tuple(flips),
        only_candidate=sum(key not in baseline.cells for key in first),
        only_baseline=sum(key not in candidate.cells for key in second),
        lost=len(common) - len(both),
        column=column,
    )
