"""Digest of a run's journal: summary, failures by reason, worst and best examples. Statistics are in `stats`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from harness.core.errors import UsageError
from harness.core.records import Example, Failed, Generated
from harness.core.safe_text import clean
from harness.core.types import JsonDict
from harness.settings.wording import listed, nearest
from harness.stats.scores import ScoreTable
from harness.stats.summary import Summary
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, in_order, outcomes, read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import enter, summary_of

MOST = 3
"""Number of best examples, and of worst examples, to show."""


@dataclass(slots=True)
class Trouble:
    """Rollouts of a run that have the same problem."""

    reason: str
    """Reason of the problem, as counted in tables."""
    message: str
    """Full error message of the first of these rollouts."""
    is_scored: bool = False
    """Whether the rollouts have a reward nevertheless, since only a function with weight 0 returned no value."""
    retryable: int = 0
    """Number of these rollouts that may succeed on retry."""
    places: list[tuple[int | str, int]] = field(default_factory=list[tuple[int | str, int]])
    """(example id, rollout index) of each of these rollouts."""
    nodes: Counter[str] = field(default_factory=Counter[str])
    """Number of these rollouts by the computer that executed them, if an executor runs them on others."""

    @property
    def where(self) -> str:
        """The computers in words, those with most of these rollouts first; "" if there is nothing to say."""
        most = [f"{clean(name, 60)} ({count})" for name, count in self.nodes.most_common(MOST)]
        more = len(self.nodes) - len(most)
        return ", ".join(most) + (f" and {more} more" if more > 0 else "")

    @property
    def count(self) -> int:
        """Number of rollouts that have the problem."""
        return len(self.places)

    def to_json(self) -> JsonDict:
        """The problem and its rollouts as JSON."""
        return {
            "reason": self.reason,
            "count": self.count,
            "scored": self.is_scored,
            "retryable": self.retryable,
            "message": self.message,
            **({"nodes": dict(self.nodes)} if self.nodes else {}),
            "rollouts": [{"example_id": example, "rollout_index": rollout} for example, rollout in self.places],
        }


@dataclass(frozen=True, slots=True)
class Ranked:
    """An example among the worst or the best of a run."""

    mean: float
    """Mean reward of the example's scored rollouts."""
    scored: int
    made: int
    """Number of rollouts, scored or not."""
    shown: Outcome
    """The rollout to show: the example's worst one, or its best one for an example among the best."""

    def to_json(self) -> JsonDict:
        """The example with its mean reward as JSON."""
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
    """Summary, problems, and worst and best examples of one run."""

    summary: Summary | None
    """Summary of the run; None if it has no rollout."""
    waiting: int = 0
    """Rollouts that are generated but not scored yet."""
    troubles: list[Trouble] = field(default_factory=list[Trouble])
    """Problems, most frequent first; those of scored rollouts last."""
    worst: list[Ranked] = field(default_factory=list[Ranked])
    """Examples with the lowest means, lowest first."""
    best: list[Ranked] = field(default_factory=list[Ranked])
    """Examples with the highest means, highest first; excludes those in `worst`."""
    functions: dict[str, Summary] = field(default_factory=dict[str, Summary])
    """Summary of each function, for an agent evaluation with several."""
    is_level: bool = False
    """Whether all scored examples have the same mean, so that `worst` simply lists the first ones."""


def digest(run: RunDir, manifest: Manifest, final: Mapping[str, object] | None, pass_k: Sequence[int] = ()) -> Digest:
    """Read a run's journal: summary, problems, worst and best examples.

    Args:
        run: The run's folder.
        manifest: Its manifest.
        final: Content of the run's `summary.json`, the only source of its duration; used if it covers the journal.
        pass_k: Numbers of attempts for pass@k; empty for those of the run's settings.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    recorded = read_journal(run)
    found = digest_of(recorded, manifest, final, pass_k=pass_k)
    parts = {
        name: digest_of(recorded, manifest, final, measure=name, pass_k=pass_k).summary for name in manifest.functions
    }
    found.functions = {name: summary for name, summary in parts.items() if summary is not None}
    return found


def digest_of(
    recorded: Recorded,
    manifest: Manifest,
    final: Mapping[str, object] | None,
    also: Callable[[int, Outcome], None] | None = None,
    *,
    measure: str = "",
    pass_k: Sequence[int] = (),
) -> Digest:
    """Compute summary, problems, and worst and best examples from a journal that is already indexed.

    Args:
        recorded: Index of the journal, read to its end.
        manifest: As in `digest`.
        final: As in `digest`.
        also: Function to call with the number and outcome of every rollout, in table order, so that its work
            shares the one pass over the journal.
        measure: Metric to use in place of the reward; "" for the reward.
        pass_k: As in `digest`.

    Raises:
        JournalDamaged: as in `digest`.
        StoreError: as in `digest`.
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
    summary = summary_of(manifest, recorded, final, table, pass_k=pass_k)
    found.summary = replace(summary, metrics={}) if measure else summary
    found.troubles = sorted(troubles.values(), key=lambda trouble: (trouble.is_scored, -trouble.count))
    # Sorting is stable, so equal means keep the table order.
    worst = sorted(standings, key=lambda each: each.mean)
    best = sorted(standings, key=lambda each: -each.mean)
    found.is_level = bool(worst) and worst[0].mean == best[0].mean
    low = [each for each in worst if found.is_level or each.mean < best[0].mean][:MOST]
    high = [each for each in best if each.mean > worst[0].mean and each not in low][:MOST]
    shown = outcomes(recorded, [*(each.low for each in low), *(each.high for each in high)])
    ranked = [Ranked(each.mean, each.scored, each.made, next(shown)) for each in (*low, *high)]
    found.worst, found.best = ranked[: len(low)], ranked[len(low) :]
    return found


def _note(troubles: dict[tuple[bool, str], Trouble], outcome: Outcome) -> None:
    """Record the problems of a rollout, grouped by reason."""
    base, score = outcome.base, outcome.score
    if score is None and isinstance(base, Generated):
        return  # not a problem: waiting for its score
    place = (outcome.example.example_id, base.rollout_index)
    if not outcome.is_scored:
        message = base.error if isinstance(base, Failed) else outcome.error
        trouble = troubles.setdefault((False, outcome.reason), Trouble(outcome.reason, message or outcome.reason))
        _enter(trouble, outcome, place)
        trouble.retryable += isinstance(base, Failed) and base.retryable
        return
    for function, words in (score.reasons if score is not None else {}).items():
        trouble = troubles.setdefault((True, function), Trouble(f"no value for {function}", words, is_scored=True))
        _enter(trouble, outcome, place)


def _enter(trouble: Trouble, outcome: Outcome, place: tuple[int | str, int]) -> None:
    trouble.places.append(place)
    if outcome.base.node is not None:
        trouble.nodes[outcome.base.node] += 1


class _Standing(NamedTuple):
    """Compact record of one example's scores."""

    mean: float
    scored: int
    made: int
    low: int
    """Position of the example's worst rollout in the journal."""
    high: int
    """Position of the example's best rollout in the journal."""


def example_outcomes(run: RunDir, name: str, rollout: int | None = None) -> list[tuple[Example, list[Outcome]]]:
    """Rollouts of the example that a user names.

    Args:
        run: The run's folder.
        name: Id of the example, as in tables. Several examples may have it.
        rollout: Only the rollout of this index; None for all.

    Returns:
        Each example of that id with its rollouts, in table order.

    Raises:
        UsageError: no such rollout is recorded.
        StoreError: the journal cannot be read.
    """
    recorded = read_journal(run)
    indices: dict[str, list[int | None]] = {}
    for each in recorded.examples() if len(recorded) else ():
        indices.setdefault(str(each.example_id), []).append(recorded.example_index(each.key))
    wanted = indices.get(name)
    if wanted is None:
        near, known = nearest(name, list(indices)), f"its examples are called {listed(list(indices))}"
        instead = f'did you mean "{near}"?' if near else known if indices else "it has no rollouts yet"
        raise UsageError(f"no example {name!r} in the journal of {run.id}: {instead}")
    chosen = [number for number in in_order(recorded) if recorded.place(number)[0] in wanted]
    there = sorted({recorded.place(number)[1] for number in chosen})
    if rollout is not None:
        chosen = [number for number in chosen if recorded.place(number)[1] == rollout]
    if not chosen:
        has = f" {rollout}: it has {', '.join(map(str, there))}" if there else " yet"
        raise UsageError(f"example {name} of {run.id} has no rollout{has}")
    groups = groupby(outcomes(recorded, chosen), key=lambda outcome: outcome.example.key)
    return [(members[0].example, members) for members in (list(group) for _, group in groups)]
