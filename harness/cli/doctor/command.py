"""Implement `bench doctor [TARGET]`: run the checks of `harness.cli.doctor` and print the report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from harness.cli import dotenv
from harness.cli.grouped import argument, command_of, option, switch
from harness.cli.options import TRUST_HELP
from harness.cli.output import write_fitted, write_json
from harness.core.errors import ConfigError, UsageError
from harness.report.layout import labelled
from harness.report.text import clean

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

    target: str | None = argument(
        "TARGET", "Environments separated by commas, or a suite file: look at its runs.", default=None
    )
    model: str | None = option(MODEL, "-m --model MODEL", "Name, alias or reference/….")
    api_base_url: str | None = option(MODEL, "-b --api-base-url URL", "Its endpoint.")
    api_key_var: str | None = option(MODEL, "-k --api-key-var NAME", "Variable that holds its key.")
    extra_headers: list[str] | None = option(MODEL, "--header 'NAME: VALUE'", "Sent with the request; repeatable.")
    endpoints_path: str | None = option(MODEL, "-e --endpoints-path FILE", "The registry of endpoints.")
    output_dir: str | None = option(MODEL, "-o --output-dir DIR", "Where results would go. [outputs]")
    sets: list[str] | None = option(MODEL, "--set PATH=VALUE", "Override a setting of the suite file; needs a TARGET.")
    registry: bool = switch(REQUESTS, "--registry", "Query every endpoint of the registry.")
    hub: bool = switch(REQUESTS, "-H --hub", "Query the rights of the Hub token.")
    offline: bool = switch(REQUESTS, "--offline", "Send nothing.")
    trust: bool = switch(REQUESTS, "--trust", TRUST_HELP)
    timeout: float = option(REQUESTS, "--timeout SECONDS", "Timeout of each request. [10]", 10.0)
    quiet: bool = switch(OUTPUT, "-q --quiet", "Show notes and problems only.")
    as_json: bool = switch(OUTPUT, "--json", "Print all findings as JSON on stdout.")

    def check(self) -> None:
        """Validate the options.

        Raises:
            UsageError: an option is invalid.
        """
        if not 0 < self.timeout <= LONGEST:
            raise UsageError(f"--timeout {self.timeout:g}: must be more than 0 and at most {LONGEST:g} seconds")
        if self.sets and self.target is None:
            raise UsageError("--set changes the settings of runs; name the runs with TARGET as well")

    def flags(self) -> dict[str, object]:
        """Return the values of the options shared with `bench run`, by setting key."""
        return {name: getattr(self, name) for name in _SETTINGS}


_SETTINGS = ("model", "api_base_url", "api_key_var", "extra_headers", "endpoints_path", "output_dir")


def doctor(options: DoctorOptions) -> int:
    """Find problems on this machine that would stop a run, with advice.

    Checks Python, packages, machine, disk and sandbox, and the keys, endpoints and environments of TARGET, or of the
    default model. Each model gets one request of one token; the requests are listed before they are sent. Keys are
    named, never shown. Exit code 1 if there is a problem.
    """
    from harness.cli.doctor.examination import CheckOptions, examine  # slow to import; not needed for --help
    from harness.cli.doctor.subject import find_subject

    if options.target is not None:
        _check_trust(options, options.target)
    subject = find_subject(options.target, options.flags(), options.sets or (), registry=options.registry)
    checks = CheckOptions(options.offline, options.hub, options.timeout, os.environ, _overruled(Path.cwd() / ".env"))
    report = examine(subject, checks, _announce)
    if options.as_json:
        write_json({"target": options.target, "offline": options.offline, **report.to_json()})
    else:
        write_fitted(lambda width: _lines(report, min(width, _WIDEST), quiet=options.quiet))
    return 0 if report.is_well else 1


def _check_trust(options: DoctorOptions, target: str) -> None:
    """Ask before the settings file of a run from another machine runs code or sends a key. Settings that cannot be
    resolved are reported later."""
    from harness.cli.trust import check_trust, recorded_in
    from harness.settings.resolver import resolve

    recorded = recorded_in(target)
    if recorded is not None:
        with suppress(ConfigError):
            resolution = resolve(target, options.flags(), options.sets or ())
            check_trust(recorded, resolution, trusted=options.trust, asks_model=not options.offline, file=Path(target))


app = command_of(DoctorOptions, doctor, (MODEL, REQUESTS, OUTPUT))


def _overruled(path: Path) -> list[str]:
    """Return the names of variables whose value in `.env` differs from the environment's."""
    try:
        variables, _ = dotenv.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
    return [name for name, value in variables.items() if os.environ.get(name) != value]


def _announce(requests: Sequence[str]) -> None:
    for request in requests:
        typer.echo(f"asking: {clean(request)}", err=True)


def _lines(report: DoctorReport, width: int, *, quiet: bool) -> Iterator[Text | str]:
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


def _finding_lines(finding: Diagnosis, width: int) -> Iterator[Text]:
    text = clean(f"{finding.name}: {finding.says}", 2000)
    yield from labelled(f"  {finding.status:<{_LEFT}}", text, width, break_words=False)
    if finding.fix:
        yield from labelled(" " * (_LEFT + 2) + "→ ", clean(finding.fix, 2000), width, break_words=False)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
