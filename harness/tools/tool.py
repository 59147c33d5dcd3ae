"""A tool: a function that a model may call, and how it is described to the model. Owns the reading of functions, and
the way a call's arguments reach one; owns no conversation."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from harness.core.errors import EnvironmentFault, ToolCallError, ToolParseError
from harness.core.types import JsonDict
from harness.tools.docstrings import read_docstring
from harness.tools.schema import ArgumentReader, read_parameters, unknown_argument
from harness.usercode.threads import offload

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What endpoints take as the name of a function."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call. Calling the tool itself calls the function as it is."""

    name: str
    description: str
    parameters: JsonDict
    """The JSON schema of the arguments that the model passes."""
    function: Callable[..., Any]
    is_async: bool
    hidden: frozenset[str] = frozenset()
    """Parameters that the model does not see; whoever calls the tool fills them in."""
    reader: ArgumentReader | None = None
    """Checks and coerces the model's arguments; None leaves that to the function (a tool of a server)."""
    positional: tuple[inspect.Parameter, ...] = ()
    """Parameters that cannot be passed by name."""
    needed: frozenset[str] = frozenset()
    """Hidden parameters without a default."""
    bound: frozenset[str] = frozenset()
    """Parameters that a `functools.partial` has given their value."""

    @property
    def definition(self) -> JsonDict:
        """The tool in the OpenAI wire shape."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def read(self, arguments: JsonDict) -> JsonDict:
        """The model's arguments as the function wants them.

        Raises:
            ToolCallError: one is unknown, missing or of the wrong type, in words for the model.
        """
        self.refuse_hidden(arguments)
        return dict(arguments) if self.reader is None else self.reader.read(arguments)

    def refuse_hidden(self, arguments: JsonDict) -> None:
        """Refuse arguments of the model's that are not its to give, though the function would take them.

        Raises:
            ToolCallError: there is one; the words are those for an unknown argument.
        """
        for name in arguments:
            if name in self.hidden or name in self.bound:
                shown: Iterable[str] = self.parameters.get("properties", ())
                raise ToolCallError(f"{self.name}: {unknown_argument(name, tuple(shown))}")


def read_tool(function: Callable[..., Any] | Tool, hidden: Iterable[str] = (), *, name: str | None = None) -> Tool:
    """Describe a function to models.

    The name, the types and the descriptions are the function's own: its annotations and its docstring. A parameter
    without an annotation takes any JSON value.

    Args:
        function: Sync or async; a bound method, a `functools.partial` or an object with `__call__` will do. A tool is
            returned as it is, or with more that is hidden, or with another name.
        hidden: Parameters that the model does not see.
        name: What the model calls it; the function's name by default.

    Raises:
        EnvironmentFault: it is no function, its name is none that endpoints take, or a parameter cannot be described.
    """
    if isinstance(function, Tool):
        return _changed(function, frozenset(hidden), name)
    if not callable(function):
        raise EnvironmentFault(f"a tool must be a function, not {function!r}")
    called = _checked_name(name or _name_of(function))
    if _is_generator(function):
        raise EnvironmentFault(f"tool {called!r} is a generator: a model cannot read one; return a list, or a text")
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
        is_async=_is_async(function),
        hidden=skipped,
        reader=reader,
        positional=tuple(p for p in parameters if p.kind is p.POSITIONAL_ONLY),
        needed=frozenset(p.name for p in parameters if p.name in skipped and p.default is p.empty),
        bound=_bound(function),
    )


def parse_arguments(tool: str, arguments: str | JsonDict | None) -> JsonDict:
    """The arguments of a call: the JSON text that the model wrote, or an object. Empty text means no arguments.

    Raises:
        ToolParseError: the text is not JSON, or no object.
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


async def call_tool(tool: Tool, arguments: JsonDict | str, filled: JsonDict | None = None) -> object:
    """Call a tool: check and coerce the arguments, and run the function, in a thread unless it is async.

    Args:
        tool: What is called.
        arguments: The model's: JSON text or an object.
        filled: Values of hidden parameters.

    Returns:
        What the function returned.

    Raises:
        ToolParseError: the arguments are no JSON object.
        ToolCallError: an argument is unknown, missing or of the wrong type.
        EnvironmentFault: a hidden parameter without a default has no value.
        Exception: whatever the function raised.
    """
    return await run_tool(tool, {**tool.read(parse_arguments(tool.name, arguments)), **(filled or {})})


async def run_tool(tool: Tool, given: JsonDict) -> object:
    """Run a tool's function on values that it can take; see `call_tool`.

    Raises:
        EnvironmentFault: a hidden parameter without a default has no value.
        Exception: whatever the function raised.
    """
    missing = sorted(tool.needed.difference(given))
    if missing:
        raise EnvironmentFault(
            f"tool {tool.name!r}: nothing fills its hidden argument {missing[0]!r}; return it from update_tool_args"
        )
    positional = [given.pop(p.name, p.default) for p in tool.positional]
    if tool.is_async:
        return await tool.function(*positional, **given)
    result: object = await offload.run(tool.function, *positional, **given)
    return await result if inspect.isawaitable(result) else result


def split_arguments(tool: Tool, arguments: JsonDict) -> tuple[JsonDict, JsonDict]:
    """Arguments for visible and for hidden parameters, apart."""
    if not tool.hidden:
        return arguments, {}
    visible = {name: value for name, value in arguments.items() if name not in tool.hidden}
    return visible, {name: value for name, value in arguments.items() if name in tool.hidden}


def unknown_tool(name: str, offered: Iterable[str]) -> ToolCallError:
    """What to tell a model that calls what there is not."""
    known = list(offered)
    near = difflib.get_close_matches(name, known, 1, 0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    there = f"The tools are {', '.join(known)}" if known else "There are no tools"
    error = ToolCallError(f"there is no tool {name!r}; {hint}{there}")
    error.__cause__ = KeyError(name)
    return error


def _changed(tool: Tool, hidden: frozenset[str], name: str | None) -> Tool:
    """A tool with more that is hidden, or with another name."""
    called = _checked_name(name or tool.name)
    if hidden <= tool.hidden:
        reader = None if tool.reader is None else replace(tool.reader, tool=called)
        return tool if called == tool.name else replace(tool, name=called, reader=reader)
    if tool.reader is None or tool.parameters != tool.reader.parameters:
        raise EnvironmentFault(
            f"tool {called!r} has a schema of its own, in which nothing can be hidden; pass read_tool the function"
        )
    return replace(read_tool(tool.function, tool.hidden | hidden, name=called), description=tool.description)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise EnvironmentFault(
            f"tool {name!r}: a tool's name has 1 to 64 letters, digits, _ or -; give it one with def, or with "
            "read_tool(f, name=…)"
        )
    return name


def _checked_hidden(tool: str, hidden: tuple[str, ...], parameters: list[inspect.Parameter]) -> frozenset[str]:
    known = [parameter.name for parameter in parameters]
    for name in hidden:
        if name not in known:
            raise EnvironmentFault(f"tool {tool!r}: nothing to hide: {unknown_argument(name, known)}")
    return frozenset(hidden)


def _parameters(tool: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise EnvironmentFault(f"tool {tool!r}: its signature cannot be read; wrap it in a def ({error})") from error
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise EnvironmentFault(
                f"tool {tool!r}: models pass arguments by name, so *{parameter.name} has no place; take a list instead"
            )
    # What a partial binds by keyword stays in the signature, with a default: it is not the model's to change.
    bound = _bound(function)
    return [parameter for parameter in parameters if parameter.name not in bound]


def _bound(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(function.keywords) if isinstance(function, functools.partial) else frozenset()


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that annotations stand at."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function).__call__
    function = getattr(function, "__func__", function)
    return inspect.unwrap(function)


def _docstring(function: Callable[..., Any], inner: Callable[..., Any]) -> str | None:
    """The docstring of the innermost function, or of the object that is called."""
    if inner.__doc__ and inner.__name__ != "__call__":
        return inner.__doc__
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return inner.__doc__ or function.__doc__


def _name_of(function: object) -> str:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _is_async(function: object) -> bool:
    return any(inspect.iscoroutinefunction(code) for code in _called(function))


def _is_generator(function: object) -> bool:
    return any(inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code) for code in _called(function))


def _called(function: object) -> tuple[object, object]:
    """What runs when it is called: itself, or the method of an object. Not what a decorator has wrapped."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function, getattr(function, "__call__", None)  # noqa: B004
