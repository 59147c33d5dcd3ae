"""Command group `bench runs`: the table of its commands, with `list` as default. Each command is in its own module."""

from __future__ import annotations

from typing import Any

from harness.cli.lazy_commands import CommandEntry, lazy_group, new_app
from harness.core.errors import UsageError

COMMANDS = {
    "list": CommandEntry("harness.cli.runs_list", "list_runs", "List runs, newest first. `bench runs` does the same."),
    "show": CommandEntry("harness.cli.runs_show", "show", "Show a run: results, failures, examples, settings."),
    "rm": CommandEntry("harness.cli.runs_rm", "remove", "Remove runs from the disk."),
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
