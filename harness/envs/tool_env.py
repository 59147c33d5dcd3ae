"""Environments with tools: the model calls Python functions and gets their results. `harness.tools` describes and calls
the functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack, cast

from harness.core.errors import EnvironmentFault, HarnessError, ToolCallError, ToolError, ToolParseError
from harness.core.state import State
from harness.core.types import JsonDict, Message, Messages, Prompt
from harness.envs.hooks import stop
from harness.envs.multi_turn import MultiTurnEnv
from harness.envs.options import EnvOptions
from harness.rubrics.rubric import Rubric
from harness.tools import MAX_OUTPUT_CHARS, Tool, call_tool, parse_arguments, read_tool, to_content
from harness.tools.tool import unknown_tool

ErrorFormatter = Callable[[Exception], str]
"""Makes the text for the model from the exception of a failed tool call."""


def format_error(error: Exception) -> str:
    """Return the exception's message, or the name of its type if the message is empty."""
    return f"{error}" or type(error).__name__


class ToolEnv(MultiTurnEnv):
    """An environment whose model may call tools. The rollout ends with the first reply without a tool call.

    Args:
        tools: Python functions, sync or async; see `harness.tools.read_tool`.
        max_turns: Maximum number of model replies; −1 for no limit.
        error_formatter: Makes the text of the tool message from the exception of a failed call.
        stop_errors: Exceptions that end the rollout with an error instead of being reported to the model. Both the
            exception and its cause are compared: the `ToolParseError` of invalid arguments is caused by a
            `json.JSONDecodeError`, the `ToolCallError` of an unknown tool by a `KeyError`.
        max_output_chars: Maximum length of a tool's result. A longer one is cut in the middle. None for no limit.
        **options: See `EnvOptions`.

    Raises:
        EnvironmentFault: see `MultiTurnEnv`; or an invalid tool, or tool names that are not unique.
    """

    def __init__(
        self,
        tools: Iterable[Callable[..., Any]] | None = None,
        max_turns: int = 10,
        error_formatter: ErrorFormatter = format_error,
        stop_errors: Sequence[type[Exception]] | None = None,
        max_output_chars: int | None = MAX_OUTPUT_CHARS,
        **options: Unpack[EnvOptions],
    ) -> None:
        name = type(self).__name__
        if options.get("message_type") == "completion":
            raise EnvironmentFault(f"{name}: tools require message_type='chat'")
        for option in ("tool_defs", "oai_tools"):
            if options.get(option):
                raise EnvironmentFault(f"{name}({option}=…) is not supported; pass the tools as functions: tools=[…]")
        for error in stop_errors or ():
            if not (isinstance(error, type) and issubclass(error, Exception)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise EnvironmentFault(f"{name}(stop_errors=…) must be a list of exception classes, not {error!r}")
        if max_output_chars is not None and max_output_chars < 1:
            raise EnvironmentFault(f"{name}(max_output_chars=…) must be at least 1, or None, not {max_output_chars!r}")
        super().__init__(max_turns=max_turns, **options)
        self._tool_map: dict[str, Tool] = {}
        self._counts = ToolCounts()
        self.error_formatter = error_formatter
        self.stop_errors = tuple(stop_errors or ())
        self.max_output_chars = max_output_chars
        self._bind_hooks()
        self.add_rubric(self._counts)
        self._count(total_tool_calls)
        for tool in tools or ():
            self.add_tool(tool)

    # Tools

    @property
    def tool_map(self) -> dict[str, Tool]:
        """The tools that the model may call, by name."""
        return self._tool_map

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """The Python functions that the model may call, in the order in which they were added."""
        return [tool.function for tool in self._tool_map.values()]

    def add_tool(self, tool: Callable[..., Any]) -> None:
        """Add a tool for rollouts that start from now on.

        Raises:
            EnvironmentFault: the function is not a valid tool, or its name is not unique.
        """
        self._add(read_tool(tool))

    def remove_tool(self, tool: Callable[..., Any] | str) -> None:
        """Remove a tool and its metric.

        Args:
            tool: The function, or its name.

        Raises:
            EnvironmentFault: unknown tool.
        """
        wanted = tool.name if isinstance(tool, Tool) else tool
        for name, known in self._tool_map.items():
            if wanted in (name, known.function):
                del self._tool_map[name]
                self._counts.drop(f"{name}_calls")
                self.tool_defs = [kept.definition for kept in self._tool_map.values()]
                return
        raise EnvironmentFault(
            f"{type(self).__name__}.remove_tool: there is no tool {getattr(wanted, '__name__', wanted)!r}"
        )

    def _bind_hooks(self) -> None:
        """Validate the signature of `call_tool`, which a subclass may override."""
        if not self._hook("call_tool", ("tool_name", "tool_args", "tool_call_id")).is_async:
            raise EnvironmentFault(f"{type(self).__name__}.call_tool must be async def")

    def _add(self, tool: Tool) -> None:
        if tool.name in self._tool_map:
            raise EnvironmentFault(f"two tools are called {tool.name!r}; rename one: read_tool(f, name=…)")
        self._tool_map[tool.name] = tool
        self.tool_defs = [*self.tool_defs, tool.definition]
        self._count_calls(tool.name)

    def _count_calls(self, tool: str) -> None:
        async def count(completion: Prompt) -> float:
            return float(sum(name == tool for name in called_tools(completion)))

        count.__name__ = f"{tool}_calls"
        count.__doc__ = f"Number of calls of {tool}."
        self._count(count)

    def _count(self, function: Callable[..., Any]) -> None:
        """Add a metric that counts tool calls, unless the author has defined a metric of that name."""
        if function.__name__ not in self.rubric.metric_names:
            self._counts.add_metric(function)

    def _tools(self, state: State) -> list[JsonDict]:
        """The tool definitions of the row, converted to the wire format, or else those of the environment."""
        return [
            {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
            if "name" in tool and "function" not in tool  # a flat definition
            else tool
            for tool in super()._tools(state)
        ]

    # Turns

    @stop
    async def no_tools_called(self, state: State) -> bool:
        """Stop condition: the model's last reply has no tool call and is therefore the answer."""
        if not state["trajectory"]:
            return False
        last = state["trajectory"][-1]["completion"][-1]
        return last.get("role") == "assistant" and not last.get("tool_calls")

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Run the tool calls of the last reply one after another, since a later call may depend on an earlier one."""
        calls: Iterable[JsonDict] = messages[-1].get("tool_calls") or ()
        return [await self._answer_call(call, messages, state) for call in calls]

    async def call_tool(self, tool_name: str, tool_args: JsonDict, tool_call_id: str, **kwargs: Any) -> Message:
        """Call a tool.

        Args:
            tool_name: Name of the tool.
            tool_args: The model's arguments and those of hidden parameters.
            tool_call_id: Id of the call that the message answers.
            **kwargs: Unused; for compatibility of overriding methods.

        Returns:
            The tool message.

        Raises:
            ToolCallError: an argument is unknown, missing or of the wrong type.
            EnvironmentFault: a row offers the tool, but the environment does not have it.
            Exception: any exception of the tool.
        """
        tool = self._tool_map.get(tool_name)
        if tool is None:
            raise EnvironmentFault(f"{type(self).__name__}: a row's info lists tool {tool_name!r}, which is undefined")
        return tool_message(self.format_result(tool_name, await call_tool(tool, tool_args)), tool_call_id)

    def format_result(self, tool_name: str, result: object) -> str | list[JsonDict]:
        """Convert a tool's result to message content; see `harness.tools.to_content`."""
        return to_content(result, self.max_output_chars)

    async def _answer_call(self, call: JsonDict, messages: Messages, state: State) -> Message:
        name, call_id, written = _parts(call)
        try:
            arguments = self._read_call(name, written, state)
        except ToolError as error:
            return self._error_message(name, error, call_id)
        arguments = await self._complete(name, arguments, messages, state)
        try:
            return await self.call_tool(name, arguments, call_id)
        except Exception as error:  # exceptions of tools are reported to the model
            return self._error_message(name, _reportable(error), call_id)

    def _read_call(self, name: str, written: str | JsonDict | None, state: State) -> JsonDict:
        """Parse the arguments of a call to one of the rollout's tools; reject other tools."""
        offered = _offered(state, self._tool_map)
        if name not in offered:
            raise unknown_tool(name, offered)
        arguments = parse_arguments(name, written)
        if name in self._tool_map:
            self._tool_map[name].refuse_hidden(arguments)  # before hidden arguments are added
        return arguments

    async def _complete(self, name: str, arguments: JsonDict, messages: Messages, state: State) -> JsonDict:
        """Return the arguments of a call with the hidden ones added. Only subclasses have hidden arguments."""
        return arguments

    def _error_message(self, name: str, error: Exception, call_id: str) -> Message:
        """Make the tool message that reports an error to the model; raise the error if `stop_errors` names its type."""
        cause = error.__cause__ if isinstance(error, ToolError) else None
        if isinstance(error, self.stop_errors) or isinstance(cause, self.stop_errors):
            if isinstance(error, ToolParseError | ToolCallError):
                raise error
            raise ToolCallError(f"tool {name!r} raised {type(error).__name__}: {error}") from error
        try:
            text: object = self.error_formatter(error)
        except Exception as fault:  # an error of the author's formatter, not of the tool
            raise EnvironmentFault(f"error_formatter raised {type(fault).__name__}: {fault}") from fault
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EnvironmentFault(f"error_formatter must return a string, not {type(text).__name__}")
        return tool_message(to_content(text, self.max_output_chars), call_id)


class ToolCounts(Rubric):
    """Counts of tool calls, one metric per tool. Computed from the completion, so they can be restored from a
    journal."""

    def drop(self, name: str) -> None:
        """Remove the metric of this name, if it exists."""
        self._functions = [planned for planned in self._functions if planned.name != name]


async def total_tool_calls(completion: Prompt) -> float:
    """Number of tool calls of the model. Async, so that it needs no thread."""
    return float(sum(1 for _ in called_tools(completion)))


def called_tools(completion: Prompt) -> Iterable[str]:
    """Names of the called tools in order, including failed calls."""
    for message in completion if not isinstance(completion, str) else ():
        if message.get("role") == "assistant":
            for call in message.get("tool_calls") or ():
                yield _parts(cast(JsonDict, call))[0]


def _reportable(error: Exception) -> Exception:
    """Return `error` if it can be reported to the model as the result of a tool. Raise it if it is not an error of the
    tool but of an endpoint, a sandbox or the environment."""
    if isinstance(error, HarnessError) and not isinstance(error, ToolError):
        raise error
    if isinstance(error, ExceptionGroup):
        for inner in cast("ExceptionGroup[Exception]", error).exceptions:
            _reportable(inner)
    return cast(Exception, error)


def _offered(state: State, known: Iterable[str]) -> list[str]:
    """Names of the rollout's tools, or of all known tools if the rollout has not started."""
    definitions = cast("list[JsonDict] | None", state.get("tools"))
    if definitions is None:
        return list(known)
    return [str(tool["function"]["name"]) for tool in definitions if "function" in tool]


def _parts(call: JsonDict) -> tuple[str, str, str | JsonDict | None]:
    """Return name, id and arguments of a tool call, which may be nested (OpenAI wire format) or flat."""
    function = cast(JsonDict, call.get("function") or call)
    return str(function.get("name") or ""), str(call.get("id") or ""), function.get("arguments")


def tool_message(content: str | list[JsonDict], call_id: str) -> Message:
    """Return the tool message with the result of a tool call."""
    return {"role": "tool", "content": content, "tool_call_id": call_id}
