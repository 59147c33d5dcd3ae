"""Implement `bench compare`: find differences between runs. Parses names of runs and suites; `report.compare` does the
statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.grouped import flag, positional
from harness.cli.output import write_fitted, write_json, write_text
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS
from harness.core.errors import UsageError
from harness.settings.wording import suggestion

if TYPE_CHECKING:
    from rich.text import Text

    from harness.report.compare.screen import Compared
    from harness.report.compare.sides import Match
    from harness.store.rundir import RunDir

RUNS_HELP = (
    "The first is the baseline. Each an id, the beginning of exactly one id, a path, or latest; or a suite, by its id "
    "or file: then runs of the same name are compared. [the models of the newest invocation]"
)
METRIC_HELP = "Compare this metric. [the reward; of bench eval each function]"
CLUSTER_HELP = "Examples with the same value of this key of their `info` (or `task`) resemble each other."
TABLE_HELP = "Print only the table models × environments: md, latex or csv. Each run is compared with the best one."
TABLES = ("md", "latex", "csv")
FLIPS = 10


def compare(  # noqa: PLR0913 - a command's options are its parameters
    runs: list[str] | None = positional("RUN|SUITE", RUNS_HELP),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
    flips: int = flag("--flips N", "Examples that differ, named of each comparison.", FLIPS, min=0),
    transcripts: int = flag("--transcripts N", "Examples that differ, printed with both transcripts.", 0, min=0),
    form: str | None = flag("--table FORMAT", TABLE_HELP),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
) -> None:
    """Compare runs with the first one, example by example.

    Shows the differences with their intervals, the examples that differ, the cost of each run, and, for a tie, the
    number of examples that would decide it.
    """
    from harness.report.compare.screen import screen

    if form is not None:
        _check_table(form, more=as_json or transcripts > 0 or flips != FLIPS)
        write_text(_result_table(form, runs or [], output_dir, metric=metric, cluster=cluster))
        return
    found = compared(runs or [], output_dir, metric=metric, cluster=cluster)
    if all(each.paired.pairs == 0 and each.unpaired is None for each in found.matches):
        folders = dict.fromkeys(
            str(side.run.path) for each in found.matches for side in (each.baseline, each.candidate)
        )
        raise UsageError(f"no two of these runs have scores to compare; try `bench runs show` on {', '.join(folders)}")
    if as_json:
        write_json(_json(found))
        return
    write_fitted(lambda width: screen(found, width, flips=flips))
    write_fitted(lambda width: _transcripts(found.matches, transcripts, width))
    if not transcripts and any(each.flips for each in found.matches):
        typer.echo("--transcripts N prints the first N of these examples with both transcripts", err=True)


def _check_table(form: str, *, more: bool) -> None:
    if form not in TABLES:
        raise UsageError(f"--table {form}: unknown format; {suggestion(form, TABLES)}")
    if more:
        raise UsageError("--table prints only the table: leave out --json, --flips and --transcripts")


def _result_table(form: str, names: Sequence[str], output_dir: Path, *, metric: str | None, cluster: str | None) -> str:
    """Return the scores of all named runs as text: a table of models × environments."""
    from harness.report.compare.sides import REWARD, ComparedRun, read_side
    from harness.report.result_table.cells import table_of_sides
    from harness.report.result_table.latex import latex_table
    from harness.report.result_table.plain import csv_table, markdown_table
    from harness.store.find_runs import choose
    from harness.store.rundir import RunDir

    chosen: dict[Path, tuple[RunDir, str]] = {}
    missing: list[str] = []
    for name in names or [""]:
        found = choose(output_dir, [name] if names else [])
        for path in found.runs:
            chosen.setdefault(path.resolve(), (RunDir(path), name))
        missing += [f"{each}: could not be loaded" for each in found.failed]
        missing += [f"{each}: this run no longer exists" for each in found.gone]
    sides: list[tuple[ComparedRun, str]] = []
    for run, name in chosen.values():
        measures = [metric] if metric else run.read_manifest().functions or [REWARD]
        sides += [(read_side(run, measure=measure, cluster=cluster), name) for measure in measures]
    if not any(side.scored for side, _ in sides):
        folders = ", ".join(str(run.path) for run, _ in chosen.values())
        raise UsageError(f"none of these runs has a score; try `bench runs show` on {folders}")
    make = {"md": markdown_table, "latex": latex_table, "csv": csv_table}[form]
    return make(table_of_sides(sides, missing))


def compared(names: Sequence[str], output_dir: Path, *, metric: str | None, cluster: str | None) -> Compared:
    """Compare the named runs or suites with the first one.

    Raises:
        UsageError: a name is unknown, or there is nothing to compare.
        StoreError: a run cannot be read.
    """
    from harness.report.compare.pairing import pairs_of
    from harness.report.compare.screen import Compared, averages_of
    from harness.report.compare.sides import ComparedRun, match, read_side
    from harness.stats.difference import adjust

    pairs, unmatched = pairs_of(names, output_dir)
    sides: dict[tuple[Path, str], ComparedRun] = {}

    def side(run: RunDir, measure: str) -> ComparedRun:
        if (run.path, measure) not in sides:
            sides[run.path, measure] = read_side(run, measure=measure, cluster=cluster)
        return sides[run.path, measure]

    matches = adjust(
        [
            match(pair.name, side(pair.candidate, measure), side(pair.baseline, measure), pair.column)
            for pair in pairs
            for measure in ([metric] if metric else _measures(pair.candidate, pair.baseline))
        ]
    )
    return Compared(tuple(matches), tuple(unmatched), averages_of(matches))


def _measures(candidate: RunDir, baseline: RunDir) -> list[str]:
    """Return the metrics to compare in two runs: the reward or, for agent evaluations with several reward functions,
    each function that both runs have.

    Raises:
        UsageError: the runs have no function in common.
    """
    from harness.report.compare.sides import REWARD

    ours, theirs = candidate.read_manifest(), baseline.read_manifest()
    if not ours.functions and not theirs.functions:
        return [REWARD]
    common = [name for name in ours.metric_names if name in theirs.metric_names]
    if not common:
        told = (
            f"{each.path} ({', '.join(named.metric_names)})" for each, named in ((candidate, ours), (baseline, theirs))
        )
        raise UsageError(f"the runs have no eval function in common: {' and '.join(told)}")
    return common


def _json(found: Compared) -> dict[str, object]:
    from harness.report.compare.sides import ComparedRun, match_json, side_json
    from harness.stats.hypotheses import p_of_interval

    sides: dict[tuple[str, str], ComparedRun] = {}
    for match in found.matches:
        for side in (match.baseline, match.candidate):
            sides.setdefault((side.run.id, side.measure), side)
    return {
        "schema_version": 1,
        "runs": [side_json(side) for side in sides.values()],
        "comparisons": [match_json(match) for match in found.matches],
        "averages": [
            {
                "candidate": label, "difference": estimate.mean, "stderr": estimate.stderr,
                "ci95": estimate.ends, "method": estimate.method, "p_value": p_of_interval(estimate),
            }
            for label, estimate in found.averages
        ],
        "not_compared": list(found.unmatched),
    }  # fmt: skip


def _transcripts(matches: Sequence[Match], most: int, width: int) -> Iterator[Text]:
    from rich.text import Text

    from harness.report.compare.screen import labels
    from harness.report.compare.sides import rollouts_of
    from harness.report.transcript import transcript

    for match in matches:
        for flip in match.flips[:most]:
            for side, label in zip(
                (match.baseline, match.candidate), labels([match.baseline, match.candidate]), strict=True
            ):
                yield Text()
                yield Text(f"=== {label}", "bold")
                rollouts = rollouts_of(side, flip.key)
                yield from (Text(line) for line in transcript(rollouts[0].example, rollouts, width))
