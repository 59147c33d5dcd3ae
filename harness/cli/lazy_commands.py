"""Commands and plugins: lazy imports of commands, which keep `bench --help` fast, and options that plugins add."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from harness.cli.examples import epilog
from harness.core.errors import UsageError
from harness.core.plugins import load_plugins


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Module and function of a command, and the command's line in the help."""

    module: str
    function: str
    """Name of a command function, or of a `typer.Typer` for a group of commands."""
    help: str
    group: str = "Commands"
    """Heading of the command in the help."""


def own_command(target: str, help_line: str, group: str = "Commands") -> CommandEntry:
    """Make the entry of a command of this package.

    Args:
        target: `MODULE:NAME` of its function or `typer.Typer`, below `harness.cli`.
        help_line: The command's line in the help.
        group: Heading of the command in the help.
    """
    module, _, name = target.partition(":")
    return CommandEntry(f"harness.cli.{module}", name, help_line, group)


def new_app(*, add_completion: bool = False, **more: Any) -> typer.Typer:
    """Create an application or a group of commands. Help pages are formatted without rich, which is slow to import and
    truncates the names of options at 80 columns."""
    return typer.Typer(
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        **more,
    )


class LazyCommand(TyperCommand):
    """Placeholder for a command or group that is imported on the first call."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, short_help=entry.help, add_help_option=False)
        self._entry = entry
        self.group = entry.group

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and build its context."""
        found = getattr(importlib.import_module(self._entry.module), self._entry.function)
        if not isinstance(found, typer.Typer):
            app = new_app()
            app.command(name=self.name)(found)
            found = app
        command = typer.main.get_command(found)
        path = f"{parent.command_path} {info_name}" if parent is not None else f"bench {self.name}"
        command.epilog = command.epilog or epilog(path)
        return command.make_context(info_name, args, parent, **extra)


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

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """Write the commands of each group under its heading."""
            groups: dict[str, list[tuple[str, str]]] = {}
            for name in self.list_commands(ctx):
                command: LazyCommand = self.get_command(ctx, name)
                groups.setdefault(command.group, []).append((name, command.short_help or ""))
            width = max(len(name) for records in groups.values() for name, _ in records)
            for heading, records in groups.items():
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), text) for name, text in records])

        def _add_plugins(self, name: str | None = None) -> None:
            found = load_plugins(plugins, CommandEntry, name=name, taken=commands) if plugins else {}
            for each, entry in found.items():
                self.commands.setdefault(each, LazyCommand(each, entry))

    return LazyGroup


def add_plugin_options(command: Callable[..., None], group: str) -> Callable[[Mapping[str, Any]], Any]:
    """Add the parameters of a group's plugin functions to the options of a command.

    Args:
        command: A command function, which takes the added options as `**keywords`.
        group: The entry-point group.

    Returns:
        A function of these keywords. It calls each plugin with its options, and returns what one of them returned, or
        None. It raises a UsageError if several returned something.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = {each.name: each for each in own if each.kind is not each.VAR_KEYWORD}

    def problem_of(plugin: FunctionType) -> str:
        try:
            options = inspect.signature(plugin, eval_str=True).parameters
            app = typer.Typer()
            app.command()(plugin)
            typer.main.get_command(app)
        except Exception as error:  # annotations of other people
            return f"its options cannot be read: {type(error).__name__}: {error}"
        clash = options.keys() & parameters.keys()
        if not clash:
            parameters.update({name: each.replace(kind=each.KEYWORD_ONLY) for name, each in options.items()})
        return f"the option {sorted(clash)[0]!r} already exists" if clash else ""

    plugins = load_plugins(group, FunctionType, problem_of=problem_of)
    added = {name: inspect.signature(plugin).parameters for name, plugin in plugins.items()}
    command.__signature__ = inspect.Signature(list(parameters.values()))  # pyright: ignore[reportFunctionMemberAccess]

    def call_plugins(options: Mapping[str, Any]) -> Any:
        made = {name: plugin(**{each: options[each] for each in added[name]}) for name, plugin in plugins.items()}
        used = {name: value for name, value in made.items() if value is not None}
        if len(used) > 1:
            raise UsageError(f"the options of several plugins cannot be combined: {', '.join(used)}; use only one")
        return next(iter(used.values()), None)

    return call_plugins
