"""Dataset rows of an agent evaluation: three required columns and any number of others. Validates rows and words the
errors; the file formats are in `dataset_files`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict, cast

from harness.agents.dataset_files import open_file
from harness.agents.json_values import json_value
from harness.core.errors import DatasetValidationError

REQUIRED: tuple[str, ...] = ("ground_truth", "user_prompt", "system_prompt")
"""The required columns, in the order in which messages list missing ones."""

_SIMPLE = (str, int, float, bool, type(None))


class DatasetRow(TypedDict):
    """One row: the required columns in lower case, and every other column under its own name."""

    ground_truth: str
    """The expected answer, for eval functions; an agent sees it only in `request.metadata`."""
    user_prompt: str
    """The user message that begins the conversation."""
    system_prompt: str
    """The system message that precedes it."""


class DatasetReader:
    """Read rows from a .json (one array), .jsonl, .parquet or .csv file.

    Args:
        file_path: The file.

    Raises:
        FileNotFoundError: there is no such file.
        DatasetParseError: the file name has none of these four endings.
    """

    def __init__(self, file_path: str | Path) -> None:
        self.file_path = Path(file_path).expanduser()
        if not self.file_path.is_file():
            raise FileNotFoundError(f"Dataset file not found: {file_path}")
        self._file = open_file(self.file_path)

    def read(self, limit: int | None = None, offset: int = 0) -> list[DatasetRow]:
        """Read and validate rows. Skipped rows are not parsed, as far as the format allows.

        Args:
            limit: Maximum number of rows; None for all.
            offset: Rows to skip at the beginning.

        Raises:
            DatasetParseError: the file does not have its format.
            DatasetValidationError: a row is invalid; names the column and the row, counted from 0 in the whole file.
        """
        return list(self.iter_rows(limit, offset))

    def iter_rows(self, limit: int | None = None, offset: int = 0) -> Iterator[DatasetRow]:
        """Iterate over rows as `read` returns them; .jsonl and .csv files are read only as far as needed."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be at least 0, not {limit}")
        if offset < 0:
            raise ValueError(f"offset must be at least 0, not {offset}")
        return self._rows(limit, offset)

    def __len__(self) -> int:
        """The number of rows in the file, valid or not."""
        return self._file.count()

    def _rows(self, limit: int | None, offset: int) -> Iterator[DatasetRow]:
        if limit == 0:
            return
        last = None if limit is None else offset + limit - 1
        for index, raw in enumerate(self._file.raws()):
            if index >= offset:
                yield checked(self._file.read(raw, index), index)
            if index == last:
                return


def checked(raw: object, index: int) -> DatasetRow:
    """Validate a row: required columns under their lower-case names, JSON values in all others (`json_value`).

    Args:
        raw: The row as it was read. Column names are compared ignoring case and surrounding white space.
        index: Its number in the whole dataset, from 0, for messages.

    Raises:
        DatasetValidationError: a required column is missing, duplicate, null, blank or not a string; or another column
            holds a value that JSON cannot represent.
    """
    if not isinstance(raw, Mapping):
        raise DatasetValidationError(f"Row {index}: Expected object, got {type(raw).__name__}")
    row: dict[str, object] = {}
    written: dict[str, str] = {}
    for key, value in cast("Mapping[object, object]", raw).items():
        name = plain = key if isinstance(key, str) else str(key)
        if name not in REQUIRED:
            plain = name.strip().lower()
        if plain in REQUIRED:
            if plain in written:
                raise DatasetValidationError(
                    f"Row {index}: {plain!r} is there twice, as {written[plain]!r} and {name!r}; rename one of them"
                )
            written[plain] = name
            row[plain] = value
        else:
            row[name] = value if isinstance(value, _SIMPLE) else _as_json(value, name, index)
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        has = (
            f"its columns are {[str(name) for name in cast('Mapping[object, object]', raw)]}" if raw else "it is empty"
        )
        raise DatasetValidationError(f"Row {index}: Missing required columns: {missing}; {has}")
    for name in REQUIRED:
        _check_text(row[name], name, index)
    return cast(DatasetRow, row)


def _check_text(value: object, name: str, index: int) -> None:
    if value is None:
        raise DatasetValidationError(f"Row {index}: {name!r} cannot be null")
    if not isinstance(value, str):
        raise DatasetValidationError(f"Row {index}: {name!r} must be a string, got {type(value).__name__}")
    if not value.strip():
        raise DatasetValidationError(f"Row {index}: {name!r} cannot be empty")


def _as_json(value: object, name: str, index: int) -> object:
    try:
        return json_value(value)
    except (TypeError, RecursionError) as error:
        words = "is nested too deeply" if isinstance(error, RecursionError) else f"holds what JSON cannot: {error}"
        raise DatasetValidationError(f"Row {index}: {name!r} {words}") from error
