"""What a run's journal comes to for somebody who looks at the run afterwards: its numbers, its failures by reason, the
order of its examples by score. Owns the reading; lays nothing out, and leaves every statistic to `stats`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from harness.core.errors import UsageError
from harness.core.records import Example, Failed, Generated
from harness.core.types import JsonDict
from harness.settings.wording import listed, nearest
from harness.stats.scores import ScoreTable
from harness.stats.summary import Summary
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, in_order, outcomes, read_journal
from harness.store.recorded import Recorded
from harness.store.rundir import RunDir
from harness.store.tally import enter, summary_of

MOST = 3
"""Examples shown as the worst, and as the best."""


@dataclass(slots=True)
class Trouble:
    """Rollouts that something went wrong with for the same reason."""

    reason: str
    """In the words that tables count."""
    message: str
    """What the first of them says, whole."""
    is_scored: bool = False
    """Whether they have a reward all the same: only a function that does not count gave no value."""
    retryable: int = 0
    """How many failed in a way that time may heal."""
    places: list[tuple[int | str, int]] = field(default_factory=list[tuple[int | str, int]])
    """(example id, rollout index) of each."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.places)

    def to_json(self) -> JsonDict:
        """For programs."""
        return {
            "reason": self.reason,
            "count": self.count,
            "scored": self.is_scored,
            "retryable": self.retryable,
            "message": self.message,
            "rollouts": [{"example_id": example, "rollout_index": rollout} for example, rollout in self.places],
        }


@dataclass(frozen=True, slots=True)
class Ranked:
    """An example among the others of its run."""

    mean: float
    """Of the rewards of its scored rollouts."""
    scored: int
    made: int
    """Rollouts with or without a score."""
    shown: Outcome
    """Its worst rollout, or its best one."""

    def to_json(self) -> JsonDict:
        """For programs."""
        example = self.shown.example
        return {
            "example_id": example.example_id,
            "mean": self.mean,
            "scored": self.scored,
            "rollouts": self.made,
            "rollout_index": self.shown.base.rollout_index,
            "reward": self.shown.reward,
        }


@dataclass(slots=True)
class Digest:
    """One run, read whole."""

    summary: Summary | None
    """None if no rollout has a line."""
    waiting: int = 0
    """Rollouts that are generated and not scored yet."""
    troubles: list[Trouble] = field(default_factory=list[Trouble])
    """The commonest first; those of scored rollouts last."""
    worst: list[Ranked] = field(default_factory=list[Ranked])
    """The lowest mean first."""
    best: list[Ranked] = field(default_factory=list[Ranked])
    """The highest mean first; no example that is among the worst."""
    functions: dict[str, Summary] = field(default_factory=dict[str, Summary])
    """The numbers of each function, of an agent evaluation that has several."""
    is_level: bool = False
    """Whether all examples with a score have the same mean: then the worst are simply the first."""


def digest(run: RunDir, manifest: Manifest, final: Mapping[str, object] | None) -> Digest:
    """Read a run's journal.

    Args:
        run: Its folder.
        manifest: Its manifest.
        final: Its `summary.json`, which alone knows how long it took, if it is of everything that the journal holds.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    recorded = read_journal(run)
    found = digest_of(recorded, manifest, final)
    parts = {name: digest_of(recorded, manifest, final, measure=name).summary for name in manifest.functions}
    found.functions = {name: summary for name, summary in parts.items() if summary is not None}
    return found


def digest_of(
    recorded: Recorded,
    manifest: Manifest,
    final: Mapping[str, object] | None,
    also: Callable[[int, Outcome], None] | None = None,
    *,
    measure: str = "",
) -> Digest:
    """The same of a journal whose lines are known.

    Args:
        recorded: Where its lines are, read to its end.
        manifest: As `digest`.
        final: As `digest`.
        also: Told of every rollout, with its number, in the order of tables: reading takes longer than anything that is
            done with what was read, so a journal is read once for all.
        measure: The metric that stands in place of the reward; "" if none does.

    Raises:
        JournalDamaged: as `digest`.
        StoreError: as `digest`.
    """
    if not len(recorded):
        return Digest(None)
    found, table = Digest(None, recorded.counts()["generated"]), ScoreTable()
    troubles: dict[tuple[bool, str], Trouble] = {}
    standings: list[_Standing] = []
    numbers = in_order(recorded)
    read = (each.measured(measure) if measure else each for each in outcomes(recorded, numbers))
    pairs = zip(numbers, read, strict=True)
    for _, group in groupby(pairs, key=lambda pair: recorded.place(pair[0])[0]):
        rewards: list[tuple[float, int]] = []
        made = 0
        for number, outcome in group:
            made += 1
            enter(table, recorded.place(number), outcome.base, outcome.score)
            if also is not None:
                also(number, outcome)
            _note(troubles, outcome)
            if (reward := outcome.reward) is not None:
                rewards.append((reward, number))
        if rewards:
            mean = math.fsum(reward for reward, _ in rewards) / len(rewards)
            low, high = (pick(rewards, key=lambda each: each[0])[1] for pick in (min, max))
            standings.append(_Standing(mean, len(rewards), made, low, high))
    summary = summary_of(manifest, recorded, final, table)
    found.summary = replace(summary, metrics={}) if measure else summary
    found.troubles = sorted(troubles.values(), key=lambda trouble: (trouble.is_scored, -trouble.count))
    _rank(found, standings, recorded)
    return found


def _note(troubles: dict[tuple[bool, str], Trouble], outcome: Outcome) -> None:
    """Enter a rollout under each thing that went wrong with it."""
    base, score = outcome.base, outcome.score
    if score is None and isinstance(base, Generated):
        return  # nothing went wrong: it waits for its score
    place = (outcome.example.example_id, base.rollout_index)
    if not outcome.is_scored:
        message = base.error if isinstance(base, Failed) else outcome.error
        trouble = troubles.setdefault((False, outcome.reason), Trouble(outcome.reason, message or outcome.reason))
        trouble.places.append(place)
        trouble.retryable += isinstance(base, Failed) and base.retryable
        return
    for function, words in (score.reasons if score is not None else {}).items():
        trouble = troubles.setdefault((True, function), Trouble(f"no value for {function}", words, is_scored=True))
        trouble.places.append(place)


class _Standing(NamedTuple):
    """One example's place, in a few bytes."""

    mean: float
    scored: int
    made: int
    low: int
    """Number of its worst rollout in the journal."""
    high: int
    """And of its best one."""


def _rank(found: Digest, standings: list[_Standing], recorded: Recorded) -> None:
    # Sorting is stable: of equal means the first in the table comes first, at either end.
    worst = sorted(standings, key=lambda each: each.mean)
    best = sorted(standings, key=lambda each: -each.mean)
    found.is_level = bool(worst) and worst[0].mean == best[0].mean
    low = [each for each in worst if found.is_level or each.mean < best[0].mean][:MOST]
    high = [each for each in best if each.mean > worst[0].mean and each not in low][:MOST]
    found.worst = _ranked(low, [each.low for each in low], recorded)
    found.best = _ranked(high, [each.high for each in high], recorded)


def _ranked(standings: Sequence[_Standing], numbers: Sequence[int], recorded: Recorded) -> list[Ranked]:
    shown = outcomes(recorded, numbers)
    return [Ranked(s.mean, s.scored, s.made, outcome) for s, outcome in zip(standings, shown, strict=True)]


def example_outcomes(run: RunDir, name: str, rollout: int | None = None) -> list[tuple[Example, list[Outcome]]]:
    """The rollouts of the example that a user names.

    Args:
        run: The run's folder.
        name: The example's id, as tables show it. Several examples may have it.
        rollout: Only the rollout of this index; None is all.

    Returns:
        Each example of that id with its rollouts, in the order of every table.

    Raises:
        UsageError: no rollout of it is recorded.
        StoreError: the journal cannot be read.
    """
    recorded = read_journal(run)
    indices: dict[str, list[int | None]] = {}
    for each in recorded.examples() if len(recorded) else ():
        indices.setdefault(str(each.example_id), []).append(recorded.example_index(each.key))
    wanted = indices.get(name)
    if wanted is None:
        raise UsageError(f"no example {name!r} in the journal of {run.id}: {_instead(name, list(indices))}")
    chosen = [number for number in in_order(recorded) if recorded.place(number)[0] in wanted]
    there = sorted({recorded.place(number)[1] for number in chosen})
    if rollout is not None:
        chosen = [number for number in chosen if recorded.place(number)[1] == rollout]
    if not chosen:
        has = f" {rollout}: it has {', '.join(map(str, there))}" if there else " yet"
        raise UsageError(f"example {name} of {run.id} has no rollout{has}")
    found = [(number, outcome) for number, outcome in zip(chosen, outcomes(recorded, chosen), strict=True)]
    groups = groupby(found, key=lambda pair: recorded.place(pair[0])[0])
    return [(members[0].example, members) for members in ([outcome for _, outcome in group] for _, group in groups)]


def _instead(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    if not known:
        return "it holds no rollout yet"
    return f'did you mean "{near}"?' if near else f"its examples are called {listed(known)}"
