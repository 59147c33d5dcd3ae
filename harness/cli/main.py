"""The console script `bench`. Owns the table of commands and the way out: one message and an exit code. A command's
module is imported when that command is called, so that `bench --help` costs next to nothing."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from harness.cli import dotenv
from harness.errors import HarnessError

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command's function is, and the line that `bench --help` shows for it."""

    module: str
    function: str
    help: str


COMMANDS = {
    "run": CommandEntry(
        "harness.cli.run", "run", "Evaluate environments with a model and keep the results as a dataset."
    ),
    "push": CommandEntry("harness.cli.push", "push", "Push a recorded run to the Hugging Face Hub."),
    "serve": CommandEntry("harness.cli.serve", "serve", "Serve the reference models on this machine."),
}


class LazyCommand(TyperCommand):
    """Stands for a command until it is called."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, short_help=entry.help, add_help_option=False)
        self._entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command, and let it take over."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(name=self.name)(getattr(importlib.import_module(self._entry.module), self._entry.function))
        return typer.main.get_command(app).make_context(info_name, args, parent, **extra)


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`, none of them imported."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: LazyCommand(name, entry) for name, entry in COMMANDS.items()}


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    # rich's help would cost as much as everything else, and at 80 columns it cuts the names of flags.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata  # slow to import, and every command would pay for it

        typer.echo(f"bench {importlib.metadata.version('bench-harness')}")
        raise typer.Exit


@app.callback()
def bench(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A benchmark harness for language models: suites of environments, in TOML."""
    for notice in dotenv.load(Path.cwd() / ".env", os.environ):
        typer.echo(f"note: {notice}", err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `bench`.

    Args:
        argv: Arguments behind the program's name; None takes the process's own.

    Returns:
        The exit code: 0 done, 1 stopped early, 2 wrong usage or settings, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    state: dict[str, object] = {"argv": arguments, "verbose": False}
    try:
        app(arguments, prog_name="bench", obj=state)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except HarnessError as exc:
        return _report(exc, verbose=bool(state["verbose"]))
    return 0


def _report(error: HarnessError, *, verbose: bool) -> int:
    import traceback

    from harness.redact import redactor

    text = "".join(traceback.format_exception(error)) if verbose else f"error: {error}"
    typer.echo(redactor.text(text.rstrip()), err=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
