"""Tools with arguments that the model does not see: a session, a path, whatever the rollout's state holds. Owns the
hiding and the filling in; the conversation is `tool_env`'s."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from harness.core.errors import EnvironmentFault, ToolCallError
from harness.core.state import State
from harness.core.types import JsonDict, Messages
from harness.envs.tool_env import ToolEnv
from harness.tools import read_tool
from harness.tools.tool import split_arguments


class StatefulToolEnv(ToolEnv):
    """A `ToolEnv` that fills in arguments of its tools from the rollout's state."""

    def add_tool(self, tool: Callable[..., Any], args_to_skip: Sequence[str] = ()) -> None:
        """Offer one more tool.

        Args:
            tool: The function.
            args_to_skip: Its parameters that `update_tool_args` fills in; the model does not see them.

        Raises:
            EnvironmentFault: it cannot be described, has no such parameter, or there is a tool of its name.
        """
        self._add(read_tool(tool, args_to_skip))

    def _bind_hooks(self) -> None:
        super()._bind_hooks()
        self._fill = self._hook("update_tool_args", ("tool_name", "tool_args", "messages", "state"))

    @abstractmethod
    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict | Awaitable[JsonDict]:
        """Fill in what the model does not see. Called for each call whose arguments fit. May be `async def`; a plain
        `def` runs in a thread.

        Args:
            tool_name: Which tool the model calls.
            tool_args: The model's arguments, a copy.
            messages: The conversation so far.
            state: The rollout.
            **kwargs: Nothing yet; for overriding methods that take it.

        Returns:
            All arguments that the tool is called with.
        """

    def _read_call(self, name: str, written: str | JsonDict | None, state: State) -> JsonDict:
        """As in `ToolEnv`, checked at once, so that `update_tool_args` sees nothing that does not fit."""
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
        visible = arguments if tool is None else split_arguments(tool, completed)[0]
        if tool is not None and visible != arguments:
            try:
                tool.read(visible)
            except ToolCallError as error:  # not the model's: its own arguments have been checked
                raise EnvironmentFault(f"{where} returned what does not fit: {error}") from error
        return completed
