"""A conversation with tools: the model calls Python functions and reads what they return. Owns which calls are answered
and how, and what is counted of them; how functions are described and called is in `harness.tools`."""

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
from harness.tools import MAX_OUTPUT_CHARS, Tool, parse_arguments, read_tool, to_content
from harness.tools.tool import run_tool, split_arguments, unknown_tool

ErrorFormatter = Callable[[Exception], str]
"""Makes the text that a model reads when its tool call came to nothing."""


def format_error(error: Exception) -> str:
    """The error's own words; its type if it has none."""
    return f"{error}" or type(error).__name__


class ToolEnv(MultiTurnEnv):
    """An environment whose model may call tools. The rollout ends with the first reply that calls none.

    Args:
        tools: Python functions, sync or async; see `harness.tools.read_tool`.
        max_turns: Model replies after which a rollout ends; −1 for no bound.
        error_formatter: Makes the text of the tool message when a call came to nothing, from the exception.
        stop_errors: Exceptions that end the rollout with an error instead of being told to the model. Each is compared
            with the exception and with its cause: a `json.JSONDecodeError` causes the `ToolParseError` of unreadable
            arguments, a `KeyError` the `ToolCallError` of an unknown tool.
        max_output_chars: Characters of a tool's text that the model gets, from both ends; None for all.
        **options: See `EnvOptions`.

    Raises:
        EnvironmentFault: see `MultiTurnEnv`; or a tool that cannot be described, or two of one name.
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
            raise EnvironmentFault(f"{name}: tools go with messages, not with message_type='completion'")
        for option in ("tool_defs", "oai_tools"):
            if options.get(option):
                raise EnvironmentFault(f"{name}({option}=…): definitions come from the functions; pass tools=[…]")
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

    # The tools

    @property
    def tool_map(self) -> dict[str, Tool]:
        """The tools, by name."""
        return self._tool_map

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """The functions, in the order in which they were added."""
        return [tool.function for tool in self._tool_map.values()]

    def add_tool(self, tool: Callable[..., Any]) -> None:
        """Offer one more tool to rollouts that start from now on.

        Raises:
            EnvironmentFault: it cannot be described, or there is one of its name.
        """
        self._add(read_tool(tool))

    def remove_tool(self, tool: Callable[..., Any] | str) -> None:
        """Offer a tool no more; its count goes with it.

        Args:
            tool: The function, or its name.

        Raises:
            EnvironmentFault: there is no such tool.
        """
        wanted = tool.name if isinstance(tool, Tool) else tool
        for name, known in self._tool_map.items():
            if wanted in (name, known.function):
                del self._tool_map[name]
                self._counts.drop(_counter_name(name))
                self.tool_defs = [kept.definition for kept in self._tool_map.values()]
                return
        raise EnvironmentFault(
            f"{type(self).__name__}.remove_tool: there is no tool {getattr(wanted, '__name__', wanted)!r}"
        )

    def _bind_hooks(self) -> None:
        """Check the methods that a subclass may override."""
        if not self._hook("call_tool", ("tool_name", "tool_args", "tool_call_id")).is_async:
            raise EnvironmentFault(f"{type(self).__name__}.call_tool must be async def")

    def _add(self, tool: Tool) -> None:
        if tool.name in self._tool_map:
            raise EnvironmentFault(f"two tools are called {tool.name!r}; rename one: read_tool(f, name=…)")
        self._tool_map[tool.name] = tool
        self.tool_defs = [*self.tool_defs, tool.definition]
        self._count_calls(tool.name)

    def _count_calls(self, tool: str) -> None:
        self._count(_counter(tool))

    def _count(self, function: Callable[..., Any]) -> None:
        """Record a count, unless a function of the author's has that name."""
        if function.__name__ not in self.rubric.metric_names:
            self._counts.add_metric(function)

    def _tools(self, state: State) -> list[JsonDict]:
        """The row's own definitions, in the wire's shape even if they are written flat, else the environment's."""
        return [_wire_shape(definition) for definition in super()._tools(state)]

    # Turns

    @stop
    async def no_tools_called(self, state: State) -> bool:
        """The model's last reply calls no tool: it is the answer."""
        if not state["trajectory"]:
            return False
        last = state["trajectory"][-1]["completion"][-1]
        return last.get("role") == "assistant" and not last.get("tool_calls")

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Answer the calls of the last reply, in order and one after the other: a later call of a reply may count on
        what an earlier one did."""
        answers: Messages = []
        for call in messages[-1].get("tool_calls") or ():
            answers.append(await self._answer_call(cast(JsonDict, call), messages, state))
        return answers

    async def call_tool(self, tool_name: str, tool_args: JsonDict, tool_call_id: str, **kwargs: Any) -> Message:
        """Call a tool.

        Args:
            tool_name: Which one.
            tool_args: The model's arguments, and those of hidden parameters.
            tool_call_id: The call that the message answers.
            **kwargs: Nothing yet; for overriding methods that take it.

        Returns:
            The tool message.

        Raises:
            ToolCallError: an argument is unknown, missing or of the wrong type.
            EnvironmentFault: there is no such tool, though a row offers it.
            Exception: whatever the tool raised.
        """
        tool = self._tool_map.get(tool_name)
        if tool is None:
            raise EnvironmentFault(f"{type(self).__name__}: a row offers a tool {tool_name!r}, but there is none")
        visible, hidden = split_arguments(tool, tool_args)
        result = await run_tool(tool, {**tool.read(visible), **hidden})
        return tool_message(self.format_result(tool_name, result), tool_call_id)

    def format_result(self, tool_name: str, result: object) -> str | list[JsonDict]:
        """What the model reads of a tool's result: see `harness.tools.to_content`."""
        return to_content(result, self.max_output_chars)

    async def _answer_call(self, call: JsonDict, messages: Messages, state: State) -> Message:
        name, call_id, written = _parts(call)
        try:
            arguments = self._read_call(name, written, state)
        except ToolError as error:
            return self._told(name, error, call_id)
        arguments = await self._complete(name, arguments, messages, state)
        try:
            return await self.call_tool(name, arguments, call_id)
        except Exception as error:  # the boundary around tools: what they raise is told to the model
            return self._told(name, _tellable(error), call_id)

    def _read_call(self, name: str, written: str | JsonDict | None, state: State) -> JsonDict:
        """The arguments of a call to a tool that this rollout offers."""
        offered = _offered(state, self._tool_map)
        if name not in offered:
            raise unknown_tool(name, offered)
        arguments = parse_arguments(name, written)
        if name in self._tool_map:
            self._tool_map[name].refuse_hidden(arguments)  # before anything fills them in
        return arguments

    async def _complete(self, name: str, arguments: JsonDict, messages: Messages, state: State) -> JsonDict:
        """Fill in what the model does not know of."""
        return arguments

    def _told(self, name: str, error: Exception, call_id: str) -> Message:
        """The tool message about an error, unless the error is to end the rollout."""
        cause = error.__cause__ if isinstance(error, ToolError) else None
        if isinstance(error, self.stop_errors) or isinstance(cause, self.stop_errors):
            if isinstance(error, ToolParseError | ToolCallError):
                raise error
            raise ToolCallError(f"tool {name!r} raised {type(error).__name__}: {error}") from error
        try:
            text: object = self.error_formatter(error)
        except Exception as fault:  # the author's: it must not pass for the tool's error
            raise EnvironmentFault(f"error_formatter raised {type(fault).__name__}: {fault}") from fault
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EnvironmentFault(f"error_formatter must return a text, not {type(text).__name__}")
        return tool_message(to_content(text, self.max_output_chars), call_id)


class ToolCounts(Rubric):
    """Counts of tool calls, one metric a tool. They are read from the completion, so they come back with a journal."""

    def drop(self, name: str) -> None:
        """Take a count away, if there is one of that name."""
        self._functions = [planned for planned in self._functions if planned.name != name]


async def total_tool_calls(completion: Prompt) -> float:
    """How many tools the model has called. Async, so that it costs no thread."""
    return float(sum(1 for _ in called_tools(completion)))


def called_tools(completion: Prompt) -> Iterable[str]:
    """The names of the tools that the model has called, in order; calls that came to nothing included."""
    for message in completion if not isinstance(completion, str) else ():
        if message.get("role") == "assistant":
            for call in message.get("tool_calls") or ():
                yield _parts(cast(JsonDict, call))[0]


def _counter(tool: str) -> Callable[..., Any]:
    async def count(completion: Prompt) -> float:
        return float(sum(name == tool for name in called_tools(completion)))

    count.__name__ = _counter_name(tool)
    count.__doc__ = f"How often the model has called {tool}."
    return count


def _counter_name(tool: str) -> str:
    return f"{tool}_calls"


def _tellable(error: Exception) -> Exception:
    """An error to tell the model of. One that is not the tool's passes through: a fault of the endpoint, of a sandbox
    or of the environment says nothing about the model."""
    if isinstance(error, HarnessError) and not isinstance(error, ToolError):
        raise error
    if isinstance(error, ExceptionGroup):
        for inner in cast("ExceptionGroup[Exception]", error).exceptions:
            _tellable(inner)
    return cast(Exception, error)


def _offered(state: State, known: Iterable[str]) -> list[str]:
    """The tools of this rollout; all that are known before it has begun."""
    definitions = cast("list[JsonDict] | None", state.get("tools"))
    if definitions is None:
        return list(known)
    return [str(tool["function"]["name"]) for tool in definitions if "function" in tool]


def _wire_shape(definition: JsonDict) -> JsonDict:
    """A definition as endpoints want it, also if `name`, `description` and `parameters` stand at its top."""
    if "function" in definition or "name" not in definition:
        return definition
    return {"type": "function", "function": {key: value for key, value in definition.items() if key != "type"}}


def _parts(call: JsonDict) -> tuple[str, str, str | JsonDict | None]:
    """Name, id and arguments of a tool call, in the wire's shape or flat."""
    function = cast(JsonDict, call.get("function") or call)
    return str(function.get("name") or ""), str(call.get("id") or ""), function.get("arguments")


def tool_message(content: str | list[JsonDict], call_id: str) -> Message:
    """The message that answers a call."""
    return {"role": "tool", "content": content, "tool_call_id": call_id}
