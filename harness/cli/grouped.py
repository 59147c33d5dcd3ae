"""Commands whose parameters are the fields of a dataclass and settings, with help that lists them by group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields
from inspect import Parameter
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_type_hints

import typer
from typer.core import TyperCommand

T = TypeVar("T")

OPTION, NAMES = "option", "names"
"""Metadata of a field: what typer reads, and the names of the option."""


def option(group: str, usage: str, doc: str, default: object = None) -> Any:
    """Declare an option as a field of a dataclass.

    Args:
        group: Heading of the option in the help.
        usage: Names and placeholder of the value, as in the help: `-o --output FILE`.
        doc: Help text.
        default: Default value; `MISSING` makes the option required.
    """
    names, metavar = _split(usage)
    info = typer.Option(*names, help=doc, metavar=metavar, show_default=False, rich_help_panel=group)
    return field(default=default, metadata={OPTION: info, NAMES: names})


def switch(group: str, usage: str, doc: str) -> Any:
    """Declare an option without a value, which is false by default."""
    return option(group, usage, doc, False)


def argument(metavar: str, doc: str, default: object = MISSING) -> Any:
    """Declare a positional argument as a field of a dataclass; required unless it has a default."""
    return field(default=default, metadata={OPTION: typer.Argument(metavar=metavar, help=doc, show_default=False)})


class GroupedCommand(TyperCommand):
    """A command whose help lists its options by group."""

    order: ClassVar[Sequence[str]] = ()
    """Groups, in the order of the help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write each group under a heading of its own, positional arguments first."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *self.order, "Other")}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                names, doc = record
                is_argument = parameter.param_type_name == "argument"
                group = "Arguments" if is_argument else _group_of(parameter)
                shown = names.partition(" ")[0] if is_argument else names  # without the type, which is always text
                groups[group].append((shown, doc.removesuffix("  [required]")))
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=28)


def _group_of(parameter: Any) -> str:
    return getattr(parameter, "rich_help_panel", None) or "Other"


def ordered(groups: Sequence[str]) -> type[GroupedCommand]:
    """Create a command class whose help lists these groups."""

    class Ordered(GroupedCommand):
        order = groups

    return Ordered


def command_of(
    options: type[T],
    run: Callable[[dict[str, Any], T], int],
    groups: Sequence[str],
    *,
    settings: Mapping[str, Sequence[str]] | None = None,
    last: frozenset[str] = frozenset(),
    epilog: str | None = None,
) -> typer.Typer:
    """Build a command whose parameters are the fields of a dataclass, and settings.

    Args:
        options: The dataclass. Its `check`, if any, validates the options; its field `settings` receives the values of
            the settings that were given, by key.
        run: Called with the invocation's state and the options; returns the exit code. Its docstring is the help.
        groups: Option groups, in the order of the help.
        settings: Keys of the settings that are options of the command, by group.
        last: Fields listed last in their group.
        epilog: Last paragraph of the help.
    """
    parameters = [_parameter("ctx", typer.Context), *_parameters(options, last)]
    keys = [key for keys in (settings or {}).values() for key in keys]
    if settings:
        from harness.cli.options import setting_parameter  # slow to import, and not every command has settings

        taken = {flag for each in fields(cast("Any", options)) for flag in each.metadata.get(NAMES, ())}
        parameters += [setting_parameter(key, group, taken) for group, keys in settings.items() for key in keys]

    def command(ctx: typer.Context, **values: Any) -> None:
        if settings:
            given = {key: values.pop(key) for key in keys}
            values["settings"] = {key: value for key, value in given.items() if value is not None}
        chosen = options(**values)  # typer has converted the values to the fields' types
        state = cast("dict[str, Any]", ctx.find_root().obj)
        state["verbose"] = getattr(chosen, "verbose", False)
        check: Callable[[], None] | None = getattr(chosen, "check", None)
        if check is not None:
            check()
        raise typer.Exit(run(state, chosen))

    command.__doc__ = run.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] what typer reads
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(cls=ordered(groups), epilog=epilog)(command)
    return app


def _parameters(options: type[Any], last: frozenset[str]) -> Iterator[Parameter]:
    hints = get_type_hints(options)
    for each in sorted(fields(options), key=lambda each: each.name in last):
        if OPTION in each.metadata:
            annotation = Annotated[hints[each.name], each.metadata[OPTION]]
            yield _parameter(each.name, annotation, Parameter.empty if each.default is MISSING else each.default)


def _parameter(name: str, annotation: Any, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def flag(usage: str, doc: str, default: Any = None, **more: Any) -> Any:
    """Declare an option of a command function, as the default of its parameter.

    Args:
        usage: Names and placeholder of the value, as in the help: `-o --output FILE`.
        doc: Help text.
        default: Default value; `...` makes the option required.
        **more: Further arguments of `typer.Option`, such as `min`.
    """
    names, metavar = _split(usage)
    return typer.Option(default, *names, help=doc, metavar=metavar, **more)


RUN_HELP = "The run: its folder, its id, the beginning of exactly one id, or `latest`."


def positional(metavar: str, doc: str, default: Any = None, **more: Any) -> Any:
    """Declare a positional argument of a command function, as the default of its parameter; `...` requires it."""
    return typer.Argument(default, metavar=metavar, help=doc, show_default=False, **more)


def _split(usage: str) -> tuple[list[str], str | None]:
    words = usage.split(" ")
    names = [word for word in words if word.startswith("-")]
    return names, " ".join(words[len(names) :]) or None
