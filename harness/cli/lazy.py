"""Lazy imports of commands, which keep `bench --help` fast. The groups hold the tables of commands."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from harness.core.plugins import load_plugins


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Location of a command, and its line in the group's help."""

    module: str
    function: str
    """Name of a command function, or of a `typer.Typer` for a group of commands."""
    help: str


class LazyCommand(TyperCommand):
    """Placeholder of a command or group, which imports it on the first call."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, short_help=entry.help, add_help_option=False)
        self._entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and build its context."""
        found = getattr(importlib.import_module(self._entry.module), self._entry.function)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            app.command(name=self.name)(found)
            found = app
        return typer.main.get_command(found).make_context(info_name, args, parent, **extra)


def lazy_group(commands: Mapping[str, CommandEntry], plugins: str = "") -> type[TyperGroup]:
    """Create a group of commands that are imported on the first call.

    Args:
        commands: The commands by name.
        plugins: The entry-point group of further commands, which is read for the help page and for a name that is not
            in `commands`; "" for none.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = {name: LazyCommand(name, entry) for name, entry in commands.items()}

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in self.commands:
                self._add_plugins(cmd_name)
            return super().get_command(ctx, cmd_name)

        def list_commands(self, ctx: Any) -> list[str]:
            self._add_plugins()
            return super().list_commands(ctx)

        def _add_plugins(self, name: str | None = None) -> None:
            found = load_plugins(plugins, CommandEntry, name=name, taken=commands) if plugins else {}
            for each, entry in found.items():
                self.commands.setdefault(each, LazyCommand(each, entry))

    return LazyGroup
