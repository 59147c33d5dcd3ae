"""Command group `bench runs`: list and remove recorded runs; `cli.runs_show` shows them. Without a command, runs are
listed. `store.catalogue` finds the runs, `report.runs` formats the table, `store.removal` removes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from harness.cli.grouped import OUTPUTS, RUN_HELP, flag, output_dir_flag, positional
from harness.cli.lazy_commands import lazy_group, new_app, own_command
from harness.cli.output import ask, can_ask, write, write_fitted, write_json
from harness.core.errors import RunLocked, UsageError
from harness.report import numerals
from harness.report.run_facts import home_of, size_text, sizes_of, spent_on
from harness.report.runs import runs_lines
from harness.report.text import clean, make_console
from harness.settings.wording import listed, nearest
from harness.store.catalogue import KINDS, STATES, Catalogue, Filter, ListedRun, moment, read_entry
from harness.store.find_runs import find_runs
from harness.store.removal import refuse_linked, remove_runs
from harness.store.rundir import RunDir

COMMANDS = {
    "list": own_command("runs:list_runs", "List runs, newest first. `bench runs` does the same."),
    "show": own_command("runs_show:show", "Show a run: results, failures, examples, settings."),
    "rm": own_command("runs:remove", "Remove runs from the disk."),
}


class RunsGroup(lazy_group(COMMANDS)):
    """The command group `bench runs`, which runs `list` if no command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command if none is given.

        Raises:
            UsageError: the first word is not a command.
        """
        first = args[0] if args else ""
        if not first or (first.startswith("-") and first not in ctx.help_option_names):
            args = ["list", *args]
        elif not first.startswith("-") and first not in COMMANDS:
            raise UsageError(
                f"unknown command {first!r}; use {', '.join(COMMANDS)}, or, to show a run: bench runs show {first}"
            )
        return super().parse_args(ctx, args)


app = new_app(cls=RunsGroup)


@app.callback()
def runs() -> None:
    """List, show or remove recorded runs.

    A run is named by its id, its path, the beginning of exactly one id, or `latest`. Without a command the runs are
    listed: `bench runs --help` is this page, `bench runs list --help` has the filters.
    """


SHOWN = 20
"""Default number of listed runs, about one screen. JSON lists all."""


def list_runs(  # noqa: PLR0913 - a command's options are its parameters
    env: list[str] | None = flag("--env TEXT", "Part of the environment's or run's name."),
    model: list[str] | None = flag("--model TEXT", "Part of the model's name."),
    state: list[str] | None = flag(
        "--state STATE", "running, done, stopped, interrupted, failed, died or damaged.", choices=STATES
    ),
    kind: list[str] | None = flag("--kind KIND", "run, eval or multi.", choices=KINDS),
    since: str | None = flag("--since WHEN", "Begun then or later: 2026-11-21 (UTC), 12h, 7d."),
    until: str | None = flag("--until WHEN", "Begun before, or on that day."),
    limit: int | None = flag("--limit -n N", "The N newest; -1 is all. [20; all with --json, -q]"),
    quiet: bool = flag("--quiet -q", "Print only ids, one per line.", False),
    as_json: bool = flag("--json", "Print the runs as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """List the runs in the output folder, newest first.

    A filter that is given several times matches any of its values. A value with a `*` must match the whole name. Only
    run.json and summary.json of each run are read. `died` is a run whose process disappeared before the run ended.
    """
    wanted = Filter(
        env or (), model or (), state or (), kind or (),
        None if since is None else moment(since, "--since"),
        None if until is None else moment(until, "--until", end=True),
    )  # fmt: skip
    catalogue = Catalogue(output_dir)
    most = limit if limit is not None else -1 if as_json or quiet else SHOWN
    shown, count = _chosen(catalogue, wanted, most)
    if as_json:
        write_json({"output_dir": str(output_dir), "runs": [entry.to_json() for entry in shown]})
    elif quiet:
        write(clean(entry.id) for entry in shown)
        return
    else:
        write_fitted(lambda width: runs_lines(shown, width, name_of=naming(output_dir)))
    write(_notes(catalogue, wanted, count, len(shown)), make_console(file=sys.stderr))


def _chosen(catalogue: Catalogue, wanted: Filter, most: int) -> tuple[list[ListedRun], int]:
    """Return the newest matching runs, at most `most` (negative for all), and the number of all matching runs."""
    if wanted == Filter():
        return list(catalogue.newest(most)), len(catalogue)  # the other runs need not be read
    found = [entry for entry in catalogue if wanted.keeps(entry)]
    return found if most < 0 else found[:most], len(found)


def naming(output_dir: Path) -> Callable[[ListedRun], str]:
    """Make a function that returns the name of a run for use in commands: its id, or its path if commands would not
    find the id."""
    usual = (OUTPUTS / "evals").resolve()
    by_id = output_dir == OUTPUTS
    return lambda entry: entry.id if by_id and entry.run.parent.parent.resolve() == usual else str(entry.run.path)


def _notes(catalogue: Catalogue, wanted: Filter, found: int, shown: int) -> Sequence[str]:
    """Return notes about runs that the list leaves out."""
    if not len(catalogue):
        root = clean(catalogue.output_dir / "evals")
        return [
            f"no runs under {root}; make one (bench run gsm8k -n 5 -m reference/oracle), or give the folder with -o"
        ]
    if not found:
        return [f"none of {len(catalogue):,} runs matches the filters{_meant(catalogue, wanted)}"]
    if shown < found:
        return [f"{shown:,} of {found:,} runs; -n -1 shows all"]
    return []


def _meant(catalogue: Catalogue, wanted: Filter) -> str:
    """Suggest a correction of a filter that matched no run."""
    entries = list(catalogue)
    for option, patterns, names in (
        ("--env", wanted.envs, [entry.env_id for entry in entries]),
        ("--model", wanted.models, [entry.model for entry in entries if entry.model]),
    ):
        for pattern in patterns:
            if any(Filter(envs=[pattern] if option == "--env" else (), models=[pattern] if option == "--model" else ())
                   .keeps(entry) for entry in entries):  # fmt: skip
                continue
            near = nearest(pattern, names)
            said = f"did you mean {shlex.quote(near)}?" if near else f"there are {listed(names)}"
            return f": {option} {clean(pattern, 100)} is not part of any name; {clean(said, 500)}"
    return ""


def remove(
    runs: list[str] = positional("RUN", RUN_HELP, ...),
    yes: bool = flag("--yes -y", "Do not ask.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Remove runs from the disk for good. Pushed datasets stay on the Hub.

    Lists the runs and asks for confirmation. If a process is writing one of them, nothing is removed.
    """
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
    homes = {home: Catalogue(home) for home in {home_of(entry.run) for entry in entries} if home is not None}
    going = {entry.run.path.resolve() for entry in entries}
    for entry in entries:
        rollouts, usage = spent_on(entry)
        held = [
            "rollouts unknown" if rollouts is None else f"{rollouts:,} {'rollout' if rollouts == 1 else 'rollouts'}"
        ]
        if usage is not None and usage.requests:
            held.append(numerals.token_text(usage))
        if usage is not None and usage.cost is not None:
            held.append(numerals.dollars(usage.cost))
        held.append(size_text(sum(sizes_of(entry.run).values())))
        what = " · ".join(clean(word, 80) for word in (entry.title, entry.model) if word)
        yield f"{clean(entry.id, 200)}  {what}, {entry.state}: {', '.join(held)}"
        home = home_of(entry.run)
        children = [] if home is None else homes[home].children(entry.id)
        staying = [clean(child.id, 100) for child in children if child.run.path.resolve() not in going]
        if staying:
            yield f"  derived runs, which remain: {', '.join(staying)}"
