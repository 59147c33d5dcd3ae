"""The differences of a page: which runs of an environment are held against each other, and what is said of it in a
table's cell. Owns that choice and these words; a difference is `report.compare`'s, here as there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.core.types import JsonDict
from harness.report import numerals
from harness.stats.difference import Difference, Scores, adjust, difference_of

ALL_PAIRS = 5
"""Runs of which every pair is looked at: ten pairs. Of more, each beside the best one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside(Difference):
    """One run beside another."""

    first: int
    """Position of the run among those of its environment."""
    second: int

    @property
    def words(self) -> str:
        """What is known of the first, in a word or three: `better`, `worse`, or why neither can be said."""
        if self.is_found:
            return self.verdict
        if self.adjusted is None:
            return "no evidence"
        return "too few examples" if self.is_too_small else "not told apart"

    @property
    def outlook(self) -> str:
        """The same, and what it would take to know more."""
        if self.unpaired is not None and self.adjusted is not None:
            return f"{self.words}, as two samples: too few examples in common"
        if self.is_too_small:
            return f"{self.words} to tell; it takes {numerals.count(self.settling or self.least)} or more"
        needed = self.settling
        if needed is None:
            return self.words
        if needed <= self.paired.pairs:
            return f"{self.words}; a few more examples would settle it"
        return f"{self.words}; about {numerals.count(needed)} examples would settle it"

    @property
    def figures(self) -> list[str]:
        """Difference, interval, p, and outcomes, each as it stands in a cell."""
        outcomes = (self.paired.wins, self.paired.ties, self.paired.losses)
        return [
            numerals.difference(self.estimate),
            numerals.signed_interval(self.estimate),
            numerals.p_value(self.adjusted),
            " / ".join(map(numerals.count, outcomes)),
        ]

    def to_json(self, names: Sequence[str]) -> JsonDict:
        """For programs.

        Args:
            names: What each run is called.
        """
        return {
            "first": names[self.first],
            "second": names[self.second],
            **self.paired.to_json(),
            "unpaired": None if self.unpaired is None else self.unpaired.to_json(),
            "p_adjusted": self.adjusted,
            "verdict": self.verdict,
            "settled_by": self.settling,
        }


def differences_of(environments: Sequence[Sequence[Scores]]) -> list[list[Beside]]:
    """The differences of a page, by environment: of all pairs of its runs, or of each run and the best one; those
    without a score are left out. P-values are adjusted for all of them: whoever reads the page looks at all.

    Args:
        environments: Their runs, the best mean first.
    """
    found = [_pairs(runs) for runs in environments]
    adjusted = iter(adjust([each for pairs in found for each in pairs]))
    return [[next(adjusted) for _ in pairs] for pairs in found]


def _pairs(runs: Sequence[Scores]) -> list[Beside]:
    ranked = [position for position, run in enumerate(runs) if run.means]
    pairs = list(combinations(ranked, 2)) if len(ranked) <= ALL_PAIRS else [(ranked[0], other) for other in ranked[1:]]
    return [_beside(runs, first, second) for first, second in pairs]


def _beside(runs: Sequence[Scores], first: int, second: int) -> Beside:
    difference = difference_of(runs[first], runs[second])
    return Beside(first=first, second=second, paired=difference.paired, unpaired=difference.unpaired)
