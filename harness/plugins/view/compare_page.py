"""The pages that compare runs, as JSON: comparisons with the first run, examples, and one example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.types import JsonDict
from harness.plugins.view.compare_board import Board, board_of
from harness.plugins.view.query_arrays import Progress, matching, parsed_query
from harness.plugins.view.run_index import Array, RunIndex
from harness.plugins.view.run_info import live_counts
from harness.plugins.view.run_list import run_json
from harness.plugins.view.tables import MOST_ROWS, RowWriter, Selection, plain, sorted_positions
from harness.report.compare.sides import REWARD
from harness.store.query import QueryError

SORTS = ("", "difference", "example", "mean")
"""Orders of the examples: the largest difference first; by difference; in the order of the first run; by its mean."""

SHOWN = ("", "flips", "better", "worse")
"""Which examples to show: all; those that differ; those on which the run that differs most is better, or worse."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Which examples of a comparison to show, and in which order."""

    choice: Selection
    """Query and order. An example matches if a rollout of any run matches."""
    show: str = ""
    """A name in `SHOWN`."""

    def order(self, board: Board) -> Array:
        """Numbers of all examples, sorted; those without a value are last."""
        positions = np.arange(len(board.keys))
        sort, is_down = self.choice.sort, self.choice.descending
        if sort in ("", "example"):
            ordered = np.argsort(board.ranks) if sort == "" else positions
            return ordered[::-1] if is_down else ordered
        means = board.sides[0].means
        keys = np.array([means.get(key, math.nan) for key in board.keys]) if sort == "mean" else board.differences
        return sorted_positions(keys, ~np.isnan(keys), descending=is_down)

    def chosen(self, board: Board, indexes: Sequence[RunIndex], progress: Progress) -> Array:
        """Return for each example whether it is shown.

        Raises:
            QueryError: the query is invalid in all runs.
        """
        differences = np.nan_to_num(board.differences)
        tests = {"flips": differences != 0, "better": differences > 0, "worse": differences < 0}
        shown = tests.get(self.show, np.ones(len(differences), bool))
        if not self.choice.query.strip():
            return shown
        matched, errors = np.zeros(len(shown), bool), list[QueryError]()
        for index, places in zip(indexes, board.places, strict=True):
            try:
                with index.reading():
                    matches = matching(index, parsed_query(index, self.choice.query), progress)
                    matched |= np.isin(places, index.array("place")[matches])
            except QueryError as error:  # a run may lack a column that others have
                errors.append(error)
        if len(errors) == len(indexes):
            raise errors[0]
        return shown & matched


def compare_page(indexes: Sequence[RunIndex], asked: str, examples: Examples, offset: int, limit: int) -> JsonDict:
    """The comparisons and a page of examples as JSON; the keys are documented in docs/reference/view.md.

    Args:
        indexes: The indexes of the runs, the baseline first.
        asked: As in `board_of`.
        examples: Which examples to show.
        offset: Number of examples to skip.
        limit: Maximum number of examples.

    Raises:
        QueryError: the query is invalid in all runs.
        StoreError: a run cannot be read.
    """
    board, progress = board_of(indexes, asked), Progress()
    order, chosen = examples.order(board), examples.chosen(board, indexes, progress)
    numbers = order[chosen[order]]
    differences = np.nan_to_num(board.differences)
    return {
        **_heading(board, indexes), "scan": progress.json, "total": len(numbers), "of": len(order), "offset": offset,
        "flips": int((differences != 0).sum()), "better": int((differences > 0).sum()),
        "worse": int((differences < 0).sum()),
        "rows": _rows(board, indexes, numbers[offset : offset + min(limit, MOST_ROWS)].tolist()),
    }  # fmt: skip


def pair_page(indexes: Sequence[RunIndex], asked: str, place: int) -> JsonDict | None:
    """One example of a comparison as JSON; None if the first run does not share it with another one.

    Args:
        indexes: The indexes of the runs, the baseline first.
        asked: As in `board_of`.
        place: Position of the example in tables of the first run.
    """
    board = board_of(indexes, asked)
    found = np.flatnonzero(board.places[0] == place).tolist()
    return {**_heading(board, indexes), "row": _rows(board, indexes, found)[0]} if found else None


def pair_step(
    indexes: Sequence[RunIndex], asked: str, examples: Examples, place: int, by: str, direction: int
) -> JsonDict:
    """The next or previous example in the order of the page.

    Args:
        indexes: The indexes of the runs, the baseline first.
        asked: As in `board_of`.
        examples: Which examples are shown.
        place: Position of the current example in tables of the first run.
        by: `example`, or `flip` for examples that differ.
        direction: 1 for the next one, -1 for the previous one.

    Raises:
        QueryError: the query is invalid in all runs.
    """
    board = board_of(indexes, asked)
    order, chosen = examples.order(board)[::direction], examples.chosen(board, indexes, Progress())
    if by == "flip":
        chosen = chosen & (np.nan_to_num(board.differences) != 0)
    here = np.flatnonzero(board.places[0][order] == place)
    left = order[int(here[0]) + 1 :] if len(here) else order
    left = left[chosen[left]]
    return {"index": int(board.places[0][left[0]]) if len(left) else None}


def _heading(board: Board, indexes: Sequence[RunIndex]) -> JsonDict:
    """Facts about the runs and their comparisons."""
    runs: list[JsonDict] = []
    for index, side, label in zip(indexes, board.sides, board.labels, strict=True):
        with index.reading():
            known = run_json(index.entry) | (live_counts(index) if index.entry.final is None else {})
            if board.measure != REWARD:
                estimate = side.spread.estimate
                known |= {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "scored": side.scored}
            runs.append({**known, "label": label, "index": index.status()})
    names = [name for index in indexes for name in index.manifest.metric_names]
    return {
        "runs": runs, "comparisons": list(board.comparisons), "notes": list(board.notes), "measure": board.measure,
        "measures": list(dict.fromkeys([REWARD, *names])),
    }  # fmt: skip


def _rows(board: Board, indexes: Sequence[RunIndex], shown: list[int]) -> list[JsonDict]:
    """Some examples as JSON: their texts from the first run, and for each run its mean, rollouts and a reply."""
    rows: list[JsonDict] = []
    for run, (index, side) in enumerate(zip(indexes, board.sides, strict=True)):
        with index.reading():
            groups = _groups(index, board.places[run][shown])
            firsts = [group[0] for group in groups if group]
            places: list[int] = board.places[run][shown].tolist() if run == 0 else []
            texts, replies = index.texts(places, firsts)
            row = RowWriter(index)
        for at, (number_, group) in enumerate(zip(shown, groups, strict=True)):
            if run == 0:
                example_id, task, answer, prompt = texts.get(places[at], (None, "", "", ""))
                rows.append({
                    "example": example_id, "index": places[at], "task": task, "answer": answer, "prompt": prompt,
                    "difference": plain(board.differences[number_]), "widest": int(board.widest[number_]), "runs": [],
                })  # fmt: skip
            cell = side.cells.get(board.keys[number_])
            rows[at]["runs"].append(
                {
                    "index": int(board.places[run][number_]), "mean": cell.mean if cell else None,
                    "reply": replies.get(group[0], ""), "rollouts": [row.strip(each) for each in group],
                } if group else None
            )  # fmt: skip
    return rows


def _groups(index: RunIndex, places: Array) -> list[list[int]]:
    """Numbers of the rollouts of some examples, by rollout index; none for an example that the run does not have."""
    held = index.array("place")[index.order]
    first, last = np.searchsorted(held, places, "left"), np.searchsorted(held, places, "right")
    return [index.order[start:end].tolist() for start, end in zip(first.tolist(), last.tolist(), strict=True)]
