"""Two runs example by example: what could be paired, how they differ, which examples tell them apart, and how many it
would take to settle a tie. Owns what is paired with what; every estimate is `stats`'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from harness.errors import UsageError
from harness.report.compare.sides import Cell, Side
from harness.stats.hypotheses import Unpaired, holm, welch
from harness.stats.intervals import Estimate, same
from harness.stats.paired import Paired, paired_by_key
from harness.stats.power import Components, detectable, settling_examples
from harness.stats.signflip import fewest_pairs
from harness.types import JsonDict

LEAST_COMMON = 2
"""Examples without which nothing can be said."""

ALPHA = 0.05

Verdict: TypeAlias = Literal["better", "worse", "tied", "unknown"]


@dataclass(frozen=True, slots=True)
class Flip:
    """An example on which two runs differ."""

    key: str
    first: Cell
    second: Cell
    difference: float
    """First minus second."""


@dataclass(frozen=True, slots=True)
class Match:
    """The candidate against its baseline, in one environment."""

    name: str
    """Of the environment's run."""
    candidate: Side
    baseline: Side
    paired: Paired
    """Candidate minus baseline, over the examples that both have a value for."""
    unpaired: Unpaired | None
    """Of two runs that share too few examples: the difference of two samples."""
    flips: tuple[Flip, ...]
    """The largest difference first."""
    only_candidate: int
    """Examples with a value that the baseline does not have at all."""
    only_baseline: int
    lost: int
    """Examples of both that have no value on one side."""
    column: str = ""
    """What the candidate has in common with those of other environments."""
    adjusted: float | None = None
    """The p-value after Holm, over all comparisons that are made together."""
    comparisons: int = 1
    """That are made together."""

    @property
    def estimate(self) -> Estimate:
        """Candidate minus baseline, by the pairs, or of two samples where there are too few."""
        return self.paired.estimate if self.unpaired is None else self.unpaired.estimate

    @property
    def p_value(self) -> float | None:
        """Of this comparison alone."""
        return self.paired.p_value if self.unpaired is None else self.unpaired.p_value

    @property
    def verdict(self) -> Verdict:
        """`better`, `worse`, `tied`, or `unknown` where no result could have told the two apart."""
        mean = self.estimate.mean
        if self.adjusted is None or mean is None or self.is_too_small:
            return "unknown"
        if self.adjusted >= ALPHA:
            return "tied"
        return "better" if mean > 0 else "worse"

    @property
    def units(self) -> int:
        """What the pairs are tested as: clusters, if these were named, else examples."""
        clusters = self.paired.estimate.clusters
        return self.paired.pairs if clusters is None else clusters

    @property
    def is_too_small(self) -> bool:
        """Whether so few pairs cannot be told apart even if all of them differ the same way."""
        return self.unpaired is None and self.units < fewest_pairs(ALPHA)

    @property
    def least(self) -> int:
        """Units from which on something can be told, however many comparisons are made together."""
        return fewest_pairs(ALPHA / self.comparisons)

    @property
    def detectable(self) -> float | None:
        """The smallest difference that these examples would show four times in five; None if they can show none."""
        estimate = self.paired.estimate
        if not estimate.stderr or self.unpaired is not None or self.units < self.least:
            return None
        seen = Components(estimate.stderr**2 * estimate.examples, 0.0, 0.0)  # as `settling_examples` takes it
        return detectable(seen, estimate.examples, alpha=ALPHA / self.comparisons)

    @property
    def settling(self) -> int | None:
        """Examples that would tell a difference as large as this one from none; None if nothing differs, or if it is
        told already."""
        if self.verdict in ("better", "worse") or self.unpaired is not None:
            return None
        return settling_examples(self.paired, alpha=ALPHA / self.comparisons)


def match(name: str, candidate: Side, baseline: Side, column: str = "") -> Match:
    """Compare two runs.

    Args:
        name: What the comparison is called.
        candidate: Whose advantage is asked for.
        baseline: What it is measured against.
        column: What the candidate has in common with those of other environments.

    Raises:
        UsageError: they have no example in common and are of different environments.
    """
    first, second = candidate.means, baseline.means
    common = [key for key in candidate.cells if key in baseline.cells]
    ours, theirs = candidate.manifest.env_id, baseline.manifest.env_id
    if candidate.cells and baseline.cells and not common and ours != theirs:
        raise UsageError(
            f"{candidate.run.path} and {baseline.run.path} have no example in common, and are of different "
            f"environments ({ours}, {theirs}): their scores say nothing about one another"
        )
    both = [key for key in common if key in first and key in second]
    clusters = {key: candidate.cells[key].cluster for key in both}
    has_clusters = any(cluster is not None for cluster in clusters.values())
    limits = _limits(candidate, baseline)
    paired = paired_by_key(
        first, second, clusters=clusters if has_clusters else None, limits=limits,
        passes=limits is not None and all(side.is_at(limits) for side in (candidate, baseline)),
    )  # fmt: skip
    unpaired = _unpaired(candidate, baseline) if len(both) < LEAST_COMMON and first and second else None
    flips = [
        Flip(key, candidate.cells[key], baseline.cells[key], first[key] - second[key])
        for key in both
        if not same(min(first[key], second[key]), max(first[key], second[key]))
    ]
    flips.sort(key=lambda flip: (-abs(flip.difference), flip.first.index))
    return Match(
        name, candidate, baseline, paired, unpaired, tuple(flips),
        only_candidate=sum(key not in baseline.cells for key in first),
        only_baseline=sum(key not in candidate.cells for key in second),
        lost=len(common) - len(both),
        column=column,
    )  # fmt: skip


def _unpaired(candidate: Side, baseline: Side) -> Unpaired:
    """The two as independent samples, by clusters if these were named."""
    first, second = candidate.means, baseline.means
    labels = [candidate.cells[key].cluster for key in first], [baseline.cells[key].cluster for key in second]
    has_clusters = any(label is not None for side in labels for label in side)
    return welch(list(first.values()), list(second.values()), clusters=labels if has_clusters else None)


def adjust(matches: Sequence[Match]) -> list[Match]:
    """The same comparisons with the p-values that they have together (Holm)."""
    p_values = [match.p_value for match in matches]
    made = max(1, sum(p is not None for p in p_values))
    return [replace(match, adjusted=p, comparisons=made) for match, p in zip(matches, holm(p_values), strict=True)]


def _limits(*sides: Side) -> tuple[float, float] | None:
    ranges = [side.limits for side in sides]
    known = [limits for limits in ranges if limits is not None]
    if len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def match_json(match: Match, most_flips: int | None = None) -> JsonDict:
    """As `--json` prints it."""
    return {
        "name": match.name,
        "measure": match.candidate.measure,
        "candidate": match.candidate.run.id,
        "baseline": match.baseline.run.id,
        **match.paired.full_json(),
        "p_adjusted": match.adjusted,
        "verdict": match.verdict,
        "unpaired": None if match.unpaired is None else match.unpaired.to_json(),
        "only_candidate": match.only_candidate,
        "only_baseline": match.only_baseline,
        "without_value_on_one_side": match.lost,
        "detectable": match.detectable,
        "settling_examples": match.settling,
        "flips": [_flip_json(flip) for flip in match.flips[:most_flips]],
        "flipped": len(match.flips),
    }


def _flip_json(flip: Flip) -> JsonDict:
    return {
        "example_id": flip.first.example_id,
        "example_key": flip.key,
        "candidate": flip.first.mean,
        "baseline": flip.second.mean,
        "difference": flip.difference,
    }
