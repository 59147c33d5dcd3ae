"""`bench doctor [TARGET]`: what here would keep a run from working. Owns the command's words and the report's layout;
`harness.doctor` makes the checks."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import dotenv
from harness.cli.env_words import width_of, write
from harness.errors import UsageError
from harness.report.text import clean, make_console

if TYPE_CHECKING:
    from harness.doctor.findings import Finding, Report

_LEFT = 9
"""Cells of the column of verdicts."""

_WIDEST = 120


def doctor(  # noqa: PLR0913 - a command's options are its parameters
    target: Annotated[
        str | None,
        typer.Argument(metavar="[TARGET]", help="Environments separated by commas, or a suite file: look at its runs."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", metavar="TEXT", help="As for bench run.")] = None,
    api_base_url: Annotated[
        str | None, typer.Option("--api-base-url", "-b", metavar="TEXT", help="As for bench run.")
    ] = None,
    api_key_var: Annotated[
        str | None, typer.Option("--api-key-var", "-k", metavar="NAME", help="As for bench run.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="As for bench run.")
    ] = None,
    endpoints_path: Annotated[
        str | None, typer.Option("--endpoints-path", "-e", metavar="PATH", help="The endpoint registry.")
    ] = None,
    output_dir: Annotated[
        str | None, typer.Option("--output-dir", "-o", metavar="DIR", help="Where results would go. [outputs]")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="As for bench run.")] = None,
    registry: Annotated[bool, typer.Option("--registry", help="Ask every endpoint of the registry.")] = False,
    hub: Annotated[bool, typer.Option("--hub", "-H", help="Ask the Hub what its token may do.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Send nothing.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="For each request.")] = 10.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show notes and problems only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON on stdout.")] = False,
) -> None:
    """Say what here would keep a run from working, and what to do about it.

    Looks at Python, packages, machine, disk, clock and sandbox, and at keys, endpoints and environments: those of
    TARGET, or the model that a run would ask. Each model gets one request of one token; nothing else leaves this
    machine. Keys are named, never shown. Exit code 1 if anything is a problem.
    """
    from harness.doctor.examination import Manner, examine  # slow to import, and --help needs none
    from harness.doctor.subject import find_subject

    if not 0 < timeout <= 600:
        raise UsageError(f"--timeout {timeout:g}: must be more than 0 and at most 600 seconds")
    if sets and target is None:
        raise UsageError("--set changes runs: name their TARGET")
    flags = {
        "model": model, "api_base_url": api_base_url, "api_key_var": api_key_var, "extra_headers": header,
        "output_dir": output_dir, "endpoints_path": endpoints_path,
    }  # fmt: skip
    subject = find_subject(target, flags, sets or (), registry=registry)
    manner = Manner(offline, hub, timeout, os.environ, _overruled(Path.cwd() / ".env"))
    report = examine(subject, manner, _announce)
    if as_json:
        typer.echo(json.dumps({"target": target, "offline": offline, **report.to_json()}, indent=2, ensure_ascii=False))
    else:
        console = make_console()
        write(_lines(report, min(width_of(console), _WIDEST), quiet=quiet), console)
    raise typer.Exit(0 if report.is_well else 1)


def _overruled(path: Path) -> list[str]:
    """Variables that `.env` sets to something else than the environment has."""
    try:
        variables, _ = dotenv.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
    return [name for name, value in variables.items() if os.environ.get(name) != value]


def _announce(requests: Sequence[str]) -> None:
    for request in requests:
        typer.echo(f"asking: {clean(request)}", err=True)


def _lines(report: Report, width: int, *, quiet: bool) -> Iterator[str]:
    area = ""
    for finding in report.findings:
        if quiet and finding.status == "ok":
            continue
        if finding.area != area:
            if area:
                yield ""
            area = finding.area
            yield area
        yield from _finding_lines(finding, width)
    if area:
        yield ""
    yield f"{_count(report.count('problem'), 'problem')}, {_count(report.count('note'), 'note')}"


def _finding_lines(finding: Finding, width: int) -> Iterator[str]:
    text = clean(f"{finding.name}: {finding.says}", 2000)
    yield from _wrapped(f"  {finding.status:<{_LEFT}}", text, width)
    if finding.fix:
        yield from _wrapped(" " * (_LEFT + 2) + "→ ", clean(finding.fix, 2000), width)


def _wrapped(head: str, text: str, width: int) -> Iterator[str]:
    parts = textwrap.wrap(text, max(30, width - len(head)), break_long_words=False, break_on_hyphens=False)
    for number, part in enumerate(parts):
        yield f"{head if number == 0 else ' ' * len(head)}{part}"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
