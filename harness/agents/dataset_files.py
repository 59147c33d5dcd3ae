"""Parsers of the four dataset formats, with their error texts; `dataset` validates the rows. Rows are read in two
steps, so that unused rows are never parsed: `raws` splits the file, `read` parses one row."""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

from harness.core.errors import DatasetParseError
from harness.core.size_limits import ROWS, lines_of, parquet_batches, read_whole
from harness.store.arrow import arrow, parquet

_ON_FILE = "cannot be read as the UTF-8 text that it should be"


class RawFile(ABC):
    """A dataset file.

    Args:
        path: An existing file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def raws(self) -> Iterator[object]:
        """Every unparsed row, in file order.

        Raises:
            DatasetParseError: the file as a whole cannot be read.
        """

    @abstractmethod
    def read(self, raw: object, index: int) -> object:
        """Parse one row: a dict of its columns, or any other JSON value that is in its place.

        Args:
            raw: A row from `raws`.
            index: Its number in the file, from 0, for messages.

        Raises:
            DatasetParseError: the row cannot be parsed.
        """

    def count(self) -> int:
        """The number of rows in the file."""
        return sum(1 for _ in self.raws())


class _JsonFile(RawFile):
    def raws(self) -> Iterator[object]:
        try:
            rows: object = json.loads(_bytes_of(self.path))
        except (ValueError, RecursionError) as error:
            raise DatasetParseError(f"Invalid JSON file: {error}") from error
        if not isinstance(rows, list):
            raise DatasetParseError(f"JSON file must contain an array of objects, got {type(rows).__name__}")
        return iter(cast("list[object]", rows))

    def read(self, raw: object, index: int) -> object:
        return raw


class _JsonLines(RawFile):
    """A .jsonl file; a raw row is (line number from 1, line)."""

    def raws(self) -> Iterator[object]:
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(lines_of(file), 1):
                    text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                    if text.strip():
                        yield number, text
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def read(self, raw: object, index: int) -> object:
        number, line = cast("tuple[int, bytes]", raw)
        try:
            return cast(object, json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DatasetParseError(f"Invalid JSON at line {number}: {error}") from error


class _Csv(RawFile):
    """A .csv file; a raw row is (number of its last line, cells)."""

    @cached_property
    def _header(self) -> list[str]:
        with self._opened() as file:
            for _, cells in _rows_of(file):
                return cells
            return []

    def raws(self) -> Iterator[object]:
        if len(self._header) == 1 and (found := next((mark for mark in ";\t|" if mark in self._header[0]), None)):
            mark = "tabs" if found == "\t" else repr(found)
            raise DatasetParseError(f"Invalid CSV file: its columns are separated by {mark}; separate them by commas")
        repeated = next((name for name in self._header if self._header.count(name) > 1), None)
        if repeated is not None:
            raise DatasetParseError(f"Invalid CSV file: its header has two columns {repeated!r}; rename one")
        with self._opened() as file:
            yield from islice(_rows_of(file), 1, None)

    def read(self, raw: object, index: int) -> object:
        line, cells = cast("tuple[int, list[str]]", raw)
        if len(cells) > len(self._header):
            raise DatasetParseError(f"CSV row {index} has more columns than the header (line {line})")
        return dict(zip(self._header, [*cells, *[None] * (len(self._header) - len(cells))], strict=True))

    def _opened(self) -> Any:
        try:
            return self.path.open(newline="", encoding="utf-8-sig")
        except OSError as error:
            raise _unreadable(self.path, error) from error


class _Parquet(RawFile):
    """A .parquet file; a raw row is its number. The whole table is read once."""

    def raws(self) -> Iterator[object]:
        return iter(range(self._table.num_rows))

    def read(self, raw: object, index: int) -> object:
        at = cast(int, raw)
        return {name: _without_nan(column[at].as_py()) for name, column in self._columns.items()}

    def count(self) -> int:
        with self._opened() as file:
            return int(file.metadata.num_rows)

    @cached_property
    def _table(self) -> Any:
        with self._opened() as file:
            try:
                return arrow().Table.from_batches(parquet_batches(file), schema=file.schema_arrow)
            except (OSError, arrow().ArrowException) as error:
                raise DatasetParseError(f"Error reading Parquet file: {error}") from error

    @cached_property
    def _columns(self) -> dict[str, Any]:
        names = cast("list[str]", self._table.column_names)
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise DatasetParseError(f"Error reading Parquet file: it has two columns {repeated!r}; rename one")
        return {name: _in_microseconds(column) for name, column in zip(names, self._table.columns, strict=True)}

    def _opened(self) -> Any:
        try:
            return parquet().ParquetFile(self.path)
        except ImportError as error:
            raise DatasetParseError("Parquet support requires pyarrow. Install with: pip install pyarrow") from error
        except (OSError, arrow().ArrowException) as error:
            raise DatasetParseError(f"Error reading Parquet file: {error}") from error


_FORMATS: dict[str, type[RawFile]] = {".json": _JsonFile, ".jsonl": _JsonLines, ".parquet": _Parquet, ".csv": _Csv}

SUFFIXES: tuple[str, ...] = tuple(_FORMATS)
"""File name endings of the supported formats; case does not matter."""


def open_file(path: Path) -> RawFile:
    """Choose the parser for a file by its name's ending. Reads nothing yet.

    Raises:
        DatasetParseError: the ending is not that of a supported format.
    """
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise DatasetParseError(f"Unsupported file format: {suffix}. Supported formats: {', '.join(SUFFIXES)}")
    return _FORMATS[suffix](path)


class FileRows(Sequence[object]):
    """Rows of a file from an offset on, each parsed on access. The content is read once and kept: a run reads its rows

    twice and must not see changes made to the file in between.

    Args:
        file: The file.
        offset: Rows to skip at its beginning.

    Raises:
        DatasetParseError: the file as a whole cannot be read.
    """

    def __init__(self, file: RawFile, offset: int = 0) -> None:
        self.sha256 = _digest(file.path)
        """SHA-256 of the whole file, in hex."""
        self._file = file
        self._offset = offset
        self._raws = list(islice(file.raws(), offset, None))

    def __len__(self) -> int:
        return len(self._raws)

    def __getitem__(self, index: Any) -> Any:
        """Parse one row; see `RawFile.read`."""
        return self._file.read(self._raws[index], self._offset + index)


_opened: WeakValueDictionary[tuple[object, ...], FileRows] = WeakValueDictionary()
"""Rows in use, by path, offset, time and size of their file: a model and its baseline share one copy."""


def open_rows(path: Path, offset: int = 0) -> FileRows:
    """The rows of a file from `offset` on; an unchanged file that is already open is not read again.

    Raises:
        DatasetParseError: see `open_file` and `FileRows`.
    """
    file = open_file(path)
    try:
        seen = path.resolve().stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    key = (path.resolve(), offset, seen.st_mtime_ns, seen.st_size)
    rows = _opened.get(key)
    if rows is None:
        rows = _opened[key] = FileRows(file, offset)
    return rows


def _rows_of(file: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, including its header, without blank lines."""
    csv.field_size_limit(sys.maxsize)  # the default limit is 128 KiB
    reader = csv.reader(file, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DatasetParseError(f"Invalid CSV file: {error} (line {reader.line_num})") from error
    except UnicodeDecodeError as error:
        raise DatasetParseError(f"Invalid CSV file: it {_ON_FILE}: {error}") from error


def _in_microseconds(column: Any) -> Any:
    """Convert a column of nanosecond times to microseconds, the finest unit in Python; other columns are unchanged."""
    pa = arrow()
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pa.duration("us"), safe=False)
    return column


def _without_nan(value: object) -> object:
    """Replace NaN by None: tables of numbers store missing values as NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def _bytes_of(path: Path) -> bytes:
    try:
        return read_whole(path, ROWS)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DatasetParseError:
    return DatasetParseError(f"Dataset file {path} cannot be read: {error.strerror or error}")
