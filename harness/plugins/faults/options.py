"""Options of `bench serve` for faults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from harness.cli.completion import completer
from harness.core.errors import ConfigError
from harness.core.size_limits import read_text
from harness.plugins.faults.catalogue import COMMON, KINDS, STATUS_PARAMETERS, make_faults, number
from harness.plugins.faults.rules import FaultRule, FaultScript
from harness.reference.fault_sources import Per
from harness.settings.wording import nearest, suggestion

# Parse fault settings: `429@every=3,retry_after=1` on a command line, `[[fault]]` tables in a file.

FILTERS = ("path", "model", "prompt", "example", "rollout")
SELECTORS = ("at", "every", "share", "times", "per", *FILTERS)
SETTINGS = ("seed", "latency_ms", "sigma")
"""Keys of a fault file besides its `[[fault]]` tables."""

_PARAMETERS = {*STATUS_PARAMETERS, *COMMON, *(each for kind in KINDS.values() for each in kind.parameters)}
_COMMA = re.compile(r",(?=[A-Za-z_][\w.-]*=)")
"""A comma between two settings. A comma inside a value, such as an HTTP date, is not followed by a name and `=`."""

_RANGE = re.compile(r"(\d{1,9})(?:(-)(\d{1,9})?)?")


def fault_script(
    *faults: str,
    file: str | Path | None = None,
    seed: int | None = None,
    latency: float | None = None,
    sigma: float | None = None,
    more: Sequence[FaultRule] = (),
) -> FaultScript:
    """Parse faults for a `ReferenceServer`.

    Args:
        faults: Shorthands such as `429@every=3,retry_after=1`; applied before those of the file.
        file: A TOML file with `[[fault]]` tables.
        seed: Seed of all draws; overrides the file's. 0 by default.
        latency: Median latency of every request, in seconds; overrides the file's.
        sigma: Standard deviation of the logarithm of the latency; overrides the file's.
        more: Further rules, applied last.

    Raises:
        ConfigError: a fault cannot be parsed; the message says which and why.
    """
    rules = [read_shorthand(text) for text in faults]
    document = _read_file(Path(file)) if file is not None else {}
    where = str(file)
    try:
        own_latency = number(document.get("latency_ms", 0), "latency_ms", high=1e9) / 1000.0
        own_sigma = number(document.get("sigma", 0), "sigma", high=1e9)
        own_seed = _whole(document.get("seed", 0), "seed")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    for key in document:
        if key not in (*SETTINGS, "fault"):
            raise ConfigError(f"{where}: unknown key {key!r}; {suggestion(key, (*SETTINGS, 'fault'))}")
    tables = document.get("fault", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in cast("list[object]", tables)):
        raise ConfigError(f'{where}: write faults as [[fault]] tables, each with a name, such as fault = "429"')
    found = cast("list[dict[str, object]]", tables)
    rules += [read_rule(table, f"{where}: [[fault]] {count}") for count, table in enumerate(found, 1)]
    return FaultScript(
        [*rules, *more],
        latency=own_latency if latency is None else number(latency, "latency"),
        sigma=own_sigma if sigma is None else number(sigma, "sigma"),
        seed=own_seed if seed is None else seed,
    )


def read_shorthand(text: str) -> FaultRule:
    """Parse `NAME`, or `NAME@key=value,…`.

    Raises:
        ConfigError: the text is not a valid fault; the message says why.
    """
    where = f"--fault {text!r}"
    name, at, rest = text.partition("@")
    table: dict[str, object] = {}
    headers: dict[str, str] = {}
    for setting in _COMMA.split(rest) if at else ():
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"{where}: invalid setting {setting!r}; write settings as in 429@every=3,retry_after=1")
        if key in table or key == "fault":
            raise ConfigError(f"{where} sets {key} twice")
        if key.startswith("header."):
            headers[key.removeprefix("header.")] = value
        else:
            table[key] = value
    return read_rule({**table, "fault": name.strip(), "headers": headers}, where, text)


def read_rule(table: Mapping[str, object], where: str, label: str = "") -> FaultRule:
    """Parse a `[[fault]]` table to a rule. Every value may also be given as text, as on a command line.

    Raises:
        ConfigError: a key or value is invalid.
    """
    name = table.get("fault")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name:
        raise ConfigError(f'{where}: fault is missing; set it to a name such as "429" or "reset"')
    headers = _headers(table.get("headers", {}), where)
    given = {key: value for key, value in table.items() if key not in (*SELECTORS, "fault", "headers")}
    for key in given:
        near = nearest(key, (*SELECTORS, "headers"))
        if key not in _PARAMETERS and near is not None:
            raise ConfigError(f'{where}: unknown key {key!r}; did you mean "{near}"?')
    settings = ",".join(f"{key}={value}" for key, value in table.items() if key not in ("fault", "headers"))
    per, filters = table.get("per", ""), {key: table[key] for key in FILTERS if key in table}
    try:
        faults = make_faults(name, given, headers)
        if per not in get_args(Per):
            raise ConfigError(f"per must be one of {', '.join(filter(None, get_args(Per)))}, not {per!r}")
        for key, value in filters.items():
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{key} must be a non-empty string, not {value!r}")
        return FaultRule(
            faults, label or (f"{name}@{settings}" if settings else name),
            at=_ranges(table["at"]) if "at" in table else (),
            every=_whole(table["every"], "every", 1) if "every" in table else 0,
            share=number(table["share"], "share", high=1.0) if "share" in table else None,
            times=_whole(table["times"], "times", 1) if "times" in table else 0,
            per=cast("Per", per),
            filters=cast("dict[str, str]", filters),
            in_turn=name == "malformed",
        )  # fmt: skip
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _whole(value: object, name: str, low: int = 0) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name} must be a whole number of at least {low}, not {value!r}")
    return value


def _ranges(value: object) -> tuple[tuple[int, int | None], ...]:
    """Parse request numbers: `3`, `[1, 2]` or `"1-3+7+10-"`."""
    parts: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else str(value).split("+")
    found: list[tuple[int, int | None]] = []
    for part in parts:
        match = _RANGE.fullmatch(str(part).strip())
        low = int(match[1]) if match else 0
        high = None if match and match[2] and not match[3] else int(match[3]) if match and match[3] else low
        if low < 1 or (high is not None and high < low):
            raise ConfigError(f'at must be request numbers from 1, as in 3, [1, 2] or "1-3+7+10-", not {value!r}')
        found.append((low, high))
    if not found:
        raise ConfigError("at is empty; omit it to select every request")
    return tuple(found)


def _headers(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: headers must be a table of names and values")
    found = cast("dict[str, object]", value)
    for name, text in found.items():
        if not isinstance(text, str | int | float):
            raise ConfigError(f"{where}: header {name} must be a string, not {text!r}")
    return {name: str(text) for name, text in found.items()}


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
