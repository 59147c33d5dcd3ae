"""Table of the formats of other tools, and of notes, in which `bench export` can write a run."""

from __future__ import annotations

from harness.store.export_formats import Exporter, Format

_NOTES = "harness.plugins.exports.notes"

EXPORTER = Exporter(
    (
        Format(
            "verifiers",
            "",
            "harness.plugins.exports.verifiers",
            place="verifiers/evals/{runs}/{id}",
            opens="VF_OUTPUTS_DIR={root} vf-tui",
        ),
        Format("every-eval-ever", "", "harness.plugins.exports.every_eval_ever", place="every-eval-ever/{runs}/{id}"),
        Format("inspect", ".eval", "harness.plugins.exports.inspect", opens="inspect view --log-dir {folder}"),
        Format("notes", ".jsonl", _NOTES, "", "stream_jsonl", place="{runs}--{id}--notes{suffix}"),
        Format("notes-csv", ".csv", _NOTES, "", "stream_csv", place="{runs}--{id}--notes{suffix}"),
    )
)
