"""Parquet export: the run's dataset in one file, sorted by example and rollout. The columns are those of `store.rows`,
as in the run folder."""

from __future__ import annotations

import json
from pathlib import Path

from harness.store.dataset import NOTES
from harness.store.export_formats import Exported
from harness.store.outcomes import outcomes, read_journal
from harness.store.rows import RowFile, RowShape
from harness.store.rundir import RunDir


def write(run: RunDir, target: Path) -> Exported:
    """Write a run as one parquet file; see `harness.store.export_formats.Writer`."""
    manifest = run.read_manifest()
    notes = {NOTES.decode(): json.dumps({"run": manifest.id})}
    file = RowFile(target, RowShape.of(manifest), notes)
    try:
        for outcome in outcomes(read_journal(run)):
            file.add(outcome.example, outcome.base, outcome.score)
    except BaseException:
        file.abandon()
        raise
    file.close()
    return Exported((target,), file.rows)
