"""Export formats, and the export of a run to files or a stream. Files are replaced atomically. Each format has a module
that writes the content."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

from harness.core.errors import StoreError, UsageError
from harness.core.plugins import EXPORTERS, load_plugins
from harness.settings.wording import suggestion
from harness.store.atomic import close_to_others, make_folder, store_error, sync_file, sync_folder, translated
from harness.store.catalogue import ListedRun, read_entry
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir, folder_name, safe_name

STREAM_BUFFER = 1 << 16
"""Buffer size for devices and pipes, in bytes."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of one export."""

    paths: tuple[Path, ...]
    """All files, the one with the rollouts first. Empty for an export to a stream."""
    rows: int
    """Number of rollouts in the export."""
    notes: tuple[str, ...] = ()
    """Notes for the user, for example about values that the format cannot store, or how to open the export. Each is
    one sentence without a full stop."""


Writer: TypeAlias = Callable[[RunDir, Path], Exported]
"""Function that writes a run to a path that does not exist yet; its parent folder exists, and its name is the final
one. A format with an empty `suffix` creates a folder, others a file. The caller syncs the files, moves them to the
target, and cleans up after an error. Must not keep all rollouts in memory."""

Streamer: TypeAlias = Callable[[RunDir, IO[bytes]], Exported]
"""Function that writes a run to a stream; it returns an `Exported` without `paths`."""


@dataclass(frozen=True, slots=True)
class Format:
    """An export format: its name, and the functions that write it."""

    name: str
    """Value of `--format`."""
    suffix: str
    """Suffix of the file; empty if the format creates a folder."""
    module: str
    write: str = "write"
    """Name of a `Writer` in the module; empty if files are written with `stream`."""
    stream: str = ""
    """Name of a `Streamer` in the module; empty if the format cannot be written to a pipe."""
    place: str = "{runs}--{id}{suffix}"
    """Template of the default path. `runs`: name of the folder of all runs of this environment and model; `id`: id of
    the run."""
    opens: str = ""
    """Template of a command or call that opens the export. `path`: the file or folder; `folder`: its parent; `root`:
    the parent of `evals` in a path like `…/evals/…/…`."""

    def default_target(self, manifest: Manifest) -> Path:
        """Default path of the export, relative to the working directory."""
        runs = folder_name(manifest.env_id, manifest.model)
        return Path(self.place.format(runs=runs, id=safe_name(manifest.id), suffix=self.suffix))

    def opening(self, exported: Exported) -> str:
        """Command that opens an export; empty if the format has none, or if it would not find the export there."""
        path = exported.paths[0] if self.suffix else exported.paths[0].parent
        evals = path.parent.parent
        if "{root}" in self.opens and evals.name != "evals":
            return ""
        named = {"path": path, "folder": path.parent, "root": evals.parent}
        return self.opens.format(**{name: shlex.quote(str(value)) for name, value in named.items()})


@dataclass(frozen=True, slots=True)
class Exporter:
    """Export formats of a plugin of the group `bench.exporters`. Their modules are imported on use."""

    formats: tuple[Format, ...]


_OWN = (
    Format("csv", ".csv", "harness.store.export_plain", "", "stream_csv"),
    Format("jsonl", ".jsonl", "harness.store.export_plain", "", "stream_jsonl"),
    Format("parquet", ".parquet", "harness.store.export_plain", "write_parquet"),
)

_STATES: Mapping[str, str] = {"running": "still running", "died": "not complete: its process died"}
"""Descriptions of states in notes; other states are shown as they are."""


def formats() -> dict[str, Format]:
    """Return all export formats by name: the built-in ones, then those of plugins."""
    rows = {row.name: row for row in _OWN}
    for found in load_plugins(EXPORTERS, Exporter).values():
        for row in found.formats:
            rows.setdefault(row.name, row)
    return rows


def format_named(name: str) -> Format:
    """Find a format by name.

    Raises:
        UsageError: there is no such format; suggests a similar name.
    """
    found = formats().get(name.strip().lower().replace("_", "-"))
    if found is None:
        raise UsageError(f"unknown export format {name!r}; {suggestion(name, formats())}", setting="format")
    return found


def format_of(target: Path) -> Format:
    """Find the format for the suffix of a file name.

    Raises:
        UsageError: no format has this suffix.
    """
    for row in formats().values():
        if row.suffix and target.suffix.lower() == row.suffix:
            return row
    raise UsageError(
        f"unknown format: {target.name!r} has no known suffix", remedy="add {format} {names}", names="|".join(formats())
    )


def export_run(run: RunDir, form: Format, target: Path | None = None, *, force: bool = False) -> Exported:
    """Export a run in a format. Files are replaced atomically, and the run is only read. An export of a private run is
    private. A target that is a device or a named pipe gets a stream, as in `stream_run`.

    Args:
        run: The run; an unfinished run is exported with its rollouts so far.
        form: The format.
        target: Path of the export. In an existing folder, a file gets its default name. None: the default path in the
            working directory.
        force: Replace existing files.

    Raises:
        UsageError: the target exists, or is of the wrong kind.
        StoreError: the run cannot be read, or the files cannot be written.
        BrokenPipeError: the reader of a named pipe closed it.
    """
    default = form.default_target(run.read_manifest())
    place = default if target is None else target
    if form.suffix and place.is_dir():
        place = place / default.name
    if place.is_symlink():
        place = place.resolve()
    if place.exists() and not place.is_file() and not place.is_dir():
        _check_streams(form)
        # Not replaced by a file: others use the device or named pipe, too.
        with _writing(place), place.open("wb", buffering=STREAM_BUFFER) as stream:
            return stream_run(run, form, stream, str(place))
    _check_free(place, form, force=force)
    entry = read_entry(run.path)
    private = run.read_manifest().is_private
    with translated("create", place.parent):
        make_folder(place.parent, private=private)
    with _staging(place) as staged:
        with _writing(place):
            exported = _write(run, form, staged)
        with translated("write", place):
            _move(staged, place, private=private)
    paths = tuple(place / path.relative_to(staged) for path in exported.paths)
    return dataclasses.replace(exported, paths=paths, notes=_notes(entry, exported))


def stream_run(run: RunDir, form: Format, stream: IO[bytes], name: str = "standard output") -> Exported:
    """Export a run to a stream.

    Args:
        run: The run, as for `export_run`.
        form: A format that can be written to a stream.
        stream: The stream; it is flushed, but not closed.
        name: Name of the stream in messages.

    Raises:
        UsageError: the format cannot be written to a pipe.
        StoreError: the run cannot be read, or the stream cannot be written.
        BrokenPipeError: the reader of the stream closed it.
    """
    _check_streams(form)
    entry = read_entry(run.path)
    write = cast(Streamer, getattr(importlib.import_module(form.module), form.stream))
    with _writing(Path(name)):
        exported = write(run, stream)
        stream.flush()
    return dataclasses.replace(exported, notes=_notes(entry, exported))


def _write(run: RunDir, form: Format, path: Path) -> Exported:
    module = importlib.import_module(form.module)
    if form.write:
        return cast(Writer, getattr(module, form.write))(run, path)
    with path.open("xb") as file:
        exported = cast(Streamer, getattr(module, form.stream))(run, file)
    return dataclasses.replace(exported, paths=(path,))


def _check_streams(form: Format) -> None:
    if not form.stream:
        able = ", ".join(row.name for row in formats().values() if row.stream)
        raise UsageError(
            f"{form.name} cannot be written to a pipe",
            remedy="name a file or folder with {output}, or use {able}",
            able=able,
        )


def _notes(entry: ListedRun, exported: Exported) -> tuple[str, ...]:
    """Notes of an export; if the run is incomplete, the first note says so."""
    planned = entry.planned or 0
    if entry.state == "done" and exported.rows >= max(1, planned):
        return exported.notes
    state = _STATES.get(entry.state, entry.state)
    rows = f"{exported.rows} of {planned} rollouts are" if planned else f"{exported.rows} rollouts are"
    return (f"the run is {state}; {rows} in the export", *exported.notes)


def _check_free(place: Path, form: Format, *, force: bool) -> None:
    if place.name in ("", ".."):
        kind = "file" if form.suffix else "folder"
        raise UsageError(f"{place} has no {kind} name at its end; add one", setting="output")
    if not os.path.lexists(place):
        return
    if form.suffix:
        if place.is_dir():
            raise UsageError(f"{place} is a folder", remedy="name a file with {output}")
        if not force:
            raise UsageError(f"{place} already exists", remedy="choose another path with {output}, or use {force}")
        return
    if not place.is_dir():
        raise UsageError(
            f"{place} is a file, but the format {form.name} needs a folder", remedy="choose another path with {output}"
        )
    if not force and any(place.iterdir()):
        raise UsageError(
            f"{place} already exists and is not empty",
            remedy="choose another path with {output}, or use {force}, which replaces files of the same names",
        )


@contextmanager
def _staging(place: Path) -> Generator[Path]:
    """Context manager: a path of the same name in a temporary folder next to `place`, which is removed at the end."""
    with translated("write", place):
        folder = Path(tempfile.mkdtemp(prefix=".export-", dir=place.parent))
    try:
        yield folder / place.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _writing(place: Path) -> Generator[None]:
    """Context manager that converts `OSError` (except `BrokenPipeError`) and `MemoryError` to `StoreError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise store_error("write", place, error) from error
    except MemoryError as error:
        raise StoreError(f"cannot write {place}: out of memory") from error


def _move(staged: Path, place: Path, *, private: bool) -> None:
    """Sync a finished export, a file or a folder of files, and move it to its target; other files there are kept."""
    if private:  # until here, the private temporary folder protected it
        close_to_others(staged.parent)
    if not staged.is_dir():
        sync_file(staged)
        os.replace(staged, place)
        sync_folder(place.parent)
        return
    files = sorted(path for path in staged.rglob("*") if not path.is_dir())
    for file in files:
        sync_file(file)
    for file in files:
        final = place / file.relative_to(staged)
        make_folder(final.parent, private=private)
        os.replace(file, final)
        sync_folder(final.parent)
