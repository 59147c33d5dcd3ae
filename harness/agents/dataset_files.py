"""Parsers of the four dataset formats: .json, .jsonl, .csv and .parquet. `RawFile.raws` splits a file into rows, and
`RawFile.read` parses one row, so that unused rows are not parsed. `harness.agents.dataset` validates the rows."""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

from harness.core.errors import DatasetParseError
from harness.core.size_limits import ROWS, lines_of, parquet_batches, read_whole
from harness.store.arrow import arrow, parquet


class RawFile(ABC):
    """Base class for parsers of dataset files.

    Args:
        path: An existing file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def raws(self) -> Iterator[object]:
        """Iterate over the unparsed rows of a dataset file, in file order.

        Raises:
            DatasetParseError: the file as a whole cannot be read.
        """

    def read(self, raw: object, index: int) -> object:
        """Parse one row of a dataset file to a dict of its columns, or to another JSON value if the row is invalid.

        Args:
            raw: An unparsed row from `raws`.
            index: The row's number in the file, from 0, for messages.

        Raises:
            DatasetParseError: the row cannot be parsed.
        """
        return raw

    def count(self) -> int:
        """Return the number of rows in the dataset file."""
        return sum(1 for _ in self.raws())


class _JsonFile(RawFile):
    def raws(self) -> Iterator[object]:
        try:
            with _reading(self.path):
                rows: object = json.loads(read_whole(self.path, ROWS))
        except (ValueError, RecursionError) as error:
            raise DatasetParseError(f"Invalid JSON file: {error}") from error
        if not isinstance(rows, list):
            raise DatasetParseError(f"JSON file must contain an array of objects, got {type(rows).__name__}")
        return iter(cast("list[object]", rows))


class _JsonLines(RawFile):
    """Parser for .jsonl files. An unparsed row is a pair (line number from 1, line)."""

    def raws(self) -> Iterator[object]:
        with _reading(self.path), self.path.open("rb") as file:
            for number, line in enumerate(lines_of(file), 1):
                text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if text.strip():
                    yield number, text

    def read(self, raw: object, index: int) -> object:
        number, line = cast("tuple[int, bytes]", raw)
        try:
            return cast(object, json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DatasetParseError(f"Invalid JSON at line {number}: {error}") from error


class _Csv(RawFile):
    """Parser for .csv files. An unparsed row is a pair (number of the row's last line, cells)."""

    @cached_property
    def _header(self) -> list[str]:
        with self._opened() as file:
            for _, cells in _rows_of(file):
                return cells
            return []

    def raws(self) -> Iterator[object]:
        if len(self._header) == 1 and (found := next((mark for mark in ";\t|" if mark in self._header[0]), None)):
            separator = "tabs" if found == "\t" else repr(found)
            raise DatasetParseError(f"Invalid CSV file: its columns are separated by {separator}; use commas")
        repeated = next((name for name in self._header if self._header.count(name) > 1), None)
        if repeated is not None:
            raise DatasetParseError(f"Invalid CSV file: two columns are named {repeated!r} in the header; rename one")
        with self._opened() as file:
            yield from islice(_rows_of(file), 1, None)

    def read(self, raw: object, index: int) -> object:
        line, cells = cast("tuple[int, list[str]]", raw)
        if len(cells) > len(self._header):
            raise DatasetParseError(f"CSV row {index} has more columns than the header (line {line})")
        return dict(zip(self._header, [*cells, *[None] * (len(self._header) - len(cells))], strict=True))

    def _opened(self) -> Any:
        with _reading(self.path):
            return self.path.open(newline="", encoding="utf-8-sig")


class _Parquet(RawFile):
    """Parser for .parquet files. The whole table is read once, and an unparsed row is just the row's number."""

    def raws(self) -> Iterator[object]:
        return iter(range(self._table.num_rows))

    def read(self, raw: object, index: int) -> object:
        values = {name: column[cast(int, raw)].as_py() for name, column in self._columns.items()}
        # Tables of numbers store missing values as NaN.
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()
        }

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
            raise DatasetParseError(f"Error reading Parquet file: two columns are named {repeated!r}; rename one")
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
"""File name endings of the supported formats. Case does not matter."""


def open_file(path: Path) -> RawFile:
    """Return the parser for a dataset file, chosen by the file's extension. The file is not read yet.

    Raises:
        DatasetParseError: the extension is not one of `SUFFIXES`.
    """
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise DatasetParseError(f"Unsupported file format: {suffix}. Supported formats: {', '.join(SUFFIXES)}")
    return _FORMATS[suffix](path)


class FileRows(Sequence[object]):
    """Sequence of a dataset file's rows, each parsed on access.

    The content is read once and kept in memory, because a run reads its rows twice and must not see changes that are
    made to the file in between.

    Args:
        file: The file.
        offset: Number of rows to skip at the beginning.

    Raises:
        DatasetParseError: the file as a whole cannot be read.
    """

    def __init__(self, file: RawFile, offset: int = 0) -> None:
        with _reading(file.path), file.path.open("rb") as opened:
            self.sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        """SHA-256 of the whole file, in hexadecimal digits."""
        self._file = file
        self._offset = offset
        self._raws = list(islice(file.raws(), offset, None))

    def __len__(self) -> int:
        return len(self._raws)

    def __getitem__(self, index: Any) -> Any:
        """Parse and return one row of the dataset; see `RawFile.read`."""
        return self._file.read(self._raws[index], self._offset + index)


_opened: WeakValueDictionary[tuple[object, ...], FileRows] = WeakValueDictionary()
"""Dataset rows in use, by path, offset, modification time and size of their file. A model and its baseline share one
copy."""


def open_rows(path: Path, offset: int = 0) -> FileRows:
    """Return the rows of a dataset file, starting at `offset`. If they are in use already, the file is not read again.

    Raises:
        DatasetParseError: see `open_file` and `FileRows`.
    """
    file = open_file(path)
    with _reading(path):
        found = path.resolve().stat()
    key = (path.resolve(), offset, found.st_mtime_ns, found.st_size)
    rows = _opened.get(key)
    if rows is None:
        rows = _opened[key] = FileRows(file, offset)
    return rows


def _rows_of(file: Any) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the lines of a CSV file as (line number, cells), including the header but no blank lines."""
    csv.field_size_limit(sys.maxsize)  # the default limit is 128 KiB
    reader = csv.reader(file, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DatasetParseError(f"Invalid CSV file: {error} (line {reader.line_num})") from error
    except UnicodeDecodeError as error:
        raise DatasetParseError(f"Invalid CSV file: it is not UTF-8 text: {error}") from error


def _in_microseconds(column: Any) -> Any:
    """Convert a Parquet column of times in nanoseconds to microseconds, the finest unit of Python's `datetime`. Other
    columns are unchanged."""
    pa = arrow()
    kind = column.type
    if getattr(kind, "unit", "") != "ns":
        return column
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column.cast(pa.time64("us") if pa.types.is_time64(kind) else pa.duration("us"), safe=False)


@contextmanager
def _reading(path: Path) -> Generator[None]:
    """Convert an `OSError` within the `with` block to an error that names the dataset file."""
    try:
        yield
    except OSError as error:
        raise DatasetParseError(f"Dataset file {path} cannot be read: {error.strerror or error}") from error
