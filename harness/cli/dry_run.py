"""Print the settings of a dry run (`--dry-run`) with their origins, as tables or JSON. `ResolvedRun.described` masks
secrets."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TextIO

import typer

from harness.cli.labels import RUN
from harness.core.errors import ConfigError
from harness.core.messages import Labels
from harness.core.types import JsonDict
from harness.report.text import clean, clean_block, plain_json
from harness.settings.checks import NONE_WORD
from harness.settings.resolver import Resolution, ResolvedRun, missing_keys

_COLUMNS = ("setting", "value", "origin", "source")

_PIPED_WIDTH = 200
"""Width in columns of output that is not a terminal: enough for a setting's source with its path on one line."""


def dry_run(resolution: Resolution, environ: Mapping[str, str], *, as_json: bool, labels: Labels = RUN) -> int:
    """Print the settings of every run, and on stderr the reason why a real run would not start.

    Args:
        resolution: The runs.
        environ: Environment variables with the API keys.
        as_json: Print JSON instead of tables.
        labels: How the command spells settings.

    Returns:
        The exit code 0.
    """
    try:
        missing_keys(resolution, environ)
    except ConfigError as error:
        typer.echo(f"note: a real run would not start: {error.text(labels)}", err=True)
    if as_json:
        typer.echo(_json(resolution))
    else:
        show(resolution, sys.stdout)
    return 0


def _json(resolution: Resolution) -> str:
    """Return the settings of all runs as JSON: `{"runs": [{"env_id", "name", "settings": {"env.num_examples": {"value",
    "origin", "source"}, …}}]}`."""
    runs = [
        {"env_id": run.env_id, "name": run.settings.env.name, "settings": run.described()} for run in resolution.runs
    ]
    limits = resolution.limits
    bounds = {bound: {"value": limits.of(bound), "source": source} for bound, source in limits.sources.items()}
    whole: JsonDict = {"runs": runs, **({"budget": bounds} if limits else {})}
    return plain_json(whole)


def show(resolution: Resolution, out: TextIO) -> None:
    """Print one table per run: setting, value, origin, source."""
    from rich.console import Console

    console = Console(file=out, highlight=False, width=None if out.isatty() else _PIPED_WIDTH)
    with console.capture() as captured:
        for run in resolution.runs:
            console.print(_table(run))
        if resolution.limits:
            sources = clean(", ".join(resolution.limits.sources.values()), 2000)
            console.print(f"budget of the whole invocation: {sources}", markup=False)
        count = len(resolution.runs)
        console.print(f"{count} run{'s' if count != 1 else ''}; no model was called.")
    out.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())  # a table pads its last column


def _table(run: ResolvedRun) -> object:
    from rich.table import Column, Table
    from rich.text import Text

    title = clean_block(f"{run.settings.env.name} × {run.settings.model.model}")
    # Never truncate: several settings begin with the same characters.
    columns = [Column(name, no_wrap=name in ("setting", "origin"), overflow="fold") for name in _COLUMNS]
    table = Table(*columns, title=Text(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for path, line in run.described().items():
        cells = (path, _shown(line), str(line["origin"]), str(line["source"]))
        table.add_row(*(Text(clean_block(text)) for text in cells))
    return table


def _shown(line: JsonDict) -> str:
    value = line["value"]
    if value is None:
        return NONE_WORD
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
