"""Texts of `bench serve` about faults: options, the list of faults, and the report of served faults.
`harness.reference.script` parses fault scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias, cast

import typer

from harness.core.errors import ConfigError
from harness.reference.catalogue import KINDS, STATUS_PARAMETERS
from harness.reference.server import ReferenceServer

FaultFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="TOML file of [[fault]] tables: which requests meet which fault.")
]
FaultSpecs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="One fault, as in '429@every=3,retry_after=1' or 'reset@share=0.1'; may be repeated."),
]
ListFaults: TypeAlias = Annotated[bool, typer.Option("--list-faults", help="Print the faults that there are, and end.")]
Latency: TypeAlias = Annotated[float | None, typer.Option(min=0, help="Median latency, milliseconds.")]
Sigma: TypeAlias = Annotated[float | None, typer.Option(min=0, help="Spread of the latency (of its logarithm).")]
FailRate: TypeAlias = Annotated[float, typer.Option(help="Share of requests that get --fail-status.")]
FailStatus: TypeAlias = Annotated[str, typer.Option(help="HTTP errors to draw from, e.g. 429,500.")]
RetryAfter: TypeAlias = Annotated[
    str | None, typer.Option(help="Retry-After header of those errors: seconds or an HTTP-date.")
]
ResetRate: TypeAlias = Annotated[float, typer.Option(help="Share of requests whose connection is reset.")]
HangRate: TypeAlias = Annotated[float, typer.Option(help="Share of requests that are never answered.")]
MalformedRate: TypeAlias = Annotated[float, typer.Option(help="Share of requests answered with an unreadable body.")]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Of latency and faults; 0, or the file's.")]


def report(server: ReferenceServer) -> str:
    """Report of served requests, one line per fault rule."""
    found = server.fault_report()
    count = server.stats.requests
    requests = f"served {count} request{'' if count == 1 else 's'}"
    rules = cast("list[dict[str, object]]", found["rules"])
    if not rules:
        return requests
    width = max(len("fault"), *(len(str(rule["fault"])) for rule in rules))
    lines = [
        f"{requests}, {found['faults']} fault{'' if found['faults'] == 1 else 's'}",
        f"{'fault':{width}}  asked  hit",
    ]
    return "\n".join(
        [*lines, *(f"{rule['fault']!s:{width}}  {rule['requests']:5}  {rule['hits']:3}" for rule in rules)]
    )


def catalogue() -> str:
    """List of the available faults, one line each."""
    errors = {"429, 500|503, …": f"an HTTP error, or one of several; takes {', '.join(STATUS_PARAMETERS)}"}
    entries = {**errors, **{name: kind.says for name, kind in KINDS.items()}}
    width = max(map(len, entries))
    return "".join(f"{name:{width}}  {says}\n" for name, says in entries.items())


def statuses(text: str) -> tuple[int, ...]:
    """Parse HTTP statuses from a line.

    Raises:
        ConfigError: a status is not a number.
    """
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"--fail-status {text!r}: give HTTP statuses, as in 429,500") from None
