"""Implement `bench import PATH…`: write results of other tools as runs. `store.import_runs` writes the run folders."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.grouped import flag, positional
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.store.import_runs import ImportedRun, Importer, ImportOptions

_TABLE = "table"
"""Format of `--map`."""


def _formats() -> list[str]:
    from harness.core.plugins import entries_of
    from harness.store.import_runs import IMPORTERS

    return [entry.name for entry in entries_of(IMPORTERS)]


def import_results(  # noqa: PLR0913 - a command's options are its parameters
    paths: list[Path] = positional("PATH…", "Files or folders of results.", ...),
    form: str | None = flag("--format -f FORMAT", "Format of the results; recognized if left out.", choices=_formats),
    columns: list[str] | None = flag(
        "--map FIELD=COLUMN,…",
        "Columns of a JSON Lines or Parquet file: `reward=score,example=id,rollout=trial,prompt=question,"
        "completion=output,answer=target,model=…,env=…,metric.NAME=…,info.NAME=…`. Also task, error, stop, truncated, "
        "input_tokens, output_tokens, cost, seconds.",
    ),
    reward: str | None = flag("--reward METRIC", "Metric that becomes the reward, if there are several."),
    data: Path | None = flag("--data FILE", "Dataset of an Osmosis evaluation, whose results have no prompts."),
    model: str | None = flag("--model -m NAME", "Name of the model; default: the one in the results."),
    env_id: str | None = flag("--env NAME", "Name of the environment; default: the task in the results."),
    pair_by: str = flag(
        "--pair-by content|id",
        "How examples are paired with those of other runs: by prompt, answer and info, or by id with other runs that "
        "were imported so.",
        "content",
    ),
    output_dir: Path = flag("--output-dir -o DIR", "Output folder of the new runs.", Path("outputs")),
    as_json: bool = flag("--json", "Print the new runs as JSON on stdout.", False),
) -> None:
    """Import results of another tool as runs.

    Imported runs can be viewed, listed, compared, reported, exported and pushed like all others. They have no settings,
    so they cannot be resumed or rescored. Values that the results do not have stay unknown. Formats: "inspect" (`.eval`
    and `.json` logs), "lm-eval" (`samples_*.jsonl`), "verifiers" (a folder of `results.jsonl` and `metadata.json`),
    "osmosis" (results of `osmosis eval` and `bench eval`), "table" (any JSON Lines or Parquet file, by --map); plugins
    add others.
    """
    from harness.cli.options import command_text
    from harness.store.import_runs import ImportOptions, import_runs, importer_for

    if pair_by not in ("content", "id"):
        raise UsageError("must be content or id", setting="pair_by", given=repr(pair_by))
    options = ImportOptions(reward=reward, columns=_mapping(columns or []), data=data)
    form = form or (_TABLE if columns else None)
    found = [(path, *importer_for(path, form)) for path in paths]
    for _, tool, importer in found:
        _check(tool, importer, options)
    runs = (
        (_named(run, model, env_id), tool, path)
        for path, tool, importer in found
        for run in importer.read(path, options)
    )
    made = import_runs(runs, output_dir, command_text(sys.argv[1:]), by_id=pair_by == "id")
    if not made:
        raise UsageError(f"{', '.join(map(str, paths))}: no results of other tools found")
    _show([each.folder.path for each in made], output_dir, as_json=as_json)


def _mapping(given: Iterable[str]) -> dict[str, str] | None:
    """Parse `FIELD=COLUMN,…`; None if nothing is given."""
    columns: dict[str, str] = {}
    for pair in ",".join(given).split(",") if given else ():
        name, equals, column = pair.partition("=")
        if not equals or not name or not column:
            raise UsageError("give it as FIELD=COLUMN,FIELD=COLUMN", setting="map", given=repr(pair))
        if name in columns:
            raise UsageError(f"the field {name!r} is given twice", setting="map")
        columns[name] = column
    return columns or None


def _check(tool: str, importer: Importer, options: ImportOptions) -> None:
    """Reject options that the format does not take."""
    for name in options.given():
        if name not in importer.takes:
            raise UsageError(f"the format {tool} does not take it", setting="map" if name == "columns" else name)


def _named(run: ImportedRun, model: str | None, env_id: str | None) -> ImportedRun:
    return replace(run, model=model or run.model, env_id=env_id or run.env_id, name="" if env_id else run.name)


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
