"""Implement `bench runs rm RUN…`: list runs, ask for confirmation, and remove them with `store.removal`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from harness.cli.grouped import RUN_HELP, flag, positional
from harness.cli.output import ask, can_ask, write
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS, naming
from harness.core.errors import RunLocked, UsageError
from harness.report.text import clean, make_console
from harness.store.catalogue import Catalogue, ListedRun, read_entry
from harness.store.find_runs import find_runs
from harness.store.rundir import RunDir


def remove(
    runs: list[str] = positional("RUN", RUN_HELP, ...),
    yes: bool = flag("--yes -y", "Do not ask.", False),
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
) -> None:
    """Remove runs from the disk for good. Pushed datasets stay on the Hub.

    Lists the runs and asks for confirmation. If a process is writing one of them, nothing is removed.
    """
    from harness.store.removal import refuse_linked, remove_runs

    found = {path.resolve(): path for path in find_runs(output_dir, runs)}
    refuse_linked([RunDir(path) for path in found.values()])
    entries = [read_entry(path) for path in found.values()]
    for entry in entries:
        try:
            entry.run.lock().release()
        except RunLocked:
            raise RunLocked(
                f"run {entry.run.path} is being written by a process; stop this process first. Nothing was removed"
            ) from None
    screen = make_console(file=sys.stderr)
    write(_what_goes(entries, screen.width), screen)
    if not yes and not _is_sure(entries, naming(output_dir)):
        typer.echo("nothing was removed", err=True)
        raise typer.Exit(1)
    remove_runs([entry.run for entry in entries])
    write(f"removed {clean(entry.id, 200)}" for entry in entries)


def _is_sure(entries: Sequence[ListedRun], name_of: Callable[[ListedRun], str]) -> bool:
    """Ask for confirmation of the removal.

    Raises:
        UsageError: there is no terminal for the question.
    """
    if not can_ask():
        again = shlex.join(["bench", "runs", "rm", "--yes", *map(name_of, entries)])
        raise UsageError(
            "nothing was removed, because there is no terminal to ask for confirmation; to remove without "
            f"asking: {again}"
        )
    what = "this run" if len(entries) == 1 else f"these {len(entries)} runs"
    try:
        return ask(f"Remove {what} for good?")
    except KeyboardInterrupt:
        typer.echo("\nnothing was removed", err=True)
        raise


def _what_goes(entries: Sequence[ListedRun], width: int) -> Iterator[str]:
    from harness.report import numerals
    from harness.report.numerals import token_words
    from harness.report.run_facts import home_of, size_words, sizes_of, spent_on

    homes = {home: Catalogue(home) for home in {home_of(entry.run) for entry in entries} if home is not None}
    going = {entry.run.path.resolve() for entry in entries}
    for entry in entries:
        rollouts, usage = spent_on(entry)
        held = [
            "rollouts unknown" if rollouts is None else f"{rollouts:,} {'rollout' if rollouts == 1 else 'rollouts'}"
        ]
        if usage is not None and usage.requests:
            held.append(token_words(usage))
        if usage is not None and usage.cost is not None:
            held.append(numerals.dollars(usage.cost))
        held.append(size_words(sum(sizes_of(entry.run).values())))
        what = " · ".join(clean(word, 80) for word in (entry.title, entry.model) if word)
        yield f"{clean(entry.id, 200)}  {what}, {entry.state}: {', '.join(held)}"
        home = home_of(entry.run)
        children = [] if home is None else homes[home].children(entry.id)
        staying = [clean(child.id, 100) for child in children if child.run.path.resolve() not in going]
        if staying:
            yield f"  derived runs, which remain: {', '.join(staying)}"
