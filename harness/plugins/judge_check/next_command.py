"""Implement `bench judge next`: draw the rollouts that people should label next, and write a file to fill in."""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path

from harness.cli.grouped import RUN_HELP, flag, output_dir_flag, positional
from harness.cli.output import write_result
from harness.core.errors import UsageError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.plugins.judge_check.sample import NextLabels, draw_next
from harness.plugins.judge_check.screen import next_lines
from harness.report.compare.sides import REWARD
from harness.report.labels import LabelledRun, corrected_json, read_labelled
from harness.report.rollout_columns import reply_of
from harness.rubrics.judge_prompt import last_question
from harness.settings.wording import suggestion
from harness.store.atomic import atomic_write
from harness.store.codec import to_text
from harness.store.draws import Draws, add_draw, read_draws
from harness.store.export_plain import csv_cell
from harness.store.find_runs import find_run
from harness.store.journal_index import Recorded
from harness.store.notes import add_notes
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

AUTHOR, TAG = "bench judge next", "to-label"
"""Author and tag of notes about drawn rollouts."""

LONGEST = 30_000
"""Maximum characters of a question or reply in the file; a cell of a spreadsheet has at most 32,767."""

FILE_HELP = "File to write, .csv or .jsonl. [labels-RUN-N.csv, with the number of the draw]"
NOTES_HELP = f"Also mark the rollouts for `bench view`, with the tag {TAG}."


def next_labels(  # noqa: PLR0913 - a command's options are its parameters
    run: str = positional("RUN", RUN_HELP, ...),
    count: int = flag("-n --count N", "Number of rollouts to draw.", 50, min=1, max=100_000),
    seed: int = flag("--seed N", "Random seed of the draw.", 0, min=0),
    file: Path | None = flag("--file PATH", FILE_HELP),
    notes: bool = flag("--notes", NOTES_HELP, False),
    metric: str | None = flag("--metric NAME", "Draw by the values of this metric. [the reward]"),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Draw the rollouts that people should label next, and write them as a file to fill in.

    More are drawn where labels narrow the interval of the corrected mean most. The run records the draw, so that
    `bench judge check` counts each label by the probability with which its rollout was drawn. The file does not show
    the scores.
    """
    folder = RunDir(find_run(output_dir, run))
    manifest, measure = folder.read_manifest(), metric or REWARD
    if measure != REWARD and measure not in manifest.metric_names:
        raise UsageError(f"{folder.path} has no metric {measure!r}; {suggestion(measure, manifest.metric_names)}")
    recorded, draws = read_journal(folder), read_draws(folder)
    found = read_labelled(folder, recorded, measure=measure)
    target = file or Path(f"labels-{folder.id}-{len(draws.draws) + 1}.csv")
    if target.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"--file {target}: must end in .csv or .jsonl")
    if target.exists() or target.is_symlink():
        raise UsageError(f"--file {target}: it already exists, perhaps with labels; give another name")
    made = draw_next(found, draws, count, seed)
    rows = _rows(made, found, recorded, Draws((*draws.draws, made.draw)))
    atomic_write(target, _content(target, rows), private=folder.is_closed)
    add_draw(folder, made.draw)
    if notes:
        add_notes(folder, [{"key": each.key, "author": AUTHOR, "tags": [TAG]} for each in made.rollouts])
    document: JsonDict = {
        "schema_version": 1, "run": folder.id, "file": str(target), "seed": seed, "drawn": len(made.rollouts),
        "left": made.left, "corrected": corrected_json(found.corrected),
        "forecast": [{"labels": labels, "half_width": half} for labels, half in made.forecast.items()],
    }  # fmt: skip
    lines = partial(next_lines, made, found, found.corrected, str(target))
    write_result(lambda width: lines(width=width), document, as_json=as_json)


def _rows(made: NextLabels, found: LabelledRun, recorded: Recorded, draws: Draws) -> list[JsonDict]:
    """A row for each drawn rollout, or for each label that it has."""
    probabilities = draws.probabilities()
    rows: list[JsonDict] = []
    texts = outcomes(recorded, [each.number for each in made.rollouts])
    for each, outcome in zip(made.rollouts, texts, strict=True):
        row: JsonDict = {
            "example_id": each.example_id, "rollout_index": each.rollout_index,
            "question": _short(last_question(outcome.example.prompt)), "answer": _short(str(outcome.example.answer)),
            "reply": _short(reply_of(outcome.base)),
        }  # fmt: skip
        tail: JsonDict = {"probability": probabilities[each.key], "key": each.key, "run_id": found.run.id}
        known = [{"label": value, "author": author} for author, value in each.labels.items()]
        rows += [{**row, **label, **tail} for label in known or [{"label": None, "author": None}]]
    return rows


def _short(text: str) -> str:
    shown = redactor.text(text, patterns=False)
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]} […]"


def _content(target: Path, rows: list[JsonDict]) -> str:
    if target.suffix.lower() == ".jsonl":
        return "".join(f"{to_text(row)}\n" for row in rows)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(rows[0])
    writer.writerows([csv_cell(value) for value in row.values()] for row in rows)  # pyright: ignore[reportArgumentType]
    return stream.getvalue()
