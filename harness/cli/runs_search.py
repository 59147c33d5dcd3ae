"""Implement the options of `bench runs show` that select rollouts: `--where`, `--failed`, `--worst`, `--group-by`.
`report.selection` searches, `report.selection_page` formats."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.output import write, write_fitted
from harness.cli.runs_list import naming
from harness.cli.runs_show import Request
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.rollout_columns import RunRollout
from harness.report.selection import Search, group_json, groups_of, limits_of, search, selected_json
from harness.report.selection_page import (
    RolloutLine,
    group_lines,
    no_match_lines,
    read_command,
    rollout_line,
    search_lines,
    title_of,
)
from harness.report.text import make_console
from harness.store.catalogue import read_entry
from harness.store.find_runs import choose
from harness.store.query import QueryError

if TYPE_CHECKING:
    from harness.store.query_match import QueryColumn


def show_search(name: str, request: Request, output_dir: Path) -> None:
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
        _print_json(found, request)
    else:
        _print_list(found, request, output_dir)
    if not found.total:
        write(["the journal has no rollouts yet"], errors)
    elif not found.found:
        write([f"none of {numerals.counted(found.total, 'rollout')} matches"], errors)
    write((f"note: {line}" for line in no_match_lines(found)), errors)


def _selected(found: Search, request: Request) -> Iterator[RunRollout]:
    """Iterate over the rollouts to print. The search always runs to its end, so that its counts are complete."""
    if request.worst is not None:
        for run, number in found.worst(request.worst):
            yield from run.rollouts([number])
        return
    for place, (_, _, rollout) in enumerate(found.matches()):
        if request.most < 0 or place < request.most:
            yield rollout


def _print_list(found: Search, request: Request, output_dir: Path) -> None:
    lines = [rollout_line(rollout, found) for rollout in _selected(found, request)]
    write_fitted(lambda width: search_lines(lines, found, width))
    if not lines:
        return
    folders = {run.folder.id: run.folder.path for run in found.runs}
    name = naming(output_dir)(read_entry(folders[lines[0].run_id]))
    write(["", *_below(found, request, lines, name)])


def _below(found: Search, request: Request, lines: list[RolloutLine], name: str) -> Iterator[str]:
    words = f"{numerals.count(found.found)} of {numerals.counted(found.total, 'rollout')}"
    if request.worst is not None:
        words += f"; the {numerals.count(len(lines))} with the lowest rewards are shown"
    elif len(lines) < found.found:
        words += f"; the first {numerals.count(len(lines))} are shown, -n -1 shows all"
    yield words
    yield f"read one: {read_command(name, lines[0].example, lines[0].rollout)}"


def _print_json(found: Search, request: Request) -> None:
    """Print the selected rollouts as one JSON object with one rollout per line, without holding them in memory."""
    runs = [run.folder.id for run in found.runs]
    typer.echo(f'{{"runs": {json.dumps(runs)}, "query": {json.dumps(found.query.text)}, "rollouts": [', nl=False)
    for place, rollout in enumerate(_selected(found, request)):
        typer.echo((",\n" if place else "\n") + json.dumps(selected_json(rollout)), nl=False)
    typer.echo(f'\n], "matched": {found.found}, "total": {found.total}}}')


def _print_groups(found: Search, column: QueryColumn[RunRollout], request: Request) -> None:
    tables = groups_of(column, (rollout for _, _, rollout in found.matches()))
    limits = {run.folder.id: limits_of([run.manifest]) for run in found.runs}
    limits[""] = limits_of(run.manifest for run in found.runs)
    if request.as_json:
        groups: list[JsonDict] = []
        for run, (_, held) in tables.items():
            total = sum(group.count for group in held)
            shown = held if request.most < 0 else held[: request.most]
            groups += [group_json(run, group, total, limits[run]) for group in shown]
        head = {"runs": [run.folder.id for run in found.runs], "query": found.query.text, "group_by": column.name}
        typer.echo(json.dumps({**head, "groups": groups, "matched": found.found, "total": found.total}, indent=2))
        return
    for place, (run, table) in enumerate(tables.items()):
        title = title_of(table[0]) if run and len(found.runs) > 1 else ""
        write([""] if place else [])
        write_fitted(partial(group_lines, column, table[1], limits[run], request.most, title))
    write(_count_line(found))


def _count_line(found: Search) -> Iterable[str]:
    return ["", f"{numerals.count(found.found)} of {numerals.counted(found.total, 'rollout')}"] if found.found else []
