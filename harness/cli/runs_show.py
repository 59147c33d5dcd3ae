"""Implement `bench runs show RUN`: print a run, its settings, or one transcript. `report.run_facts` collects the data,
`report.run_page` and `report.transcript` format it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.env_words import width_of, write
from harness.cli.push import RUN_HELP
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS, naming
from harness.core.errors import UsageError
from harness.report.text import make_console
from harness.store.catalogue import read_entry
from harness.store.finding import find_run
from harness.store.rundir import RunDir


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help=f"{RUN_HELP} [latest]", show_default=False)] = "latest",
    example: Annotated[
        str | None, typer.Option("--example", metavar="ID", help="Print this example's transcripts in full.")
    ] = None,
    rollout: Annotated[
        int | None, typer.Option("--rollout", metavar="K", help="Of that example only rollout K, from 0.")
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting and where it came from, and nothing else.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON on stdout.")] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", metavar="DIR", help=OUTPUT_DIR_HELP)] = OUTPUTS,
) -> None:
    """Show a run: how it scored, what failed and why, its worst and best examples, the settings, what to do next.

    All figures are made from the journal, also while the run goes on.
    """
    if rollout is not None and example is None:
        raise UsageError("--rollout K says which rollout of an example: name that with --example ID")
    if settings and example is not None:
        raise UsageError("--settings and --example: ask for one at a time")
    folder = find_run(output_dir, run)
    if example is not None:
        _transcript(RunDir(folder), example, rollout, as_json=as_json)
    elif settings:
        _settings(RunDir(folder), as_json=as_json)
    else:
        _page(folder, output_dir, as_json=as_json)


def _page(folder: Path, output_dir: Path, *, as_json: bool) -> None:
    from harness.report.run_facts import facts_json, facts_of
    from harness.report.run_page import page_lines

    facts = facts_of(folder, naming(output_dir)(read_entry(folder)))
    if as_json:
        typer.echo(json.dumps(facts_json(facts), indent=2))
    else:
        console = make_console()
        page_lines(facts, console, width_of(console))


def _settings(run: RunDir, *, as_json: bool) -> None:
    from harness.report.run_facts import settings_json
    from harness.report.run_page import settings_lines

    manifest = run.read_manifest()
    if as_json:
        typer.echo(json.dumps(settings_json(manifest), indent=2))
    else:
        console = make_console()
        write(settings_lines(manifest, width_of(console)), console)


def _transcript(run: RunDir, name: str, rollout: int | None, *, as_json: bool) -> None:
    from harness.report.run_digest import example_outcomes
    from harness.report.transcript import example_json, transcript

    found = example_outcomes(run, name, rollout)
    if as_json:
        examples = [example_json(example, rollouts) for example, rollouts in found]
        typer.echo(json.dumps({"run": run.id, "examples": examples}, indent=2))
        return
    console = make_console()
    for number, (example, rollouts) in enumerate(found):
        write(["", ""] if number else [], console)
        write(transcript(example, rollouts, width_of(console)), console)
