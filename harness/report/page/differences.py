"""Differences between the runs of an environment on the page, and their wording. Computed as in `bench compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.core.types import JsonDict
from harness.report import numerals
from harness.stats.difference import Difference, Scores, adjust, difference_of

ALL_PAIRS = 5
"""Maximum number of runs for which all pairs (ten) are compared; with more, each is compared with the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside(Difference):
    """Comparison of two runs of an environment."""

    first: int
    """Position of the first run in its environment."""
    second: int

    @property
    def words(self) -> str:
        """Verdict on the first run: `better`, `worse`, or why neither can be said."""
        if self.is_found:
            return self.verdict
        if self.adjusted is None:
            return "no evidence"
        return "too few examples" if self.is_too_small else "not told apart"

    @property
    def outlook(self) -> str:
        """The verdict, with the number of examples needed to decide."""
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
        """Difference, interval, p, and wins/ties/losses, as text of cells."""
        outcomes = (self.paired.wins, self.paired.ties, self.paired.losses)
        return [
            numerals.difference(self.estimate),
            numerals.signed_interval(self.estimate),
            numerals.p_value(self.adjusted),
            " / ".join(map(numerals.count, outcomes)),
        ]

    def to_json(self, names: Sequence[str]) -> JsonDict:
        """JSON form.

        Args:
            names: Name of each run.
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
    """Differences of a page by environment: all pairs of runs, or each run and the best.

    Runs without a score are omitted. P-values are adjusted for all comparisons of the page.

    Args:
        environments: Runs of each environment, best mean first.
    """
    found: list[list[Beside]] = []
    for runs in environments:
        ranked = [position for position, run in enumerate(runs) if run.means]
        few = len(ranked) <= ALL_PAIRS
        pairs = list(combinations(ranked, 2)) if few else [(ranked[0], other) for other in ranked[1:]]
        each = [(first, second, difference_of(runs[first], runs[second])) for first, second in pairs]
        found.append([Beside(first=a, second=b, paired=d.paired, unpaired=d.unpaired) for a, b, d in each])
    adjusted = iter(adjust([each for pairs in found for each in pairs]))
    return [[next(adjusted) for _ in pairs] for pairs in found]
