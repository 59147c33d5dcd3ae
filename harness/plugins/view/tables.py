"""Pages of examples and of rollouts, groups by a column, and steps from one rollout to the next, as JSON."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.core.types import JsonDict
from harness.plugins.view.column_values import ColumnValues, values_of
from harness.plugins.view.index_columns import SHOWN
from harness.plugins.view.query_arrays import Progress, matching, parsed_query
from harness.plugins.view.run_index import Array, RunIndex
from harness.stats.clusters import clustered_mean
from harness.stats.intervals import Estimate, mean_interval
from harness.stats.target import finite_limits
from harness.store.clusters import clusters_of
from harness.store.outcomes import read_journal

MOST_ROWS = 1_000
"""Maximum number of rows of a page."""

_ORDER_BYTES = 24 << 20
"""Maximum number of bytes of the sorted tables of a run that are kept, besides the last one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rollouts to show, and in which order."""

    query: str = ""
    sort: str = ""
    """Name of a column; "" for table order."""
    descending: bool = False


@dataclass
class Sorted:
    """The rollouts of a run that match a query, and the order of examples."""

    index: RunIndex
    matches: Array
    """Whether each rollout matches."""
    values: ColumnValues | None
    """The column by which the rows are sorted."""
    progress: Progress = field(default_factory=Progress)

    @property
    def owner(self) -> Array:
        """For each position in table order, the number of its example, from 0."""
        index = self.index
        if "owner" not in index.derived:
            first = np.zeros(index.count, "i4")
            first[index.starts[1:]] = 1
            index.derived["owner"] = np.cumsum(first, dtype="i4")
        return index.derived["owner"]

    def means(self, values: Array, chosen: Array) -> Array:
        """Mean of some values over the chosen rollouts of each example; NaN without any. NaN is left out."""
        index = self.index
        held = values[index.order]
        use = chosen[index.order] & ~np.isnan(held)
        count = len(index.starts)
        sums = np.bincount(self.owner[use], held[use], count)
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums / np.bincount(self.owner[use], minlength=count)


def selected(index: RunIndex, choice: Selection) -> Sorted:
    """Evaluate a query, and read the column to sort by.

    Raises:
        QueryError: the query is invalid, or there is no such column.
    """
    progress = Progress()
    matches = matching(index, parsed_query(index, choice.query), progress)
    values = values_of(index, choice.sort, matches, progress) if choice.sort else None
    return Sorted(index, matches, values, progress)


def ordered(found: Sorted, choice: Selection, order: Callable[[Sorted, Selection], Array]) -> Array:
    """The result of `example_order` or `rollout_order`, which is kept for the next pages."""
    known: dict[object, Array] = found.index.derived.setdefault("orders", {})
    key = (order.__name__, choice)
    if found.progress.left:
        return order(found, choice)
    if key not in known:
        known[key] = order(found, choice).astype("i4")
    known[key] = known.pop(key)  # the last one
    while len(known) > 1 and sum(each.nbytes for each in known.values()) > _ORDER_BYTES:
        del known[next(iter(known))]
    return known[key]


def example_order(found: Sorted, choice: Selection) -> Array:
    """Numbers of the examples, in table order from 0, with at least one matching rollout, sorted. By a column of
    numbers, the mean over the matching rollouts counts; by others, the value of the first one that has a value.
    Examples without a value are last."""
    index = found.index
    in_order = found.matches[index.order]
    count = len(index.starts)
    chosen = np.flatnonzero(np.bincount(found.owner[in_order], minlength=count)) if count else np.zeros(0, "i8")
    if found.values is None:
        return chosen[::-1] if choice.descending else chosen
    if found.values.numbers is not None:
        keys = found.means(found.values.numbers, found.matches)
        has = ~np.isnan(keys)
    else:
        ranks, there = found.values.keys()
        keys, has = np.zeros(count), np.zeros(count, bool)
        use = in_order & there[index.order]
        owners, first = np.unique(found.owner[use], return_index=True)
        keys[owners], has[owners] = ranks[index.order][use][first], True
    return chosen[sorted_positions(keys[chosen], has[chosen], descending=choice.descending)]


def rollout_order(found: Sorted, choice: Selection) -> Array:
    """Numbers of the matching rollouts, sorted; those without a value are last."""
    index = found.index
    chosen = index.order[found.matches[index.order]]
    if found.values is None:
        return chosen[::-1] if choice.descending else chosen
    keys, has = found.values.keys()
    return chosen[sorted_positions(keys[chosen], has[chosen], descending=choice.descending)]


def sorted_positions(keys: Array, has: Array, *, descending: bool) -> Array:
    """Positions in sorted order; equal ones keep their order, those without a value are last."""
    with np.errstate(invalid="ignore"):
        ordered = np.where(has, -keys if descending else keys, np.inf)
    return np.argsort(ordered, kind="stable")


def examples_page(index: RunIndex, choice: Selection, offset: int, limit: int) -> JsonDict:
    """A page of examples as JSON; the keys are documented in docs/reference/view.md.

    Args:
        index: The index of the run.
        choice: Query and order.
        offset: Number of examples to skip.
        limit: Maximum number of examples.

    Raises:
        QueryError: the query is invalid, or there is no such column.
    """
    found = selected(index, choice)
    examples = ordered(found, choice, example_order)
    shown = examples[offset : offset + min(limit, MOST_ROWS)].tolist()
    ends = np.append(index.starts[1:], index.count)
    groups = [index.order[index.starts[each] : ends[each]].tolist() for each in shown]
    firsts = [next(number for number in group if found.matches[number]) for group in groups]
    places = index.array("place")
    texts, replies = index.texts([int(places[number]) for number in firsts], firsts)
    row_of = RowWriter(index)
    rewards = index.numbers("reward")
    rows: list[JsonDict] = []
    for group, first in zip(groups, firsts, strict=True):
        place = int(places[first])
        example_id, task, answer, prompt = texts.get(place, (None, "", "", ""))
        scored = [value for value in rewards[group].tolist() if not math.isnan(value)]
        rows.append(
            {
                "example": example_id, "index": place, "mean": math.fsum(scored) / len(scored) if scored else None,
                "prompt": prompt, "answer": answer, "task": task, "reply": replies.get(first, ""),
                "value": _example_value(found, group, first),
                "rollouts": [row_of.strip(number, bool(found.matches[number])) for number in group],
            }
        )  # fmt: skip
    return {
        "index": index.status(), "scan": found.progress.json, "total": len(examples),
        "matched": int(found.matches.sum()), "offset": offset, "rows": rows,
    }  # fmt: skip


def _example_value(found: Sorted, group: list[int], first: int) -> object:
    """Value of the sort column for an example, as it is sorted by."""
    values = found.values
    if values is None:
        return None
    chosen = [number for number in group if found.matches[number]]
    if values.numbers is not None:
        known = [value for value in values.numbers[chosen].tolist() if not math.isnan(value)]
        return math.fsum(known) / len(known) if known else None
    return next((values.shown(number) for number in chosen if values.shown(number) is not None), None)


class RowWriter:
    """Facts about single rollouts, from the index."""

    def __init__(self, index: RunIndex) -> None:
        self._rewards, self._passed, self._r = index.numbers("reward"), index.flag("passed"), index.array("r")
        self._words = {name: (index.codes(name), index.words(name)) for name in (*SHOWN, "note.tag")}
        self._noted = index.flag("noted")

    def word(self, name: str, number: int) -> Any:
        """Return the outcome, reason or stop condition of a rollout; "" if it is missing."""
        codes, words = self._words[name]
        code = int(codes[number])
        return "" if code < 0 else words[code]

    def strip(self, number: int, matches: bool | None = None) -> JsonDict:
        """Return a rollout as JSON, for the row of marks that shows an example's rollouts."""
        found: JsonDict = {
            "r": int(self._r[number]), "reward": plain(self._rewards[number]), "passed": bool(self._passed[number]),
            "outcome": self.word("outcome", number), "reason": self.word("reason", number),
        }  # fmt: skip
        if self._noted[number]:
            found["note"] = list(self.word("note.tag", number))
        return found if matches is None else {**found, "match": matches}


def rollouts_page(index: RunIndex, choice: Selection, offset: int, limit: int) -> JsonDict:
    """A page of rollouts as JSON. Arguments and errors as for `examples_page`."""
    found = selected(index, choice)
    numbers = ordered(found, choice, rollout_order)
    shown = numbers[offset : offset + min(limit, MOST_ROWS)].tolist()
    places = index.array("place")
    texts, replies = index.texts([int(places[number]) for number in shown], shown)
    row_of = RowWriter(index)
    figures = {name: index.numbers(name) for name in ("tokens", "cost", "seconds", "turns")}
    rows: list[JsonDict] = []
    for number in shown:
        place = int(places[number])
        example_id, task, answer, prompt = texts.get(place, (None, "", "", ""))
        rows.append(
            {
                "example": example_id, "index": place, **row_of.strip(number), "stop": row_of.word("stop", number),
                **{name: plain(float(values[number])) for name, values in figures.items()},
                "prompt": prompt, "answer": answer, "task": task, "reply": replies.get(number, ""),
                "value": None if found.values is None else found.values.shown(number),
            }
        )  # fmt: skip
    return {
        "index": index.status(), "scan": found.progress.json, "total": len(numbers), "offset": offset, "rows": rows,
    }  # fmt: skip


def plain(value: float) -> float | None:
    """A number for JSON; None for NaN."""
    return None if math.isnan(value) else float(value)


def estimate(index: RunIndex, numbers: Array, limits: tuple[float, float] | None) -> tuple[Estimate, int]:
    """Mean reward of some rollouts over their examples with its interval, as in `stats.summary.spread`, and the number
    of those with a reward.

    Args:
        index: The index of the run.
        numbers: Numbers of the rollouts.
        limits: Lowest and highest possible reward; None if unknown.
    """
    return measured(index, index.numbers("reward")[numbers], index.array("place")[numbers], limits)


def measured(index: RunIndex, values: Array, places: Array, limits: tuple[float, float] | None) -> tuple[Estimate, int]:
    """Mean of values over examples with its interval, and the number of values. NaN is left out.

    Args:
        index: The index of the run.
        values: The values.
        places: Position of the example of each value.
        limits: Lowest and highest possible value; None if unknown.
    """
    has = ~np.isnan(values)
    values, places = values[has], places[has]
    if not len(values):
        return Estimate(), 0
    if (places[:-1] <= places[1:]).all():  # in table order
        owners = np.cumsum(np.append(False, places[1:] != places[:-1]))
        counts = np.bincount(owners)
    else:
        _, owners, counts = np.unique(places, return_inverse=True, return_counts=True)
    means = np.bincount(owners, values) / counts
    low, high = float(values.min()), float(values.max())
    if limits is not None:
        limits = min(limits[0], low), max(limits[1], high)
    binary = bool(np.isin(values, (0.0, 1.0)).all())
    if clusters := clusters_by_place(index, index.manifest.cluster_key):
        labels = [clusters.get(place, f"\0{place}") for place in np.unique(places).tolist()]
        return clustered_mean(means, labels, limits=limits), len(values)
    found = mean_interval(array("d", means), single_rollout=bool((counts == 1).all()), binary=binary, limits=limits)
    return found, len(values)


def clusters_by_place(index: RunIndex, key: str) -> dict[int, str]:
    """Label of each example's cluster, by its position in tables; empty if there is no key. Reads the journal.

    Args:
        index: The index of the run.
        key: Key of the clusters: `task`, or a key of the examples' `info`.

    Raises:
        StoreError: the journal cannot be read.
    """
    place = ("clusters", key)
    if place not in index.derived:
        found = clusters_of(read_journal(index.entry.run), key) if key else None
        known = {} if found is None else {each: found.labels.get(each, f"\0{each}") for each in index.keys}
        index.derived[place] = known
    return index.derived[place]


def limits_of(index: RunIndex) -> tuple[float, float] | None:
    """Lowest and highest possible reward of a run; None unless both are finite."""
    return finite_limits(index.manifest.reward_range)


def step(index: RunIndex, choice: Selection, place: int, rollout: int, by: str, direction: int) -> JsonDict:
    """The next or previous example, rollout or failed rollout, in the order of the page of examples.

    Args:
        index: The index of the run.
        choice: Query and order.
        place: Position of the current rollout's example in tables.
        rollout: Index of the current rollout.
        by: `example`, `rollout` or `failed`.
        direction: 1 for the next one, -1 for the previous one.

    Raises:
        QueryError: the query is invalid, or there is no such column.
    """
    found = selected(index, choice)
    examples = ordered(found, choice, example_order)
    rank = np.full(len(index.starts), len(examples))
    rank[examples] = np.arange(len(examples))
    wanted = found.matches & index.flag("failed") if by == "failed" else found.matches
    positions = np.flatnonzero(wanted[index.order])
    positions = positions[np.argsort(rank[found.owner[positions]], kind="stable")]
    numbers = index.order[positions]
    ranks = rank[found.owner[positions]]
    if by == "example":
        first = np.ones(len(ranks), bool)
        first[1:] = ranks[1:] != ranks[:-1]
        numbers, ranks = numbers[first], ranks[first]
    here = np.flatnonzero(index.array("place")[index.order] == place)
    own = int(rank[found.owner[here[0]]]) if len(here) else -1
    r = index.array("r")[numbers]
    if by == "example":
        after, before = ranks > own, ranks < own
    else:
        after = (ranks > own) | ((ranks == own) & (r > rollout))
        before = (ranks < own) | ((ranks == own) & (r < rollout))
    left = np.flatnonzero(after if direction > 0 else before)
    if not len(left):
        return {"index": None, "r": None}
    number = numbers[left[0] if direction > 0 else left[-1]]
    return {"index": int(index.array("place")[number]), "r": int(index.array("r")[number])}
