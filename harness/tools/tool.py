"""Tools: functions that a model may call, their descriptions for the model, and calling them with a model's
arguments."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from harness.core.errors import EnvironmentFault, ToolCallError, ToolParseError
from harness.core.types import JsonDict
from harness.settings.wording import nearest
from harness.tools.docstrings import read_docstring
from harness.tools.schema import ArgumentReader, read_parameters, unknown_argument
from harness.usercode.functions import is_async, name_of, parameters_of, without_partials
from harness.usercode.threads import offload

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Pattern of the function names that endpoints accept."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. Calling the tool object calls the function without validation."""

    name: str
    description: str
    parameters: JsonDict
    """JSON schema of the arguments that the model passes."""
    function: Callable[..., Any]
    is_async: bool
    hidden: frozenset[str] = frozenset()
    """Parameters that are hidden from the model; the caller of the tool supplies them."""
    reader: ArgumentReader | None = None
    """Validates and converts the model's arguments; None for tools of a server, which does this itself."""
    positional: tuple[inspect.Parameter, ...] = ()
    """Positional-only parameters."""
    needed: frozenset[str] = frozenset()
    """Hidden parameters without a default."""
    bound: frozenset[str] = frozenset()
    """Parameters bound by a `functools.partial`."""

    @property
    def definition(self) -> JsonDict:
        """The tool definition in the OpenAI wire format."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def read(self, arguments: JsonDict) -> JsonDict:
        """Validate the model's arguments and convert them to the annotated types.

        Raises:
            ToolCallError: an argument is unknown, missing or of the wrong type; the message is meant for the model.
        """
        self.refuse_hidden(arguments)
        return dict(arguments) if self.reader is None else self.reader.read(arguments)

    def visible(self, arguments: JsonDict) -> JsonDict:
        """Return the arguments without those for hidden parameters."""
        return {name: value for name, value in arguments.items() if name not in self.hidden}

    def refuse_hidden(self, arguments: JsonDict) -> None:
        """Reject hidden and bound arguments in a model's call.

        Raises:
            ToolCallError: the call has such an argument; the message is that for an unknown argument.
        """
        for name in arguments:
            if name in self.hidden or name in self.bound:
                shown: Iterable[str] = self.parameters.get("properties", ())
                raise ToolCallError(f"{self.name}: {unknown_argument(name, tuple(shown))}")


def read_tool(function: Callable[..., Any] | Tool, hidden: Iterable[str] = (), *, name: str | None = None) -> Tool:
    """Make a tool from a function.

    Name, types and descriptions are taken from the function's annotations and docstring. A parameter without an
    annotation accepts any JSON value.

    Args:
        function: A sync or async function, a bound method, a `functools.partial` or an object with `__call__`. A `Tool`
            is returned as it is, or as a copy with more hidden parameters or another name.
        hidden: Parameters to hide from the model.
        name: Name of the tool for the model; defaults to the function's name.

    Raises:
        EnvironmentFault: not a function, a name that endpoints do not accept, or a parameter without a JSON schema.
    """
    if isinstance(function, Tool):
        return _changed(function, frozenset(hidden), name)
    if not callable(function):
        raise EnvironmentFault(f"a tool must be a function, not {function!r}")
    called = _checked_name(name or name_of(function))
    if _is_generator(without_partials(function)):
        raise EnvironmentFault(f"tool {called!r} is a generator, which is not supported; return a list or a string")
    parameters = _parameters(called, function)
    skipped = _checked_hidden(called, tuple(hidden), parameters)
    inner = _unwrapped(function)
    documented = read_docstring(_docstring(function, inner))
    shown = [parameter for parameter in parameters if parameter.name not in skipped]
    reader = read_parameters(called, inner, shown, documented.parameters)
    return Tool(
        name=called,
        description=documented.description,
        parameters=reader.parameters,
        function=function,
        is_async=is_async(function),
        hidden=skipped,
        reader=reader,
        positional=tuple(p for p in parameters if p.kind is p.POSITIONAL_ONLY),
        needed=frozenset(p.name for p in parameters if p.name in skipped and p.default is p.empty),
        bound=frozenset(function.keywords) if isinstance(function, functools.partial) else frozenset(),
    )


def parse_arguments(tool: str, arguments: str | JsonDict | None) -> JsonDict:
    """Parse the arguments of a call: JSON text by the model, or an object. An empty string means no arguments.

    Raises:
        ToolParseError: the text is not a JSON object.
    """
    if isinstance(arguments, dict):
        return arguments
    if arguments is None or not arguments.strip():
        return {}
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ToolParseError(f"{tool}: the arguments are not valid JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolParseError(f"{tool}: the arguments must be a JSON object, not {type(value).__name__}")
    return cast(JsonDict, value)


async def call_tool(tool: Tool, arguments: JsonDict) -> object:
    """Call a tool: validate and convert the model's arguments, and run the function, in a thread unless it is async.

    Args:
        tool: The tool to call.
        arguments: The model's arguments, and values of hidden parameters.

    Returns:
        The function's return value.

    Raises:
        ToolCallError: an argument is unknown, missing or of the wrong type.
        EnvironmentFault: a hidden parameter without a default has no value.
        Exception: any exception of the function.
    """
    hidden = {name: value for name, value in arguments.items() if name in tool.hidden}
    given = {**tool.read(tool.visible(arguments)), **hidden}
    missing = sorted(tool.needed.difference(given))
    if missing:
        raise EnvironmentFault(
            f"tool {tool.name!r}: its hidden argument {missing[0]!r} has no value; return it from update_tool_args"
        )
    positional = [given.pop(p.name, p.default) for p in tool.positional]
    if tool.is_async:
        return await tool.function(*positional, **given)
    result: object = await offload.run(tool.function, *positional, **given)
    return await result if inspect.isawaitable(result) else result


def unknown_tool(name: str, offered: Iterable[str]) -> ToolCallError:
    """Make the error for a call of an unknown tool, for the model."""
    known = list(offered)
    near = nearest(name, known)
    hint = f"did you mean {near!r}? " if near else ""
    there = f"The tools are {', '.join(known)}" if known else "There are no tools"
    error = ToolCallError(f"there is no tool {name!r}; {hint}{there}")
    error.__cause__ = KeyError(name)
    return error


def _changed(tool: Tool, hidden: frozenset[str], name: str | None) -> Tool:
    """Copy a tool with more hidden parameters or another name."""
    called = _checked_name(name or tool.name)
    if hidden <= tool.hidden:
        reader = None if tool.reader is None else replace(tool.reader, tool=called)
        return tool if called == tool.name else replace(tool, name=called, reader=reader)
    if tool.reader is None or tool.parameters != tool.reader.parameters:
        raise EnvironmentFault(
            f"tool {called!r} has its own schema, so its parameters cannot be hidden; pass the function to read_tool"
        )
    return replace(read_tool(tool.function, tool.hidden | hidden, name=called), description=tool.description)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise EnvironmentFault(
            f"tool {name!r}: a tool's name has 1 to 64 letters, digits, _ or -; rename the function, or pass "
            "read_tool(f, name=…)"
        )
    return name


def _checked_hidden(tool: str, hidden: tuple[str, ...], parameters: list[inspect.Parameter]) -> frozenset[str]:
    known = [parameter.name for parameter in parameters]
    for name in hidden:
        if name not in known:
            raise EnvironmentFault(f"tool {tool!r}: cannot hide a parameter: {unknown_argument(name, known)}")
    return frozenset(hidden)


def _parameters(tool: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that are not bound by a `functools.partial`; the model must not change those."""
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError) as error:
        raise EnvironmentFault(f"tool {tool!r}: cannot read its signature; wrap it in a function ({error})") from error
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise EnvironmentFault(
                f"tool {tool!r}: models pass arguments by name, so *{parameter.name} is not supported; use a list"
            )
    return parameters


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations, without partials, bound methods and decorators."""
    function = without_partials(function)
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    return inspect.unwrap(function)


def _docstring(function: Callable[..., Any], inner: Callable[..., Any]) -> str | None:
    """The docstring of the innermost function, or of the called object."""
    if inner.__doc__ and inner.__name__ != "__call__":
        return inner.__doc__
    return inner.__doc__ or without_partials(function).__doc__


def _is_generator(function: object) -> bool:
    """Return whether a function, or the `__call__` of an object, contains `yield`. Decorators are not unwrapped."""
    codes = (function, getattr(function, "__call__", None))  # noqa: B004
    return any(inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code) for code in codes)
