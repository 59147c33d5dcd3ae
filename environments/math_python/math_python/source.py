"""Where problems come from: the Hub, a local file, or the built-in sample. Owns reading and checking rows, and the
errors that name the row; grades nothing.

One source is never taken for another: if the one that was asked for cannot be read, loading fails and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from harness import JsonDict, extract_boxed_answer
from harness.errors import ConfigError, EnvironmentLoadError
from math_python.sample import problems

HUB_ID = "HuggingFaceH4/MATH-500"
SAMPLE = "sample"
FILE_SUFFIXES = (".jsonl", ".parquet")
KEPT = ("solution", "subject", "type", "level", "unique_id", "program")

Rows = Iterable["tuple[str, Mapping[str, object]]"]
"""Where a row stands, for messages, and the row."""


def check_source(dataset: str, split: str) -> None:
    """Refuse arguments that contradict each other or name no file, before anything is read.

    Raises:
        ConfigError: names the argument and what to write instead.
    """
    for name, value in (("dataset", dataset), ("split", split)):
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # it may come from JSON
            raise ConfigError(f"{name} must be a string, not {value!r}")
    local = Path(dataset).expanduser()
    if split == SAMPLE:
        if dataset != HUB_ID:
            raise ConfigError(f"split={SAMPLE!r} is the package's own set of problems; leave out `dataset`")
    elif local.suffix in FILE_SUFFIXES:
        if not local.is_file():
            raise ConfigError(f"dataset={dataset!r}: there is no such file (looked in {Path.cwd()})")
        if split != "test":
            raise ConfigError(f"dataset={dataset!r} is a file, so it has no `split`; leave it out")
    elif dataset.startswith((".", "/", "~")) or local.is_file():
        raise ConfigError(f"dataset={dataset!r}: a file must end in {' or '.join(FILE_SUFFIXES)}")


def read_rows(dataset: str, split: str) -> list[JsonDict]:
    """The problems of a source, checked, in its own order.

    Args:
        dataset: A Hub id, or the path of a .jsonl or .parquet file.
        split: A split of the Hub dataset, or `sample` for the package's own problems.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row lacks a problem or an answer.
    """
    path = Path(dataset).expanduser()
    if split == SAMPLE:
        rows: Rows = ((f"sample problem {n}", row) for n, row in enumerate(problems(), 1))
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
    """The row as the environment wants it: problem, expected answer, and what else is worth keeping."""
    question = row.get("problem")
    if not isinstance(question, str) or not question.strip():
        raise _wrong(where, row, "problem", "a text")
    info = {name: row[name] for name in KEPT if row.get(name) is not None}
    return {"question": question.strip(), "answer": _answer(where, row), "info": info}


def _answer(where: str, row: Mapping[str, object]) -> str:
    r"""The column `answer`, or the last box of the column `solution`."""
    value = row.get("answer")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        answer = extract_boxed_answer(value).strip()
    elif value is None and isinstance(solution := row.get("solution"), str):
        answer = extract_boxed_answer(solution, strict=True).strip()
    else:
        answer = ""
    if not answer:
        raise _wrong(where, row, "answer", "LaTeX or a number (or column 'solution' must hold it in \\boxed{})")
    return answer


def _wrong(where: str, row: Mapping[str, object], column: str, wanted: str) -> EnvironmentLoadError:
    if column not in row:
        return EnvironmentLoadError(f"{where}: there is no column {column!r}; it has {', '.join(row) or 'none'}")
    text = repr(row[column])
    shown = text if len(text) <= 60 else text[:59] + "…"
    return EnvironmentLoadError(f"{where}: column {column!r} must be {wanted}, not {shown}")


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    try:
        # split at "\n" alone: a problem may hold U+2028, which str.splitlines would take for the end of a line
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
            '-a \'{"dataset": "PATH.jsonl"}\' (or .parquet), or -a \'{"split": "sample"}\' for the problems in this '
            f"package. Cause: {error}"
        ) from error
    return ((f"{dataset} [{split}], row {n}", row) for n, row in enumerate(rows, 1))
