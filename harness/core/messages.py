"""Messages that name settings, options and commands, in the spelling of the command or Python function that shows
them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import cast

COMMANDS: Mapping[str, str] = {
    "run_command": "bench run",
    "eval_command": "bench eval",
    "multi_command": "bench multi",
    "resume_command": "bench resume",
    "replay_command": "bench replay",
    "push_command": "bench push",
    "allow_private": "--allow-private",
    "runs_command": "bench runs",
    "check_command": "bench env check",
    "info_command": "bench env info",
    "install_command": "bench env install",
    "init_command": "bench env init",
    "copy_command": "bench env copy",
    "init_path": "--path",
}
"""Spelling of commands in messages, which is the same for every command and Python function."""


class Labels(dict[str, str]):
    """How a command or Python function spells settings, options and commands, such as `{"api_key_var": "-k"}`.

    A name without an entry is spelled as in TOML."""

    def __missing__(self, name: str) -> str:
        return COMMANDS.get(name, name)


PLAIN = Labels()


class Name(str):
    """Name of a setting or variable in a message, which commands and Python functions may spell differently
    (`api_key_var`, `--api-key-var`)."""


class Spelled:
    """Base class of messages and errors that name settings."""

    def text(self, labels: Labels) -> str:
        """Render the text, with the names of settings spelled as in `labels`."""
        raise NotImplementedError


class Message(Spelled):
    """Text that spells names of settings and options as in the command or Python function that shows it.

    Args:
        template: The text. A placeholder such as `{api_key_var}` is replaced by the value or setting of that name.
        **values: Values of placeholders by name. The members of a tuple are joined with semicolons.
    """

    def __init__(self, template: str, **values: object) -> None:
        self.template = template
        self.values = values

    def text(self, labels: Labels = PLAIN) -> str:
        """Render the text, with the names of settings spelled as in `labels`."""
        values: dict[str, object] = {name: spelled(value, labels) for name, value in self.values.items()}
        return self.template.format_map(ChainMap(values, cast("dict[str, object]", labels)))

    def __str__(self) -> str:
        return self.text()


def spelled(value: object, labels: Labels) -> object:
    """Format a value for a message; names of settings in the value are spelled as in `labels`."""
    if isinstance(value, Name):
        return labels.get(value, value)
    if isinstance(value, tuple):
        return "; ".join(str(spelled(each, labels)) for each in cast("tuple[object, ...]", value))
    return value.text(labels) if isinstance(value, Spelled) else value
