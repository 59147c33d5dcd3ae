"""Implement `bench trend`: dated runs of one environment with one model, and whether the model drifts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import write_result
from harness.plugins.archive.scores import Skipped
from harness.plugins.archive.trend_runs import dated_runs, other_versions, segments_of
from harness.plugins.archive.trend_view import trend_json, trend_lines
from harness.report import numerals
from harness.store.catalogue import Filter, moment

ENV_HELP = "The environment: part of its id or of the run's name."
SINCE_HELP = "Begun then or later: 2026-11-21 (UTC), 12h, 7d."


def trend(
    env: str = positional("ENV", ENV_HELP, ...),
    model: str | None = flag("--model TEXT", "The model: its name, or a part of it."),
    metric: str | None = flag("--metric NAME", "Use this metric. [the reward]"),
    since: str | None = flag("--since WHEN", SINCE_HELP),
    fail_on_drift: bool = flag("--fail-on-drift", "Exit code 1 if the newest segment drifts.", False),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Show the results of a model over time, and whether it drifts.

    The test may be looked at after every run: without a change it finds drift in at most 5 % of cases, ever. Where the
    environment, its arguments, the sampling or the examples changed, a new segment begins.
    """
    wanted = Filter((env,), (model,) if model else (), since=None if since is None else moment(since, "--since"))
    skipped = Skipped()
    entries = dated_runs(env, wanted, output_dir, skipped)
    segments = segments_of(entries, metric, skipped)
    notes = [*skipped.notes, *(each for segment in segments for each in other_versions(segment))]
    if unscored := sum(run.unscored for segment in segments for run in segment.runs):
        notes.append(f"{numerals.counted(unscored, 'rollout has', 'rollouts have')} no score, and no part in this")
    write_result(
        partial(trend_lines, segments, notes), trend_json(segments, notes) if as_json else None, as_json=as_json
    )
    if fail_on_drift and segments[-1].drift.is_found:
        raise typer.Exit(1)
