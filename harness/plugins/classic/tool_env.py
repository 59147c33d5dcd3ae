"""Tool environments of the classic API: attributes (`tools`, `tool_map`, `oai_tools` or `tool_defs`), tool calls and
their metrics. The arguments of a model's tool call are passed to the author's function without conversion;
`harness.tools` creates the tool definitions."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from harness.core.state import State
from harness.core.types import JsonDict, Message, Messages, Prompt
from harness.envs.hooks import stop
from harness.plugins.classic import faults
from harness.plugins.classic.messages import Tool, message_of, tools_of
from harness.plugins.classic.multi_turn import MultiTurnEnv
from harness.plugins.classic.own_rollouts import call_author
from harness.plugins.classic.records import plain
from harness.plugins.classic.rubric import Rubric
from harness.tools import read_tool
from harness.tools.results import is_parts
from harness.usercode.functions import name_of

AnyFunction = Callable[..., Any]


class ToolMonitorRubric(Rubric):
    """Rubric with the metrics `total_tool_calls` and, for each tool, `{tool}_calls`.

    Args:
        tools: The tools as functions.
        tool_names: Names of the tools; used instead of `tools`.
        **kwargs: See `Rubric`.
    """

    def __init__(
        self, tools: Sequence[AnyFunction] | None = None, tool_names: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.tool_names: list[str] = []
        self.add_metric(self.total_tool_calls)
        for name in [*(name_of(tool) for tool in tools or ()), *(tool_names or ())]:
            self.add_tool_metric(name)

    def add_tool_metric(self, tool: AnyFunction | str) -> None:
        """Add a metric that counts the calls of a tool."""
        name = tool if isinstance(tool, str) else name_of(tool)
        if name not in self.tool_names:
            self.tool_names.append(name)
            self.add_metric(self.get_tool_call_count_func(name))

    def remove_tool_metric(self, tool: AnyFunction | str) -> None:
        """Remove the metric that counts the calls of a tool."""
        name = tool if isinstance(tool, str) else name_of(tool)
        if name in self.tool_names:
            self.tool_names.remove(name)
            index = self.get_reward_func_names().index(f"{name}_calls")
            del self.funcs[index], self.weights[index]

    async def total_tool_calls(self, completion: Messages) -> float:
        """Metric: number of the model's tool calls."""
        return float(sum(1 for _ in _calls(completion)))

    def get_tool_call_count_func(self, tool_name: str) -> AnyFunction:
        """Return a metric that counts the calls of one tool."""

        async def tool_call_count_func(completion: Messages) -> float:
            return float(sum(call["function"]["name"] == tool_name for call in _calls(completion)))

        tool_call_count_func.__name__ = f"{tool_name}_calls"
        return tool_call_count_func


class ToolEnv(MultiTurnEnv):
    """`vf.ToolEnv`: an environment whose model may call tools.

    Args:
        tools: Functions, sync or async.
        max_turns: Maximum number of model replies.
        error_formatter: Converts the exception of a failed tool call to the text that the model gets.
        stop_errors: Exceptions that make the rollout fail instead of being reported to the model.
        **kwargs: See `Environment`.
    """

    def __init__(
        self,
        tools: Sequence[AnyFunction] | None = None,
        max_turns: int = 10,
        error_formatter: Callable[[Exception], str] = lambda error: f"{error}",
        stop_errors: Sequence[type[Exception]] | None = None,
        **kwargs: Any,
    ) -> None:
        self.tools: list[AnyFunction] = list(tools or [])
        self.error_formatter = error_formatter
        self.stop_errors: list[type[Exception]] = list(stop_errors or [])
        self.tool_map: dict[str, AnyFunction] = {name_of(tool): tool for tool in self.tools}
        super().__init__(max_turns=max_turns, tool_defs=[read_tool(tool).definition for tool in self.tools], **kwargs)
        self.tool_monitor_rubric = ToolMonitorRubric(tool_names=list(self.tool_map))
        self.add_rubric(self.tool_monitor_rubric)

    def _should_stop_for_error(self, err: Exception) -> bool:
        return isinstance(err, tuple(self.stop_errors))

    def add_tool(self, tool: AnyFunction) -> None:
        """Add a function as a tool that the model may call."""
        self._offer(tool, read_tool(tool).definition)

    def remove_tool(self, tool: AnyFunction) -> None:
        """Remove a tool."""
        name = name_of(tool)
        self.tools.remove(tool)
        self.tool_map.pop(name)
        self._set_definitions([each for each in self._definitions() if _defined(each) != name])
        self.tool_monitor_rubric.remove_tool_metric(name)

    def _offer(self, tool: AnyFunction, definition: JsonDict) -> None:
        self.tools.append(tool)
        self.tool_map[name_of(tool)] = tool
        self._set_definitions([*self._definitions(), *tools_of([definition], self.generation)])
        self.tool_monitor_rubric.add_tool_metric(tool)

    def _definitions(self) -> list[Any]:
        return list(getattr(self, "oai_tools" if self.generation == "B" else "tool_defs", None) or [])

    def _set_definitions(self, definitions: list[Any]) -> None:
        setattr(self, "oai_tools" if self.generation == "B" else "tool_defs", definitions)

    @stop
    async def no_tools_called(self, state: State) -> bool:
        """Stop condition: the model has replied without a tool call."""
        if not state["trajectory"]:
            return False
        last = state["trajectory"][-1]["completion"][-1]
        return last["role"] == "assistant" and not last.get("tool_calls")

    async def call_tool(self, tool_name: str, tool_args: JsonDict, tool_call_id: str, **kwargs: Any) -> Message:
        """Call a tool, and return a tool message with its result as the content."""
        result = await call_author(self.tool_map[tool_name], **tool_args)
        parts = plain(result)
        content = parts if self.generation == "C" and is_parts(parts) else str(result)
        return message_of({"role": "tool", "content": content, "tool_call_id": tool_call_id}, self.generation)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Run the tool calls of the model's last message, and return their results in the same order."""
        answers: Messages = []
        for call in cast("list[Any]", messages[-1].get("tool_calls") or []):
            identifier = str(call.get("id") or "")
            try:
                name, arguments = self._read_call(call)
            except Exception as error:  # authors may list any exception in `stop_errors`
                if self._should_stop_for_error(error):
                    raise faults.ToolParseError(str(error)) from error
                answers.append(self._error_message(error, identifier))
                continue
            arguments = await self._filled(name, arguments, messages, state, **kwargs)
            try:
                answers.append(await self.call_tool(name, arguments, identifier))
            except Exception as error:  # as above
                if self._should_stop_for_error(error):
                    raise faults.ToolCallError(str(error)) from error
                answers.append(self._error_message(error, identifier))
        return answers

    async def _filled(
        self, name: str, arguments: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        return arguments

    def _read_call(self, call: Any) -> tuple[str, JsonDict]:
        written = call["function"]["arguments"]
        arguments: Any = json.loads(written) if isinstance(written, str) else plain(written)
        return str(call["function"]["name"]), arguments

    def _error_message(self, error: Exception, identifier: str) -> Message:
        fields = {"role": "tool", "content": self.error_formatter(error), "tool_call_id": identifier}
        return message_of(fields, self.generation)


class StatefulToolEnv(ToolEnv):
    """`vf.StatefulToolEnv`: an environment with tools, some of whose arguments are hidden from the model and supplied
    by the environment."""

    def __init__(self, tools: Sequence[AnyFunction] | None = None, **kwargs: Any) -> None:
        self.skipped_args: dict[str, list[str]] = {}
        super().__init__(tools=tools, **kwargs)

    def add_tool(self, tool: AnyFunction, args_to_skip: Sequence[str] = ()) -> None:
        """Add a tool, and hide the arguments in `args_to_skip` from the model."""
        present = inspect.signature(tool).parameters
        hidden = [name for name in args_to_skip if name in present]
        self._offer(tool, read_tool(tool, hidden).definition)
        self.skipped_args[name_of(tool)] = list(args_to_skip)

    def remove_tool(self, tool: AnyFunction) -> None:
        """Remove a tool."""
        super().remove_tool(tool)
        self.skipped_args.pop(name_of(tool), None)

    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> Any:
        """Return all arguments of a tool call: those of the model and the hidden ones. May be async."""
        raise NotImplementedError(f"{type(self).__name__} must define update_tool_args")

    def _read_call(self, call: Any) -> tuple[str, JsonDict]:
        name, arguments = super()._read_call(call)
        if not isinstance(arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # a model wrote them
            raise ValueError(f"the arguments must be a JSON object, not {type(arguments).__name__}: {arguments!r}")
        return name, arguments

    async def _filled(
        self, name: str, arguments: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        return await call_author(self.update_tool_args, name, arguments, messages, state, **kwargs)


def filter_signature(func: AnyFunction, args_to_skip: Sequence[str]) -> AnyFunction:
    """Wrap a function and remove some parameters from its signature, to hide them from the model."""
    if not args_to_skip:
        return func

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    signature = inspect.signature(func)
    kept = [p for name, p in signature.parameters.items() if name not in args_to_skip and name != "self"]
    setattr(wrapper, "__signature__", signature.replace(parameters=kept))  # noqa: B010
    return wrapper


def _defined(definition: Any) -> str:
    return str(definition.name if isinstance(definition, Tool) else definition["function"]["name"])


def _calls(completion: Messages) -> Any:
    for message in completion:
        if message["role"] == "assistant":
            yield from message.get("tool_calls") or []
