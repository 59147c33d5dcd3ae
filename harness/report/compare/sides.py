"""A run as a comparison needs it: its examples by content, each with the values of its rollouts, what it took, and the
cluster that it belongs to. Owns that reduction of a journal; pairs nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from harness.core.errors import UsageError
from harness.core.records import Example, Generated
from harness.core.types import JsonDict, Usage
from harness.settings.wording import nearest
from harness.stats.difference import Difference, Range, Scores, difference_of, limits_of, scores_of
from harness.stats.intervals import Estimate
from harness.stats.quantiles import nearest_rank
from harness.stats.scores import LARGEST_SCORE
from harness.stats.summary import Spread, metric_spread, spread, tokens_known
from harness.stats.target import finite_limits
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.recorded import Recorded
from harness.store.rundir import RunDir
from harness.store.tally import aim_of, summary_of

REWARD = "reward"


@dataclass(slots=True)
class ExampleScores:
    """One example of a run."""

    example_id: int | str
    index: int
    """Its place in the run."""
    cluster: str | None = None
    values: list[float] = field(default_factory=list[float])
    """Of its scored rollouts."""
    unscored: int = 0

    @property
    def mean(self) -> float | None:
        """The example's value: the mean of its scored rollouts; None if it has none."""
        return math.fsum(self.values) / len(self.values) if self.values else None


@dataclass(slots=True)
class ComparedRun:
    """One run."""

    run: RunDir
    manifest: Manifest
    recorded: Recorded
    """Its journal."""
    measure: str
    """`reward`, or the name of a metric."""
    cells: dict[str, ExampleScores] = field(default_factory=dict[str, ExampleScores])
    """By example key, which is a hash of the example's content."""
    unscored: Counter[str] = field(default_factory=Counter[str])
    """Reason → rollouts."""
    usage: Usage = field(default_factory=Usage)
    seconds: list[float] = field(default_factory=list[float])
    """That each rollout took to generate, our own waiting left out."""

    is_reward: bool = True
    """Whether the measure has the reward's value in every rollout."""

    ended_early: Spread | None = None
    """What is measured, of a run that ended, as asked, before all was made, with the interval that this allows."""

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.manifest.model

    @property
    def range(self) -> Range:
        """The least and the greatest value possible, as the run says."""
        return self.manifest.reward_range if self.is_reward else self.manifest.range_of(self.measure)

    @property
    def means(self) -> dict[str, float]:
        """Each example's value, by key; examples without one are left out."""
        return {key: mean for key, cell in self.cells.items() if (mean := cell.mean) is not None}

    @property
    def rollouts(self) -> int:
        """Rollouts with an outcome."""
        return len(self.seconds)

    @property
    def examples(self) -> int:
        """Examples that were asked for."""
        return max(len(self.cells), self._planned("num_examples"))

    @property
    def planned(self) -> int:
        """Rollouts that were asked for; of a run that ended once its mean was known, those that it made."""
        if self.ended_early is not None:
            return self.rollouts
        return max(self.rollouts, self._planned("num_examples") * max(1, self._planned("rollouts_per_example")))

    @property
    def coverage(self) -> float:
        """Part of them that has a value."""
        return self.scored / self.planned if self.planned else 0.0

    @property
    def spread(self) -> Spread:
        """Mean, interval and the rest, as in the run's own table; with clusters the interval is theirs."""
        if self.ended_early is not None:
            return self.ended_early
        cells = [cell for cell in self.cells.values() if cell.values]
        named = [cell.cluster for cell in cells]
        clusters = None if None in named or not named else named
        groups = (cell.values for cell in cells)
        limits = finite_limits(self.range)
        if limits is None and not self.is_reward:
            return metric_spread(groups, clusters)
        return spread(groups, limits, clusters)

    @property
    def typical(self) -> int:
        """Scored rollouts of the example in the middle, by their number."""
        counts = sorted(len(cell.values) for cell in self.cells.values() if cell.values)
        return counts[len(counts) // 2] if counts else 1

    @property
    def scored(self) -> int:
        """Rollouts with a value."""
        return sum(len(cell.values) for cell in self.cells.values())

    def latency(self, part: float) -> float | None:
        """Seconds within which this part of the rollouts were generated; None without any."""
        known = sorted(value for value in self.seconds if value > 0)
        return nearest_rank(known, part) if known else None

    def filled(self, key: str, value: float) -> list[float]:
        """The values of an example, with `value` for each planned rollout that has no score."""
        planned = max(1, self._planned("rollouts_per_example"))
        cell = self.cells.get(key)
        if cell is None:
            return [value] * planned
        return cell.values + [value] * max(cell.unscored, planned - len(cell.values))

    @property
    def scores(self) -> Scores:
        """What a comparison looks at."""
        clusters = {key: cell.cluster for key, cell in self.cells.items() if cell.cluster is not None}
        return scores_of({key: cell.values for key, cell in self.cells.items()}, self.range, clusters or None)

    def check_within_range(self, flag: str, size: float) -> None:
        """See to it that a difference in the measure can be as large as somebody says.

        Raises:
            UsageError: it cannot: whoever writes 5 for 5 % would let everything pass.
        """
        limits = limits_of(self.scores)
        if limits is not None and size >= limits[1] - limits[0]:
            low, high = limits
            raise UsageError(
                f"{flag} {size:g}: rewards of {self.manifest.env_id} lie between {low:g} and {high:g}, so no two runs "
                "differ by more; it is in units of the reward, such as 0.01"
            )

    def _planned(self, what: str) -> int:
        planned: Mapping[str, object] = self.manifest.planned  # a file that may say anything
        value = planned.get(what)
        return value if isinstance(value, int) and value > 0 else 0


def worst_case(candidate: ComparedRun, baseline: ComparedRun) -> Difference:
    """The difference if every planned rollout without a score had the worst reward for the candidate, and the best for
    the baseline: the rewards' range decides, or what was seen where it is unknown."""
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
    return difference_of(worst, best)


def read_side(run: RunDir, *, measure: str = REWARD, cluster: str | None = None) -> ComparedRun:
    """Read a run's journal.

    Args:
        run: Its folder.
        measure: What is compared: the reward, or a metric.
        cluster: What tells clusters apart: `task`, or a key of the examples' `info`; None is no clusters.

    Raises:
        UsageError: the run has no such metric, or an example no such key.
        StoreError: it cannot be read.
    """
    manifest = run.read_manifest()
    if measure != REWARD and measure not in manifest.metric_names:
        near = nearest(measure, manifest.metric_names)
        hint = f"did you mean {near!r}? " if near else ""
        raise UsageError(
            f"{run.path} has no metric {measure!r}; {hint}it has {', '.join(manifest.metric_names) or 'none'}"
        )
    recorded = read_journal(run)
    side = ComparedRun(run, manifest, recorded, measure)
    for outcome in outcomes(recorded):
        _take(side, outcome, cluster)
    if aim_of(manifest) is not None:
        summary = summary_of(manifest, recorded)
        if summary.target is not None:
            side.ended_early = summary.reward if measure == REWARD else summary.metrics.get(measure, Spread(Estimate()))
    return side


def rollouts_of(side: ComparedRun, key: str) -> list[Outcome]:
    """What a run has of one example, in the order of tables."""
    recorded = side.recorded
    place = recorded.example_index(key)
    numbers = (number for number in range(len(recorded)) if recorded.place(number)[0] == place)
    return list(outcomes(recorded, sorted(numbers, key=recorded.place)))


def _take(side: ComparedRun, outcome: Outcome, cluster: str | None) -> None:
    example, base = outcome.example, outcome.base
    cell = side.cells.get(example.key)
    if cell is None:
        named = None if cluster is None else _cluster_of(example, cluster, side)
        place = side.recorded.example_index(example.key)
        cell = side.cells[example.key] = ExampleScores(example.example_id, place or 0, named)
    side.usage += base.usage
    side.seconds.append(max(0.0, base.timing.generation - base.timing.waiting))
    value = outcome.reward if side.measure == REWARD else _metric(outcome, side.measure)
    side.is_reward = side.is_reward and value == outcome.reward
    if value is None:
        cell.unscored += 1
        side.unscored[outcome.reason or f"{side.measure} has no value"] += 1
    else:
        cell.values.append(value)


def _metric(outcome: Outcome, name: str) -> float | None:
    if outcome.score is None or not isinstance(outcome.base, Generated):
        return None
    value = outcome.score.metrics.get(name)
    return value if value is not None and abs(value) <= LARGEST_SCORE else None


def _cluster_of(example: Example, name: str, side: ComparedRun) -> str:
    if name == "task":
        return example.task
    info = cast("Mapping[str, object]", example.info)
    if name not in info:
        near = nearest(name, ["task", *info])
        hint = f"did you mean {near!r}? " if near else ""
        keys = ", ".join(["task", *info])
        raise UsageError(
            f"--cluster {name}: example {example.example_id!r} of {side.run.path} has no {name!r} in its info; "
            f"{hint}clusters can be told apart by {keys}"
        )
    return str(info[name])


def side_json(side: ComparedRun) -> JsonDict:
    """As `--json` prints it."""
    p50, p95 = side.latency(0.5), side.latency(0.95)
    return {
        "run": side.run.id,
        "path": str(side.run.path),
        "name": side.manifest.name,
        "env_id": side.manifest.env_id,
        "model": side.manifest.model,
        "measure": side.measure,
        "status": side.manifest.status,
        "score": side.spread.to_json(),
        "rollouts": side.rollouts,
        "planned": side.planned,
        "scored": side.scored,
        "unscored": dict(side.unscored.most_common()),
        "tokens": [side.usage.input_tokens, side.usage.output_tokens] if tokens_known(side.usage) else None,
        "cost": side.usage.cost,
        "seconds": {"p50": p50, "p95": p95},
    }
