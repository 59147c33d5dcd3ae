"""Implement `bench replay RUN`: repeat a recorded run with its recorded replies or with another model. `engine.derived`
defines the new run."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from harness.cli.derived_settings import (
    AsJson,
    Concurrent,
    DerivedRequest,
    KeyVar,
    OutputDir,
    Quiet,
    Registry,
    RunName,
    Sets,
    Verbose,
    check_derived,
    found_run,
    notices_of,
    of_new_run,
    settings_of,
)
from harness.cli.stdout import print_notices
from harness.cli.trust import Trust, check_trust


def replay(  # noqa: PLR0913 - a command's options are its parameters
    ctx: typer.Context,
    run: RunName,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="Send the same prompts to this model.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--api-base-url", "-b", metavar="URL", help="Where that model is asked.")
    ] = None,
    key_var: KeyVar = None,
    registry: Registry = None,
    max_concurrent: Concurrent = None,
    sets: Sets = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    trust: Trust = False,
    output_dir: OutputDir = "outputs",
) -> None:
    """Make a recorded run again, and compare the two.

    Without --model its recorded replies are played: no model is asked, and no key is needed. With --model the same
    examples are put to another model, as often as was planned. Either is a new run beside the old one.
    """
    from harness.cli.derived_view import execute_derived
    from harness.cli.options import RunOptions
    from harness.cli.run import command_text
    from harness.core.errors import UsageError
    from harness.engine.derived import Derivation
    from harness.store.outcomes import read_journal

    state = cast("dict[str, object]", ctx.find_root().obj)
    state["verbose"] = verbose
    for flag, value in (("-b", base_url), ("-k", key_var)):
        if value is not None and model is None:
            raise UsageError(f"{flag} goes with --model: without it no model is asked")
    check_derived(sets or (), asks_model=model is not None)
    parent, _ = found_run(output_dir, run)
    asked = DerivedRequest(model, base_url, key_var, registry, max_concurrent, tuple(sets or ()))
    resolution = settings_of(parent, asked, of_new_run(parent, output_dir))
    print_notices(notices_of(parent, resolution) if model is not None else ())
    is_ours = check_trust(parent, resolution, trusted=trust, asks_model=model is not None)
    derivation = Derivation("replay", parent, read_journal(parent), model=model)
    command = command_text(cast("list[str]", state["argv"]))
    options = RunOptions(json=as_json, quiet=quiet, verbose=verbose, command=command, is_ours=is_ours)
    raise typer.Exit(execute_derived(resolution, options, derivation))
