"""Comparison of a rescored or replayed run with its parent run: which rewards changed, and how the changes are printed.
The difference of the means is computed in `stats.difference`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

from rich.text import Text

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.layout import head, prose
from harness.report.text import clean
from harness.stats.difference import UNKNOWN, Range, paired_scores, scores_of
from harness.stats.intervals import same
from harness.stats.paired import Paired
from harness.stats.summary import number, spread
from harness.store.journal_index import Recorded
from harness.store.outcomes import outcomes

FIRST = 5
"""Maximum number of changed examples to list by name."""

KINDS = {
    "same": "the same",  # apart from rounding errors
    "up": "higher",
    "down": "lower",
    "scored": "now scored",
    "unscored": "now unscored",
    "still_unscored": "still unscored",
    "only_before": "not run yet",
    "only_after": "new",
}
"""Ways in which a rollout's reward can change, with the text to print for each. `only_before`: only the parent run has
the rollout; `only_after`: only the derived run has it."""


class Mark(NamedTuple):
    """Reward of one rollout, with the id of its example."""

    example_id: int | str
    reward: float | None


Marks: TypeAlias = dict[tuple[str, int], Mark]
"""Reward of each rollout, by (example key, rollout index)."""


def marks_of(recorded: Recorded) -> Marks:
    """Read the reward of each rollout from a journal.

    Args:
        recorded: The journal's content, read to its end.
    """
    return {
        (each.example.key, each.base.rollout_index): Mark(each.example.example_id, each.reward)
        for each in outcomes(recorded)
    }


class Change(NamedTuple):
    """One rollout whose reward has changed."""

    example_id: int | str
    rollout_index: int
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Comparison of a rescored or replayed run with its parent."""

    before: float | None
    """Mean reward of the parent."""
    after: float | None
    counts: Mapping[str, int]
    """Number of rollouts for each kind of change."""
    examples: int
    """Number of examples with a changed reward."""
    first: tuple[Change, ...]
    """For each of the first few changed examples, its first changed rollout."""
    paired: Paired | None = None
    """Mean difference from the parent, paired by example; None for a run that reuses its parent's replies."""

    def to_json(self) -> JsonDict:
        """The comparison of a run with its parent as JSON, for `--json`."""
        names = [clean(each.example_id) if isinstance(each.example_id, str) else each.example_id for each in self.first]
        return {
            "mean_before": number(self.before),
            "mean_after": number(self.after),
            **self.counts,
            "examples": self.examples,
            "first": [{**each._asdict(), "example_id": name} for each, name in zip(self.first, names, strict=True)],
            "paired": None if self.paired is None else self.paired.to_json(),
        }


def compare(before: Marks, after: Marks, *, paired: bool, ranges: tuple[Range, Range] = (UNKNOWN, UNKNOWN)) -> Changes:
    """Compare the rewards of a run with those of its parent.

    Args:
        before: Rewards of the parent.
        after: Rewards of the run.
        paired: Whether to compute an interval for the difference: needed if the replies were generated anew, for
            example by another model. If only the scoring changed, the difference is exact.
        ranges: Range of possible rewards of the parent, and of the run.
    """
    counts = Counter(only_before=len(before.keys() - after.keys()), only_after=len(after.keys() - before.keys()))
    changed: dict[str, Change] = {}
    for key, mark in before.items():
        if key not in after:
            continue
        kind = _kind(mark.reward, after[key].reward)
        counts[kind] += 1
        if kind not in ("same", "still_unscored"):
            changed.setdefault(key[0], Change(mark.example_id, key[1], mark.reward, after[key].reward))
    old, new = _by_example(before), _by_example(after)
    return Changes(
        before=spread(old.values()).estimate.mean,
        after=spread(new.values()).estimate.mean,
        counts={kind: counts[kind] for kind in KINDS},
        examples=len(changed),
        first=tuple(islice(changed.values(), FIRST)),
        paired=paired_scores(scores_of(new, ranges[1]), scores_of(old, ranges[0])) if paired else None,
    )


def change_lines(parent: str, changes: Changes, width: int) -> Iterator[Text]:
    """Format the comparison of a run with its parent as lines of text."""
    yield head(f"Compared with {clean(parent)}")
    for line in _lines(changes):
        yield from prose(line, max(40, width), indent=2)


def _lines(changes: Changes) -> Iterator[str]:
    before, after = _apart(changes.before, changes.after)
    yield f"mean {before} → {after}"
    counts = changes.counts
    always = ("same", "up", "down")
    words = [f"{numerals.count(counts[kind])} {what}" for kind, what in KINDS.items() if counts[kind] or kind in always]
    yield f"rewards: {', '.join(words)}"
    if changes.first:
        named: list[str] = []
        for change in changes.first:
            rollout = f"#{change.rollout_index}" if change.rollout_index else ""
            before, after = _apart(change.before, change.after, "unscored")
            named.append(f"{clean(change.example_id, 40)}{rollout} ({before} → {after})")
        rest = changes.examples - len(changes.first)
        yield f"changed: example {', '.join(named)}{f' and {numerals.count(rest)} more' if rest else ''}"
    paired = changes.paired
    if paired is not None and paired.estimate.mean is None:
        yield "difference: no example has a score on both sides"
    elif paired is not None:
        examples = numerals.counted(paired.pairs, "example")
        chance = "" if paired.p_value is None else f", p = {numerals.p_value(paired.p_value)}".replace("= <", "<")
        between = "" if paired.estimate.low is None else f" {numerals.signed_interval(paired.estimate)}"
        yield f"difference {numerals.difference(paired.estimate)}{between}{chance}, paired over {examples}"


def _apart(before: float | None, after: float | None, missing: str = numerals.NONE) -> list[str]:
    """Format two numbers with enough digits to show a difference."""
    digits, most = 3, numerals.MOST_DIGITS
    if before is not None and after is not None and before != after:
        digits = next((n for n in range(3, most) if f"{before:.{n}f}" != f"{after:.{n}f}"), most)
    return [missing if value is None else numerals.score(value, digits) for value in (before, after)]


def _kind(before: float | None, after: float | None) -> str:
    if before is None:
        return "still_unscored" if after is None else "scored"
    if after is None:
        return "unscored"
    if same(min(before, after), max(before, after)):
        return "same"
    return "up" if after > before else "down"


def _by_example(marks: Marks) -> dict[str, list[float]]:
    """Rewards by example, for all examples that have an outcome."""
    found: dict[str, list[float]] = {}
    for (key, _), mark in marks.items():
        found.setdefault(key, []).extend([] if mark.reward is None else [mark.reward])
    return found
