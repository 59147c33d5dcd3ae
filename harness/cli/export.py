"""Implement `bench export RUN`: convert a run to the format of another tool, and remove control characters on a
terminal. `export.formats` creates the text."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer

from harness.cli.grouped import RUN_HELP, flag, output_dir_flag, positional
from harness.core.errors import UsageError
from harness.report.text import clean, clean_block
from harness.store.export_formats import Exported, Format, export_run, format_named, format_of, formats, stream_run
from harness.store.find_runs import find_run
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


FORMAT_HELP = (
    "csv, jsonl, parquet, verifiers, every-eval-ever, inspect, notes or notes-csv. By default chosen by the ending of "
    "-o: .csv, .jsonl, .parquet or .eval."
)

STDOUT = Path("-")


def export(
    run: str = positional("RUN", RUN_HELP, ...),
    form: str | None = flag("--format -f FORMAT", FORMAT_HELP, choices=formats),
    target: Path | None = flag(
        "-o --output PATH",
        "The file to write; of verifiers and every-eval-ever, the folder. `-` is stdout, for csv, jsonl and notes. "
        "By default a name made of environment, model and run, in this directory.",
    ),
    force: bool = flag("--force", "Replace existing files.", False),
    output_dir: Path = output_dir_flag("--output-dir DIR"),
    as_json: bool = flag("--json", "Print the written files as JSON on stdout.", False),
) -> None:
    """Write a run in the format of another tool.

    The run is only read. A file is written atomically, and replaces another only with --force. Of an unfinished run,
    the existing rollouts are exported.
    """
    to_stdout = target == STDOUT
    chosen = _chosen(form, None if to_stdout else target)
    if to_stdout and as_json:
        raise UsageError("--json and -o - both write to stdout: remove one of them")
    folder = RunDir(find_run(output_dir, run))
    if to_stdout:
        _tell(_stream(folder, chosen))
    else:
        _write(folder, chosen, target, force=force, as_json=as_json)


def _chosen(form: str | None, target: Path | None) -> Format:
    if form is not None:
        return format_named(form)
    if target is None:
        raise UsageError(f"--format is missing; use one of {', '.join(formats())}")
    return format_of(target)


def _write(run: RunDir, form: Format, target: Path | None, *, force: bool, as_json: bool) -> None:
    exported = export_run(run, form, target, force=force)
    if as_json:
        paths = [str(path) for path in exported.paths]
        content = {"format": form.name, "paths": paths, "rollouts": exported.rows, "notes": exported.notes}
        typer.echo(json.dumps(content))
        return
    for path in exported.paths:
        typer.echo(str(path))
    _tell(exported)
    if exported.paths and (opening := form.opening(exported)):
        typer.echo(f"Open it: {opening}", err=True)


def _tell(exported: Exported) -> None:
    typer.echo(f"{exported.rows} rollout{'' if exported.rows == 1 else 's'}", err=True)
    for note in exported.notes:
        typer.echo(f"note: {clean(note)}", err=True)


def _stream(run: RunDir, form: Format) -> Exported:
    sys.stdout.flush()
    stream: IO[bytes] = sys.stdout.buffer
    return stream_run(run, form, io.BufferedWriter(_ForTerminal(stream)) if sys.stdout.isatty() else stream)


class _ForTerminal(io.RawIOBase):
    """Write lines of untrusted text to a terminal, without control sequences."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._rest = b""

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:

        new = bytes(data)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            self._stream.write(clean_block(line.decode("utf-8", "replace")).encode() + b"\n")
        return len(new)

    def flush(self) -> None:
        self._stream.flush()
