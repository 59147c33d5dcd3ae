"""Implement `bench power`: compute the examples and rollouts needed to detect a difference, with
`report.compare.planning`."""

from __future__ import annotations

from pathlib import Path

from harness.cli.compare import METRIC_HELP
from harness.cli.grouped import flag
from harness.cli.output import write_fitted, write_json
from harness.cli.runs_list import OUTPUT_DIR_HELP, OUTPUTS
from harness.core.errors import UsageError

FROM_HELP = "A run like the planned ones: shows how much examples, and rollouts of an example, differ."
AGAINST_HELP = "A run of another model on the same examples: shows how much two models differ by example."
CORRELATION_HELP = "Without --against: of two models' true scores over examples. [0, which is cautious]"


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
    output_dir: Path = flag("--output-dir -o DIR", OUTPUT_DIR_HELP, OUTPUTS),
) -> None:
    """Compute the smallest difference between two models that a plan can detect, or the cheapest plan that detects a
    given difference.

    A plan is a number of examples and a number of rollouts of each. More examples narrow every interval; more rollouts
    of the same examples only reduce the noise of single answers.
    """
    from harness.report.compare.planning import Question, plan, plan_json, plan_lines
    from harness.report.compare.sides import REWARD, read_side
    from harness.store.find_runs import find_run
    from harness.store.rundir import RunDir

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
    question = Question(mde, alpha, chance, correlation or 0.0, examples)
    planned = plan(question, sides[0], None if against is None else sides[1])
    if as_json:
        write_json(plan_json(planned))
    else:
        write_fitted(lambda width: plan_lines(planned, width))
