"""Options that the table of settings defines, as parameters for typer, and options of a run that are not settings."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any

import typer

from harness.cli.completion import BY_SETTING
from harness.core.errors import UsageError
from harness.core.messages import Message
from harness.core.redact import hidden_arguments
from harness.settings.checks import NONE_WORD
from harness.settings.schema import BY_FLAT_NAME, SETTINGS, SHARED, SHORTCUT_BY_KEY, SHORTCUTS, Kind, Setting
from harness.settings.wording import MASK, is_secret_header

__all__ = [
    "SAVING",
    "SHARED",
    "TRUST_HELP",
    "RunOptions",
    "check_resuming",
    "command_text",
    "setting_keys",
    "setting_parameter",
]

_TYPES: Mapping[Kind, Any] = {"boolean": bool, "table": list[str], "headers": list[str]}
"""Types for typer. All others are text, which `settings.flags` parses, so that all commands report the same errors."""

_METAVARS: Mapping[Kind, str] = {
    "string": "TEXT",
    "integer": "INTEGER",
    "number": "NUMBER",
    "boolean": "",
    "list": "NAME,NAME…",
    "counts": "K,K…",
    "table": "JSON|KEY=VALUE",
    "headers": "'NAME: VALUE'",
    "duration": "DURATION",
}

SAVING = ("save_results", "save_to_hf_hub", "hf_hub_dataset_name", "hf_public", "output_dir", "private")
"""Keys of the settings that say where evaluating commands store results."""

_KEY_OPTIONS = ("--api-key", "--baseline-api-key")

TRUST_HELP = "Trust a run from another machine: run its code and send keys to its hosts without asking."


def check_resuming(*, resume: bool, resume_from: object, retry_failed: bool) -> None:
    """Reject options that conflict.

    Raises:
        UsageError: an option requires or excludes another.
    """
    if resume and resume_from is not None:
        problem = (
            "{resume} and {resume_from} are mutually exclusive: the first finds the newest run, the second names one"
        )
        raise UsageError(Message(problem))
    if retry_failed and not resume and resume_from is None:
        raise UsageError(Message("{retry_failed} requires {resume} or {resume_from}"))


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run that are not settings. Subclasses declare those that users of a command can type."""

    resume: bool = False
    """Resume the newest run of the same settings."""
    resume_from: str | None = None
    """Resume the run in this folder."""
    retry_failed: bool = False
    """Resume, and retry failed rollouts."""
    json: bool = False
    """Print results as JSON on stdout."""
    quiet: bool = False
    """No live display."""
    verbose: bool = False
    """Log in detail, and show tracebacks."""
    command: str = ""
    """The command line as typed, without API keys and the values of headers that may be credentials."""
    is_ours: bool = True
    """Whether the settings count as made on this machine."""

    @property
    def is_resuming(self) -> bool:
        """Whether to resume the newest run of the same settings."""
        return self.resume or (self.retry_failed and self.resume_from is None)

    @property
    def is_verbose(self) -> bool:
        """Whether to log in detail."""
        return self.verbose


def setting_keys() -> tuple[str, ...]:
    """Return the keys of settings and shortcuts that have a command-line option, for `settings.resolver.resolve`."""
    return tuple(setting.key for setting in SETTINGS if setting.door.flags) + tuple(each.key for each in SHORTCUTS)


def setting_parameter(key: str, group: str, taken: Collection[str] = ()) -> Parameter:
    """Build the parameter of a setting or shortcut, which is None unless the option is given.

    Args:
        key: Key of the setting or shortcut.
        group: Heading of the option in the help.
        taken: Flags that the command uses for other options.
    """
    shortcut = SHORTCUT_BY_KEY.get(key)
    if shortcut is not None:
        kind, flags, doc = shortcut.kind, list(shortcut.flags), shortcut.doc
    else:
        setting = BY_FLAT_NAME[key]
        kind, doc = setting.door.kind, f"{setting.doc} [{_default(setting)}]"
        flags = [flag for flag in setting.door.flags if flag not in taken]
        if off := setting.door.off:  # typer pairs the long names with a slash; a short off name has its own slash
            flags = [f"{flags[0]}/{off[0]}", *flags[1:], *(f" /{name}" for name in off[1:])]
    option = typer.Option(
        *flags, help=doc, metavar=_METAVARS[kind], show_default=False, rich_help_panel=group,
        autocompletion=BY_SETTING.get(key),
    )  # fmt: skip
    annotation = Annotated[_TYPES.get(kind, str) | None, option]
    return Parameter(key, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _default(setting: Setting) -> str:
    """Return the default value for the help text. The option itself has no default that overrides settings files."""
    if setting.door.derived:
        return f"default: from {setting.door.derived}"
    value = setting.default
    if isinstance(value, bool):
        return f"default: {str(value).lower()}"
    return f"default: {NONE_WORD if value is None or value in ((), {}) else value}"


def command_text(argv: Sequence[str]) -> str:
    """Format the command line for the record, without API keys and values of headers that may be credentials.

    Args:
        argv: Arguments after `bench`.
    """
    words = ["bench"]
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        before = argv[index - 1] if index else ""
        _, is_setting, header = name.rpartition("extra_headers.")
        if before in _KEY_OPTIONS:
            word = MASK
        elif (equals and name in _KEY_OPTIONS) or (is_setting and is_secret_header(header)):
            word = f"{name}={MASK}"
        elif before == "--header":
            word = _masked(word)
        elif name == "--header" and equals:
            word = f"{name}={_masked(value)}"
        words.append(word)
    return shlex.join(hidden_arguments(words))


def _masked(header: str) -> str:
    name, colon, _ = header.partition(":")
    return f"{name}: {MASK}" if not colon or is_secret_header(name) else header
