"""Selection of runs from ids, paths, folders and data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from harness.core.errors import UsageError
from harness.store.find_runs import all_runs, find_run, is_run, latest_of, runs_in
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    from harness.report.frames.tables import Frame

    Runs: TypeAlias = str | Path | RunDir | Frame | Mapping[str, object] | Iterable[str | Path | RunDir]

PATH = "path"
"""Column of `runs_df` with the path of the run."""


def chosen(runs: Runs, path: str | Path) -> list[RunDir]:
    """Run folders for `runs`, each once, in the given order.

    Args:
        runs: An id, the beginning of one, `latest` (all runs of the newest invocation), a run folder, a folder of
            runs, several of these, a frame of `runs_df`, or a row of it.
        path: The output folder in which ids are looked up.

    Raises:
        UsageError: a name matches no run, or more than one.
        StoreError: the output folder cannot be read.
    """
    found: dict[Path, RunDir] = {}
    for name in _named(runs):
        for folder in _folders(name, path):
            found.setdefault(folder.resolve(), RunDir(folder))
    return list(found.values())


def folders_in(path: Path) -> list[Path]:
    """Runs in an output folder, or in the folder of one environment and model, oldest first.

    For a run folder, that run; empty for any other path.

    Raises:
        StoreError: the output folder cannot be read.
    """
    return all_runs(path) or ([path] if is_run(path) else runs_in(path))


def _folders(name: str | Path | RunDir, path: str | Path) -> list[Path]:
    if isinstance(name, RunDir):
        return [name.path]
    if str(name) and (found := folders_in(Path(name))):
        return found
    try:
        latest = latest_of(str(name), path)
        return [find_run(path, str(name))] if latest is None else latest.runs
    except UsageError:
        if all_runs(path):
            raise
        raise UsageError(f"no runs under {Path(path) / 'evals'}; say path= to look in another output folder") from None


def _named(runs: Runs) -> Iterable[str | Path | RunDir]:
    if isinstance(runs, str | Path | RunDir):
        return [runs]
    columns: object = getattr(runs, "columns", None)
    if columns is not None:
        if PATH not in cast("Iterable[str]", columns):
            raise UsageError(f"runs: the frame has no column {PATH!r}; give one that runs_df() made")
        runs = cast("Iterable[str]", cast("Frame", runs)[PATH])
    elif _is_row(runs):
        runs = [cast("Mapping[str, str]", runs)[PATH]]
    try:
        return [_checked(item) for item in cast("Iterable[object]", runs)]
    except TypeError:
        given = type(runs).__name__
        raise UsageError(f"runs: {given} is not a run; give an id, a path, a list of them, or a frame") from None


def _is_row(value: object) -> bool:
    """Whether a value is one row of a `runs_df` frame: a pandas series, or a dict from polars."""
    keys: object = getattr(value, "keys", None)
    return callable(keys) and PATH in tuple(cast("Iterable[object]", keys()))


def _checked(item: object) -> str | Path | RunDir:
    if isinstance(item, str | Path | RunDir):
        return item
    raise UsageError(f"runs: {type(item).__name__} is not a run; each must be an id or a path")
