"""The command that says whether what has just been run differs from something else. Owns its words; `report.compare`
knows what belongs together."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.engine.prepare import Prepared


def compare_suggestion(runs: Sequence[Prepared]) -> str | None:
    """`bench compare` of the models of this invocation, or of its only run with an earlier one by another model; None
    if there is nothing to compare.

    Args:
        runs: Those of the invocation, all of which have ended.
    """
    from harness.report.compare.earlier import have_rivals, previous_run

    scored = [run for run in runs if run.is_saved and run.summary is not None and run.summary.scored]
    ended = [run for run in scored if run.manifest.kind == "run"]  # others have tables of their own for that
    if have_rivals([run.manifest for run in ended]):
        output_dir = ended[0].resolved.settings.save.output_dir
        return shlex.join(["bench", "compare", *([] if output_dir == "outputs" else ["-o", str(output_dir)])])
    if len(ended) != 1 or len(runs) != 1 or ended[0].progress.state != "done":
        return None
    [run] = ended
    other = previous_run(run.folder, run.manifest)
    return None if other is None else shlex.join(["bench", "compare", str(other.path), str(run.folder.path)])


def suite_steps(runs: Sequence[Prepared]) -> list[str]:
    """The suite's id, and how to compare it and gate it: with an earlier suite of the same runs, or with a later one;
    nothing for a single run.

    Args:
        runs: Those of the invocation.
    """
    from harness.report.compare.earlier import earlier_suite

    saved = [run for run in runs if run.is_saved]
    if len(saved) < 2:
        return []
    output_dir, suite = saved[0].resolved.settings.save.output_dir, str(saved[0].manifest.suite)
    where = [] if output_dir == "outputs" else ["-o", str(output_dir)]
    other = earlier_suite(output_dir, suite)
    baseline, candidate = (suite, "latest") if other is None else (other, suite)
    later = " (after another run of it)" if other is None else ""
    compare = shlex.join(["bench", "compare", baseline, candidate, *where])
    gate = shlex.join(["bench", "gate", candidate, "--baseline", baseline, "--margin", "0.05", *where])
    return [f"suite {suite}: {len(saved)} runs", f"  compare suites: {compare}{later}", f"  gate: {gate}{later}"]
