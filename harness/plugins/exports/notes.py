"""Export of the notes of a run: a line or row for each note, with the id and the reward of its rollout."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

from harness.core.types import JsonDict
from harness.store.codec import to_text
from harness.store.export_formats import Exported
from harness.store.export_plain import CsvText, csv_cell, one_line
from harness.store.notes import read_notes
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

COLUMNS = (
    "example_id", "rollout_index", "reward", "author", "tags", "note_score", "remark", "time", "run_id", "key",
)  # fmt: skip


def stream_jsonl(run: RunDir, stream: IO[bytes]) -> Exported:
    """Write the notes of a run as JSON Lines; see `Streamer`."""
    export = _Export(run)
    for row in export.rows():
        stream.write(one_line(to_text(row).encode()))
    return export.result


def stream_csv(run: RunDir, stream: IO[bytes]) -> Exported:
    """Write the notes of a run as CSV, with blanks between tags; see `Streamer`."""
    export = _Export(run)
    writer = csv.writer(CsvText(stream), lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in export.rows():
        writer.writerow([csv_cell(value) for value in {**row, "tags": " ".join(row["tags"])}.values()])
    return export.result


class _Export:
    """The notes of a run in the order of its rollouts.

    Args:
        run: The run.
    """

    def __init__(self, run: RunDir) -> None:
        self._run, self._notes = run, read_notes(run)
        self._rollouts = self._noted = self._written = 0

    def rows(self) -> Iterator[JsonDict]:
        """The notes with the columns `COLUMNS`."""
        for outcome in outcomes(read_journal(self._run)):
            key, found = outcome.base.key, self._notes.of(outcome.base.key)
            self._rollouts += 1
            self._noted += bool(found)
            for note in found:
                self._written += 1
                values = (
                    outcome.example.example_id, outcome.base.rollout_index, outcome.reward, note.author, note.tags,
                    note.score, note.remark, note.time, self._run.id, key,
                )  # fmt: skip
                yield dict(zip(COLUMNS, values, strict=True))

    @property
    def result(self) -> Exported:
        """The result of the export, after all rows."""
        others = len(self._notes.by_rollout) - self._noted
        said = [f"the export has {self._written} {'note' if self._written == 1 else 'notes'}"]
        said += [f"notes about {others} rollouts that the journal does not have are left out"] if others else []
        said += [f"{self._notes.skipped} lines of notes.jsonl are no notes"] if self._notes.skipped else []
        return Exported((), self._rollouts, tuple(said))
