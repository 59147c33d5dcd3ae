"""Tools with arguments that are hidden from the model, such as a session or a path. The environment supplies them from
the rollout's state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from harness.core.errors import EnvironmentFault, ToolCallError
from harness.core.state import State
from harness.core.types import JsonDict, Messages
from harness.envs.tool_env import ToolEnv
from harness.tools import read_tool


class StatefulToolEnv(ToolEnv):
    """A `ToolEnv` that supplies arguments of its tools from the rollout's state."""

    def add_tool(self, tool: Callable[..., Any], args_to_skip: Sequence[str] = ()) -> None:
        """Add a tool.

        Args:
            tool: The function.
            args_to_skip: Parameters that are hidden from the model and supplied by `update_tool_args`.

        Raises:
            EnvironmentFault: the function is not a valid tool, has no such parameter, or its name is not unique.
        """
        self._add(read_tool(tool, args_to_skip))

    def _bind_hooks(self) -> None:
        super()._bind_hooks()
        self._fill = self._hook("update_tool_args", ("tool_name", "tool_args", "messages", "state"))

    @abstractmethod
    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict | Awaitable[JsonDict]:
        """Supply the hidden arguments of a call. Called for each call with valid arguments. A sync method runs in a
        thread.

        Args:
            tool_name: The called tool.
            tool_args: A copy of the model's arguments.
            messages: The conversation so far.
            state: The rollout.
            **kwargs: Unused; for compatibility of overriding methods.

        Returns:
            All arguments for the tool.
        """

    def _read_call(self, name: str, written: str | JsonDict | None, state: State) -> JsonDict:
        """Parse the arguments of a call and validate them at once, so that `update_tool_args` gets only valid ones."""
        arguments = super()._read_call(name, written, state)
        if name in self._tool_map:
            self._tool_map[name].read(arguments)
        return arguments

    async def _complete(self, name: str, arguments: JsonDict, messages: Messages, state: State) -> JsonDict:
        where = f"{type(self).__name__}.update_tool_args"
        filled: object = await self._fill(name, dict(arguments), messages, state)
        if not isinstance(filled, dict):
            raise EnvironmentFault(f"{where} must return the arguments as a dict, not {type(filled).__name__}")
        completed = cast(JsonDict, filled)
        tool = self._tool_map.get(name)
        visible = arguments if tool is None else tool.visible(completed)
        if tool is not None and visible != arguments:
            try:
                tool.read(visible)
            except ToolCallError as error:  # not the model's fault: its own arguments are valid
                raise EnvironmentFault(f"{where} returned invalid arguments: {error}") from error
        return completed
