"""Options of `bench run`, generated from the table of settings, and the options of a run that are no settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from harness.settings.checks import NONE_WORD
from harness.settings.schema import SETTINGS, SHORTCUTS, Kind, Setting, Shortcut

_TYPES: Mapping[Kind, Any] = {
    "string": str,
    "integer": str,
    "number": str,
    "boolean": bool,
    "list": str,
    "table": list[str],
    "headers": list[str],
    "duration": str,
}
"""Types for typer: text, which `config.flags` parses, so that errors are worded alike on all entry points."""

_METAVARS: Mapping[Kind, str] = {
    "string": "TEXT",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": "",
    "list": "NAME,NAME…",
    "table": "JSON|KEY=VALUE",
    "headers": "'NAME: VALUE'",
    "duration": "DURATION",
}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run that are no settings."""

    resume: bool = False
    """Go on with the newest run of the same settings."""
    resume_from: str | None = None
    """Go on with the run in this folder."""
    retry_failed: bool = False
    """When resuming, try failed rollouts again."""
    json: bool = False
    """Print results as JSON on stdout."""
    quiet: bool = False
    """No live display."""
    verbose: bool = False
    """Log in detail, and show tracebacks."""
    command: str = ""
    """The command line as typed, without the values of headers that may be credentials."""
    is_ours: bool = True
    """Whether the settings count as made on this machine."""


TRUST_HELP = "Run code and send keys as a run from another machine says, without a question."

_INVOCATION: tuple[tuple[str, Any, tuple[str, ...], str], ...] = (
    ("set", list[str], ("--set",), "PATH=VALUE, or ENV_ID:PATH=VALUE for one environment: beats all else."),
    ("dry_run", bool, ("--dry-run",), "Show every setting of every run and where it came from; call nothing."),
    ("json", bool, ("--json",), "Print the result (or the dry run) as JSON on stdout, and nothing else there."),
    ("resume", bool, ("--resume",), "Go on with the newest run of the same settings; -n and -r may differ."),
    ("resume_from", str, ("--resume-from",), "Go on with the run in this folder."),
    ("retry_failed", bool, ("--retry-failed",), "With --resume or --resume-from: try failed rollouts again."),
    ("trust", bool, ("--trust",), TRUST_HELP),
    ("quiet", bool, ("--quiet", "-q"), "No live display."),
    ("verbose", bool, ("--verbose", "-v"), "Log in detail, and show tracebacks."),
)  # fmt: skip
_INVOCATION_METAVARS = {"set": "PATH=VALUE", "resume_from": "PATH"}


def setting_keys() -> tuple[str, ...]:
    """Names of the parameters that are settings or shortcuts, as `resolve` takes them."""
    return tuple(setting.key for setting in SETTINGS if setting.door.flags) + tuple(each.key for each in SHORTCUTS)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command(ctx, target, **options)` the signature that the table of settings defines."""
    target = typer.Argument(help="Environments separated by commas, or a suite file (.toml).", metavar="TARGET")
    first = [
        _parameter("ctx", typer.Context),
        _parameter("target", Annotated[str, target]),
    ]
    options = [_setting_parameter(setting) for setting in SETTINGS if setting.door.flags]
    options += [_shortcut_parameter(shortcut) for shortcut in SHORTCUTS]
    options += [_invocation_parameter(*each) for each in _INVOCATION]
    command.__signature__ = inspect.Signature([*first, *options])  # type: ignore[attr-defined] what typer reads
    command.__annotations__ = {each.name: each.annotation for each in (*first, *options)}
    return command


def _parameter(name: str, annotation: Any, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _setting_parameter(setting: Setting) -> inspect.Parameter:
    door = setting.door
    names = list(door.flags)
    if door.off:  # typer pairs the long names with a slash; a short name for "off" follows a slash of its own
        names[0] = f"{door.flags[0]}/{door.off[0]}"
        names += [f" /{name}" for name in door.off[1:]]
    option = typer.Option(
        *names,
        help=f"{setting.doc} [{_built_in(setting)}]",
        metavar=_METAVARS[door.kind],
        show_default=False,
    )
    return _parameter(setting.key, Annotated[_TYPES[door.kind] | None, option], None)


def _built_in(setting: Setting) -> str:
    """Default value as the help shows it. It is never the option's own default, which would override settings files."""
    if setting.door.derived:
        return f"built-in: from {setting.door.derived}"
    value = setting.default
    if isinstance(value, bool):
        return f"built-in: {str(value).lower()}"
    return f"built-in: {NONE_WORD if value is None or value in ((), {}) else value}"


def _shortcut_parameter(shortcut: Shortcut) -> inspect.Parameter:
    option = typer.Option(
        *shortcut.flags,
        help=shortcut.doc,
        metavar=_METAVARS[shortcut.kind],
        show_default=False,
    )
    return _parameter(shortcut.key, Annotated[_TYPES[shortcut.kind] | None, option], None)


def _invocation_parameter(name: str, kind: Any, flags: tuple[str, ...], doc: str) -> inspect.Parameter:
    option = typer.Option(*flags, help=doc, metavar=_INVOCATION_METAVARS.get(name), show_default=False)
    return _parameter(name, Annotated[kind if kind is bool else kind | None, option], False if kind is bool else None)
