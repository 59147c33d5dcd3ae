"""Implement `bench runs show RUN`: print a run, its settings, a transcript, or the rollouts that `--where`, `--failed`,
`--worst` and `--group-by` select. `report.run_facts` and `report.selection` collect the data, `report.run_page`,
`report.transcript` and `report.selection_page` format it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from harness.cli.attempts import CLUSTER_HELP, K_HELP, attempts_option, check_attempts
from harness.cli.grouped import RUN_HELP, flag, output_dir_flag, positional
from harness.cli.output import write, write_fitted, write_json, write_result
from harness.cli.runs import naming
from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.report import numerals, selection_page
from harness.report.rollout_columns import RunRollout
from harness.report.run_digest import example_outcomes
from harness.report.run_facts import facts_json, facts_of, settings_json
from harness.report.run_page import page_lines, settings_lines
from harness.report.selection import Search, group_json, groups_of, limits_of, search, selected_json
from harness.report.text import clean, make_console
from harness.report.transcript import example_json, transcript
from harness.store.catalogue import read_entry
from harness.store.clusters import chosen_key
from harness.store.find_runs import choose, find_run
from harness.store.notes import read_notes
from harness.store.query import QueryError
from harness.store.query_match import QueryColumn
from harness.store.rundir import RunDir

SHOWN = 20
"""Default number of listed rollouts or groups, about one screen. JSON lists all."""


@dataclass(frozen=True, slots=True)
class Request:
    """The options that select rollouts, as the user gave them."""

    where: str | None
    failed: bool
    worst: int | None
    group_by: str | None
    limit: int | None
    as_json: bool

    @property
    def selects(self) -> bool:
        """Whether rollouts are selected, instead of showing the page of a run."""
        return self.where is not None or self.failed or self.worst is not None or self.group_by is not None

    @property
    def most(self) -> int | None:
        """Maximum number of rollouts or groups; None for all."""
        if self.limit is None:
            return None if self.as_json else SHOWN
        return None if self.limit < 0 else self.limit


def show(  # noqa: PLR0913 - a command's options are its parameters
    run: str = positional(
        "RUN|SUITE", f"{RUN_HELP} With the options that select rollouts, also a suite. [latest]", "latest"
    ),
    example: str | None = flag("--example ID", "Print this example's transcripts in full."),
    rollout: int | None = flag("--rollout K", "Only rollout K of that example, from 0."),
    where: str | None = flag("--where QUERY", "List the rollouts that match, such as 'reward<1 stop:length'."),
    failed: bool = flag("--failed", "List those with a reward below pass_threshold, or none.", False),
    worst: int | None = flag("--worst N", "List the N with the lowest rewards.", min=1),
    group_by: str | None = flag("--group-by COLUMN", "Count them by reason, stop, metrics, parsed, info.NAME, …"),
    limit: int | None = flag("--limit -n N", "Rollouts or groups to list; -1 is all. [20; all with --json]", min=-1),
    k: str | None = flag("--k K,K…", K_HELP),
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
    settings: bool = flag("--settings", "Print only the settings, with their origins.", False),
    as_json: bool = flag("--json", "Print the same as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Show a run: scores, failures with their reasons, worst and best examples, settings, next steps.

    All figures are computed from the journal, also while the run is in progress.

    A query consists of conditions, joined by spaces or `or`, with `-` for not, and with parentheses: reward<1,
    metric.format=0, tokens>4000, stop:length, outcome:unscored, is:truncated, info.level:5, text:"let me think". For an
    unknown name, the error lists the valid names.
    """
    request = Request(where, failed, worst, group_by, limit, as_json)
    _check(request, example, rollout, settings=settings)
    if (k is not None or cluster is not None) and (request.selects or settings or example is not None):
        raise UsageError("--k and --cluster are for the page of a run: leave out the options that select rollouts")
    if request.selects:
        _show_search(run, request, output_dir)
        return
    folder = find_run(output_dir, run)
    if example is not None:
        _transcript(RunDir(folder), example, rollout, as_json=as_json)
    elif settings:
        manifest = RunDir(folder).read_manifest()
        write_result(partial(settings_lines, manifest), settings_json(manifest), as_json=as_json)
    else:
        entry, ks = read_entry(folder), attempts_option(k)
        check_attempts(ks, [] if entry.manifest is None else [entry.manifest])
        facts = facts_of(folder, naming(output_dir)(entry), pass_k=ks, cluster=chosen_key(cluster))
        write_result(partial(page_lines, facts), facts_json(facts), as_json=as_json)


def _check(request: Request, example: str | None, rollout: int | None, *, settings: bool) -> None:
    """Reject options that contradict each other.

    Raises:
        UsageError: two of the options cannot be combined.
    """
    if rollout is not None and example is None:
        raise UsageError("--rollout K requires --example ID, which selects the example of this rollout")
    if settings and example is not None:
        raise UsageError("--settings and --example are mutually exclusive")
    if request.selects and (settings or example is not None):
        other = "--settings" if settings else "--example"
        raise UsageError(f"{other} cannot be combined with --where, --failed, --worst or --group-by")
    if request.limit is not None and not request.selects:
        raise UsageError("--limit N has no effect without a list of rollouts: add --where, --failed or --group-by")
    if request.worst is not None and (request.limit is not None or request.group_by is not None):
        raise UsageError(f"--worst N cannot be combined with {'--limit' if request.group_by is None else '--group-by'}")


def _transcript(run: RunDir, name: str, rollout: int | None, *, as_json: bool) -> None:
    found, notes = example_outcomes(run, name, rollout), read_notes(run)
    if as_json:
        write_json({"run": run.id, "examples": [example_json(example, rollouts, notes) for example, rollouts in found]})
        return
    for number, (example, rollouts) in enumerate(found):
        write(["", ""] if number else [])
        write_fitted(partial(transcript, example, rollouts, notes=notes))


def _show_search(name: str, request: Request, output_dir: Path) -> None:
    """Print the selected rollouts of a run or suite.

    Args:
        name: Name of a run or suite.
        request: The options.
        output_dir: Folder in which runs are looked up.
    """
    chosen = choose(output_dir, [name])
    try:
        found = search(chosen.runs, request.where or "", only_failed=request.failed)
    except QueryError as error:
        error.place = "--where"
        raise
    column = None
    if request.group_by is not None:
        try:
            column = found.group_by = found.columns.column(request.group_by)
        except QueryError as error:
            error.place = "--group-by"
            raise
    errors = make_console(file=sys.stderr)
    write((f"note: {run}: this run of the suite no longer exists" for run in chosen.gone), errors)
    if column is not None:
        _print_groups(found, column, request)
    elif request.as_json:
        # Print the selected rollouts as one JSON object with one rollout per line, without holding them in memory.
        runs = [run.folder.id for run in found.runs]
        typer.echo(f'{{"runs": {json.dumps(runs)}, "query": {json.dumps(found.query.text)}, "rollouts": [', nl=False)
        for place, rollout in enumerate(_selected(found, request)):
            typer.echo((",\n" if place else "\n") + json.dumps(selected_json(rollout)), nl=False)
        typer.echo(f'\n], "matched": {found.found}, "total": {found.total}}}')
    else:
        _print_list(found, request, output_dir)
    if not found.total:
        write(["the journal has no rollouts yet"], errors)
    elif not found.found:
        write([f"none of {numerals.counted(found.total, 'rollout')} matches"], errors)
    write((f"note: {clean(note, 300)}" for note in found.notes()), errors)


def _selected(found: Search, request: Request) -> Iterator[RunRollout]:
    """Iterate over the rollouts to print. The search always runs to its end, so that its counts are complete."""
    if request.worst is not None:
        for run, number in found.worst(request.worst):
            yield from run.rollouts([number])
        return
    for place, (_, _, rollout) in enumerate(found.matches()):
        if request.most is None or place < request.most:
            yield rollout


def _print_list(found: Search, request: Request, output_dir: Path) -> None:
    lines = [selection_page.rollout_line(rollout, found) for rollout in _selected(found, request)]
    write_fitted(lambda width: selection_page.search_lines(lines, found, width))
    if not lines:
        return
    words, shown = found.counts, numerals.count(len(lines))
    if request.worst is not None:
        words += f"; the {shown} with the lowest rewards are shown"
    elif len(lines) < found.found:
        words += f"; the first {shown} are shown, -n -1 shows all"
    folder = next(run.folder.path for run in found.runs if run.folder.id == lines[0].run_id)
    command = selection_page.read_command(naming(output_dir)(read_entry(folder)), lines[0])
    write(["", words, f"read one: {command}"])


def _print_groups(found: Search, column: QueryColumn[RunRollout], request: Request) -> None:
    tables = groups_of(column, (rollout for _, _, rollout in found.matches()))
    limits = {run.folder.id: limits_of([run.manifest]) for run in found.runs}
    limits[""] = limits_of(run.manifest for run in found.runs)
    if request.as_json:
        groups: list[JsonDict] = []
        for run, (_, held) in tables.items():
            total = sum(group.count for group in held)
            groups += [group_json(run, group, total, limits[run]) for group in held[: request.most]]
        head = {"runs": [run.folder.id for run in found.runs], "query": found.query.text, "group_by": column.name}
        typer.echo(json.dumps({**head, "groups": groups, "matched": found.found, "total": found.total}, indent=2))
        return
    for place, (run, table) in enumerate(tables.items()):
        title = selection_page.title_of(table[0]) if run and len(found.runs) > 1 else ""
        write([""] if place else [])
        write_fitted(partial(selection_page.group_lines, column, table[1], limits[run], request.most, title))
    write(["", found.counts] if found.found else [])
