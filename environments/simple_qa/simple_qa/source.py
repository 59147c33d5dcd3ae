"""Where questions come from: the Hub, a local file, or the built-in sample. Owns reading and checking rows, and the
errors that name the row; grades nothing.

One source is never taken for another: if the one that was asked for cannot be read, loading fails and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from harness import JsonDict
from harness.errors import ConfigError, EnvironmentLoadError
from simple_qa.sample import facts

HUB_ID = "basicv8vc/SimpleQA"
SAMPLE = "sample"
FILE_SUFFIXES = (".jsonl", ".parquet")

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
            raise ConfigError(f"split={SAMPLE!r} is the package's own set of questions; leave out `dataset`")
    elif local.suffix in FILE_SUFFIXES:
        if not local.is_file():
            raise ConfigError(f"dataset={dataset!r}: there is no such file (looked in {Path.cwd()})")
        if split != "test":
            raise ConfigError(f"dataset={dataset!r} is a file, so it has no `split`; leave it out")
    elif dataset.startswith((".", "/", "~")) or local.is_file():
        raise ConfigError(f"dataset={dataset!r}: a file must end in {' or '.join(FILE_SUFFIXES)}")


def check_judge(model: object, base_url: object, key_var: object) -> None:
    """Refuse what can name no judge.

    Raises:
        ConfigError: names the argument.
    """
    for name, value in (("judge_model", model), ("judge_base_url", base_url), ("judge_api_key_var", key_var)):
        if not (isinstance(value, str) and value) and not (value is None and name != "judge_model"):
            raise ConfigError(f"{name} must be a text, not {value!r}")


def read_rows(dataset: str, split: str) -> list[JsonDict]:
    """The questions of a source, checked, in its own order.

    Args:
        dataset: A Hub id, or the path of a .jsonl or .parquet file.
        split: A split of the Hub dataset, or `sample` for the package's own questions.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row lacks a question or an answer.
    """
    path = Path(dataset).expanduser()
    if split == SAMPLE:
        rows: Rows = ((f"sample question {n}", row) for n, row in enumerate(facts(), 1))
    elif path.suffix == ".jsonl":
        rows = _jsonl(path)
    elif path.suffix == ".parquet":
        rows = _parquet(path)
    else:
        rows = _hub(dataset, split)
    checked = [_row(where, row) for where, row in rows]
    if not checked:
        raise EnvironmentLoadError(f"{dataset} holds no rows")
    return checked


def _row(where: str, row: Mapping[str, object]) -> JsonDict:
    """The row as the environment wants it."""
    column = "problem" if "problem" in row else "question"
    return {"question": _text(where, row, column), "answer": _text(where, row, "answer")}


def _text(where: str, row: Mapping[str, object], column: str) -> str:
    if column not in row:
        raise EnvironmentLoadError(f"{where}: there is no column {column!r}; it has {', '.join(row) or 'none'}")
    value = row[column]
    if column == "answer" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise EnvironmentLoadError(f"{where}: column {column!r} must be a text, not {_shorten(value)!r}")
    return value


def _shorten(value: object) -> object:
    return value if not isinstance(value, str) or len(value) <= 60 else value[:59] + "…"


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    try:
        # split at "\n" alone: a question may hold U+2028, which str.splitlines would take for the end of a line
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentLoadError(f"{path} cannot be read as UTF-8 text: {error}") from error
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
        except ValueError as error:
            raise EnvironmentLoadError(f"{path}, row {n}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise EnvironmentLoadError(f"{path}, row {n}: must be an object with the columns 'problem' and 'answer'")
        yield f"{path}, row {n}", cast("dict[str, object]", row)


def _parquet(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    import pyarrow.parquet  # late: loading this environment must not cost it  # pyright: ignore[reportMissingTypeStubs]

    arrow, parquet = cast(Any, pyarrow), cast(Any, pyarrow.parquet)
    try:
        with parquet.ParquetFile(path) as file:
            rows: list[dict[str, object]] = file.read().to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise EnvironmentLoadError(f"{path} cannot be read as parquet: {error}") from error
    return ((f"{path}, row {n}", row) for n, row in enumerate(rows, 1))


def _hub(dataset: str, split: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    import datasets  # late: it takes a second  # pyright: ignore[reportMissingTypeStubs]

    try:
        rows: Iterable[Mapping[str, object]] = cast(Any, datasets).load_dataset(dataset, split=split)
    except Exception as error:  # a foreign edge: datasets lets through what its transports raise, and those change
        raise EnvironmentLoadError(
            f"dataset {dataset!r} (split {split!r}) cannot be loaded from the Hub; without the Hub use "
            '-a \'{"dataset": "PATH.jsonl"}\' (or .parquet), or -a \'{"split": "sample"}\' for the questions in this '
            f"package. Cause: {error}"
        ) from error
    return ((f"{dataset} [{split}], row {n}", row) for n, row in enumerate(rows, 1))
