"""Sources of an environment's rows: a dataset on the Hub, a file, or the package's own sample. Errors name the source,
the row and the column.

There is no fallback: if the requested source cannot be read, that is an error."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.core.errors import ConfigError, EnvironmentLoadError
from harness.core.safe_text import clean
from harness.core.size_limits import ROWS, parquet_batches, read_whole, unzipped
from harness.envs import hub

SAMPLE = "sample"
"""Name of the split for the rows that a package contains."""
FILE_SUFFIXES = (".jsonl", ".parquet")
"""Default file suffixes that are accepted; `.jsonl.gz` is supported, too."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row with its position in the source.

    Args:
        where: The file or dataset and the row number, from 1, for messages.
        cells: Values by column.
    """

    where: str
    cells: Mapping[str, object]

    def cell(self, column: str) -> object:
        """Return the value in a column.

        Raises:
            EnvironmentLoadError: the column does not exist.
        """
        if column not in self.cells:
            raise self.wrong(column, "exist")
        return self.cells[column]

    def text(self, column: str, *, numbers: bool = False) -> str:
        """Return the text in a column, unchanged.

        Args:
            column: Name of the column.
            numbers: Whether to accept a number as well.

        Raises:
            EnvironmentLoadError: the column does not exist, is not a string, or is blank.
        """
        value = self.cell(column)
        if numbers and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(column, must="be a non-blank string")
        return value

    def wrong(self, column: str, must: str, value: object = None) -> EnvironmentLoadError:
        """Make the error for a column that is missing or has an invalid value.

        Args:
            column: Name of the column.
            must: Requirement, such as `be a string`.
            value: The invalid part of the cell; defaults to the whole cell.
        """
        if column not in self.cells:
            return self.fault(f"there is no column {column!r}; it has {', '.join(self.cells) or 'none'}")
        shown = clean(repr(self.cells[column] if value is None else value), 60)
        return self.fault(f"column {column!r} must {must}, not {shown}")

    def fault(self, words: str) -> EnvironmentLoadError:
        """Make an error about this row with the text `words`."""
        return EnvironmentLoadError(f"{self.where}: {words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """Sources that an environment's arguments `dataset`, `split` and `subset` may name: a Hub dataset, a file, or the
    package's sample.

    Args:
        hub_id: Default dataset on the Hub.
        sample: Returns the rows that the package contains, for `split="sample"`.
        noun: Name of one row in messages: `problem`, `question`.
        columns: Required columns, for messages.
        subset: Default configuration of `hub_id`, if it has several.
        suffixes: Accepted file suffixes: some of `.jsonl`, `.jsonl.gz` and `.parquet`.
    """

    hub_id: str
    sample: Callable[[], Iterable[Mapping[str, object]]]
    noun: str
    columns: Sequence[str]
    subset: str | None = None
    suffixes: tuple[str, ...] = FILE_SUFFIXES

    def check(self, dataset: str, split: str = "test", subset: str | None = None) -> None:
        """Validate the arguments before anything is read.

        Raises:
            ConfigError: arguments contradict each other, or a file is missing; the message names the argument.
        """
        for name, value in (("dataset", dataset), ("split", split), ("subset", subset)):
            if not isinstance(cast(object, value), str) and not (name == "subset" and value is None):
                raise ConfigError(f"{name} must be a string, not {value!r}")
        has_subset = self.subset is not None or subset is not None
        if split == SAMPLE:
            if dataset != self.hub_id or subset is not None:
                names = "`dataset` and `subset`" if has_subset else "`dataset`"
                raise ConfigError(f"split={SAMPLE!r} selects the package's own {self.noun}s; leave out {names}")
        elif is_file(dataset, suffixes=self.suffixes) and (split != "test" or subset is not None):
            names = "no `split` and no `subset`; leave them out" if has_subset else "no `split`; leave it out"
            raise ConfigError(f"dataset={dataset!r} is a file, so it has {names}")

    def rows(self, dataset: str, split: str = "test", subset: str | None = None) -> Iterator[SourceRow]:
        """Iterate over the rows of a source, in its order. Reading starts with the first row requested.

        Args:
            dataset: A Hub id, or the path of a file.
            split: A split of the Hub dataset, or `sample`.
            subset: A configuration of the Hub dataset.

        Raises:
            EnvironmentLoadError: the source cannot be read, or has no rows.
        """
        if split == SAMPLE:
            rows = (SourceRow(f"sample {self.noun} {n}", row) for n, row in enumerate(self.sample(), 1))
        elif dataset.endswith(self.suffixes):
            rows = read_file(dataset, self.columns)
        else:
            ask = f"""-a '{{"split": "{SAMPLE}"}}' for the {self.noun}s in this package"""
            subset = subset or (self.subset if dataset == self.hub_id else None)
            rows = read_hub(dataset, split, subset, instead=f"{ask_for_file('dataset', self.suffixes)}, or {ask}")
        row = None
        for row in rows:
            yield row
        if row is None:
            raise EnvironmentLoadError(f"{dataset} has no rows")


def is_file(name: str, argument: str = "dataset", suffixes: tuple[str, ...] = FILE_SUFFIXES) -> bool:
    """Return whether a name is the path of a file and not a Hub id.

    Args:
        name: The value of the argument.
        argument: Name of the argument, for messages.
        suffixes: Accepted file suffixes.

    Raises:
        ConfigError: the file does not exist, or its format is not supported.
    """
    local = Path(name).expanduser()
    if name.endswith(suffixes):
        if not local.is_file():
            raise ConfigError(f"{argument}={name!r}: there is no such file (looked in {Path.cwd()})")
        return True
    if name.startswith((".", "/", "~")) or local.is_file():
        raise ConfigError(f"{argument}={name!r}: the name of a file must end in {' or '.join(suffixes)}")
    return False


def ask_for_file(argument: str, suffixes: tuple[str, ...] = FILE_SUFFIXES) -> str:
    """Return the command-line option that selects a file as the source, such as `-a '{"dataset": "PATH.jsonl"}'`."""
    others = f" (or {', '.join(suffixes[1:])})" if suffixes[1:] else ""
    return f"""-a '{{"{argument}": "PATH{suffixes[0]}"}}'{others}"""


def read_file(name: str, columns: Sequence[str]) -> Iterator[SourceRow]:
    """Iterate over the rows of a `.parquet`, `.jsonl` or `.jsonl.gz` file, in its order.

    Args:
        name: The file's path; `~` is the home folder.
        columns: Required columns, for messages.

    Raises:
        EnvironmentLoadError: the file cannot be read, or a row is invalid; the message names the row.
    """
    path = Path(name).expanduser()
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path, columns)


def read_hub(name: str, split: str, subset: str | None = None, *, instead: str) -> Iterator[SourceRow]:
    """Iterate over the rows of a dataset on the Hub, in its order.

    Args:
        name: The dataset's id.
        split: The split.
        subset: The configuration, if it has several.
        instead: Alternative to the Hub for the error message, as in `to run without the Hub, use <instead>`.

    Raises:
        EnvironmentLoadError: the dataset cannot be loaded.
    """
    import datasets  # pyright: ignore[reportMissingTypeStubs]

    with hub.failing_fast():
        try:
            rows: Iterable[Mapping[str, object]] = cast(Any, datasets).load_dataset(name, subset, split=split)
        except Exception as error:  # HTTP libraries below `datasets` may raise any exception
            gated = (
                f"; it is gated: accept its conditions at https://huggingface.co/datasets/{name}, then log in with "
                "`hf auth login` or set HF_TOKEN"
                if "gated" in f"{type(error).__name__} {error}".lower()
                else ""
            )
            of_subset = f", subset {subset!r}" if subset else ""
            raise EnvironmentLoadError(
                f"dataset {name!r}{of_subset} (split {split!r}) cannot be loaded from the Hub{gated}; "
                f"to run without the Hub, use {instead}. Cause: {hub.refusal() or error}"
            ) from error
    where = f"{name}{f' ({subset})' if subset else ''} [{split}]"
    return (SourceRow(f"{where}, row {n}", row) for n, row in enumerate(rows, 1))


def _jsonl(path: Path, columns: Sequence[str]) -> Iterator[SourceRow]:
    try:
        data = read_whole(path, ROWS)
        if path.suffix == ".gz":
            data = unzipped(data)
        # split at "\n" only: str.splitlines would also split at U+2028, which may occur in texts
        lines = data.decode("utf-8-sig").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise EnvironmentLoadError(f"{path} cannot be read as UTF-8 text: {error}") from error
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EnvironmentLoadError(f"{path}, row {n}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise EnvironmentLoadError(
                f"{path}, row {n}: must be an object with the columns {', '.join(columns)}, not {type(row).__name__}"
            )
        yield SourceRow(f"{path}, row {n}", cast("dict[str, object]", row))


def _parquet(path: Path) -> Iterator[SourceRow]:
    import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

    arrow, parquet = cast(Any, pyarrow), cast(Any, pyarrow.parquet)
    try:
        with parquet.ParquetFile(path) as file:
            rows: list[dict[str, object]] = [row for batch in parquet_batches(file) for row in batch.to_pylist()]
    except (OSError, arrow.ArrowException) as error:
        raise EnvironmentLoadError(f"{path} cannot be read as parquet: {error}") from error
    return (SourceRow(f"{path}, row {n}", row) for n, row in enumerate(rows, 1))
