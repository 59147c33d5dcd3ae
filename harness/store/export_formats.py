"""The table of export formats and the one way to make an export. Owns where the files go, that they appear whole or not
at all, and what is to be said of any run; what is in the files is each format's own module's business."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

from harness.core.errors import StoreError, UsageError
from harness.core.plugins import EXPORTERS, load_plugins
from harness.settings.wording import suggestion
from harness.store.atomic import close_to_others, durable_sync, make_folder, store_error, sync_folder, translated
from harness.store.catalogue import ListedRun, read_entry
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir, folder_name, safe_name

STREAM_BUFFER = 1 << 16
"""Bytes that are gathered before a device or a pipe gets them."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What one export wrote."""

    paths: tuple[Path, ...]
    """Every file, the one with the rollouts first. Empty for an export to a stream."""
    rows: int
    """Rollouts in it."""
    notes: tuple[str, ...] = ()
    """What the user should know: what the format cannot hold, what was done about it, how to open it. One sentence
    each, without a full stop."""


Writer: TypeAlias = Callable[[RunDir, Path], Exported]
"""Writes a run to a path. Nothing lies at that path yet, its folder exists, and its last part is the final one; a
format whose `suffix` is empty makes a folder there, others a file. The caller syncs the files, puts them in their
place, and removes what a failed writer left. Must not hold all rollouts in memory."""

Streamer: TypeAlias = Callable[[RunDir, IO[bytes]], Exported]
"""Writes a run to a stream; leaves `paths` empty."""


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table."""

    name: str
    """As `--format` takes it."""
    suffix: str
    """Of the file that it makes; empty for a folder."""
    module: str
    write: str = "write"
    """Name of a `Writer` in the module."""
    stream: str = ""
    """Name of a `Streamer` in the module; empty if the format is not for a pipe."""
    place: str = "{runs}--{id}{suffix}"
    """Where an export goes that was given no path. `runs`: name of the folder of all runs of this environment and
    model; `id`: the run's."""
    opens: str = ""
    """A command or call that opens it. `path`: the file or folder; `folder`: where that lies; `root`: the folder in
    which a `place` of `…/evals/…/…` begins."""

    def default_target(self, manifest: Manifest) -> Path:
        """Where the export goes that was given no path, relative to the working directory."""
        runs = folder_name(manifest.env_id, manifest.model)
        return Path(self.place.format(runs=runs, id=safe_name(manifest.id), suffix=self.suffix))

    def opening(self, exported: Exported) -> str:
        """How to open what was written; empty if there is nothing to say, or the place is not one that it finds."""
        path = exported.paths[0] if self.suffix else exported.paths[0].parent
        evals = path.parent.parent
        if "{root}" in self.opens and evals.name != "evals":
            return ""
        named = {"path": path, "folder": path.parent, "root": evals.parent}
        return self.opens.format(**{name: shlex.quote(str(value)) for name, value in named.items()})


@dataclass(frozen=True, slots=True)
class Exporter:
    """What a plugin of the group `bench.exporters` is: formats, whose modules are imported when they are used."""

    formats: tuple[Format, ...]


_OWN = (
    Format("csv", ".csv", "harness.store.export_plain", "write_csv", "stream_csv"),
    Format("jsonl", ".jsonl", "harness.store.export_plain", "write_jsonl", "stream_jsonl"),
    Format("parquet", ".parquet", "harness.store.export_parquet"),
)

_STATES: Mapping[str, str] = {"running": "still going on", "died": "not at its end: its process died"}
"""States that take more than their word."""


def formats() -> dict[str, Format]:
    """Every export format by its name: our own, then those of plugins, of which one may have several."""
    rows = {row.name: row for row in _OWN}
    for found in load_plugins(EXPORTERS, Exporter).values():
        for row in found.formats:
            rows.setdefault(row.name, row)
    return rows


def format_named(name: str) -> Format:
    """The format of that name.

    Raises:
        UsageError: there is none; names the nearest.
    """
    found = formats().get(name.strip().lower().replace("_", "-"))
    if found is None:
        raise UsageError(f"--format: no export format {name!r}; {suggestion(name, formats())}")
    return found


def format_of(target: Path) -> Format:
    """The format that a file's name says.

    Raises:
        UsageError: it says none.
    """
    for row in formats().values():
        if row.suffix and target.suffix.lower() == row.suffix:
            return row
    raise UsageError(f"which format? the name {target.name!r} does not say it: add --format {'|'.join(formats())}")


def export_run(run: RunDir, form: Format, target: Path | None = None, *, force: bool = False) -> Exported:
    """Writes a run in a format. A file appears whole or not at all; the run is only read. What is made of a private run
    is private.

    To a device or a named pipe it is streamed, as `stream_run` does.

    Args:
        run: The run; one that still goes on is exported as far as it has come.
        form: The format.
        target: Where to; a folder that exists takes a file under its default name. None: the default, in the working
            directory.
        force: Replace files that are there.

    Raises:
        UsageError: something is there already, or the target cannot be one.
        StoreError: the run cannot be read, or the files cannot be written.
        BrokenPipeError: whoever read a named pipe went away.
    """
    default = form.default_target(run.read_manifest())
    place = default if target is None else target
    if form.suffix and place.is_dir():
        place = place / default.name
    if place.is_symlink():
        place = place.resolve()
    if _is_special(place):
        _check_streams(form)
        # To replace a device or a named pipe by a file would take it away from everybody.
        with _told("write", place), place.open("wb", buffering=STREAM_BUFFER) as stream:
            return stream_run(run, form, stream, str(place))
    _check_free(place, form, force=force)
    write = cast(Writer, getattr(importlib.import_module(form.module), form.write))
    entry = read_entry(run.path)
    private = run.read_manifest().is_private
    with translated("create", place.parent):
        make_folder(place.parent, private=private)
    with _staging(place) as staged:
        with _told("write", place):
            exported = write(run, staged)
        with translated("write", place):
            _settle(staged, place, private=private)
    paths = tuple(place / path.relative_to(staged) for path in exported.paths)
    return dataclasses.replace(exported, paths=paths, notes=_notes(entry, exported))


def stream_run(run: RunDir, form: Format, stream: IO[bytes], name: str = "standard output") -> Exported:
    """Writes a run to a stream.

    Args:
        run: As `export_run` takes it.
        form: A format with a `stream`.
        stream: Where to; it is flushed, not closed.
        name: What to call it in messages.

    Raises:
        UsageError: the format is not for a pipe.
        StoreError: the run cannot be read, or the stream takes no more.
        BrokenPipeError: whoever read the stream went away.
    """
    _check_streams(form)
    entry = read_entry(run.path)
    write = cast(Streamer, getattr(importlib.import_module(form.module), form.stream))
    with _told("write", Path(name)):
        exported = write(run, stream)
        stream.flush()
    return dataclasses.replace(exported, notes=_notes(entry, exported))


def _check_streams(form: Format) -> None:
    if not form.stream:
        able = ", ".join(row.name for row in formats().values() if row.stream)
        raise UsageError(f"{form.name} cannot be written to a pipe: name a file or folder with -o; to a pipe go {able}")


def _notes(entry: ListedRun, exported: Exported) -> tuple[str, ...]:
    """What the format has to say, after what there was to say of a run that is not whole."""
    planned = entry.planned or 0
    if entry.state == "done" and exported.rows >= max(1, planned):
        return exported.notes
    state = _STATES.get(entry.state, entry.state)
    of = f"{exported.rows} of {planned} rollouts are" if planned else f"{exported.rows} rollouts are"
    return (f"the run is {state}; {of} in the export", *exported.notes)


def _is_special(place: Path) -> bool:
    """Whether a device, a pipe or a socket lies there."""
    try:
        mode = place.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _check_free(place: Path, form: Format, *, force: bool) -> None:
    if place.name in ("", ".."):
        raise UsageError(f"-o {place}: name a {'file' if form.suffix else 'folder'}")
    if not os.path.lexists(place):
        return
    if form.suffix:
        if place.is_dir():
            raise UsageError(f"{place} is a folder; name a file with -o")
        if not force:
            raise UsageError(f"{place} exists; choose another path with -o, or replace it with --force")
        return
    if not place.is_dir():
        raise UsageError(f"{place} is a file, and {form.name} is a folder of files; choose another path with -o")
    if not force and any(place.iterdir()):
        raise UsageError(
            f"{place} exists and is not empty; choose another path with -o, or use --force: files of the same names "
            "are replaced, others stay"
        )


@contextmanager
def _staging(place: Path) -> Generator[Path]:
    """A path of the same name in a new folder beside `place`, which is removed in the end."""
    with translated("write", place):
        folder = Path(tempfile.mkdtemp(prefix=".export-", dir=place.parent))
    try:
        yield folder / place.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _told(action: str, place: Path) -> Generator[None]:
    """Turns what the system refuses into a message about `place`; a reader that went away is no fault of ours."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise store_error(action, place, error) from error
    except MemoryError as error:
        raise StoreError(f"cannot {action} {place}: out of memory") from error


def _settle(staged: Path, place: Path, *, private: bool) -> None:
    """Moves a finished export, one file or a folder of them, to its place; what else lies there stays."""
    if private:  # nobody else could enter the folder that it was made in
        close_to_others(staged.parent)
    if not staged.is_dir():
        _sync(staged)
        os.replace(staged, place)
        sync_folder(place.parent)
        return
    files = sorted(path for path in staged.rglob("*") if not path.is_dir())
    for file in files:
        _sync(file)
    for file in files:
        final = place / file.relative_to(staged)
        make_folder(final.parent, private=private)
        os.replace(file, final)
        sync_folder(final.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        durable_sync(fd)
    finally:
        os.close(fd)
