"""Options of `bench serve` for faults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.completion import completer
from harness.core.errors import ConfigError
from harness.plugins.faults.catalogue import KINDS, STATUS_PARAMETERS
from harness.plugins.faults.rules import FaultRule, FaultScript
from harness.plugins.faults.script import fault_script, read_rule


def _list_faults(wanted: bool) -> None:
    """Print the available faults, one line each, and exit."""
    if not wanted:
        return
    errors = {"429, 500|503, …": f"an HTTP error, or one of several; takes {', '.join(STATUS_PARAMETERS)}"}
    entries = {**errors, **{name: kind.says for name, kind in KINDS.items()}}
    width = max(map(len, entries))
    typer.echo("".join(f"{name:{width}}  {says}\n" for name, says in entries.items()), nl=False)
    raise typer.Exit


def faults_of_options(  # noqa: PLR0913 - the options are its parameters
    *,
    faults: Annotated[
        Path | None, typer.Option(help="TOML file of [[fault]] tables: which requests get which fault.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="One fault, as in '429@every=3,retry_after=1' or 'reset@share=0.1'; may be repeated.",
            autocompletion=completer(None, KINDS),
        ),
    ] = None,
    list_faults: Annotated[
        bool,
        typer.Option(
            "--list-faults", callback=_list_faults, is_eager=True, help="Print the available faults and exit."
        ),
    ] = False,
    latency: Annotated[float | None, typer.Option(min=0, help="Median latency, milliseconds.")] = None,
    sigma: Annotated[
        float | None, typer.Option(min=0, help="Standard deviation of the logarithm of the latency.")
    ] = None,
    fail_rate: Annotated[float, typer.Option(help="Share of requests that get --fail-status.")] = 0.0,
    fail_status: Annotated[str, typer.Option(help="HTTP errors to draw from, e.g. 429,500.")] = "500",
    retry_after: Annotated[
        str | None, typer.Option(help="Retry-After header of those errors: seconds or an HTTP-date.")
    ] = None,
    reset_rate: Annotated[float, typer.Option(help="Share of requests whose connection is reset.")] = 0.0,
    hang_rate: Annotated[float, typer.Option(help="Share of requests that are never answered.")] = 0.0,
    malformed_rate: Annotated[float, typer.Option(help="Share of requests answered with an unreadable body.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Seed of latency and faults; default 0, or the file's.")] = None,
) -> FaultScript | None:
    """Create the faults that the options of `bench serve` describe; None if there are neither faults nor a latency.

    Raises:
        ConfigError: an option cannot be parsed.
    """
    statuses = "|".join(part.strip() for part in fail_status.split(",") if part.strip())
    if not re.fullmatch(r"[\d|]+", statuses):
        raise ConfigError(f"--fail-status must be a list of HTTP statuses, as in 429,500, not {fail_status!r}")
    rates = (
        ("--fail-rate", statuses, fail_rate), ("--reset-rate", "reset", reset_rate),
        ("--hang-rate", "hang", hang_rate), ("--malformed-rate", "malformed", malformed_rate),
    )  # fmt: skip
    rules: list[FaultRule] = []
    for option, name, rate in rates:
        table: dict[str, object] = {"fault": name, "share": rate}
        if name == statuses and retry_after is not None:
            table["retry_after"] = retry_after
        rule = read_rule(table, option, f"{name}@share={rate:g}")
        if rate:
            rules.append(rule)
    script = fault_script(
        *(fault or ()), file=faults, seed=seed, latency=None if latency is None else latency / 1000.0, sigma=sigma,
        more=rules,
    )  # fmt: skip
    return script if script.tallies or script.latency else None
