"""Implement `bench rescore RUN`: score recorded rollouts with the current rubric. `engine.derived` selects the scores
to recompute."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from harness.cli.derived_settings import (
    AsJson,
    Concurrent,
    DerivedRequest,
    OutputDir,
    Quiet,
    Registry,
    RunName,
    Sets,
    Verbose,
    check_derived,
    found_run,
    of_new_run,
    settings_of,
)
from harness.cli.trust import Trust, check_trust


def rescore(  # noqa: PLR0913 - a command's options are its parameters
    ctx: typer.Context,
    run: RunName,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="unscored|FUNCTION",
            help="`unscored`: leave alone what has a score. A reward function's name: run that one alone.",
        ),
    ] = None,
    registry: Registry = None,
    max_concurrent: Concurrent = None,
    sets: Sets = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    trust: Trust = False,
    output_dir: OutputDir = "outputs",
) -> None:
    """Score a run's recorded rollouts with today's rubric, and compare the two.

    No model is asked but judges. The rollouts are taken over as they are, into a new run beside the old one. With
    --only FUNCTION the other functions' recorded values are added to that one's.
    """
    from harness.cli.derived_view import execute_derived
    from harness.cli.options import RunOptions
    from harness.cli.run import command_text
    from harness.core.errors import UsageError
    from harness.engine.derived import Derivation
    from harness.store.outcomes import read_journal

    state = cast("dict[str, object]", ctx.find_root().obj)
    state["verbose"] = verbose
    if only is not None and not only.strip():
        raise UsageError("--only is empty: give `unscored`, or the name of a reward function")
    check_derived(sets or (), asks_model=False)
    parent, _ = found_run(output_dir, run)
    asked = DerivedRequest(registry=registry, max_concurrent=max_concurrent, sets=tuple(sets or ()))
    resolution = settings_of(parent, asked, of_new_run(parent, output_dir))
    is_ours = check_trust(parent, resolution, trusted=trust, asks_model=False)
    derivation = Derivation("rescore", parent, read_journal(parent), only=only)
    command = command_text(cast("list[str]", state["argv"]))
    options = RunOptions(json=as_json, quiet=quiet, verbose=verbose, command=command, is_ours=is_ours)
    raise typer.Exit(execute_derived(resolution, options, derivation))
