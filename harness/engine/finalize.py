"""Finalize a run: write summary, dataset, manifest and card from its journal, in this order, and always release the
run's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from harness.core.records import Generated, Scored
from harness.engine.prepare import LiveRun
from harness.stats.summary import summarize
from harness.store.card import rebuild_card
from harness.store.dataset import DatasetWriter
from harness.store.journal import JournalReader
from harness.store.journal_index import NOWHERE, Recorded
from harness.store.manifest import RunStatus
from harness.store.rows import RowShape
from harness.store.score_table import aim_of, tally

COLUMN_SAMPLE = 50
"""Number of rollouts searched for a state column before it is reported as empty."""


def finalize(run: LiveRun, status: RunStatus, on_recorded: Callable[[Recorded], object]) -> None:
    """Rebuild summary and dataset from the journal, and record the final status in the manifest. Blocking.

    Args:
        run: The ended run.
        status: How the run ended.
        on_recorded: Called with the whole journal.

    Raises:
        StoreError: the folder cannot be written.
    """
    progress, manifest = run.progress, run.manifest
    wall, resumed = (progress.finished or progress.started) - progress.started, progress.resumed
    earlier = run.folder.known_summary() if run.recorded is not None else None
    if earlier is not None and resumed == progress.done:
        wall, resumed = earlier["wall_s"], earlier["resumed"]  # all rollouts were complete: keep the recorded time
    try:
        recorded = run.writer.catch_up() if run.writer else Recorded.load(run.folder.journal_path)
        run.summary = summarize(
            tally(recorded),
            pass_threshold=run.plan.resolved.settings.env.pass_threshold,
            rollouts_per_example=run.plan.rollouts.rollouts_per_example,
            planned=progress.total,
            reward_range=manifest.reward_range,
            wall_s=wall,
            resumed=resumed,
            aim=aim_of(manifest),
        )
        on_recorded(recorded)
        if run.is_saved:
            run.folder.write_summary(run.summary.to_json())
            writer = run.writer or DatasetWriter(run.folder.path, RowShape.of(manifest))
            writer.complete()
            # Write the manifest after the rows: if it says `done`, all of them must be on disk.
            run.folder.write_manifest(manifest.ended(status, progress.note))
            rebuild_card(run.folder.path.parent)
            progress.note = progress.note or _absent_columns(recorded, manifest.state_columns)
    finally:
        run.release()
        if run.scratch is not None:
            run.scratch.cleanup()


def _absent_columns(recorded: Recorded, names: Sequence[str]) -> str:
    """Message naming the state columns that are empty; "" if none is. Searches the first few rollouts only."""
    looked_at = range(min(len(recorded), COLUMN_SAMPLE)) if names else range(0)
    held: set[str] = set()
    with JournalReader(recorded.path) as reader:
        for lines in map(recorded.lines, looked_at):
            base = reader.record(lines.base)
            held.update(base.state if isinstance(base, Generated) else ())
            if lines.score != NOWHERE:
                held.update(cast(Scored, reader.record(lines.score)).extra)
    absent = [name for name in names if name not in held]
    if not absent or not looked_at:
        return ""
    known = f"they hold {', '.join(sorted(held))}" if held else "they hold nothing else"
    return (
        f"state column{'s' if len(absent) > 1 else ''} {', '.join(absent)}: empty, since the states of the first "
        f"{len(looked_at)} rollouts have no JSON value of that name ({known})"
    )
