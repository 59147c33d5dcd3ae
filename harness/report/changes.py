"""Comparison of a rescored or replayed run with its parent: changes of each reward, and the printed form. The
difference of the means is computed in `stats.difference`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.layout import head, print_lines, prose
from harness.report.text import clean
from harness.stats.difference import UNKNOWN, Range, paired_scores, scores_of
from harness.stats.intervals import same
from harness.stats.paired import Paired
from harness.stats.summary import number, spread
from harness.store.journal_index import Recorded
from harness.store.outcomes import outcomes

FIRST = 5
"""Number of changed examples to name."""


KINDS = ("same", "up", "down", "scored", "unscored", "still_unscored")
"""Kinds of rollouts that both runs have."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Reward of one rollout."""

    example_id: int | str
    reward: float | None


Marks: TypeAlias = dict[tuple[str, int], Mark]
"""Rewards by example key and rollout index, in table order."""


def marks_of(recorded: Recorded) -> Marks:
    """The rewards recorded in a journal.

    Args:
        recorded: The journal's content, read to its end.
    """
    return {
        (each.example.key, each.base.rollout_index): Mark(each.example.example_id, each.reward)
        for each in outcomes(recorded)
    }


@dataclass(frozen=True, slots=True)
class Change:
    """One rollout whose reward has changed."""

    example_id: int | str
    rollout_index: int
    before: float | None
    after: float | None

    def to_json(self) -> JsonDict:
        """The change as JSON, for `--json`."""
        name = clean(self.example_id) if isinstance(self.example_id, str) else self.example_id
        return {"example_id": name, "rollout_index": self.rollout_index, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Changes:
    """Comparison of a run with its parent."""

    before: float | None
    """Mean reward of the parent."""
    after: float | None
    same: int
    """Rollouts with the same reward, up to rounding."""
    up: int
    down: int
    scored: int
    """Rollouts scored now but not before."""
    unscored: int
    """Rollouts scored before but not now."""
    still_unscored: int
    only_before: int
    """Rollouts of the parent that the run has not made yet."""
    only_after: int
    examples: int
    """Number of examples with a changed reward."""
    first: tuple[Change, ...]
    """First changed rollout of the first few such examples, in table order."""
    paired: Paired | None = None
    """Difference of the means, paired by example; None if no replies were sampled again."""

    def to_json(self) -> JsonDict:
        """The comparison as JSON, for `--json`."""
        return {
            "mean_before": number(self.before),
            "mean_after": number(self.after),
            **{name: getattr(self, name) for name in (*KINDS, "only_before", "only_after", "examples")},
            "first": [change.to_json() for change in self.first],
            "paired": None if self.paired is None else self.paired.to_json(),
        }


def compare(before: Marks, after: Marks, *, paired: bool, ranges: tuple[Range, Range] = (UNKNOWN, UNKNOWN)) -> Changes:
    """Compare the rewards of a run with those of its parent.

    Args:
        before: Rewards of the parent.
        after: Rewards of the run.
        paired: Whether to estimate the difference with an interval: needed if the replies were sampled again, as with
            another model. With the same replies, the difference is exact.
        ranges: Ranges of the parent's rewards and of the run's.
    """
    kinds: Counter[str] = Counter()
    changed: dict[str, Change] = {}
    for key, mark in before.items():
        if key not in after:
            continue
        kind = _kind(mark.reward, after[key].reward)
        kinds[kind] += 1
        if kind not in ("same", "still_unscored"):
            changed.setdefault(key[0], Change(mark.example_id, key[1], mark.reward, after[key].reward))
    old, new = _by_example(before), _by_example(after)
    return Changes(
        before=spread(old.values()).estimate.mean,
        after=spread(new.values()).estimate.mean,
        **{kind: kinds[kind] for kind in KINDS},
        only_before=len(before.keys() - after.keys()),
        only_after=len(after.keys() - before.keys()),
        examples=len(changed),
        first=tuple(islice(changed.values(), FIRST)),
        paired=paired_scores(scores_of(new, ranges[1]), scores_of(old, ranges[0])) if paired else None,
    )


def show_changes(parent: str, changes: Changes, console: Console) -> None:
    """Print a comparison.

    Args:
        parent: Id of the parent.
        changes: The comparison.
        console: From `report.text.make_console`.
    """
    print_lines(change_lines(parent, changes, console.width), console)


def change_lines(parent: str, changes: Changes, width: int) -> Iterator[Text]:
    """Format a comparison as lines."""
    yield head(f"Compared with {clean(parent)}")
    for line in _lines(changes):
        yield from prose(line, max(40, width), indent=2)


def _lines(changes: Changes) -> Iterator[str]:
    digits = _digits(changes.before, changes.after)
    yield f"mean {numerals.score(changes.before, digits)} → {numerals.score(changes.after, digits)}"
    counts = (
        (changes.same, "the same"),
        (changes.up, "higher"),
        (changes.down, "lower"),
        (changes.scored, "now scored"),
        (changes.unscored, "now unscored"),
        (changes.still_unscored, "still unscored"),
        (changes.only_before, "not made yet"),
        (changes.only_after, "new"),
    )
    words = [f"{numerals.count(count)} {what}" for n, (count, what) in enumerate(counts) if count or n < 3]
    yield f"rewards: {', '.join(words)}"
    if changes.first:
        named = ", ".join(_shown(change) for change in changes.first)
        rest = changes.examples - len(changes.first)
        yield f"changed: example {named}{f' and {numerals.count(rest)} more' if rest else ''}"
    if changes.paired is not None:
        yield _difference(changes.paired)


def _shown(change: Change) -> str:
    digits = _digits(change.before, change.after)
    rollout = f"#{change.rollout_index}" if change.rollout_index else ""
    before, after = (
        "unscored" if each is None else numerals.score(each, digits) for each in (change.before, change.after)
    )
    return f"{clean(change.example_id, 40)}{rollout} ({before} → {after})"


def _difference(paired: Paired) -> str:
    estimate = paired.estimate
    if estimate.mean is None:
        return "difference: no example has a score on both sides"
    examples = f"{paired.pairs} example{'s' if paired.pairs != 1 else ''}"
    chance = "" if paired.p_value is None else f", p = {numerals.p_value(paired.p_value)}".replace("= <", "<")
    between = "" if estimate.low is None else f" {numerals.signed_interval(estimate)}"
    return f"difference {numerals.difference(estimate)}{between}{chance}, paired over {examples}"


def _digits(before: float | None, after: float | None) -> int:
    """Number of digits that shows two different numbers as different."""
    if before is None or after is None or before == after:
        return 3
    return next(
        (n for n in range(3, numerals.MOST_DIGITS) if f"{before:.{n}f}" != f"{after:.{n}f}"), numerals.MOST_DIGITS
    )


def _kind(before: float | None, after: float | None) -> str:
    if before is None:
        return "still_unscored" if after is None else "scored"
    if after is None:
        return "unscored"
    if same(min(before, after), max(before, after)):
        return "same"
    return "up" if after > before else "down"


def _by_example(marks: Marks) -> dict[str, list[float]]:
    """Rewards by example, for all examples with an outcome."""
    found: dict[str, list[float]] = {}
    for (key, _), mark in marks.items():
        found.setdefault(key, []).extend([] if mark.reward is None else [mark.reward])
    return found
