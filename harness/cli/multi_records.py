"""Implement `bench multi runs | show | replay` for evaluations stored with --persist. `harness.multi.persist` stores
them; a replay is executed like any evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from harness.cli.grouped import command_of
from harness.cli.multi import GROUPS, SETTINGS, ListOptions, ReplayOptions, ShowOptions
from harness.cli.output import write_json
from harness.core.errors import StateError
from harness.multi import persist
from harness.multi.options import RECORDS
from harness.multi.results import ModelSummary, RunEntry, RunRecord
from harness.report import numerals
from harness.report.layout import Column, Group, grid, print_lines
from harness.report.text import PlainConsole, clean, fit, make_console
from harness.settings.wording import suggestion

NONE_YET = "no records in {folder}: `bench multi TASKS MODELS --persist` stores one"


def list_records(options: ListOptions) -> int:
    """Print a list of the evaluations that --persist has stored, the oldest first."""
    entries = persist.list_records(options.limit, options.persist_dir)
    if options.as_json:
        write_json(entries)
    elif not entries:
        typer.echo(NONE_YET.format(folder=options.persist_dir), err=True)
    else:
        _print_entries(entries, make_console())
    return 0


def show_record(options: ShowOptions) -> int:
    """Show the result of a stored evaluation."""
    record = _record(options.run, options.persist_dir)
    if options.as_json:
        write_json(record)
    else:
        _print_record(record, make_console())
    return 0


def replay_record(options: ReplayOptions) -> int:
    """Evaluate the tasks and models of a record again.

    All requests are sent again, with the options of the record; typed options override them. A record has neither API
    keys, which are read from their variables, nor a scoring function: give --score-output again. -m selects other
    models. Only run folders are stored, unless --persist is given.
    """
    from harness.cli.multi import carry_out
    from harness.cli.multi_job import replay_job
    from harness.cli.trust import require_trust

    folder = options.persist_dir or RECORDS
    record = _record(options.run, folder)
    if not options.model and not options.trust and (leaks := persist.leaks_of(record)):
        require_trust(f"{record['runId']} was not made on this machine", leaks)
    return carry_out(replay_job(options, record, _file_of(record, folder)), options, record["runId"])


def _record(run: str, folder: str) -> RunRecord:
    """Read a record by name.

    Raises:
        StateError: no record has this name.
    """
    record = persist.load_record(run, folder)
    if record is not None:
        return record
    known = [entry["runId"] for entry in persist.list_records(0, folder)]
    begun = [each for each in known if each.startswith(run)]
    if not known:
        raise StateError(f"MultiModelEvaluator run not found: {run}; {NONE_YET.format(folder=folder)}")
    if len(set(begun)) > 1:
        hint = f"{len(set(begun))} ids begin with this text; give more characters"
    else:
        hint = f"{suggestion(run, [*known[-20:], persist.LATEST])} (`bench multi runs` lists them)"
    raise StateError(f"MultiModelEvaluator run not found: {run}; {hint}")


def _file_of(record: RunRecord, folder: str) -> Path:
    """Return the path of a record."""
    beside = Path(folder) / f"{record['runId']}.json"
    entry = persist.find_entry(record["runId"], folder)
    return beside if beside.is_file() or entry is None else Path(entry["path"])


def _print_entries(entries: Sequence[RunEntry], console: PlainConsole) -> None:
    groups: list[Group] = [
        [Column("when", [clean(each["createdAt"], 40)[:16].replace("T", " ") for each in entries])],
        [
            Column("tasks", [numerals.count(each["totals"]["tasks"]) for each in entries]),
            Column("models", [numerals.count(each["totals"]["models"]) for each in entries]),
        ],
        [Column("best", [_best(each) for each in entries])],
    ]
    print_lines(grid([clean(each["runId"], 200) for each in entries], "record", groups, console.width), console)


def _best(entry: RunEntry) -> str:
    """Return the model with the highest average, and that average."""
    if not entry["summary"]:
        return numerals.NONE
    best = max(entry["summary"], key=lambda summary: summary["avgScore"])
    name = clean(best["modelId"], 200)
    return f"{fit(name, min(24, len(name))).rstrip()} {numerals.score(best['avgScore'])}"


def _moment(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _print_record(record: RunRecord, console: PlainConsole) -> None:
    from harness.cli.multi_view import show_models
    from harness.multi.to_standings import standings_of

    totals = record["totals"]
    words = f"{clean(record['runId'], 200)}: {numerals.counted(totals['models'], 'model')} on "
    words += f"{numerals.counted(totals['tasks'], 'task')}, {_moment(record['finishedAt'])} UTC, "
    console.print(words + f"in {numerals.duration(record['durationMs'] / 1000)}", style="bold", soft_wrap=True)
    console.print()
    models = record["models"]
    if not models:
        console.print("note: stored without outputs: only the averages are known", soft_wrap=True)
        _print_averages(record["summary"], console)
        return
    show_models(models, standings_of(models), console)
    folders = [folder for each in record["summary"] if (folder := (each.get("meta") or {}).get("run"))]
    if folders:
        console.print()
        console.print("Run folders", style="bold")
    for folder in folders:
        console.print(f"  {clean(folder, 2000)}", soft_wrap=True)


def _print_averages(summaries: Sequence[ModelSummary], console: PlainConsole) -> None:
    """Print the documented averages, for a record without outputs."""
    group = [
        Column("score", [numerals.score(each["avgScore"]) for each in summaries]),
        Column("success", [numerals.percent(each["successRate"]) for each in summaries]),
        Column("latency", [numerals.latency(each["avgLatencyMs"] / 1000) for each in summaries]),
        Column("errors", [numerals.count(each["errorCount"]) for each in summaries]),
        Column("tasks", [numerals.count(each["total"]) for each in summaries]),
    ]
    names = [clean(each["modelId"], 200) for each in summaries]
    print_lines(grid(names, "model", [group], console.width), console)


runs_app = command_of(ListOptions, list_records, GROUPS)
show_app = command_of(ShowOptions, show_record, GROUPS)
replay_app = command_of(ReplayOptions, replay_record, GROUPS, settings=SETTINGS)
