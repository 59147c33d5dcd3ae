"""Import of a table with a row for each rollout: JSON Lines, Parquet, CSV or a JSON array, with a mapping of columns.
The JSON Lines and Parquet files of `bench export` need no mapping: `own_rows` reads their columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.agents.dataset_files import open_file
from harness.agents.json_values import json_value
from harness.core.errors import DatasetParseError, UsageError
from harness.core.records import Row, Timing
from harness.core.types import JsonDict, Prompt, Usage
from harness.plugins.imports.own_rows import is_own, own_columns, own_rollout
from harness.plugins.imports.reading import column_names, score
from harness.settings.wording import nearest, shown, suggestion
from harness.store.codec import to_text
from harness.store.import_runs import ImportedRollout, ImportedRun, Importer, ImportOptions

_FIELDS = (
    "reward", "example", "rollout", "prompt", "completion", "answer", "task", "model", "env", "error", "stop",
    "truncated", "input_tokens", "output_tokens", "cost", "seconds",
)  # fmt: skip
"""Fields that a column can be mapped to; further ones are `metric.NAME` and `info.NAME`."""

_METRIC, _INFO = "metric.", "info."

_RUNS = 100
"""Maximum number of pairs of environment and model in one table. More of them mean that a wrong column was mapped."""

_NAMES = 100_000
"""Maximum number of column names that are remembered."""

Columns = Mapping[str, str]


class TableImporter(Importer):
    """Importer of tables by a mapping of columns."""

    takes = ("columns",)

    def accepts(self, path: Path) -> bool:
        """Return whether the path is a JSON Lines or Parquet file with the columns of `bench export`."""
        return is_own(path)

    def read(self, path: Path, options: ImportOptions) -> Iterable[ImportedRun]:
        """Read a table as one run for each environment and model."""
        columns = options.columns
        if columns is None:
            if not is_own(path):
                raise UsageError(
                    f"{path}: a table needs a mapping of its columns, such as reward=score,example=id", setting="map"
                )
            columns = {"model": "model", "env": "env_id"}
        else:
            _check_fields(columns)
        found = _scanned(path, columns)
        convert: _Convert = own_rollout if options.columns is None else _Mapping(columns, found.first_rollout).rollout
        metrics, state = ((), ()) if options.columns is not None else own_columns(found.top)
        for env_id, model in found.runs:

            def rollouts(env_id: str = env_id, model: str = model) -> Iterator[ImportedRollout]:
                for place, row in _rows(path):
                    if _run_of(row, columns, path) == (env_id, model):
                        yield convert(row, place, metrics, state)

            yield ImportedRun(env_id, model, rollouts(), state_columns=state, reward=columns.get("reward", ""))


IMPORTER = TableImporter()

_Convert = Callable[[JsonDict, str, tuple[str, ...], tuple[str, ...]], ImportedRollout]


def _check_fields(columns: Columns) -> None:
    for name in columns:
        if name not in _FIELDS and not (name.startswith((_METRIC, _INFO)) and not name.endswith(".")):
            known = (*_FIELDS, f"{_METRIC}NAME", f"{_INFO}NAME")
            raise UsageError(f"there is no field {name!r}; {suggestion(name, known)}", setting="map")
    if "reward" not in columns:
        raise UsageError("name the column of the reward: reward=COLUMN", setting="map")
    if ("input_tokens" in columns) != ("output_tokens" in columns):
        raise UsageError("give both input_tokens and output_tokens, since a total needs both", setting="map")


def _rows(path: Path) -> Iterator[tuple[str, JsonDict]]:
    """Iterate over the rows of a table, each with its place for error messages.

    Raises:
        UsageError: the file cannot be read, or a row is no object.
    """
    place = str(path)
    try:
        file = open_file(path)
        for number, raw in enumerate(file.raws()):
            place = f"{path}, row {number + 1}"
            value = json_value(file.read(raw, number))
            if not isinstance(value, dict):
                raise UsageError(f"{place}: a row must be an object, not {shown(value)}")
            yield place, cast(JsonDict, value)
    except (DatasetParseError, TypeError, RecursionError, OSError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{place}: {reason}") from error


@dataclass(slots=True)
class _Scan:
    """Result of a first reading of a table."""

    names: dict[str, None] = field(default_factory=dict[str, None])
    """Names of all columns; of nested ones with dots."""
    top: dict[str, None] = field(default_factory=dict[str, None])
    """Names of the columns themselves."""
    runs: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])
    """Pairs of environment and model, in order."""
    first_rollout: int = 0
    """Number of the first rollout of an example: 0 or 1."""


def _scanned(path: Path, columns: Columns) -> _Scan:
    """Read a table once, to check the mapping.

    Raises:
        UsageError: a mapped column does not exist, or there are too many environments and models.
    """
    found, smallest = _Scan(), math.inf
    for _, row in _rows(path):
        if len(found.names) < _NAMES:
            found.names |= dict.fromkeys(_names_of(row))
            found.top |= dict.fromkeys(row)
        found.runs[_run_of(row, columns, path)] = None
        if len(found.runs) > _RUNS:
            raise UsageError(f"{path} has more than {_RUNS} environments and models; check the mapped columns")
        number = _value(row, columns["rollout"]) if "rollout" in columns else None
        smallest = min(smallest, number) if isinstance(number, int) else smallest
    for name, column in columns.items() if found.runs else ():
        if column not in found.names:
            near = nearest(column, found.names)
            hint = f'did you mean "{near}"?' if near else f"it has {', '.join([*found.names][:30])}"
            raise UsageError(f"{path} has no column {column!r} for {name}; {hint}", setting="map")
    found.first_rollout = 1 if smallest == 1 else 0
    return found


def _names_of(row: JsonDict) -> Iterator[str]:
    for name, value in row.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{part}" for part in _names_of(cast(JsonDict, value)))


def _run_of(row: JsonDict, columns: Columns, path: Path) -> tuple[str, str]:
    """Return the environment and the model of a row."""
    named = {"env": path.stem, "model": "unknown"}
    for name in named:
        value = _value(row, columns[name]) if name in columns else None
        named[name] = named[name] if value in (None, "") else _text(value)
    return named["env"], named["model"]


def _value(row: JsonDict, column: str) -> Any:
    """Return a value of a row; dots lead into nested objects. None if there is no such column."""
    if column in row:
        return row[column]
    first, dot, rest = column.partition(".")
    inner: object = row.get(first)
    while dot and not isinstance(inner, dict):  # the name of the outer column may have dots, too
        more, dot, rest = rest.partition(".")
        first = f"{first}.{more}"
        inner = row.get(first)
    return _value(cast(JsonDict, inner), rest) if isinstance(inner, dict) and dot else None


@dataclass(frozen=True, slots=True)
class _Mapping:
    """Converts the rows of a table to rollouts."""

    columns: Columns
    first_rollout: int

    def rollout(self, row: JsonDict, place: str, *_: object) -> ImportedRollout:
        """Convert one row.

        Raises:
            UsageError: a value has a wrong type; the message names row and column.
        """
        example_id = self._get(row, "example")
        prompt, answer = _messages(self._get(row, "prompt"), "user"), self._get(row, "answer")
        info = {
            name.removeprefix(_INFO): _value(row, self.columns[name]) for name in self.columns if name.startswith(_INFO)
        }
        if prompt is None:
            # Without a prompt, the id is all that tells examples apart.
            info["example"] = example_id
        metrics = {
            name.removeprefix(_METRIC): self._number(row, name, place)
            for name in self.columns
            if name.startswith(_METRIC)
        }
        reward, error = self._number(row, "reward", place), self._get(row, "error")
        index = self._get(row, "rollout")
        if index is not None and (not isinstance(index, int | str) or not str(index).isdecimal()):
            raise UsageError(f"{place}: {self.columns['rollout']} is {shown(index)}, not a number of a rollout")
        words = "" if error in (None, "", False) else _text(error)
        return ImportedRollout(
            Row(
                example_id if isinstance(example_id, int | str) else to_text(example_id),
                [] if prompt is None else prompt,
                "" if answer is None else _text(answer),
                _text(self._get(row, "task") or ""),
                info,
            ),
            _messages(self._get(row, "completion"), "assistant"),
            None if words else reward,
            column_names(metrics),
            words or f"{self.columns['reward']} has no number",
            "error" if words else "",
            None if index is None else int(index) - self.first_rollout,
            _optional_text(self._get(row, "stop")),
            self._get(row, "truncated") in (True, 1, "true", "True"),
            self._usage(row, place),
            Timing(generation=max(0.0, self._number(row, "seconds", place) or 0.0)),
            place=place,
        )

    def _get(self, row: JsonDict, name: str) -> Any:
        return _value(row, self.columns[name]) if name in self.columns else None

    def _number(self, row: JsonDict, name: str, place: str) -> float | None:
        """Return a number; None if it is missing, NaN or infinite."""
        value = self._get(row, name)
        if value is None or value == "":
            return None
        try:
            return score(float(value) if isinstance(value, str) else value + 0)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{place}: {self.columns[name]} is {shown(value)}, not a number") from error

    def _usage(self, row: JsonDict, place: str) -> Usage | None:
        tokens = [self._number(row, name, place) for name in ("input_tokens", "output_tokens")]
        cost = self._number(row, "cost", place)
        if any(number is None or number < 0 for number in tokens):
            return None if cost is None else Usage(requests=1, unreported=1, cost=cost)
        return Usage(*(int(number or 0) for number in tokens), requests=1, cost=cost)


def _messages(value: Any, role: str) -> Prompt | None:
    """Convert a value to messages: a list of messages is kept, everything else becomes the text of one message."""
    if value is None:
        return None
    text = _text(value)
    items = cast("list[object]", value if isinstance(value, list) else [value])
    if items and all(isinstance(item, dict) and "role" in item for item in items):
        return [{name: part for name, part in cast(JsonDict, item).items() if part is not None} for item in items]
    return [{"role": role, "content": text}]


def _text(value: object) -> str:
    return value if isinstance(value, str) else to_text(value)


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)
