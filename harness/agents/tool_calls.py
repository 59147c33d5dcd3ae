"""Helpers for agents to parse a model's tool calls, run them and answer them with tool messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from harness.core.errors import ToolCallError, ToolParseError
from harness.core.types import JsonDict, Message
from harness.tools.results import to_text


class ToolExecutionError(ToolCallError):
    """A failed tool call.

    Args:
        message: The reason.
        tool_call_id: The id of the call.
        tool_name: The name of the tool.
    """

    def __init__(self, message: str, tool_call_id: str = "", tool_name: str = "") -> None:
        super().__init__(message)
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name


class ToolArgumentError(ToolExecutionError, ToolParseError):
    """Tool call arguments that cannot be parsed."""


def create_tool_result(tool_call_id: str, content: str) -> dict[str, str]:
    """The tool message that answers a call."""
    return {"role": "tool", "content": content, "tool_call_id": tool_call_id}


def create_tool_error_result(tool_call_id: str, error_message: str) -> dict[str, str]:
    """The tool message that tells the model why its call failed."""
    return create_tool_result(tool_call_id, f"Error: {error_message}")


def serialize_tool_result(result: object) -> str:
    """A tool's result as text: texts and numbers unchanged, other JSON values as JSON. Values that are not JSON (a
    date, a dataclass) are rendered as close to JSON as possible."""
    if isinstance(result, str):
        return result
    if isinstance(result, int | float) and not isinstance(result, bool):
        return str(result)
    try:
        return json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return to_text(result)


def parse_tool_arguments(arguments: object) -> JsonDict:
    """Parse the arguments of a call, given as JSON text or as an object. Blank text means no arguments.

    Raises:
        ToolArgumentError: the value is neither, or the text is not a JSON object.
    """
    if isinstance(arguments, dict):
        return cast(JsonDict, arguments)
    if not isinstance(arguments, str):
        raise ToolArgumentError(f"Expected str or dict arguments, got {type(arguments).__name__}")
    if not arguments.strip():
        return {}
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ToolArgumentError(f"Invalid JSON arguments: {error}") from error
    if not isinstance(parsed, dict):
        raise ToolArgumentError(f"Expected dict from JSON, got {type(parsed).__name__}")
    return cast(JsonDict, parsed)


def get_tool_call_info(tool_call: Mapping[str, Any]) -> tuple[str, str, JsonDict]:
    """Id, name and arguments of a call; the id of a call without one is `unknown`.

    Raises:
        ToolArgumentError: its arguments cannot be parsed; the error has the call's id and name.
    """
    call_id = str(tool_call.get("id") or "unknown")
    function = cast(JsonDict, tool_call.get("function") or {})
    name = str(function.get("name") or "")
    arguments: object = function.get("arguments")
    try:
        return call_id, name, {} if arguments is None else parse_tool_arguments(arguments)
    except ToolArgumentError as error:
        raise ToolArgumentError(str(error), tool_call_id=call_id, tool_name=name) from error


async def execute_tool_calls(
    tool_calls: Sequence[JsonDict], executor: Callable[[JsonDict], Awaitable[Message]]
) -> list[Message]:
    """Execute calls concurrently.

    Args:
        tool_calls: The model's calls.
        executor: Answers one call with its tool message.

    Returns:
        The answers, in the order of the calls.

    Raises:
        Exception: the first exception of an executor; the other calls are cancelled.
    """

    async def answer(call: JsonDict) -> Message:
        return await executor(call)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer(call)) for call in tool_calls]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
