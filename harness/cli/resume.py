"""Implement `bench resume RUN`: resume an incomplete run of any kind. Selects the matching entry point; the engine
finds the missing rollouts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from harness.cli.derived_settings import (
    AsJson,
    Concurrent,
    DerivedRequest,
    KeyVar,
    MaxCost,
    MaxTime,
    MaxTokensTotal,
    OutputDir,
    Quiet,
    Registry,
    RunName,
    Sets,
    Verbose,
    check_derived,
    found_run,
    home_of,
    in_place,
    settings_of,
)
from harness.cli.stdout import print_notices
from harness.cli.trust import Trust, check_trust
from harness.core.errors import StoreError, UsageError

if TYPE_CHECKING:
    from harness.engine.derived import Derivation
    from harness.store.manifest import Manifest
    from harness.store.rundir import RunDir


def resume(  # noqa: PLR0913 - a command's options are its parameters
    ctx: typer.Context,
    run: RunName,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Make failed rollouts again, and score unscored ones again.")
    ] = False,
    key_var: KeyVar = None,
    registry: Registry = None,
    max_concurrent: Concurrent = None,
    max_cost: MaxCost = None,
    max_tokens_total: MaxTokensTotal = None,
    max_time: MaxTime = None,
    sets: Sets = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    trust: Trust = False,
    output_dir: OutputDir = "outputs",
) -> None:
    """Go on with a run: of an environment, an agent or a list of tasks, a replay or a rescore.

    It is as `bench run RUN/config.toml --resume-from RUN`. A replay or rescore goes on as what it is.
    """
    from harness.cli.execute import execute
    from harness.cli.options import RunOptions
    from harness.cli.run import command_text
    from harness.store.completeness import is_complete, tidy

    state = cast("dict[str, object]", ctx.find_root().obj)
    state["verbose"] = verbose
    folder, manifest = found_run(output_dir, run)
    _check_derived(folder, manifest, sets or (), key_var)
    unscored = _unscored(folder)
    if manifest.status == "done" and is_complete(folder) and not sets and not (retry_failed and unscored):
        with contextlib.suppress(StoreError):  # a read-only folder stays as it is
            tidy(folder)
        _say_done(folder, manifest, unscored, as_json=as_json)
        return
    budget = {"max_cost": max_cost, "max_tokens_total": max_tokens_total, "max_time": max_time}
    asked = DerivedRequest(None, None, key_var, registry, max_concurrent, tuple(sets or ()), budget)
    resolution = settings_of(folder, asked, in_place(folder, output_dir))
    print_notices(resolution.notices)
    asks_model = not manifest.derived or manifest.derived.get("model") is not None
    is_ours = check_trust(folder, resolution, trusted=trust, asks_model=asks_model)
    command = command_text(cast("list[str]", state["argv"]))
    options = RunOptions(
        False, str(folder.path), retry_failed, json=as_json, quiet=quiet, verbose=verbose, command=command,
        is_ours=is_ours,
    )  # fmt: skip
    if not manifest.derived:
        raise typer.Exit(execute(resolution, options))
    from harness.cli.derived_view import execute_derived

    raise typer.Exit(execute_derived(resolution, options, _derivation(folder, manifest, output_dir)))


def _check_derived(folder: RunDir, manifest: Manifest, sets: Sequence[str], key_var: str | None) -> None:
    """Reject settings without effect on a replay or rescore.

    Raises:
        UsageError: a setting has no effect.
    """
    if not manifest.derived:
        return
    asks_model = manifest.derived.get("model") is not None
    check_derived(sets, asks_model=asks_model)
    if key_var is not None and not asks_model:
        raise UsageError(f"-k {key_var}: {folder.path} asks no model, so it needs no key")


def _unscored(folder: RunDir) -> int:
    """Number of rollouts that ended without a score, as in the summary."""
    summary = folder.known_summary() or {}
    return sum(cast("dict[str, int]", summary.get("unscored") or {}).values())


def _say_done(folder: RunDir, manifest: Manifest, unscored: int, *, as_json: bool) -> None:
    """Report that the run is complete, and suggest further commands."""
    import shlex

    from harness.report.text import clean

    summary = folder.known_summary() or {}
    if as_json:
        report = {
            "env_id": clean(manifest.env_id),
            "name": clean(manifest.name),
            "model": clean(manifest.model),
            "path": str(folder.path),
            "state": "done",
            "note": "nothing is left to do",
            "summary": summary,
        }
        typer.echo(json.dumps({"runs": [report]}, indent=2))
        return
    typer.echo(
        f"{clean(folder.path, 2000)} is done: {summary.get('num_rollouts', 0):,} of {summary.get('planned', 0):,} "
        "rollouts have an outcome, and nothing is left to do"
    )
    if unscored:
        again = f"bench resume {shlex.quote(str(folder.path))} --retry-failed"
        typer.echo(f"{unscored:,} of them {'is' if unscored == 1 else 'are'} unscored; to try again: {again}")


def _derivation(folder: RunDir, manifest: Manifest, output_dir: str) -> Derivation:
    """Read how a derived run was made, to resume it in the same way.

    Raises:
        UsageError: the parent run no longer exists.
    """
    from harness.engine.derived import Derivation
    from harness.store.finding import find_sibling
    from harness.store.outcomes import read_journal
    from harness.store.rundir import RunDir

    derived = manifest.derived
    if derived.get("how") not in ("replay", "rescore") or not isinstance(derived.get("parent"), str):
        raise UsageError(f"{folder.manifest_path}: derived does not say from which run it was made, and how")
    identifier = str(derived["parent"])
    try:
        parent = RunDir(find_sibling(home_of(folder, output_dir), identifier))
    except UsageError as error:
        raise UsageError(
            f"{folder.path} is a {derived['how']} of {identifier}, which is gone, so it cannot go on: {error}"
        ) from None
    has_begun = derived["how"] == "rescore" and folder.journal_path.exists()
    return Derivation(
        derived["how"], parent, read_journal(parent), derived.get("only"), derived.get("model"),
        read_journal(folder) if has_begun else None,
    )  # fmt: skip
