"""A run with its index, for tests that compare the index with the journal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, settings
from run_samples import run_at
from store_samples import write
from view_server import own_cache

from harness.core.records import Record
from harness.core.types import JsonDict
from harness.plugins.view.run_index import RunIndex
from harness.report.rollout_columns import RunRollout
from harness.store.catalogue import read_entry
from harness.store.notes import add_note, read_notes
from harness.store.outcomes import outcomes, read_journal

METRICS = ("correct", "two words")
SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@contextmanager
def indexed(
    records: list[Record], pieces: int = 1, notes: Sequence[JsonDict] = ()
) -> Iterator[tuple[RunIndex, list[RunRollout]]]:
    """The index of a journal that is written in pieces, and the rollouts in table order."""
    with tempfile.TemporaryDirectory() as folder, own_cache(Path(folder, "cache")):
        run = run_at(Path(folder, "outputs"), metric_names=METRICS)
        size = -(-len(records) // pieces)
        write(run.journal_path, records[:size])
        index = RunIndex(read_entry(run.path))
        try:
            index.wait(60)
            for start in range(size, len(records), size):
                write(run.journal_path, records[start : start + size])
            end, meta = run.journal_path.stat().st_size, -1
            while meta != end:
                with index.reading():
                    meta = index._meta.get("end")  # pyright: ignore[reportPrivateUsage]
            for note in notes:
                add_note(run, note)
            manifest, held = run.read_manifest(), read_notes(run)
            found = outcomes(read_journal(run))
            yield index, [RunRollout(run.id, manifest, each, held.of(each.base.key)) for each in found]
        finally:
            index.close()
            index._thread.join()  # pyright: ignore[reportPrivateUsage]
