"""Implement `bench import PATH…`: write results of other tools as runs. `store.import_runs` writes the run folders."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from harness.cli.grouped import flag, positional
from harness.core.errors import UsageError


def _formats() -> list[str]:
    from harness.core.plugins import entries_of
    from harness.store.import_runs import IMPORTERS

    return [entry.name for entry in entries_of(IMPORTERS)]


def import_results(
    paths: list[Path] = positional("PATH…", "Files or folders of results.", ...),
    form: str | None = flag("--format -f FORMAT", "Format of the results; recognized if left out.", choices=_formats),
    output_dir: Path = flag("--output-dir -o DIR", "Output folder of the new runs.", Path("outputs")),
    as_json: bool = flag("--json", "Print the new runs as JSON on stdout.", False),
) -> None:
    """Import results of another tool as runs.

    Imported runs can be listed, compared, reported, exported and pushed like all others. They have no settings, so they
    cannot be resumed or rescored. Formats are plugins: "verifiers" reads a folder of `results.jsonl` and
    `metadata.json`.
    """
    from harness.cli.options import command_text
    from harness.store.import_runs import import_run, importer_for

    found = [(path, *importer_for(path, form)) for path in paths]
    command = command_text(sys.argv[1:])
    made = [
        import_run(run, tool, path, output_dir, command)
        for path, tool, importer in found
        for run in importer.read(path)
    ]
    if not made:
        raise UsageError(f"{', '.join(map(str, paths))}: no results of other tools found")
    _show([each.folder.path for each in made], output_dir, as_json=as_json)


def _show(folders: list[Path], output_dir: Path, *, as_json: bool) -> None:
    from harness.cli.output import write_fitted, write_json
    from harness.cli.runs import naming
    from harness.report.runs import runs_lines
    from harness.store.catalogue import read_entry

    entries = [read_entry(folder) for folder in folders]
    if as_json:
        write_json({"output_dir": str(output_dir), "runs": [entry.to_json() for entry in entries]})
        return
    name_of = naming(output_dir)
    write_fitted(lambda width: runs_lines(entries, width, name_of=name_of))
    typer.echo(f"Look at it: bench runs show {name_of(entries[0])}", err=True)
