"""Where an environment's rows come from: a dataset on the Hub, a file, or what its package ships. Owns finding and
reading them, and the words that name the source, the row and the column; knows nothing of what a row must hold.

One source is never taken for another: if the one that was asked for cannot be read, that is an error."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.core.errors import ConfigError, EnvironmentLoadError
from harness.core.size_limits import ROWS, parquet_batches, read_whole, unzipped
from harness.envs import hub

SAMPLE = "sample"
"""The split that stands for the rows that a package ships."""
FILE_SUFFIXES = (".jsonl", ".parquet")
"""How the names of files end that are read, unless an environment says otherwise; `.jsonl.gz` can be read as well."""
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row as it was read, which knows where it stands.

    Args:
        where: The file or dataset and the number of the row, from 1, for messages.
        cells: Its columns.
    """

    where: str
    cells: Mapping[str, object]

    def cell(self, column: str) -> object:
        """What a column holds.

        Raises:
            EnvironmentLoadError: there is no such column.
        """
        if column not in self.cells:
            raise self.fault(f"there is no column {column!r}; it has {', '.join(self.cells) or 'none'}")
        return self.cells[column]

    def text(self, column: str, *, numbers: bool = False) -> str:
        """The text in a column, as it is.

        Args:
            column: Its name.
            numbers: Whether a number will do, too.

        Raises:
            EnvironmentLoadError: there is no such column, or no text in it but white space.
        """
        value = self.cell(column)
        if numbers and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(column, "be a text")
        return value

    def wrong(self, column: str, must: str, value: object = None) -> EnvironmentLoadError:
        """The error that a column does not hold what it must, or is not there at all.

        Args:
            column: Its name.
            must: What it must, such as `be a text`.
            value: The part of the cell that is meant; the whole of it unless given.
        """
        if column not in self.cells:
            return self.fault(f"there is no column {column!r}; it has {', '.join(self.cells) or 'none'}")
        text = repr(self.cells[column] if value is None else value)
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        return self.fault(f"column {column!r} must {must}, not {shown}")

    def fault(self, words: str) -> EnvironmentLoadError:
        """The error that says `words` of this row."""
        return EnvironmentLoadError(f"{self.where}: {words}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """What `dataset`, `split` and `subset` of an environment may name: a Hub dataset, a file, or its package's sample.

    Args:
        hub_id: The dataset on the Hub that is read unless another is named.
        sample: Makes the rows that the package ships, which are `split="sample"`.
        noun: What one row is called: `problem`, `question`.
        columns: What a row must have, for messages.
        subset: The configuration of `hub_id` that is read unless another is named, if it has several.
        suffixes: How the names of files end that are read; of `.jsonl`, `.jsonl.gz` and `.parquet`.
    """

    hub_id: str
    sample: Callable[[], Iterable[Mapping[str, object]]]
    noun: str
    columns: Sequence[str]
    subset: str | None = None
    suffixes: tuple[str, ...] = FILE_SUFFIXES

    def check(self, dataset: str, split: str = "test", subset: str | None = None) -> None:
        """Refuse arguments that contradict each other or name no file, before anything is read.

        Raises:
            ConfigError: names the argument and what to write instead.
        """
        for name, value in (("dataset", dataset), ("split", split), ("subset", subset)):
            if not isinstance(cast(object, value), str) and not (name == "subset" and value is None):
                raise ConfigError(f"{name} must be a string, not {value!r}")
        has_subset = self.subset is not None or subset is not None
        if split == SAMPLE:
            if dataset != self.hub_id or subset is not None:
                names = "`dataset` and `subset`" if has_subset else "`dataset`"
                raise ConfigError(f"split={SAMPLE!r} is the package's own set of {self.noun}s; leave out {names}")
        elif is_file(dataset, suffixes=self.suffixes) and (split != "test" or subset is not None):
            names = "no `split` and no `subset`; leave them out" if has_subset else "no `split`; leave it out"
            raise ConfigError(f"dataset={dataset!r} is a file, so it has {names}")

    def rows(self, dataset: str, split: str = "test", subset: str | None = None) -> Iterator[SourceRow]:
        """The rows of a source, in its own order. Nothing is read before the first is asked for.

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
            raise EnvironmentLoadError(f"{dataset} holds no rows")


def is_file(name: str, argument: str = "dataset", suffixes: tuple[str, ...] = FILE_SUFFIXES) -> bool:
    """Whether a name is that of a file, and no Hub id.

    Args:
        name: What was given.
        argument: The argument that it was given as, for messages.
        suffixes: How the names of files end.

    Raises:
        ConfigError: there is no such file, or it is a file that cannot be read.
    """
    local = Path(name).expanduser()
    if name.endswith(suffixes):
        if not local.is_file():
            raise ConfigError(f"{argument}={name!r}: there is no such file (looked in {Path.cwd()})")
        return True
    if name.startswith((".", "/", "~")) or local.is_file():
        raise ConfigError(f"{argument}={name!r}: a file must end in {' or '.join(suffixes)}")
    return False


def ask_for_file(argument: str, suffixes: tuple[str, ...] = FILE_SUFFIXES) -> str:
    """What to write on the command line to have a file read."""
    others = f" (or {', '.join(suffixes[1:])})" if suffixes[1:] else ""
    return f"""-a '{{"{argument}": "PATH{suffixes[0]}"}}'{others}"""


def read_file(name: str, columns: Sequence[str]) -> Iterator[SourceRow]:
    """The rows of a `.parquet`, `.jsonl` or `.jsonl.gz` file, in its order.

    Args:
        name: Its path; `~` is a home.
        columns: What a row must have, for the message that one is no object.

    Raises:
        EnvironmentLoadError: it cannot be read; names the row if it is one.
    """
    path = Path(name).expanduser()
    return _parquet(path) if path.suffix == ".parquet" else _jsonl(path, columns)


def read_hub(name: str, split: str, subset: str | None = None, *, instead: str) -> Iterator[SourceRow]:
    """The rows of a dataset on the Hub, in its order.

    Args:
        name: Its id.
        split: The split.
        subset: The configuration, if it has several.
        instead: What to do without the Hub, as in `without the Hub use <instead>`.

    Raises:
        EnvironmentLoadError: it cannot be loaded.
    """
    import datasets  # pyright: ignore[reportMissingTypeStubs]

    with hub.failing_fast():
        try:
            rows: Iterable[Mapping[str, object]] = cast(Any, datasets).load_dataset(name, subset, split=split)
        except Exception as error:  # a foreign edge: datasets lets through what its transports raise, and those change
            gated = (
                f"; it is gated: accept its conditions at https://huggingface.co/datasets/{name}, then log in with "
                "`hf auth login` or set HF_TOKEN"
                if "gated" in f"{type(error).__name__} {error}".lower()
                else ""
            )
            of_subset = f", subset {subset!r}" if subset else ""
            raise EnvironmentLoadError(
                f"dataset {name!r}{of_subset} (split {split!r}) cannot be loaded from the Hub{gated}; "
                f"without the Hub use {instead}. Cause: {hub.refusal() or error}"
            ) from error
    where = f"{name}{f' ({subset})' if subset else ''} [{split}]"
    return (SourceRow(f"{where}, row {n}", row) for n, row in enumerate(rows, 1))


def _jsonl(path: Path, columns: Sequence[str]) -> Iterator[SourceRow]:
    try:
        data = read_whole(path, ROWS)
        if path.suffix == ".gz":
            data = unzipped(data)
        # split at "\n" alone: a text may hold U+2028, which str.splitlines would take for the end of a line
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
