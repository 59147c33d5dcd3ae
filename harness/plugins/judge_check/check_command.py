"""Implement `bench judge check`: agreement, bias and cost of a judge, and the mean corrected by labels of people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import typer

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import write_result
from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.plugins.judge_check.agreement import LENGTH, check_runs, checked_json, column_of, kinds_of
from harness.plugins.judge_check.label_file import LabelFile, read_label_file
from harness.plugins.judge_check.screen import check_lines
from harness.report.compare.sides import REWARD
from harness.report.labels import LabelledRun, ends_of, read_labelled
from harness.report.rollout_columns import RunRollout, rollout_columns
from harness.settings.wording import suggestion
from harness.stats.summary import Summary
from harness.store.draws import read_draws
from harness.store.find_runs import choose
from harness.store.manifest import Manifest
from harness.store.notes import add_notes, read_notes
from harness.store.outcomes import read_journal
from harness.store.query_match import QueryColumn
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of

NOTES = "notes"
TASK, MODEL = "task", "model"

RUNS_HELP = "Runs or suites: ids, beginnings of ids, paths, or `latest`."
LABELS_HELP = (
    "`notes`, those of `bench view`: a score, or the tag right or wrong; or a CSV, JSON Lines or Parquet file with the "
    "columns label, and key or example_id and rollout_index. [notes]"
)
BY_HELP = "Show bias by this column of queries or key of `info`; repeatable. [length, task, model]"
METRIC_HELP = "Compare this metric with the labels. [the reward]"
SAVE_HELP = "Write the labels of the file into the notes of the run, so that reports and `bench view` show them."


def check(
    runs: list[str] = positional("RUN|SUITE", RUNS_HELP, ...),
    labels: str | None = flag("--labels FILE", LABELS_HELP),
    by: list[str] | None = flag("--by COLUMN", BY_HELP),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    save: bool = flag("--save", SAVE_HELP, False),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Compare the scores of runs with labels of people: agreement, bias and cost; and correct the mean.

    The corrected mean uses the scores of all rollouts and the labels of some (prediction-powered inference). It holds
    for any judge, if the labelled rollouts are a random part of all; `bench judge next` draws them.
    """
    paths = choose(output_dir, runs).runs
    file = None if labels in (None, NOTES) else Path(labels)
    if file is not None and len(paths) > 1:
        raise UsageError(f"--labels {labels}: names of rollouts are those of one run; name one run, or save the labels")
    if save and (file is None or metric is not None):
        raise UsageError(
            "--save writes labels of the reward from a file into the notes: give --labels FILE, no --metric"
        )
    folders = [RunDir(path) for path in paths]
    columns = _columns([folder.read_manifest() for folder in folders], by or [])
    read = [_read(folder, file, metric or REWARD, kinds_of(columns), save=save) for folder in folders]
    labelled = [(run, summary) for run, summary in read if run.labelled]
    if not labelled:
        raise UsageError(_nothing(read, file))
    for run, _ in read:
        if not run.labelled:
            typer.echo(f"note: {run.run.id} has no labels", err=True)
    for name in by or []:
        if all(each.kinds.get(name) in (None, "") for run, _ in labelled for each in run.labelled):
            raise UsageError(f"--by {name}: no labelled rollout has it: there is no such column or key of info")
    found = check_runs(labelled, by or [], [LENGTH, TASK, MODEL])
    write_result(partial(check_lines, found), checked_json(found), as_json=as_json)


def _columns(manifests: list[Manifest], by: list[str]) -> dict[str, QueryColumn[RunRollout]]:
    """Columns by which bias is shown.

    Raises:
        QueryError: there is no such column.
    """
    known = rollout_columns(manifests)
    return {name: column_of(name, known.column) for name in dict.fromkeys([*by, TASK, MODEL]) if name != LENGTH}


def _read(
    run: RunDir,
    file: Path | None,
    measure: str,
    look: Callable[[RunRollout], Mapping[str, object]],
    *,
    save: bool,
) -> tuple[LabelledRun, Summary]:
    """Read a run with its labels.

    Raises:
        UsageError: the run has no such metric, or a label is wrong.
        StoreError: a file cannot be read, or the notes cannot be written.
    """
    manifest = run.read_manifest()
    if measure != REWARD and measure not in manifest.metric_names:
        raise UsageError(f"{run.path} has no metric {measure!r}; {suggestion(measure, manifest.metric_names)}")
    recorded = read_journal(run)
    given = None if file is None else read_label_file(file, run.id, recorded, ends_of(manifest, measure))
    found = read_labelled(
        run, recorded, measure=measure, look=look,
        given=None if given is None else given.labels, probabilities=None if given is None else given.probabilities,
    )  # fmt: skip
    if given is not None and given.others:
        typer.echo(f"note: {given.others} rows of {file} are about other runs", err=True)
    if given is not None and save:
        _save(run, given, file)
    return found, summary_of(manifest, recorded)


def _save(run: RunDir, given: LabelFile, file: Path | None) -> None:
    """Write labels into the notes of a run. Tags and remarks that an author has there are kept.

    Raises:
        UsageError: the labels have probabilities of which the run has no record.
        StoreError: the notes cannot be written.
    """
    if given.probabilities and read_draws(run).newest is None:
        raise UsageError(
            f"{file} has probabilities, but {run.id} has no record of a draw, and notes cannot hold them; check the "
            "file without --save"
        )
    notes = read_notes(run)
    documents: list[JsonDict] = []
    for key, by_author in given.labels.items():
        for author, value in by_author.items():
            own = next((note for note in notes.of(key) if note.author == author), None)
            tags, remark = ([*own.tags], own.remark) if own is not None else ([], "")
            documents.append({"key": key, "author": author, "score": value, "tags": tags, "remark": remark})
    add_notes(run, documents)
    typer.echo(f"{len(documents)} labels are in the notes of {run.id}", err=True)


def _nothing(read: list[tuple[LabelledRun, Summary]], file: Path | None) -> str:
    names = ", ".join(run.run.id for run, _ in read)
    more = sum(run.not_scored + run.not_drawn for run, _ in read)
    why = f"; {more} labelled rollouts have no score, or were not drawn" if more else ""
    if file is not None:
        return f"{file} has no label of a scored rollout of {names}{why}; fill in the column label"
    return (
        f"no note of {names} labels a scored rollout{why}; draw rollouts with bench judge next "
        f"{names.split(',')[0]}, and label them in bench view or in the file"
    )
