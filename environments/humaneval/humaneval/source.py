"""Where problems come from: the Hub, a local file, or the package's own. Owns reading and checking rows, and the errors
that name the row; runs nothing.

One source is never taken for another: if the one that was asked for cannot be read, loading fails and says so.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from harness.errors import ConfigError, EnvironmentLoadError
from humaneval.extraction import definition_of
from humaneval.sample import PROBLEMS

HUB_ID = "openai/openai_humaneval"
SAMPLE = "sample"
FILE_SUFFIXES = (".jsonl", ".jsonl.gz")
COLUMNS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")

Rows = Iterable["tuple[str, Mapping[str, object]]"]
"""Where a row stands, for messages, and the row."""


def check_source(dataset: str, split: str) -> None:
    """Refuse arguments that contradict each other or name no file, before anything is read.

    Raises:
        ConfigError: names the argument and what to write instead.
    """
    for name, value in (("dataset", dataset), ("split", split)):
        if not isinstance(cast(object, value), str):
            raise ConfigError(f"{name} must be a string, not {value!r}")
    local = Path(dataset).expanduser()
    if split == SAMPLE:
        if dataset != HUB_ID:
            raise ConfigError(f"split={SAMPLE!r} is the package's own set of problems; leave out `dataset`")
    elif dataset.endswith(FILE_SUFFIXES):
        if not local.is_file():
            raise ConfigError(f"dataset={dataset!r}: there is no such file (looked in {Path.cwd()})")
        if split != "test":
            raise ConfigError(f"dataset={dataset!r} is a file, so it has no `split`; leave it out")
    elif dataset.startswith((".", "/", "~")) or local.is_file():
        raise ConfigError(f"dataset={dataset!r}: a file must end in {' or '.join(FILE_SUFFIXES)}")


def read_rows(dataset: str, split: str) -> list[dict[str, str]]:
    """The problems of a source, checked, in its own order.

    Args:
        dataset: A Hub id, or the path of a .jsonl or .jsonl.gz file.
        split: A split of the Hub dataset, or `sample` for the package's own problems.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row is no problem.
    """
    if split == SAMPLE:
        rows: Rows = ((f"sample problem {n}", row) for n, row in enumerate(PROBLEMS, 1))
    elif dataset.endswith(FILE_SUFFIXES):
        rows = _jsonl(Path(dataset).expanduser())
    else:
        rows = _hub(dataset, split)
    checked = [_row(where, row) for where, row in rows]
    if not checked:
        raise EnvironmentLoadError(f"{dataset} holds no rows")
    return checked


def _row(where: str, row: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in COLUMNS:
        if column not in row:
            raise EnvironmentLoadError(f"{where}: there is no column {column!r}; it has {', '.join(row) or 'none'}")
        value = row[column]
        if not isinstance(value, str) or not value.strip():
            raise EnvironmentLoadError(f"{where}: column {column!r} must be a text, not {value!r}")
        found[column] = value
    if not found["entry_point"].isidentifier() or not definition_of(found["entry_point"]).search(found["prompt"]):
        raise EnvironmentLoadError(
            f"{where}: column 'prompt' does not define the function that 'entry_point' names, {found['entry_point']!r}"
        )
    return found


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        # split at "\n" alone: a prompt may hold U+2028, which str.splitlines would take for the end of a line
        lines = data.decode("utf-8-sig").split("\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise EnvironmentLoadError(f"{path} cannot be read as UTF-8 text: {error}") from error
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
        except ValueError as error:
            raise EnvironmentLoadError(f"{path}, row {n}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise EnvironmentLoadError(f"{path}, row {n}: must be an object with the columns {', '.join(COLUMNS)}")
        yield f"{path}, row {n}", cast("dict[str, object]", row)


def _hub(dataset: str, split: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    import datasets  # late: it takes a second  # pyright: ignore[reportMissingTypeStubs]

    try:
        rows: Iterable[Mapping[str, object]] = cast(Any, datasets).load_dataset(dataset, split=split)
    except Exception as error:  # a foreign edge: datasets lets through what its transports raise, and those change
        raise EnvironmentLoadError(
            f"dataset {dataset!r} (split {split!r}) cannot be loaded from the Hub; without the Hub use "
            '-a \'{"dataset": "PATH.jsonl.gz"}\', or -a \'{"split": "sample"}\' for the problems in this package. '
            f"Cause: {error}"
        ) from error
    return ((f"{dataset} [{split}], row {n}", row) for n, row in enumerate(rows, 1))
