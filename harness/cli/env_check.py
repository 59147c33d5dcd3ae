"""Implement `bench env check NAME`: validate an environment with `authoring.check`, print the findings, set the exit
code."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace

import typer

from harness.authoring.check import EXAMPLES, check_environment
from harness.authoring.findings import Finding, Report, finding_lines
from harness.cli.grouped import flag, positional
from harness.cli.output import ENV_ARGS_HELP, env_args, width_of, write, write_json
from harness.cli.stdout import own_stdout
from harness.report.text import clean, make_console

_WIDEST = 120
"""Maximum line width in cells."""


def check(
    name: str = positional("NAME", "The environment's name or path.", ...),
    args: list[str] | None = flag("--env-args -a JSON|KEY=VALUE", ENV_ARGS_HELP),
    num_examples: int = flag("--num-examples -n", "Examples to run; -1 is all. All rows are checked anyway.", EXAMPLES),
    strict: bool = flag("--strict", "Treat a check that cannot be made as a failure.", False),
    as_json: bool = flag("--json", "Print the findings as JSON on stdout.", False),
) -> None:
    """Check that an environment is sound, without any model.

    Checks the package and every row, then runs the reference policies through the engine: the ideal player must get the
    best reward, and a player that says nothing the worst. The exit code is 1 if a check fails.
    """
    given = env_args(args)
    with own_stdout() as stdout:
        console = make_console(file=sys.stderr if as_json else stdout)
        width = min(width_of(console), _WIDEST)

        def show(finding: Finding) -> None:
            harmless = replace(finding, says=clean(finding.says, 1000), advice=clean(finding.advice, 1000))
            write(finding_lines(harmless, width), console)

        report = check_environment(name, given, num_examples=num_examples, on_finding=show)
        run = shlex.join(["bench", "run", name, *(word for text in args or () for word in ("-a", text))])
        write(["", _verdict(report, strict=strict, run=run)], console)
    if as_json:
        write_json({**report.to_json(), "passed": _passed(report, strict=strict)})
    raise typer.Exit(0 if _passed(report, strict=strict) else 1)


def _passed(report: Report, *, strict: bool) -> bool:
    return not report.failed and not (strict and report.skipped)


def _verdict(report: Report, *, strict: bool, run: str) -> str:
    name = f"{report.env_id} {report.version}".strip()
    if report.failed:
        return f"{name}: {report.counts()}"
    if report.skipped:
        what = ", ".join(finding.name for finding in report.skipped)
        return f"{name}: {report.counts()} ({what})" + ("; --strict treats that as a failure" if strict else "")
    return f"{name} is sound: {report.counts()}. Next: {run} -m MODEL"
