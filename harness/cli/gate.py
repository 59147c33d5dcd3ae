"""Implement `bench gate`: decide whether a candidate may replace its baseline. `report.compare` decides; this module
prints, writes the files and sets the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.compare import CLUSTER_HELP, METRIC_HELP, compared, show_lines
from harness.cli.env_words import width_of
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.report.compare.screen import Compared

CANDIDATE_HELP = "The run, or suite, that is to be let through."
BASELINE_HELP = "The run, or suite, whose place it would take."
COVERAGE_HELP = "Part of the rollouts that must be scored, and of the examples that must be paired."
COVERAGE = 0.98


def gate(  # noqa: PLR0913 - a command's options are its parameters
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help=CANDIDATE_HELP, show_default=False)],
    baseline: Annotated[str, typer.Option("--baseline", metavar="RUN|SUITE", help=BASELINE_HELP, show_default=False)],
    margin: Annotated[
        float, typer.Option("--margin", metavar="X", help="Loss of reward that would not matter.", show_default=False)
    ],
    min_coverage: Annotated[
        float,
        typer.Option("--min-coverage", metavar="X", help=COVERAGE_HELP),
    ] = COVERAGE,
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help=METRIC_HELP)] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="KEY", help=CLUSTER_HELP)] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit XML report as well.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write a comment for a pull request as well.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it all as JSON on stdout.")] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", metavar="DIR", help=OUTPUT_DIR_HELP)] = OUTPUTS,
) -> None:
    """Say whether a candidate is worse than its baseline by more than a margin.

    Exit 0: it is not; 1: it is, or too little of it was scored; 3: these examples cannot tell; 2: wrong usage.

    To pass, the whole 95 % interval of the paired difference must lie above minus the margin: no candidate passes
    because it was measured too coarsely. Of a suite, every environment must pass.
    """
    from harness.report.compare.verdicts import (
        EXIT_CODES,
        GateRule,
        gate_json,
        junit,
        lines,
        markdown,
        overall,
        rulings_on,
    )
    from harness.report.text import make_console

    _check(margin, min_coverage)
    hint = _suite_hint(baseline, candidate, output_dir)
    found = compared([baseline, candidate], output_dir, metric=metric, cluster=cluster)
    if found.lonely:
        raise UsageError(f"candidate and baseline must hold the same runs: {' '.join([*found.lonely, *hint])}")
    rule = GateRule(margin, min_coverage)
    rulings = rulings_on(found.matches, rule)
    for file, text in ((junit_file, junit), (markdown_file, markdown)):
        if file is not None:
            _write(file, text(rulings, rule), found)
    if as_json:
        typer.echo(json.dumps(gate_json(rulings, rule), indent=2))
    else:
        console = make_console()
        show_lines(lines(rulings, rule, width_of(console)), console)
    for line in hint:
        typer.echo(f"note: {line}", err=True)
    raise typer.Exit(EXIT_CODES[overall(rulings)])


def _check(margin: float, min_coverage: float) -> None:
    if not 0 <= margin < float("inf"):
        raise UsageError(f"--margin {margin:g}: it is a loss that would not matter, 0 or more")
    if not 0 <= min_coverage <= 1:
        raise UsageError(f"--min-coverage {min_coverage:g}: it is a part of the rollouts, from 0 to 1")


def _suite_hint(baseline: str, candidate: str, output_dir: Path) -> list[str]:
    """Name the suites of candidate and baseline if single runs of suites were given."""
    from harness.store.invocations import suite_of
    from harness.store.suites import choose

    words: list[str] = []
    for role, name in (("the candidate", candidate), ("the baseline", baseline)):
        chosen = choose(output_dir, [name])
        if len(chosen.paths) + len(chosen.gone) + len(chosen.failed) == 1:
            suite = suite_of(chosen.paths[0], output_dir)
            if suite is not None:
                count = len(suite.names) + len(suite.failed)
                words.append(f"{role} is one of the {count} runs of the suite {suite.id}; that id names all of them.")
    return words


def _write(file: Path, text: str, found: Compared) -> None:
    from harness.store.atomic import atomic_write

    is_private = any(side.manifest.is_private for each in found.matches for side in (each.candidate, each.baseline))
    atomic_write(file, text, private=is_private)
