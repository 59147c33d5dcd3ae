"""Implement `bench runs list`: print the runs of an output folder. `store.catalogue` finds them, `report.runs` formats
the table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.cli.grouped import flag
from harness.cli.output import write, write_fitted, write_json
from harness.report.runs import runs_lines
from harness.report.text import clean, make_console
from harness.settings.wording import listed, nearest
from harness.store.catalogue import Catalogue, Filter, ListedRun, moment

SHOWN = 20
"""Default number of listed runs, about one screen. JSON lists all."""

OUTPUT_DIR_HELP = "Where the runs are."
OUTPUTS = Path("outputs")


def list_runs(  # noqa: PLR0913 - a command's options are its parameters
    env: list[str] | None = flag("--env TEXT", "Part of the environment's or run's name."),
    model: list[str] | None = flag("--model TEXT", "Part of the model's name."),
    state: list[str] | None = flag("--state STATE", "running, done, stopped, interrupted, failed, died or damaged."),
    kind: list[str] | None = flag("--kind KIND", "run, eval or multi."),
    since: str | None = flag("--since WHEN", "Begun then or later: 2026-11-21 (UTC), 12h, 7d."),
    until: str | None = flag("--until WHEN", "Begun before, or on that day."),
    limit: int | None = flag("--limit -n N", "The N newest; -1 is all. [20; all with --json, -q]"),
    quiet: bool = flag("--quiet -q", "Print only ids, one per line.", False),
    as_json: bool = flag("--json", "Print the runs as JSON on stdout.", False),
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
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
    """Return the newest `most` matching runs, and the number of all matching runs."""
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
