"""Equality of two runs within a margin (`bench compare --equal-within`): the verdict of `stats.equality`, which also
allows for rollouts without a score, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.compare.sides import ComparedRun, Match, worst_scores
from harness.report.layout import Column, grid, prose
from harness.stats.difference import LEAST_COMMON
from harness.stats.equality import Equality, EqualityVerdict, equality
from harness.stats.hypotheses import non_inferiority
from harness.stats.intervals import LEVEL


@dataclass(frozen=True, slots=True)
class EqualityRuling:
    """Verdict on the equality of two runs within a margin."""

    verdict: EqualityVerdict
    why: str
    """Reason for the verdict, in one sentence."""
    test: Equality

    def to_json(self) -> JsonDict:
        """The verdict as JSON, for `--json`."""
        estimate = self.test.paired.estimate
        return {
            "verdict": self.verdict,
            "margin": self.test.margin,
            "interval": estimate.ends,
            "level": estimate.level,
            "cautious": list(self.test.cautious),
            "settling_examples": self.test.needed,
            "why": self.why,
        }


def equality_of(candidate: ComparedRun, baseline: ComparedRun, margin: float, comparisons: int = 1) -> EqualityRuling:
    """Decide whether two runs are equal within a margin. Rollouts without a score count at their worst: runs are equal
    only if they would still be if these had the worst reward on either side.

    Args:
        candidate: One run.
        baseline: The other run.
        margin: As in `stats.equality`.
        comparisons: As in `stats.equality`.
    """
    test = equality(candidate.scores, baseline.scores, margin, comparisons)
    estimate, needed, verdict = test.paired.estimate, test.needed, test.verdict
    interval, edges = numerals.signed_interval(estimate), f"-{margin:g} to +{margin:g}"
    short = sum(max(0, side.planned - side.scored) for side in (candidate, baseline))
    if test.paired.pairs < LEAST_COMMON:
        return EqualityRuling(verdict, "they share fewer than two examples with a score", test)
    if estimate.low is None or estimate.clusters == 1:
        return EqualityRuling(verdict, "how much the difference varies between examples is unknown", test)
    if verdict == "different":
        return EqualityRuling(verdict, f"the whole interval {interval} lies beyond {edges}", test)
    if verdict == "equal" and short and not _is_equal_at_worst(candidate, baseline, margin, comparisons):
        why = (
            f"the interval {interval} lies within {edges}, but {numerals.count(short)} rollouts have no score and "
            "could move it out"
        )
        return EqualityRuling("cannot tell", why, test)
    if verdict == "equal":
        return EqualityRuling(verdict, f"the whole interval {interval} lies within {edges}", test)
    more = ""
    if needed is not None:
        truth = "as large as it seems" if test.truth else "0"
        about = numerals.count(max(needed, test.paired.pairs + 1))
        more = f"; about {about} examples would settle it if the true difference is {truth}"
    if non_inferiority(estimate, margin) == "pass" and (estimate.high or 0.0) < margin:
        reach = numerals.signed_interval(replace(estimate, low=test.cautious[0], high=test.cautious[1]))
        why = f"the interval {interval} lies within {edges}, but losses too rare to be seen could reach {reach}"
    else:
        why = f"the interval {interval} of the difference is not within {edges}, nor beyond it"
    return EqualityRuling(verdict, why + more, test)


def _is_equal_at_worst(first: ComparedRun, second: ComparedRun, margin: float, comparisons: int) -> bool:
    ways = worst_scores(first, second), worst_scores(second, first)
    return all(equality(*way, margin, comparisons).verdict == "equal" for way in ways)


def with_equality(matches: Sequence[Match], margin: float) -> list[Match]:
    """Set the verdict on equality in every comparison, corrected for their number.

    Raises:
        UsageError: the margin is as large as the range of scores.
    """
    for match in matches:
        match.candidate.check_within_range("--equal-within", margin)
    return [
        replace(match, equality=equality_of(match.candidate, match.baseline, margin, len(matches))) for match in matches
    ]


def equality_lines(group: Sequence[Match], named: Sequence[str], width: int) -> Iterator[Text]:
    """The verdicts on equality as lines for the terminal.

    Args:
        group: Comparisons with one baseline.
        named: Label of the baseline, then one of each candidate.
        width: Width of the terminal in cells.
    """
    rulings = [match.equality for match in group if match.equality is not None]
    if not rulings:
        return
    estimates = [ruling.test.paired.estimate for ruling in rulings]
    level = estimates[0].level
    percent = "95 %" if level == LEVEL else f"{100 * level:.4g} %"
    yield from prose(f"Equal to {named[0]} within {rulings[0].test.margin:g}", width, "bold")
    columns = [
        Column("verdict", [ruling.verdict for ruling in rulings]),
        Column("difference", [numerals.difference(estimate) for estimate in estimates]),
        Column(f"{percent} interval", [numerals.signed_interval(estimate) for estimate in estimates]),
    ]
    yield from grid(named[1:], "run", [columns], width)
    yield Text()
    for label, ruling in zip(named[1:], rulings, strict=True):
        yield from prose(f"{label}: {ruling.verdict}: {ruling.why}.", width)
