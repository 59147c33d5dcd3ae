"""Commands whose parameters are the fields of a dataclass and settings, with help that lists them by group."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, cast, get_type_hints

import typer
from typer.core import TyperCommand

from harness.cli.completion import Choices, completer
from harness.cli.lazy_commands import new_app
from harness.core.errors import UsageError

T = TypeVar("T")

Test: TypeAlias = Callable[[str, Any], object]
"""Function that validates an option, given the option's name and value; raises a UsageError."""

OPTION, NAMES, TEST = "option", "names", "test"
"""Keys of a field's metadata: the option as typer reads it, the option's names, and its `Test`."""


def option(
    group: str, usage: str, doc: str, default: object = None, test: Test | None = None, choices: Sequence[str] = ()
) -> Any:
    """Declare an option as a field of a dataclass.

    Args:
        group: Heading of the option in the help.
        usage: Names and placeholder of the value, as in the help: `-o --output FILE`.
        doc: Help text.
        default: Default value; `MISSING` makes the option required.
        test: Validates the given value; for a repeatable option, each value.
        choices: The accepted values, which shells complete.
    """
    names, metavar = _split(usage)
    info = typer.Option(
        *names, help=doc + _other_meaning(names), metavar=metavar, show_default=False, rich_help_panel=group,
        autocompletion=completer(metavar, choices, is_flag=True),
    )  # fmt: skip
    return field(default=default, metadata={OPTION: info, NAMES: names, TEST: _one_of(choices) if choices else test})


def at_least(least: int) -> Test:
    """Make a validator that requires a minimum value."""

    def test(name: str, value: int) -> None:
        if value < least:
            raise UsageError(f"{name} must be >= {least}.")

    return test


def _one_of(known: Sequence[str]) -> Test:
    """Make a validator that accepts only the given words."""

    def test(name: str, word: str) -> None:
        if word not in known:
            raise UsageError(f"{name} must be {' or '.join(known)}, not {word}")

    return test


def finite(name: str, value: float) -> None:
    """Reject infinity and NaN.

    Raises:
        UsageError: the value is infinite or NaN.
    """
    if not math.isfinite(value):
        raise UsageError(f"{name} must be a number, not {value}.")


def not_empty(name: str, text: str) -> None:
    """Reject a blank value.

    Raises:
        UsageError: the value is blank.
    """
    if not text.strip():
        raise UsageError(f"{name} is empty; if it comes from a shell variable, check that the variable is set")


def switch(group: str, usage: str, doc: str) -> Any:
    """Declare an option that takes no value and is false by default."""
    return option(group, usage, doc, False)


def argument(metavar: str, doc: str, default: object = MISSING) -> Any:
    """Declare a positional argument as a field of a dataclass; required unless it has a default."""
    info = typer.Argument(metavar=metavar, help=doc, show_default=False, autocompletion=completer(metavar))
    return field(default=default, metadata={OPTION: info})


class GroupedCommand(TyperCommand):
    """A command whose help lists its options by group."""

    order: ClassVar[Sequence[str]] = ()
    """Groups, in the order of the help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write each group under its own heading, positional arguments first."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *self.order, "Other")}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                names, doc = record
                group = getattr(parameter, "rich_help_panel", None) or "Other"
                if parameter.param_type_name == "argument":
                    group, names = "Arguments", names.partition(" ")[0]  # without the type, which is always text
                groups[group].append((names, doc.removesuffix("  [required]")))
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=28)


def command_of(
    options: type[T],
    run: Callable[[T], int],
    groups: Sequence[str],
    *,
    settings: Mapping[str, Sequence[str]] | None = None,
    epilog: str | None = None,
) -> typer.Typer:
    """Build a command whose parameters are the fields of a dataclass, and settings.

    Args:
        options: The dataclass. Its `check`, if any, validates the options; its field `settings` receives the values of
            the settings that were given, by key, and its field `command` the command line. The help lists a class's
            own options before inherited ones.
        run: Called with the options; returns the exit code. The docstring of `run` is the help.
        groups: Option groups, in the order of the help.
        settings: Keys of the settings that are options of the command, by group.
        epilog: Last paragraph of the help.
    """
    hints, declared = get_type_hints(options), {each.name: each for each in fields(cast("Any", options))}
    parameters = [Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for name in dict.fromkeys(name for each in options.__mro__ for name in inspect.get_annotations(each)):
        if name in declared and OPTION in declared[name].metadata:
            annotation, default = Annotated[hints[name], declared[name].metadata[OPTION]], declared[name].default
            default = Parameter.empty if default is MISSING else default
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    keys = [key for keys in (settings or {}).values() for key in keys]
    if settings:
        from harness.cli.options import setting_parameter  # slow to import, and not every command has settings

        taken = {flag for each in declared.values() for flag in each.metadata.get(NAMES, ())}
        parameters += [setting_parameter(key, group, taken) for group, keys in settings.items() for key in keys]

    def command(ctx: typer.Context, **values: Any) -> None:
        state = cast("dict[str, Any]", ctx.find_root().obj)
        if settings:
            given = {key: values.pop(key) for key in keys}
            values["settings"] = {key: value for key, value in given.items() if value is not None}
        if "command" in declared:
            from harness.cli.options import command_text  # slow to import, as above

            values["command"] = command_text(state["argv"])
        chosen = options(**values)  # typer has converted the values to the fields' types
        state["verbose"] = getattr(chosen, "verbose", False)
        _validate(chosen)
        raise typer.Exit(run(chosen))

    class Ordered(GroupedCommand):
        order = groups

    command.__doc__ = run.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] what typer reads
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = new_app()
    app.command(cls=Ordered, epilog=epilog)(command)
    return app


def _validate(options: Any) -> None:
    for each in fields(options):
        test, given = each.metadata.get(TEST), getattr(options, each.name)
        if test and given is not None:
            for one in given if isinstance(given, list) else [given]:  # pyright: ignore[reportUnknownVariableType]
                test(next(name for name in each.metadata[NAMES] if name.startswith("--")), one)
    if check := getattr(options, "check", None):
        check()


def flag(usage: str, doc: str, default: Any = None, choices: Choices = (), **more: Any) -> Any:
    """Declare an option of a command function, as the default of its parameter.

    Args:
        usage: Names and placeholder of the value, as in the help: `-o --output FILE`.
        doc: Help text.
        default: Default value; `...` makes the option required.
        choices: Values that shells complete. The command validates the given value.
        **more: Further arguments of `typer.Option`, such as `min`.
    """
    names, metavar = _split(usage)
    complete = completer(metavar, choices, is_flag=True)
    doc += _other_meaning(names)
    return typer.Option(default, *names, help=doc, metavar=metavar, autocompletion=complete, **more)


OUTPUTS = Path("outputs")
"""Default output folder."""


def output_dir_flag(usage: str = "--output-dir -o DIR") -> Any:
    """Declare the option that names the output folder, as the default of a parameter."""
    return flag(usage, "Where the runs are.", OUTPUTS)


RUN_HELP = "The run: its folder, its id, the beginning of exactly one id, or `latest`."


def positional(metavar: str, doc: str, default: Any = None, choices: Choices = (), **more: Any) -> Any:
    """Declare a positional argument of a command function, as the default of its parameter; `...` requires it. Shells
    complete its `choices`; the command validates the given value."""
    complete = completer(metavar, choices)
    return typer.Argument(default, metavar=metavar, help=doc, show_default=False, autocompletion=complete, **more)


LETTERS = {
    "-o": "--output-dir", "-f": "--save-every", "-e": "--endpoints-path", "-m": "--model", "-k": "--api-key-var",
    "-p": "--env-dir-path", "-n": "--num-examples", "-H": "--save-to-hf-hub",
}  # fmt: skip
"""Meaning of letters that a document of another tool gives a second one. The help of an option with the second meaning
says so."""


def _other_meaning(names: Sequence[str]) -> str:
    """Return a note for the help of an option whose letter has another meaning in other commands; else ""."""
    other = [name for name in names if name in LETTERS and LETTERS[name] not in names]
    return "".join(f" (Elsewhere {name} is {LETTERS[name]}.)" for name in other)


def _split(usage: str) -> tuple[list[str], str | None]:
    words = usage.split(" ")
    names = [word for word in words if word.startswith("-")]
    return names, " ".join(words[len(names) :]) or None
