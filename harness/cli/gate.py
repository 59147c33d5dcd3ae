"""Implement `bench gate`: decide whether a candidate may replace its baseline. `report.compare` decides; this module
prints, writes the files and sets the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.cli.compare import CLUSTER_HELP, METRIC_HELP, compared
from harness.cli.grouped import flag, positional
from harness.cli.output import write_fitted, write_json
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.report.compare.screen import Compared

CANDIDATE_HELP = "Run or suite to check."
BASELINE_HELP = "Run or suite to compare with."
COVERAGE_HELP = "Minimum share of rollouts that are scored, and of examples that are paired."
COVERAGE = 0.98


def gate(  # noqa: PLR0913 - a command's options are its parameters
    candidate: str = positional("CANDIDATE", CANDIDATE_HELP, ...),
    baseline: str = flag("--baseline RUN|SUITE", BASELINE_HELP, ...),
    margin: float = flag("--margin X", "Acceptable loss of reward.", ...),
    min_coverage: float = flag("--min-coverage X", COVERAGE_HELP, COVERAGE),
    metric: str | None = flag("--metric NAME", METRIC_HELP),
    cluster: str | None = flag("--cluster KEY", CLUSTER_HELP),
    junit_file: Path | None = flag("--junit FILE", "Write a JUnit XML report as well."),
    markdown_file: Path | None = flag("--markdown FILE", "Write a comment for a pull request as well."),
    as_json: bool = flag("--json", "Print it all as JSON on stdout.", False),
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
) -> None:
    """Check whether a candidate is worse than its baseline by more than a margin.

    Exit code 0: not worse; 1: worse, or too few rollouts were scored; 3: too few examples to decide; 2: wrong usage.

    To pass, the whole 95 % interval of the paired difference must lie above −MARGIN, so that an imprecise measurement
    never passes a candidate. In a suite, every environment must pass.
    """
    from harness.report.compare.verdicts import (
        EXIT_CODES,
        GateRule,
        apply_rules,
        gate_json,
        junit,
        markdown,
        overall,
        verdict_lines,
    )

    _check(margin, min_coverage)
    hint = _suite_hint(baseline, candidate, output_dir)
    found = compared([baseline, candidate], output_dir, metric=metric, cluster=cluster)
    if found.unmatched:
        raise UsageError(f"candidate and baseline must contain the same runs: {' '.join([*found.unmatched, *hint])}")
    rule = GateRule(margin, min_coverage)
    rulings = apply_rules(found.matches, rule)
    for file, text in ((junit_file, junit), (markdown_file, markdown)):
        if file is not None:
            _write(file, text(rulings, rule), found)
    if as_json:
        write_json(gate_json(rulings, rule))
    else:
        write_fitted(lambda width: verdict_lines(rulings, rule, width))
    for line in hint:
        typer.echo(f"note: {line}", err=True)
    raise typer.Exit(EXIT_CODES[overall(rulings)])


def _check(margin: float, min_coverage: float) -> None:
    if not 0 <= margin < float("inf"):
        raise UsageError(f"--margin {margin:g}: the margin is the acceptable loss of reward; it must be 0 or more")
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"--min-coverage {min_coverage:g}: must be a share of the rollouts, from 0 to 1")


def _suite_hint(baseline: str, candidate: str, output_dir: Path) -> list[str]:
    """Name the suites of candidate and baseline if single runs of suites were given."""
    from harness.store.find_runs import choose
    from harness.store.invocations import suite_of

    words: list[str] = []
    for role, name in (("the candidate", candidate), ("the baseline", baseline)):
        chosen = choose(output_dir, [name])
        if len(chosen.runs) + len(chosen.gone) + len(chosen.failed) == 1:
            suite = suite_of(chosen.runs[0], output_dir)
            if suite is not None:
                count = len(suite.names) + len(suite.failed)
                words.append(f"{role} is one of the {count} runs of the suite {suite.id}; that id names all of them.")
    return words


def _write(file: Path, text: str, found: Compared) -> None:
    from harness.store.atomic import atomic_write

    is_private = any(side.manifest.is_private for each in found.matches for side in (each.candidate, each.baseline))
    atomic_write(file, text, private=is_private)
