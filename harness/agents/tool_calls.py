"""Functions with which an agent parses a model's tool calls, executes them, and answers them with tool messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from harness.core.errors import ToolCallError, ToolParseError
from harness.core.types import JsonDict, Message
from harness.tools.results import to_text


class ToolExecutionError(ToolCallError):
    """Error for a tool call that failed.

    Args:
        message: The reason for the failure.
        tool_call_id: The id of the call.
        tool_name: The name of the tool.
    """

    def __init__(self, message: str, tool_call_id: str = "", tool_name: str = "") -> None:
        super().__init__(message)
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name


class ToolArgumentError(ToolExecutionError, ToolParseError):
    """Error for tool call arguments that cannot be parsed."""


def create_tool_result(tool_call_id: str, content: str) -> dict[str, str]:
    """Create the tool message that answers a tool call with its result."""
    return {"role": "tool", "content": content, "tool_call_id": tool_call_id}


def create_tool_error_result(tool_call_id: str, error_message: str) -> dict[str, str]:
    """Create the tool message that tells the model why its tool call failed."""
    return create_tool_result(tool_call_id, f"Error: {error_message}")


def serialize_tool_result(result: object) -> str:
    """Convert a tool's result to text: strings stay unchanged, numbers become their `str`, and other values become JSON
    or, if they have no JSON form, their `str`."""
    if isinstance(result, str):
        return result
    if isinstance(result, int | float) and not isinstance(result, bool):
        return str(result)
    try:
        return json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return to_text(result)


def parse_tool_arguments(arguments: object) -> JsonDict:
    """Parse the arguments of a tool call, given as JSON text or as a dict. Blank text stands for no arguments.

    Raises:
        ToolArgumentError: the value is neither text nor a dict, or the text is not a JSON object.
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
    """Return the id, name and arguments of a tool call. The id is `unknown` if the call has none.

    Raises:
        ToolArgumentError: the arguments cannot be parsed. The error has the call's id and name.
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
    """Execute tool calls concurrently.

    Args:
        tool_calls: The model's tool calls.
        executor: Async function from a call to the tool message that answers it.

    Returns:
        The tool messages, in the order of the calls.

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
