"""Entry point of the console script `bench`: the table of commands, extended by plugins, and the conversion of errors
into one message and an exit code. Commands are imported when called, see `cli.lazy_commands`."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import completion, dotenv
from harness.cli.examples import epilog
from harness.cli.lazy_commands import lazy_group, new_app, own_command
from harness.cli.log_handlers import harmless_logs
from harness.cli.stdout import open_streams, print_notices, unsay_secrets
from harness.core import plugins
from harness.core.errors import HarnessError, StoreError, UsageError
from harness.core.redact import redactor

INTERRUPTED = 130

EVALUATE, RUNS, RESULTS, SETUP = "Evaluate", "Runs", "Results", "Setup"
"""Headings of the commands in the help."""

COMMANDS = {
    "run": own_command("run:app", "Evaluate environments with a model; keep the results as a dataset.", EVALUATE),
    "eval": own_command(
        "agent:eval_app", "Evaluate an agent over the rows of a dataset, and score every run.", EVALUATE
    ),
    "multi": own_command("multi:app", "Evaluate several models on one list of tasks, side by side.", EVALUATE),
    "test": own_command("agent:test_app", "Run an agent over rows without scoring it, or step through it.", EVALUATE),
    "runs": own_command("runs:app", "List, show or remove recorded runs.", RUNS),
    "resume": own_command("resume:app", "Resume an incomplete run.", RUNS),
    "replay": own_command("derived:replay_app", "Repeat a run with its recorded replies or another model.", RUNS),
    "rescore": own_command("derived:rescore_app", "Score recorded rollouts with the current rubric.", RUNS),
    "export": own_command("export:export", "Write a run in the format of another tool.", RESULTS),
    "import": own_command("import_results:import_results", "Import results of another tool as runs.", RESULTS),
    "compare": own_command("compare:compare", "Compare runs: differences, examples and certainty.", RESULTS),
    "gate": own_command("gate:app", "Check that a run is not worse than another; for CI.", RESULTS),
    "power": own_command("compare:power", "Compute the examples needed to find a difference.", RESULTS),
    "report": own_command("report:report", "Write a page of runs to publish: HTML, Markdown or JSON.", RESULTS),
    "push": own_command("push:push", "Push a recorded run to the Hugging Face Hub.", RESULTS),
    "env": own_command("env:app", "Create, install, list, describe and check environments.", SETUP),
    "doctor": own_command("doctor.command:app", "Find problems on this machine that would stop a run.", SETUP),
    "serve": own_command("serve:serve", "Serve the reference models on this machine.", SETUP),
    "schema": own_command("schema:schema", "Print the JSON Schema of a suite or endpoint file.", SETUP),
}

app = new_app(
    cls=lazy_group(COMMANDS, plugins.COMMANDS), no_args_is_help=True, add_completion=True, epilog=epilog("bench")
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata  # slow to import for every command

        typer.echo(f"bench {importlib.metadata.version('bench-harness')}")
        raise typer.Exit


@app.callback()
def bench(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A benchmark harness for language models: suites of environments, in TOML."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory was removed; change to one that exists, and try again") from None
    print_notices(dotenv.load(here / ".env", os.environ))
    redactor.add_named(os.environ)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `bench`.

    Args:
        argv: Arguments after the program's name; None for those of the process.

    Returns:
        The exit code: 0 done, 1 stopped early, 2 wrong usage or settings, 130 interrupted.
    """
    gc.set_threshold(20_000, 20, 20)  # by default, a tenth of a run's CPU time; rollouts leave hardly any cycles
    open_streams()
    undo = unsay_secrets()
    try:
        code = _main(argv)
        if argv is None:  # code of environments may have run here
            from harness.cli.process_end import end_in_time

            end_in_time(code)
        return code
    finally:
        if argv is not None:  # else the process ends here, and its last traceback must be redacted too
            undo()


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    state: dict[str, object] = {"argv": arguments, "verbose": False}
    try:
        with harmless_logs(), completion.whole_words():
            if not completion.completion_asked(arguments):
                app(arguments, prog_name="bench", obj=state)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except HarnessError as exc:
        from harness.cli.labels import labels_of  # slow to import, and only errors need it

        exc.labels = labels_of(arguments) if exc.labels is None else exc.labels
        return _report(exc, verbose=bool(state["verbose"]))
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        words = f"cannot write to the terminal or file that shows the results: {error.strerror}; free some space"
        return _report(StoreError(words), verbose=False)
    return 0


def _report(error: HarnessError, *, verbose: bool) -> int:
    import traceback

    from harness.report.text import clean_block

    text = "".join(traceback.format_exception(error)) if verbose else f"error: {error}"
    # The message may repeat untrusted text of an endpoint, environment or file.
    typer.echo(clean_block(redactor.text(text.rstrip())), err=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
