"""Comparison of two runs: difference, examples on which they differ, examples without a pair."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.report.compare.sides import ComparedRun, ExampleScores
from harness.stats.difference import Difference, difference_of
from harness.stats.intervals import same


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
    """Examples with a value in the candidate that are missing in the baseline."""
    only_baseline: int
    lost: int
    """Examples of both runs without a value on one side."""
    column: str = ""
    """Label shared by the candidates of all environments."""


def match(name: str, candidate: ComparedRun, baseline: ComparedRun, column: str = "") -> Match:
    """Compare two runs.

    Args:
        name: Name of the comparison.
        candidate: The run to evaluate.
        baseline: The run to compare with.
        column: Label shared by the candidates of all environments.

    Raises:
        UsageError: they have no example in common and belong to different environments.
    """
    scores, others = candidate.scores, baseline.scores
    first, second = scores.means, others.means
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
    difference = difference_of(scores, others)
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


def match_json(match: Match, most_flips: int | None = None) -> JsonDict:
    """The comparison as JSON, for `--json`."""
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
