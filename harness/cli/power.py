"""Implement `bench power`: compute the examples and rollouts needed to detect a difference, with
`report.compare.planning`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.compare import METRIC_HELP, show_lines
from harness.cli.env_words import width_of
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS
from harness.core.errors import UsageError

FROM_HELP = "A run like those that are planned: tells how much examples, and rollouts of one, differ."
AGAINST_HELP = "A run of another model on the same examples: tells how much two models differ by example."
CORRELATION_HELP = "Without --against: of two models' true scores over examples. [0, which is cautious]"


def power(  # noqa: PLR0913 - a command's options are its parameters
    source: Annotated[str, typer.Option("--from", metavar="RUN", help=FROM_HELP, show_default=False)],
    mde: Annotated[
        float | None, typer.Option("--mde", metavar="X", help="The smallest difference that is to be found.")
    ] = None,
    against: Annotated[str | None, typer.Option("--against", metavar="RUN", help=AGAINST_HELP)] = None,
    correlation: Annotated[float | None, typer.Option("--correlation", metavar="R", help=CORRELATION_HELP)] = None,
    chance: Annotated[float, typer.Option("--power", metavar="P", help="The chance to find it.")] = 0.8,
    alpha: Annotated[float, typer.Option("--alpha", metavar="P", help="Level of the two-sided test.")] = 0.05,
    examples: Annotated[
        int | None, typer.Option("--examples", metavar="N", min=2, help="Examples that there are. [any number]")
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help=METRIC_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it all as JSON on stdout.")] = False,
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", metavar="DIR", help=OUTPUT_DIR_HELP)] = OUTPUTS,
) -> None:
    """Say which difference of two models a plan would find, and which plan finds a given one most cheaply.

    A plan is a number of examples and of rollouts of each. More examples narrow every interval; more rollouts of the
    same ones only take the noise of answering twice away.
    """
    from harness.report.compare.planning import Question, lines, plan, plan_json
    from harness.report.compare.sides import REWARD, read_side
    from harness.report.text import make_console
    from harness.store.finding import find_run
    from harness.store.rundir import RunDir

    if mde is not None and not 0 < mde < float("inf"):
        raise UsageError(f"--mde {mde:g}: it is a difference that is to be found, above 0")
    if correlation is not None and not -1 <= correlation <= 1:
        raise UsageError(f"--correlation {correlation:g}: it lies from -1 to 1")
    if correlation is not None and against is not None:
        raise UsageError("--correlation and --against say the same, and the run of --against knows it: leave one out")
    for flag, part in (("--power", chance), ("--alpha", alpha)):
        if not 0 < part < 1:
            raise UsageError(f"{flag} {part:g}: it lies between 0 and 1")
    names = [source] if against is None else [source, against]
    sides = [read_side(RunDir(find_run(output_dir, name)), measure=metric or REWARD) for name in names]
    question = Question(mde, alpha, chance, correlation or 0.0, examples)
    planned = plan(question, sides[0], None if against is None else sides[1])
    if as_json:
        typer.echo(json.dumps(plan_json(planned), indent=2))
        return
    console = make_console()
    show_lines(lines(planned, width_of(console)), console)
