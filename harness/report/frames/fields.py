"""Columns of a data frame, and their conversion to an Arrow table and then to pandas or polars. The type of a column
does not depend on its values."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast

from harness.core.errors import UsageError
from harness.settings.wording import suggestion
from harness.store.arrow import arrow, json_line, table_from
from harness.store.codec import to_text

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    Frame: TypeAlias = pandas.DataFrame | polars.DataFrame

T = TypeVar("T")

Backend: TypeAlias = Literal["pandas", "polars"]

BACKENDS: dict[str, str] = {"pandas": "pandas", "polars": "bench-harness[polars]"}
"""Package to install for each backend."""

Kind: TypeAlias = Literal["text", "number", "integer", "flag", "time"]

BATCH_ROWS = 1000
BATCH_CHARACTERS = 16 << 20
"""Maximum number of rows, and of characters, buffered before they are converted to Arrow."""

_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One column of a data frame."""

    name: str
    kind: Kind
    value: Callable[[T], object]
    """Function that returns the value for a row, or None if it is missing. Times are in seconds since 1970."""


def table_of(fields: Sequence[Field[T]], rows: Iterable[T]) -> Any:
    """Build an Arrow table (a `pyarrow.Table`) with one column per field.

    Args:
        fields: Columns in order.
        rows: Object from which each row is built; iterated once.
    """
    pa = arrow()
    types = {
        "text": pa.string(), "number": pa.float64(), "integer": pa.int64(), "flag": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    schema = pa.schema([pa.field(field.name, types[field.kind]) for field in fields])
    # JSON has neither infinity nor times: numbers are read as text, and times as integers.
    raw = {"number": pa.string(), "time": pa.int64()}
    raw_schema = pa.schema([pa.field(field.name, raw.get(field.kind, types[field.kind])) for field in fields])
    tables: list[Any] = []
    batch, count = bytearray(), 0
    for row in rows:
        batch += json_line({field.name: _CLEAN[field.kind](field.value(row)) for field in fields})
        count += 1
        if count >= BATCH_ROWS or len(batch) >= BATCH_CHARACTERS:
            tables.append(table_from(batch, raw_schema).cast(schema))
            batch, count = bytearray(), 0
    return pa.concat_tables([*tables, table_from(batch, raw_schema).cast(schema)])


def selected(fields: Sequence[Field[T]], columns: Sequence[str] | None) -> list[Field[T]]:
    """Select columns by name, in the given order; None selects all.

    Raises:
        UsageError: there is no column of that name.
    """
    if columns is None:
        return list(fields)
    if isinstance(columns, str):
        raise UsageError(f'columns: give a list of names, such as ["{columns}"]')
    by_name = {field.name: field for field in fields}
    for name in columns:
        if name not in by_name:
            raise UsageError(f"columns: there is no column {name!r}; {suggestion(str(name), by_name)}")
    return [by_name[name] for name in dict.fromkeys(columns)]


def free_name(name: str, prefix: str, taken: Container[str]) -> str:
    """Return a unique column name: `name`, or `prefix.name` if that name is taken."""
    while name in taken:
        name = f"{prefix}.{name}"
    return name


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else to_text(value)


def _number(value: object) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isnan(number) else number


def _number_text(value: object) -> str | None:
    number = _number(value)
    return None if number is None else repr(number)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and -_LIMIT <= value < _LIMIT else None


def _flag(value: object) -> bool | None:
    return None if value is None else bool(value)


def _microseconds(value: object) -> int | None:
    seconds = _number(value)
    return None if seconds is None or not math.isfinite(seconds * 1e6) else _integer(round(seconds * 1e6))


_CLEAN: dict[Kind, Callable[[object], object]] = {
    "text": _text, "number": _number_text, "integer": _integer, "flag": _flag, "time": _microseconds,
}  # fmt: skip


def library(backend: str) -> ModuleType:
    """Import pandas or polars. Call it before reading any run, so that a missing package is reported at once.

    Args:
        backend: `pandas` or `polars`.

    Raises:
        UsageError: there is no such backend, or it is not installed.
    """
    if backend not in BACKENDS:
        raise UsageError(f"backend: {backend!r} is not known; {suggestion(str(backend), BACKENDS)}")
    try:
        return importlib.import_module(backend)
    except ImportError as error:
        install = f"pip install '{BACKENDS[backend]}'"
        raise UsageError(f"backend: {backend} cannot be imported ({error}); {install}") from error


def framed(table: Any, made_by: ModuleType) -> Frame:
    """Convert an Arrow table to a data frame of pandas or polars.

    Args:
        table: A `pyarrow.Table`.
        made_by: Module of the backend, as `library` returns it.
    """
    if made_by.__name__ == "polars":
        return cast("polars.DataFrame", made_by.from_arrow(table))
    pa = arrow()
    # Nullable types: otherwise a missing value would turn integers into floats and booleans into objects.
    types = {pa.int64(): made_by.Int64Dtype(), pa.bool_(): made_by.BooleanDtype()}
    return cast("pandas.DataFrame", table.to_pandas(types_mapper=types.get))
