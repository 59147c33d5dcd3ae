"""Implement `bench resume RUN`: resume an incomplete run of any kind. Selects the matching entry point; the engine
finds the missing rollouts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import typer

from harness.cli.derived import (
    GROUPS,
    RUN,
    SETTINGS,
    DerivedOptions,
    check_derived,
    found_run,
    home_of,
    in_place,
    settings_of,
)
from harness.cli.grouped import command_of, switch
from harness.cli.stdout import print_notices
from harness.cli.trust import check_trust
from harness.core.errors import StoreError, UsageError

if TYPE_CHECKING:
    from harness.engine.derived import Derivation
    from harness.store.manifest import Manifest
    from harness.store.rundir import RunDir


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(DerivedOptions):
    """Options of `bench resume`."""

    retry_failed: bool = switch(RUN, "--retry-failed", "Retry failed rollouts, and score unscored ones again.")


def resume(options: ResumeOptions) -> int:
    """Resume a run: of an environment, an agent or a list of tasks, a replay or a rescore.

    Same as `bench run RUN/config.toml --resume-from RUN`; a replay stays a replay, and a rescore a rescore.
    """
    from harness.cli.execute import execute
    from harness.store.completeness import is_complete, tidy

    folder, manifest = found_run(options.output_dir, options.run)
    asks_model = not manifest.derived or manifest.derived.get("model") is not None
    if manifest.derived:
        check_derived(options, asks_model=asks_model)
        if not asks_model and "api_key_var" in options.settings:
            raise UsageError(
                f"-k {options.settings['api_key_var']} has no effect, because the run {folder.path} calls no model"
            )
    summary = folder.known_summary() or {}
    unscored = sum(cast("dict[str, int]", summary.get("unscored") or {}).values())
    is_whole = manifest.status == "done" and is_complete(folder)
    if is_whole and not options.sets and not (options.retry_failed and unscored):
        with contextlib.suppress(StoreError):  # a read-only folder stays as it is
            tidy(folder)
        return _say_done(folder, manifest, unscored, as_json=options.json)
    resolution = settings_of(folder, options, in_place(folder, options.output_dir))
    print_notices(resolution.notices)
    is_ours = check_trust(folder, resolution, trusted=options.trust, asks_model=asks_model)
    chosen = replace(options, is_ours=is_ours, resume_from=str(folder.path))
    if not manifest.derived:
        return execute(resolution, chosen)
    from harness.cli.derived_view import execute_derived

    return execute_derived(resolution, chosen, _derivation(folder, manifest, options.output_dir))


def _say_done(folder: RunDir, manifest: Manifest, unscored: int, *, as_json: bool) -> int:
    """Report that the run is complete, and suggest further commands. Returns the exit code, which for a run with a
    sequential gate is that of its verdict."""
    import shlex

    from harness.report.text import clean, make_console

    if manifest.gate and not manifest.derived:
        from harness.cli.gate_verdict import exit_code_of, json_of, print_verdicts, verdicts_of

        found = verdicts_of([(folder, manifest)])
        code, fields = exit_code_of(found), {"gate": json_of(found)} if found else {}
        print_verdicts(found, make_console(stderr=as_json))
    else:
        code, fields = 0, {}

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
        typer.echo(json.dumps({"runs": [report], **fields}, indent=2))
        return code
    typer.echo(
        f"{clean(folder.path, 2000)} is done: {summary.get('num_rollouts', 0):,} of {summary.get('planned', 0):,} "
        "rollouts have an outcome, and nothing is left to do"
    )
    if unscored:
        again = f"bench resume {shlex.quote(str(folder.path))} --retry-failed"
        typer.echo(f"{unscored:,} of them {'is' if unscored == 1 else 'are'} unscored; to try again: {again}")
    return code


def _derivation(folder: RunDir, manifest: Manifest, output_dir: str) -> Derivation:
    """Read how a derived run was created, to resume it in the same way.

    Raises:
        UsageError: the parent run no longer exists.
    """
    from harness.engine.derived import Derivation
    from harness.store.find_runs import find_sibling
    from harness.store.outcomes import read_journal
    from harness.store.rundir import RunDir

    derived = manifest.derived
    if derived.get("how") not in ("replay", "rescore") or not isinstance(derived.get("parent"), str):
        raise UsageError(f"{folder.manifest_path}: `derived` does not say how and from which run this run was derived")
    identifier = str(derived["parent"])
    try:
        parent = RunDir(find_sibling(home_of(folder, output_dir), identifier))
    except UsageError as error:
        raise UsageError(
            f"{folder.path} is a {derived['how']} of {identifier}, which no longer exists, so it cannot be "
            f"resumed: {error}"
        ) from None
    has_begun = derived["how"] == "rescore" and folder.journal_path.exists()
    return Derivation(
        derived["how"], parent, read_journal(parent), derived.get("only"), derived.get("model"),
        read_journal(folder) if has_begun else None,
    )  # fmt: skip


app = command_of(ResumeOptions, resume, GROUPS, settings={RUN: ("api_key_var", *SETTINGS[RUN])})
