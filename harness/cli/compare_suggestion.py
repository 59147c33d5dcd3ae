"""Suggest commands that compare finished runs with others. `report.compare` finds matching runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.engine.prepare import LiveRun


def compare_suggestion(runs: Sequence[LiveRun]) -> str | None:
    """Suggest `bench compare` for the models of this invocation, or for its only run and an earlier one by another
    model; None if no comparison is possible.

    Args:
        runs: Finished runs of the invocation.
    """
    from harness.report.compare.pairing import has_several_models, previous_run

    scored = [run for run in runs if run.is_saved and run.summary is not None and run.summary.scored]
    ended = [run for run in scored if run.manifest.kind == "run"]  # other commands print comparisons of their own
    if has_several_models([run.manifest for run in ended]):
        output_dir = ended[0].plan.resolved.settings.save.output_dir
        return shlex.join(["bench", "compare", *([] if output_dir == "outputs" else ["-o", str(output_dir)])])
    if len(ended) != 1 or len(runs) != 1 or ended[0].progress.state != "done":
        return None
    [run] = ended
    other = previous_run(run.folder, run.manifest)
    return None if other is None else shlex.join(["bench", "compare", str(other.path), str(run.folder.path)])


def suite_steps(runs: Sequence[LiveRun]) -> list[str]:
    """Lines with the suite's id and the commands that compare or gate it against an earlier or later suite; empty for a
    single run.

    Args:
        runs: Runs of the invocation.
    """
    from harness.report.compare.pairing import earlier_suite

    saved = [run for run in runs if run.is_saved]
    if len(saved) < 2:
        return []
    output_dir, suite = saved[0].plan.resolved.settings.save.output_dir, str(saved[0].manifest.suite)
    where = [] if output_dir == "outputs" else ["-o", str(output_dir)]
    other = earlier_suite(output_dir, suite)
    baseline, candidate = (suite, "latest") if other is None else (other, suite)
    later = " (after another run of it)" if other is None else ""
    compare = shlex.join(["bench", "compare", baseline, candidate, *where])
    gate = shlex.join(["bench", "gate", candidate, "--baseline", baseline, "--margin", "0.05", *where])
    return [f"suite {suite}: {len(saved)} runs", f"  compare suites: {compare}{later}", f"  gate: {gate}{later}"]
