"""Implement `bench doctor [TARGET]`: run the checks of `harness.cli.doctor` and print the report."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import dotenv
from harness.cli.env_words import width_of, write
from harness.cli.grouped import argument, command_of, option
from harness.core.errors import UsageError
from harness.report.text import clean, make_console

if TYPE_CHECKING:
    from harness.cli.doctor.findings import Diagnosis, DoctorReport

_LEFT = 9
"""Width in cells of the status column."""

_WIDEST = 120

LONGEST = 600.0
"""Maximum value of the request timeout, in seconds."""


MODEL, REQUESTS, OUTPUT = "Model and runs, as for bench run", "Requests", "Output"


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Options of `bench doctor`."""

    target: Annotated[
        str | None, argument("TARGET", "Environments separated by commas, or a suite file: look at its runs.")
    ] = None
    model: Annotated[str | None, option(MODEL, "-m", "--model", metavar="MODEL", doc="Name, alias or reference/….")] = (
        None
    )
    api_base_url: Annotated[str | None, option(MODEL, "-b", "--api-base-url", metavar="URL", doc="Its endpoint.")] = (
        None
    )
    api_key_var: Annotated[
        str | None, option(MODEL, "-k", "--api-key-var", metavar="NAME", doc="Variable that holds its key.")
    ] = None
    extra_headers: Annotated[
        list[str] | None, option(MODEL, "--header", metavar="'NAME: VALUE'", doc="Sent with the request; repeatable.")
    ] = None
    endpoints_path: Annotated[
        str | None, option(MODEL, "-e", "--endpoints-path", metavar="FILE", doc="The registry of endpoints.")
    ] = None
    output_dir: Annotated[
        str | None, option(MODEL, "-o", "--output-dir", metavar="DIR", doc="Where results would go. [outputs]")
    ] = None
    sets: Annotated[
        list[str] | None, option(MODEL, "--set", metavar="PATH=VALUE", doc="Beats the suite file; needs a TARGET.")
    ] = None
    registry: Annotated[bool, option(REQUESTS, "--registry", doc="Ask every endpoint of the registry.")] = False
    hub: Annotated[bool, option(REQUESTS, "-H", "--hub", doc="Ask the Hub what its token may do.")] = False
    offline: Annotated[bool, option(REQUESTS, "--offline", doc="Send nothing.")] = False
    timeout: Annotated[
        float, option(REQUESTS, "--timeout", metavar="SECONDS", doc="How long each request may take. [10]")
    ] = 10.0
    quiet: Annotated[bool, option(OUTPUT, "-q", "--quiet", doc="Show notes and problems only.")] = False
    as_json: Annotated[bool, option(OUTPUT, "--json", doc="Print all findings as JSON on stdout.")] = False

    def check(self) -> None:
        """Validate the options.

        Raises:
            UsageError: an option is invalid.
        """
        if not 0 < self.timeout <= LONGEST:
            raise UsageError(f"--timeout {self.timeout:g}: must be more than 0 and at most {LONGEST:g} seconds")
        if self.sets and self.target is None:
            raise UsageError("--set changes the settings of runs: name their TARGET")

    def flags(self) -> dict[str, object]:
        """Values of the options shared with `bench run`, by setting key."""
        return {name: getattr(self, name) for name in _SETTINGS}


_SETTINGS = ("model", "api_base_url", "api_key_var", "extra_headers", "endpoints_path", "output_dir")


def doctor(_ctx: typer.Context, options: DoctorOptions) -> int:
    """Say what here would keep a run from working, and what to do about it.

    Looks at Python, packages, machine, disk and sandbox, and at keys, endpoints and environments: those of
    TARGET, or the model that a run would ask. Each model gets one request of one token; nothing else leaves this
    machine. Keys are named, never shown. Exit code 1 if anything is a problem.
    """
    from harness.cli.doctor.examination import Manner, examine  # slow to import, and --help does not need it
    from harness.cli.doctor.subject import find_subject
    from harness.cli.trust import recorded_in

    options.check()
    if options.target is not None:
        recorded_in(options.target)  # raises for a settings file of a run that is a link or irregular
    subject = find_subject(options.target, options.flags(), options.sets or (), registry=options.registry)
    manner = Manner(options.offline, options.hub, options.timeout, os.environ, _overruled(Path.cwd() / ".env"))
    report = examine(subject, manner, _announce)
    if options.as_json:
        whole = {"target": options.target, "offline": options.offline, **report.to_json()}
        typer.echo(json.dumps(whole, indent=2))
    else:
        console = make_console()
        write(_lines(report, min(width_of(console), _WIDEST), quiet=options.quiet), console)
    return 0 if report.is_well else 1


app = command_of(DoctorOptions, doctor, (MODEL, REQUESTS, OUTPUT))


def _overruled(path: Path) -> list[str]:
    """Names of variables whose value in `.env` differs from the environment's."""
    try:
        variables, _ = dotenv.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
    return [name for name, value in variables.items() if os.environ.get(name) != value]


def _announce(requests: Sequence[str]) -> None:
    for request in requests:
        typer.echo(f"asking: {clean(request)}", err=True)


def _lines(report: DoctorReport, width: int, *, quiet: bool) -> Iterator[str]:
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


def _finding_lines(finding: Diagnosis, width: int) -> Iterator[str]:
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
