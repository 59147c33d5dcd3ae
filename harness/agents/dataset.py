"""Rows of an agent evaluation's dataset: reading and validation. `dataset_files` parses the file formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, cast

from harness.agents.dataset_files import open_file
from harness.agents.json_values import json_value
from harness.core.errors import DatasetValidationError
from harness.core.records import Row

REQUIRED: tuple[str, ...] = ("ground_truth", "user_prompt", "system_prompt")
"""The required columns, in the order in which error messages list missing ones."""


class DatasetRow(TypedDict):
    """One row of a dataset: the required columns, with lower-case names, and any other columns."""

    ground_truth: str
    """The expected answer, for eval functions. An agent gets it only in `request.metadata`."""
    user_prompt: str
    """The first user message of the conversation."""
    system_prompt: str
    """The system message of the conversation."""


class DatasetReader:
    """Reader of the rows in a .json (one array), .jsonl, .parquet or .csv file.

    Args:
        file_path: The file.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetParseError: the file name has none of these four endings.
    """

    def __init__(self, file_path: str | Path) -> None:
        self.file_path = Path(file_path).expanduser()
        if not self.file_path.is_file():
            raise FileNotFoundError(f"Dataset file not found: {file_path}")
        self._file = open_file(self.file_path)

    def read(self, limit: int | None = None, offset: int = 0) -> list[DatasetRow]:
        """Read and validate rows. Skipped rows are not parsed, where the format allows it.

        Args:
            limit: Maximum number of rows; None for all.
            offset: Number of rows to skip at the beginning.

        Raises:
            DatasetParseError: the file is not in the format that its extension names.
            DatasetValidationError: a row is invalid. The message names the column and gives the row's number in the
                file, from 0.
            ValueError: `limit` or `offset` is negative.
        """
        return list(self.iter_rows(limit, offset))

    def iter_rows(self, limit: int | None = None, offset: int = 0) -> Iterator[DatasetRow]:
        """Iterate over validated rows; see `read`. .jsonl and .csv files are read only as far as needed."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit must be at least 0, not {limit}")
        if offset < 0:
            raise ValueError(f"offset must be at least 0, not {offset}")
        if limit == 0:
            return iter(())
        last = None if limit is None else offset + limit
        raws = islice(enumerate(self._file.raws()), offset, last)
        return (checked(self._file.read(raw, index), index) for index, raw in raws)

    def __len__(self) -> int:
        """Return the number of rows in the file, including invalid ones."""
        return self._file.count()


def checked(raw: object, index: int) -> DatasetRow:
    """Validate and normalize a dataset row: give required columns lower-case names, and convert the values of all other
    columns to JSON values.

    Args:
        raw: The row as it was read. Column names are compared ignoring case and surrounding white space.
        index: The row's number in the dataset, from 0, for messages.

    Raises:
        DatasetValidationError: a required column is missing, duplicate, null, blank or not a string; or the value of
            another column has no JSON form.
    """
    if not isinstance(raw, Mapping):
        raise DatasetValidationError(f"Row {index}: Expected object, got {type(raw).__name__}")
    row: dict[str, object] = {}
    written: dict[str, str] = {}
    columns = cast("Mapping[object, object]", raw)
    for key, value in columns.items():
        name = str(key)
        plain = name.strip().lower()
        if plain not in REQUIRED:
            try:
                row[name] = json_value(value)
            except (TypeError, RecursionError) as error:
                fault = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
                raise DatasetValidationError(f"Row {index}: {name!r} {fault}") from error
        elif plain in written:
            raise DatasetValidationError(
                f"Row {index}: columns {written[plain]!r} and {name!r} both mean {plain!r}; rename one of them"
            )
        else:
            written[plain], row[plain] = name, value
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        has = f"its columns are {[*map(str, columns)]}" if columns else "the row is empty"
        raise DatasetValidationError(f"Row {index}: Missing required columns: {missing}; {has}")
    for name in REQUIRED:
        value = row[name]
        if value is None:
            raise DatasetValidationError(f"Row {index}: {name!r} cannot be null")
        if not isinstance(value, str):
            raise DatasetValidationError(f"Row {index}: {name!r} must be a string, got {type(value).__name__}")
        if not value.strip():
            raise DatasetValidationError(f"Row {index}: {name!r} cannot be empty")
    return cast(DatasetRow, row)


def row_of(row: Mapping[str, Any], number: int) -> Row:
    """Convert a validated dataset row: prompts to messages, the ground truth to the answer, other columns to `info`.

    Args:
        row: The row, from `checked`.
        number: The row's number in the dataset file, which becomes its id.
    """
    prompt = [{"role": "system", "content": row["system_prompt"]}, {"role": "user", "content": row["user_prompt"]}]
    info = {name: value for name, value in row.items() if name not in REQUIRED}
    return Row(number, prompt, row["ground_truth"], info=info)
