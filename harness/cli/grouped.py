"""Commands whose parameters are the fields of a dataclass, with help that lists them by group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from inspect import Parameter
from typing import Any, ClassVar, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

T = TypeVar("T")


def option(group: str, *names: str, doc: str, metavar: str | None = None) -> Any:
    """Declare an option that the help lists under `group`; used in a field's annotation."""
    return typer.Option(*names, help=doc, metavar=metavar, show_default=False, rich_help_panel=group)


def argument(metavar: str, doc: str) -> Any:
    """Declare a positional argument; used in a field's annotation."""
    return typer.Argument(metavar=metavar, help=doc, show_default=False)


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
    run: Callable[[typer.Context, T], int],
    groups: Sequence[str],
    *,
    last: frozenset[str] = frozenset(),
    epilog: str | None = None,
) -> typer.Typer:
    """Build a command whose parameters are the fields of a dataclass.

    Args:
        options: The dataclass.
        run: Called with the context and the options; returns the exit code. Its docstring is the help.
        groups: Option groups, in the order of the help.
        last: Fields listed last in their group.
        epilog: Last paragraph of the help.
    """

    def command(ctx: typer.Context, **values: Any) -> None:
        raise typer.Exit(run(ctx, options(**values)))  # typer has converted them to the fields' types

    command.__doc__ = run.__doc__
    parameters = [_parameter("ctx", typer.Context), *_parameters(options, last)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] what typer reads
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(cls=ordered(groups), epilog=epilog)(command)
    return app


def _parameters(options: type[Any], last: frozenset[str]) -> Iterator[Parameter]:
    hints = get_type_hints(options, include_extras=True)
    each: Field[Any]
    for each in sorted(fields(options), key=lambda field: field.name in last):
        yield _parameter(each.name, hints[each.name], Parameter.empty if each.default is MISSING else each.default)


def _parameter(name: str, annotation: Any, default: object = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
