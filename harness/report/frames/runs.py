"""`runs_df`: a data frame with one row per run, from manifests and summaries. Also finds the runs that are given as
ids, paths, folders or data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, overload

from harness.core.errors import UsageError
from harness.report.frames.fields import Backend, Field, Kind, framed, free_name, library, table_of
from harness.settings.wording import suggestion
from harness.store.catalogue import KINDS, STATES, Filter, ListedRun, read_entry
from harness.store.find_runs import all_runs, find_run, is_run, latest_of, runs_in
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from harness.report.frames.fields import Frame

    Runs: TypeAlias = str | Path | RunDir | Frame | Mapping[str, object] | Iterable[str | Path | RunDir]

PATH = "path"
"""Column of `runs_df` with the path of the run."""


@overload
def runs_df(
    path: str | Path = "outputs",
    *,
    env: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    kind: str | Sequence[str] | None = None,
    state: str | Sequence[str] | None = None,
    settings: Sequence[str] = (),
    backend: Literal["pandas"] = "pandas",
) -> pandas.DataFrame: ...
@overload
def runs_df(
    path: str | Path = "outputs",
    *,
    env: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    kind: str | Sequence[str] | None = None,
    state: str | Sequence[str] | None = None,
    settings: Sequence[str] = (),
    backend: Literal["polars"],
) -> polars.DataFrame: ...
def runs_df(
    path: str | Path = "outputs",
    *,
    env: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    kind: str | Sequence[str] | None = None,
    state: str | Sequence[str] | None = None,
    settings: Sequence[str] = (),
    backend: Backend = "pandas",
) -> Frame:
    """Data frame with one row per run, newest first.

    Reads only `run.json` and `summary.json`. A run that is running or was killed has no figures, since its summary is
    incomplete; `rollouts_df` reads the journal.

    Args:
        path: The output folder, or the folder of one environment and model in it.
        env: Part of an environment's id or of a run's name; with `*`, a pattern for all of it; or several alternatives.
        model: The same for the model.
        kind: `run`, `eval` or `multi`, or several of these.
        state: `running`, `done`, `stopped`, `interrupted`, `failed`, `died` or `damaged`, or several of these.
        settings: Settings that become columns, by dotted path (`model.sampling_args.temperature`). The column has
            numbers or booleans if all values have that type; otherwise text, with JSON for values that are not text.
        backend: `pandas`, or `polars`.

    Raises:
        UsageError: no such folder, state, kind, setting or backend.
        StoreError: the output folder cannot be read.
    """
    made_by = library(backend)
    wanted = Filter(
        envs=_several("env", env),
        models=_several("model", model),
        states=_several("state", state, STATES),
        kinds=_several("kind", kind, KINDS),
    )
    names = _several("settings", settings)
    folder = Path(path)
    if not folder.is_dir():
        raise UsageError(f"path: there is no folder {str(path)!r}; give the output folder of the runs")
    entries = [entry for entry in map(read_entry, reversed(folders_in(folder))) if wanted.keeps(entry)]
    return framed(table_of([*_FIXED, *_settings(names, entries)], entries), made_by)


def _several(what: str, value: str | Sequence[str] | None, known: Sequence[str] | None = None) -> tuple[str, ...]:
    names = () if value is None else (value,) if isinstance(value, str) else tuple(dict.fromkeys(value))
    for name in names:
        if known is not None and name not in known:
            raise UsageError(f"{what}: {name!r} is not known; {suggestion(str(name), known)}")
    return names


def _settings(names: Sequence[str], entries: Sequence[ListedRun]) -> list[Field[ListedRun]]:
    """Columns of `runs_df` with the values of the given settings."""
    found = [entry.manifest.settings for entry in entries if entry.manifest is not None]
    taken = {field.name for field in _FIXED}

    def column(name: str) -> Field[ListedRun]:
        def value(entry: ListedRun) -> object:
            return None if entry.manifest is None else _look_up(name, entry.manifest.settings)

        return Field(free_name(name, "settings", taken), _kind(name, found), value)

    return [column(name) for name in names]


def _kind(name: str, settings: Sequence[Mapping[str, object]]) -> Kind:
    """Type of a setting's column, inferred from its values, since the keys of a table have no declared type."""
    tables = [table for table in settings if _has_place_for(name, table)]
    if settings and not tables:
        known = dict.fromkeys(key for table in settings for key in table)
        raise UsageError(f"settings: no run has a setting {name!r}; {suggestion(name, known)}")
    values = [value for value in (_look_up(name, table) for table in tables) if value is not None]
    if values and all(isinstance(value, bool) for value in values):
        return "flag"
    numeric = values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return "number" if numeric else "text"


def _has_place_for(name: str, settings: Mapping[str, object]) -> bool:
    """Return whether a run's settings contain the setting, or a table to which it could be added."""
    parts = name.split(".")
    above = (settings.get(".".join(parts[:count])) for count in range(1, len(parts)))
    return name in settings or any(isinstance(table, Mapping) for table in above)


def _look_up(name: str, settings: Mapping[str, object]) -> object:
    """Value of a setting, given by its dotted path; None if it is not set."""
    if name in settings:
        return settings[name]
    table, dot, key = name.rpartition(".")
    below = _look_up(table, settings) if dot else None
    return cast("Mapping[str, object]", below).get(key) if isinstance(below, Mapping) else None


def _of_manifest(name: str) -> Callable[[ListedRun], object]:
    return lambda entry: None if entry.manifest is None else getattr(entry.manifest, name)


def _of_summary(*path: str | int) -> Callable[[ListedRun], object]:
    """Return a function that reads the value at a path in a run's summary, or None if it is missing."""

    def value(entry: ListedRun) -> object:
        found: object = entry.final
        for step in path:
            if isinstance(found, dict):
                found = cast("dict[str | int, object]", found).get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(cast("list[object]", found)):
                found = cast("list[object]", found)[step]
            else:
                return None
        return found

    return value


def _unscored(entry: ListedRun) -> int | None:
    reasons = _of_summary("unscored")(entry)
    if not isinstance(reasons, dict):
        return None
    return sum(count for count in cast("Iterable[object]", reasons.values()) if isinstance(count, int))


_FIXED: tuple[Field[ListedRun], ...] = (
    Field("id", "text", lambda entry: entry.id),
    Field("path", "text", lambda entry: str(entry.run.path)),
    Field("env_id", "text", _of_manifest("env_id")),
    Field("model", "text", _of_manifest("model")),
    Field("name", "text", _of_manifest("name")),
    Field("kind", "text", _of_manifest("kind")),
    Field("state", "text", lambda entry: entry.state),
    Field("created", "time", lambda entry: entry.created and entry.created.timestamp()),
    Field("parent", "text", _of_manifest("parent")),
    Field("suite", "text", _of_manifest("suite")),
    Field("planned", "integer", lambda entry: entry.planned),
    Field("scored", "integer", _of_summary("scored")),
    Field("unscored", "integer", _unscored),
    Field("mean", "number", _of_summary("reward", "mean")),
    Field("ci95_low", "number", _of_summary("reward", "ci95", 0)),
    Field("ci95_high", "number", _of_summary("reward", "ci95", 1)),
    Field("stderr", "number", _of_summary("reward", "stderr")),
    Field("std", "number", _of_summary("reward", "std")),
    Field("pass@1", "number", _of_summary("pass_at_k", "1")),
    Field("input_tokens", "integer", _of_summary("usage", "input_tokens")),
    Field("output_tokens", "integer", _of_summary("usage", "output_tokens")),
    Field("requests", "integer", _of_summary("usage", "requests")),
    Field("cost", "number", _of_summary("usage", "cost")),
    Field("judge_cost", "number", _of_summary("judge_usage", "cost")),
    Field("wall_s", "number", _of_summary("wall_s")),
)


def chosen(runs: Runs, path: str | Path) -> list[RunDir]:
    """Return the run folders that `runs` selects, without duplicates, in the given order.

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
    """Return the runs in an output folder, or in the folder of one environment and model, oldest first.

    For a run folder, return only that run; for any other path, an empty list.

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
        raise UsageError(f"no runs under {Path(path) / 'evals'}; pass path= to search another output folder") from None


def _named(runs: Runs) -> Iterable[str | Path | RunDir]:
    if isinstance(runs, str | Path | RunDir):
        return [runs]
    columns: object = getattr(runs, "columns", None)
    if columns is not None:
        if PATH not in cast("Iterable[str]", columns):
            raise UsageError(f"runs: the frame has no column {PATH!r}; pass a frame from runs_df()")
        runs = cast("Iterable[str]", cast("Frame", runs)[PATH])
    elif _is_row(runs):
        runs = [cast("Mapping[str, str]", runs)[PATH]]
    if not isinstance(cast(object, runs), Iterable):
        raise UsageError(f"runs: {type(runs).__name__} is not a run; give an id, a path, a list of them, or a frame")
    named = list(cast("Iterable[object]", runs))
    for item in named:
        if not isinstance(item, str | Path | RunDir):
            raise UsageError(f"runs: {type(item).__name__} is not a run; each must be an id or a path")
    return cast("list[str | Path | RunDir]", named)


def _is_row(value: object) -> bool:
    """Return whether a value is one row of a `runs_df` frame: a pandas series, or a dict from polars."""
    keys: object = getattr(value, "keys", None)
    return callable(keys) and PATH in tuple(cast("Iterable[object]", keys()))
