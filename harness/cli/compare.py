"""Implement `bench compare` and `bench power`: find differences between runs, and plan sample sizes. `report.compare`
does the statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import typer
from rich.text import Text

from harness.cli.attempts import CLUSTER_HELP, attempts_option, check_attempts
from harness.cli.grouped import flag, output_dir_flag, positional
from harness.cli.output import write_fitted, write_json, write_result, write_text
from harness.core.errors import UsageError
from harness.report.compare import planning, sides
from harness.report.compare.comparison_json import match_json, side_json
from harness.report.compare.equal import with_equality
from harness.report.compare.pairing import finished_runs, measures_of, pairs_of
from harness.report.compare.ranking import ranking_lines, rankings_json, rankings_of
from harness.report.compare.screen import Compared, averages_of, labels, screen
from harness.report.compare.sides import REWARD, ComparedRun, Match, read_side
from harness.report.paper_tables.cells import table_of_sides
from harness.report.paper_tables.latex import latex_table
from harness.report.paper_tables.plain import csv_table, markdown_table
from harness.report.text import clean
from harness.report.transcript import transcript
from harness.settings.wording import suggestion
from harness.stats.difference import adjust
from harness.stats.hypotheses import p_of_interval
from harness.stats.passk import pass_measures
from harness.store.clusters import shared_key
from harness.store.find_runs import choose, find_run
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

RUNS_HELP = (
    "The first is the baseline. Each an id, the beginning of exactly one id, a path, or latest; or a suite, by its id "
    "or file: then runs of the same name are compared. [the models of the newest invocation]"
)
METRIC_HELP = "Compare this metric. [the reward; of bench eval each function]"
K_HELP = "Compare pass@k and pass^k for these k, too, such as 1,3,5."
TABLE_HELP = "Print only the table models × environments: md, latex or csv. Each run is compared with the best one."
EQUAL_HELP = "Also say whether runs are equal, different or cannot be told, within this difference."
ALL_HELP = (
    "Rank all runs of each environment: places with simultaneous intervals, and groups that cannot be told apart."
)
ENV_HELP = "With --all: the newest finished run of each model on this environment; a part of its name, or a pattern."
TABLES = ("md", "latex", "csv")
FLIPS = 10
FROM_HELP = "A run like the planned ones: shows how much examples, and rollouts of an example, differ."
AGAINST_HELP = "A run of another model on the same examples: shows how much two models differ by example."
CORRELATION_HELP = "Without --against: of two models' true scores over examples. [0, which is cautious]"


def compare(  # noqa: PLR0913 - a command's options are its parameters
    runs: list[str] | None = positional("RUN|SUITE", RUNS_HELP),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    k: str | None = flag("--k K,K…", K_HELP),
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
    flips: int = flag("--flips N", "Examples that differ, named of each comparison.", FLIPS, min=0),
    transcripts: int = flag("--transcripts N", "Examples that differ, printed with both transcripts.", 0, min=0),
    equal_within: float | None = flag("--equal-within X", EQUAL_HELP),
    rank: bool = flag("--all", ALL_HELP, False),
    env: str | None = flag("--env NAME", ENV_HELP),
    form: str | None = flag("--table FORMAT", TABLE_HELP, choices=TABLES),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = output_dir_flag(),
) -> None:
    """Compare runs with the first one, example by example; or rank all of them with --all.

    Shows the differences with their intervals, the examples that differ, the cost of each run, and, for a tie, the
    number of examples that would decide it.
    """
    what = Measured(metric, attempts_option(k), cluster)
    if equal_within is not None and not 0 < equal_within < float("inf"):
        raise UsageError(f"--equal-within {equal_within:g}: must be a difference in reward greater than 0")
    if env is not None and (runs or not rank):
        raise UsageError("--env chooses the runs that --all ranks: use it with --all, and name no runs")
    if rank and (equal_within is not None or transcripts > 0 or flips != FLIPS):
        raise UsageError("--all ranks all runs: leave out --equal-within, --flips and --transcripts")
    if form is not None:
        _check_table(form, more=as_json or transcripts > 0 or flips != FLIPS)
    names = [str(path) for path in finished_runs(output_dir, [env])] if env is not None else runs or []
    if form is not None or rank:
        sides, gone = _sides(names, output_dir, what)
        if form is not None:
            make = {"md": markdown_table, "latex": latex_table, "csv": csv_table}[form]
            write_text(make(table_of_sides(sides, gone, margin=equal_within, with_places=rank)))
            return
        rankings, left = rankings_of([side for side, _ in sides])
        left += [f"{clean(each)}." for each in gone]
        write_result(partial(ranking_lines, rankings, left), rankings_json(rankings, left), as_json=as_json)
        return
    found = compared(names, output_dir, what)
    if equal_within is not None:
        found = replace(found, matches=tuple(with_equality(found.matches, equal_within)))
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


@dataclass(frozen=True, slots=True)
class Measured:
    """What to compare."""

    metric: str | None = None
    """A metric or pass rate in place of the reward; None for the reward, or each function of an agent evaluation."""
    ks: tuple[int, ...] = ()
    """Numbers of attempts for which pass@k and pass^k are compared, too."""
    cluster: str | None = None
    """Value of `--cluster`."""

    def names(self, usual: Sequence[str]) -> list[str]:
        """Names of the measures.

        Args:
            usual: Those without options.
        """
        names = [*([self.metric] if self.metric else usual), *(each.name for each in pass_measures(self.ks))]
        return list(dict.fromkeys(names))


def _sides(names: Sequence[str], output_dir: Path, what: Measured) -> tuple[list[tuple[ComparedRun, str]], list[str]]:
    """Read all named runs, each with the name by which it was chosen; also return sentences about missing ones."""
    chosen: dict[Path, tuple[RunDir, str]] = {}
    missing: list[str] = []
    for name in names or [""]:
        found = choose(output_dir, [name] if names else [])
        for path in found.runs:
            chosen.setdefault(path.resolve(), (RunDir(path), name))
        missing += [f"{each}: could not be loaded" for each in found.failed]
        missing += [f"{each}: this run no longer exists" for each in found.gone]
    read: list[tuple[ComparedRun, str]] = []
    manifests = {run.path: run.read_manifest() for run, _ in chosen.values()}
    check_attempts(what.ks, manifests.values())
    for run, name in chosen.values():
        manifest = manifests[run.path]
        key = shared_key([each for each in manifests.values() if each.env_id == manifest.env_id], what.cluster)
        measures = what.names(manifest.functions or [REWARD])
        read += [(read_side(run, measure=measure, cluster=key), name) for measure in measures]
    if not any(side.scored for side, _ in read):
        folders = ", ".join(str(run.path) for run, _ in chosen.values())
        raise UsageError(f"none of these runs has a score; try `bench runs show` on {folders}")
    return read, missing


def compared(names: Sequence[str], output_dir: Path, what: Measured) -> Compared:
    """Compare the named runs or suites with the first one.

    Raises:
        UsageError: a name is unknown, there is nothing to compare, or the runs declare different clusters.
        StoreError: a run cannot be read.
    """
    pairs, unmatched = pairs_of(names, output_dir)
    manifests = {run.path: run.read_manifest() for pair in pairs for run in (pair.baseline, pair.candidate)}
    check_attempts(what.ks, manifests.values())
    together: dict[Path, list[Manifest]] = {}  # all runs that are compared with one baseline have the same clusters
    for pair in pairs:
        group = together.setdefault(pair.baseline.path, [manifests[pair.baseline.path]])
        group.append(manifests[pair.candidate.path])
    keys = {path: shared_key(group, what.cluster) for path, group in together.items()}

    @cache
    def read(run: RunDir, measure: str, key: str) -> ComparedRun:
        return read_side(run, measure, cluster=key)

    matches = adjust(
        [
            sides.match(pair.name, read(pair.candidate, measure, key), read(pair.baseline, measure, key), pair.column)
            for pair in pairs
            for key in [keys[pair.baseline.path]]
            for measure in what.names(() if what.metric else measures_of(pair.candidate, pair.baseline))
        ]
    )
    return Compared(tuple(matches), tuple(unmatched), averages_of(matches))


def _json(found: Compared) -> dict[str, object]:
    return {
        "schema_version": 1,
        "runs": [side_json(side) for side in found.sides],
        "comparisons": [match_json(each) for each in found.matches],
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
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
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
    runs = [RunDir(find_run(output_dir, name)) for name in ([source] if against is None else [source, against])]
    key = shared_key([run.read_manifest() for run in runs], cluster)
    sides = [read_side(run, measure=metric or REWARD, cluster=key) for run in runs]
    if sides[0].attempts is not None:
        raise UsageError(f"--metric {metric}: plans are for means of rewards and metrics, not for pass rates")
    question = planning.Question(mde, alpha, chance, correlation or 0.0, examples)
    planned = planning.plan(question, sides[0], None if against is None else sides[1])
    write_result(partial(planning.plan_lines, planned), planning.plan_json(planned), as_json=as_json)
