"""Files with labels of rollouts: CSV, JSON Lines, JSON or Parquet with a row for each label."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from harness.agents.dataset_files import open_file
from harness.core.errors import DatasetParseError, UsageError
from harness.core.types import JsonDict
from harness.report.labels import RIGHT, WRONG
from harness.report.text import clean
from harness.stats.scores import LARGEST_SCORE
from harness.store.export_plain import restored
from harness.store.journal_index import Recorded
from harness.store.notes import LONGEST_NAME
from harness.store.outcomes import outcomes

PASSING = {*RIGHT, "true", "pass", "passed", "yes"}
FAILING = {*WRONG, "false", "fail", "failed", "no"}
"""Words that are labels, besides numbers."""


@dataclass(slots=True)
class LabelFile:
    """The labels in a file about one run."""

    labels: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """Labels by the key of the rollout and by author."""
    probabilities: dict[str, float] = field(default_factory=dict[str, float])
    """Probability with which a rollout was drawn, by key."""
    empty: int = 0
    """Number of rows without a label."""
    others: int = 0
    """Number of rows about other runs."""


def read_label_file(path: Path, run_id: str, recorded: Recorded, ends: tuple[float, float]) -> LabelFile:
    """Read the labels of a file.

    A row names its rollout by `key`, or by `example_id` and `rollout_index` (0 if there is no such column). Rows with
    the `run_id` of another run are passed over, unless none is about this run.

    Args:
        path: The file; its ending names the format.
        run_id: Id of the run.
        recorded: Content of the run's journal.
        ends: Value of a label that says wrong, and of one that says right.

    Raises:
        UsageError: the file cannot be read, a row is wrong, or one author labels a rollout twice, differently.
    """
    found = LabelFile()
    known = _Rollouts(recorded)
    rows = [*_rows(path)]
    is_own = any(str(row.get("run_id")) == run_id for _, row in rows)
    places: dict[tuple[str, str], str] = {}
    for place, row in rows:
        if is_own and row.get("run_id") not in (None, "", run_id):
            found.others += 1
            continue
        value = _label(row.get("label"), place, ends)
        if value is None:
            found.empty += 1
            continue
        key = known.find(row, place, run_id)
        author = " ".join(str(row.get("author") or path.stem).split())
        if len(author) > LONGEST_NAME:
            raise UsageError(f"{place}: author: at most {LONGEST_NAME} characters")
        earlier = found.labels.setdefault(key, {}).setdefault(author, value)
        if earlier != value:
            raise UsageError(
                f"{place}: {clean(author, 80)} labels the rollout {value:g} here and {earlier:g} in "
                f"{places[key, author].rpartition(', ')[2]}; remove one, or name two people in a column author"
            )
        places.setdefault((key, author), place)
        probability = _number(row.get("probability"), f"{place}: probability")
        if probability is not None and not 0 < probability <= 1:
            raise UsageError(f"{place}: probability: must be above 0 and at most 1, not {probability:g}")
        if probability is not None and found.probabilities.setdefault(key, probability) != probability:
            raise UsageError(f"{place}: probability: another row gives this rollout another one")
    return found


class _Rollouts:
    """The rollouts of a run by the names that a file may use.

    Args:
        recorded: Content of the run's journal.
    """

    def __init__(self, recorded: Recorded) -> None:
        self._keys: set[str] = set()
        self._by_place: dict[tuple[str, int], str] = {}
        self._counts: Counter[tuple[str, int]] = Counter()
        for outcome in outcomes(recorded):
            place = str(outcome.example.example_id), outcome.base.rollout_index
            self._keys.add(outcome.base.key)
            self._by_place[place] = outcome.base.key
            self._counts[place] += 1

    def find(self, row: Mapping[str, object], place: str, run_id: str) -> str:
        """The key of the rollout that a row names.

        Raises:
            UsageError: the run has no such rollout, or several.
        """
        key = row.get("key")
        if key not in (None, ""):
            if key not in self._keys:
                raise UsageError(f"{place}: the run {run_id} has no rollout with the key {clean(key, 80)}")
            return str(key)
        example, given = row.get("example_id"), row.get("rollout_index")
        if example in (None, ""):
            raise UsageError(f"{place}: names no rollout; give its key, or example_id and rollout_index")
        index = _number(given, f"{place}: rollout_index") or 0.0
        name = restored(example) if isinstance(example, str) else str(example)
        found = self._by_place.get((name, int(index))) if index == int(index) else None
        words = f"example {clean(name, 80)}, rollout {index:g}"
        if found is None:
            raise UsageError(f"{place}: the run {run_id} has no {words}")
        if self._counts[name, int(index)] > 1:
            raise UsageError(f"{place}: the run {run_id} has several of {words}; name the rollout by its key")
        return found


def _rows(path: Path) -> Iterator[tuple[str, JsonDict]]:
    """The rows of a file, each with its place for messages.

    Raises:
        UsageError: the file cannot be read, or its rows lack a column.
    """
    place, is_first = str(path), True
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no regular file; labels are in a CSV, JSON Lines, JSON or Parquet file")
    try:
        file = open_file(path)
        for number, raw in enumerate(file.raws()):
            place = f"{path}, row {number + 1}"
            row = file.read(raw, number)
            if not isinstance(row, dict):
                raise UsageError(f"{place}: a row must be an object")
            known = cast(JsonDict, row)
            if is_first and "label" not in known:
                names = ", ".join(clean(name, 40) for name in [*known][:20])
                raise UsageError(f"{place}: there is no column label; {path.name} has {names}")
            is_first = False
            yield place, known
    except (DatasetParseError, RecursionError, OSError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{place}: {reason}") from error
    if is_first:
        raise UsageError(f"{path} has no rows; a row has a label, and the key or example_id of its rollout")


def _label(value: object, place: str, ends: tuple[float, float]) -> float | None:
    """The value of a label; None if it is empty.

    Raises:
        UsageError: it is neither a number nor a known word.
    """
    if isinstance(value, bool):
        return ends[value]
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in PASSING or word in FAILING:
            return ends[word in PASSING]
    return _number(value, f"{place}: label", "; use a number, right or wrong")


def _number(value: object, what: str, more: str = "") -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not abs(found) <= LARGEST_SCORE:
        raise UsageError(f"{what}: {clean(value, 40)!r} is not a finite number{more}")
    return found
