"""Implement `bench compare` and `bench power`: find differences between runs, and plan sample sizes. `report.compare`
does the statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import typer
from rich.text import Text

from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import write_fitted, write_json, write_result, write_text
from harness.core.errors import UsageError
from harness.report.compare import planning, sides
from harness.report.compare.pairing import measures_of, pairs_of
from harness.report.compare.screen import Compared, averages_of, labels, screen
from harness.report.compare.sides import REWARD, ComparedRun, Match, read_side
from harness.report.paper_tables.cells import table_of_sides
from harness.report.paper_tables.latex import latex_table
from harness.report.paper_tables.plain import csv_table, markdown_table
from harness.report.transcript import transcript
from harness.settings.wording import suggestion
from harness.stats.difference import adjust
from harness.stats.hypotheses import p_of_interval
from harness.store.find_runs import choose, find_run
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
FROM_HELP = "A run like the planned ones: shows how much examples, and rollouts of an example, differ."
AGAINST_HELP = "A run of another model on the same examples: shows how much two models differ by example."
CORRELATION_HELP = "Without --against: of two models' true scores over examples. [0, which is cautious]"


def compare(  # noqa: PLR0913 - a command's options are its parameters
    runs: list[str] | None = positional("RUN|SUITE", RUNS_HELP),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
    flips: int = flag("--flips N", "Examples that differ, named of each comparison.", FLIPS, min=0),
    transcripts: int = flag("--transcripts N", "Examples that differ, printed with both transcripts.", 0, min=0),
    form: str | None = flag("--table FORMAT", TABLE_HELP, choices=TABLES),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Compare runs with the first one, example by example.

    Shows the differences with their intervals, the examples that differ, the cost of each run, and, for a tie, the
    number of examples that would decide it.
    """
    if form is not None:
        _check_table(form, more=as_json or transcripts > 0 or flips != FLIPS)
        write_text(_result_table(form, runs or [], output_dir, metric=metric, cluster=cluster))
        return
    found = compared(runs or [], output_dir, metric=metric, cluster=cluster)
    if all(each.paired.pairs == 0 and each.unpaired is None for each in found.matches):
        folders = dict.fromkeys(str(side.run.path) for side in found.sides)
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
    chosen: dict[Path, tuple[RunDir, str]] = {}
    missing: list[str] = []
    for name in names or [""]:
        found = choose(output_dir, [name] if names else [])
        for path in found.runs:
            chosen.setdefault(path.resolve(), (RunDir(path), name))
        missing += [f"{each}: could not be loaded" for each in found.failed]
        missing += [f"{each}: this run no longer exists" for each in found.gone]
    read: list[tuple[ComparedRun, str]] = []
    for run, name in chosen.values():
        measures = [metric] if metric else run.read_manifest().functions or [REWARD]
        read += [(read_side(run, measure=measure, cluster=cluster), name) for measure in measures]
    if not any(side.scored for side, _ in read):
        folders = ", ".join(str(run.path) for run, _ in chosen.values())
        raise UsageError(f"none of these runs has a score; try `bench runs show` on {folders}")
    make = {"md": markdown_table, "latex": latex_table, "csv": csv_table}[form]
    return make(table_of_sides(read, missing))


def compared(names: Sequence[str], output_dir: Path, *, metric: str | None, cluster: str | None) -> Compared:
    """Compare the named runs or suites with the first one.

    Raises:
        UsageError: a name is unknown, or there is nothing to compare.
        StoreError: a run cannot be read.
    """
    pairs, unmatched = pairs_of(names, output_dir)
    read = cache(partial(read_side, cluster=cluster))

    matches = adjust(
        [
            sides.match(pair.name, read(pair.candidate, measure), read(pair.baseline, measure), pair.column)
            for pair in pairs
            for measure in ([metric] if metric else measures_of(pair.candidate, pair.baseline))
        ]
    )
    return Compared(tuple(matches), tuple(unmatched), averages_of(matches))


def _json(found: Compared) -> dict[str, object]:
    return {
        "schema_version": 1,
        "runs": [sides.side_json(side) for side in found.sides],
        "comparisons": [sides.match_json(each) for each in found.matches],
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
    for each in matches:
        both = (each.baseline, each.candidate)
        for flip in each.flips[:most]:
            for side, label in zip(both, labels(both), strict=True):
                yield from (Text(), Text(f"=== {label}", "bold"))
                rollouts = sides.rollouts_of(side, flip.key)
                yield from (Text(line) for line in transcript(rollouts[0].example, rollouts, width))


def power(  # noqa: PLR0913 - a command's options are its parameters
    source: str = flag("--from RUN", FROM_HELP, ...),
    mde: float | None = flag("--mde X", "The smallest difference to detect."),
    against: str | None = flag("--against RUN", AGAINST_HELP),
    correlation: float | None = flag("--correlation R", CORRELATION_HELP),
    chance: float = flag("--power P", "The probability of detecting it.", 0.8),
    alpha: float = flag("--alpha P", "Level of the two-sided test.", 0.05),
    examples: int | None = flag("--examples N", "Number of available examples. [any number]", min=2),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Compute the smallest difference between two models that a plan can detect, or the cheapest plan that detects a
    given difference.

    A plan is a number of examples and a number of rollouts of each. More examples narrow every interval; more rollouts
    of the same examples only reduce the noise of single answers.
    """
    if mde is not None and not 0 < mde < float("inf"):
        raise UsageError(f"--mde {mde:g}: must be a difference in reward greater than 0")
    if correlation is not None and not -1 <= correlation <= 1:
        raise UsageError(f"--correlation {correlation:g}: must be from -1 to 1")
    if correlation is not None and against is not None:
        raise UsageError(
            "--correlation and --against are mutually exclusive: --against computes the correlation from the run"
        )
    for name, part in (("--power", chance), ("--alpha", alpha)):
        if not 0 < part < 1:
            raise UsageError(f"{name} {part:g}: must be between 0 and 1")
    names = [source] if against is None else [source, against]
    sides = [read_side(RunDir(find_run(output_dir, name)), measure=metric or REWARD) for name in names]
    question = planning.Question(mde, alpha, chance, correlation or 0.0, examples)
    planned = planning.plan(question, sides[0], None if against is None else sides[1])
    write_result(partial(planning.plan_lines, planned), planning.plan_json(planned), as_json=as_json)
