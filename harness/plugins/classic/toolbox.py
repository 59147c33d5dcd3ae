"""Helper functions that the classic API offers to environment authors: for messages, tools, replies, awaitables and API
keys. bench itself does not use them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
from collections.abc import Callable, Iterable
from typing import Any, cast

from harness.core.types import JsonDict, Messages, Prompt
from harness.plugins.classic.messages import Tool, message_of, messages_of
from harness.plugins.classic.records import plain
from harness.plugins.classic.responses import as_response
from harness.tools import read_tool

# Messages


def normalize_messages(messages: Any, field_name: str = "messages", on_normalize: Any = None) -> Messages:
    """Convert messages to typed messages; a string becomes one message."""
    if isinstance(messages, str):
        return [message_of({"role": "text", "content": messages}, "C")]
    return cast(Messages, messages_of(messages, "C"))


def strip_nones_from_content(messages: Messages) -> Messages:
    """Copy messages without the None fields in their content parts."""
    made: Messages = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            parts = [
                {k: v for k, v in cast(JsonDict, part).items() if v is not None} if isinstance(part, dict) else part
                for part in cast("list[object]", content)
            ]
            message = message_of({**message, "content": parts})
        made.append(message)
    return made


def sanitize_tool_calls(messages: Prompt) -> Prompt:
    """Copy messages, with each tool call converted to a JSON string."""
    if isinstance(messages, str):
        return messages
    return [
        {**message, "tool_calls": [json.dumps(plain(call)) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


# Tools


def convert_func_to_oai_tool(func: Callable[..., Any]) -> JsonDict:
    """Return the definition of a function as a tool in the OpenAI wire format."""
    return read_tool(func).definition


def convert_func_to_tool_def(func: Callable[..., Any]) -> Tool:
    """Return the definition of a function as a tool of type `vf.Tool`."""
    return Tool(**read_tool(func).definition["function"])


VALID_TOOL_CONTENT_PART_TYPES = frozenset({"text", "image_url"})
"""Types of content parts that a tool may return."""


def is_valid_tool_content_parts(value: Any) -> bool:
    """Return whether a tool's result is a list of content parts."""
    from harness.tools.results import is_parts

    return is_parts(plain(value))


# Replies


async def parse_response_messages(response: Any, message_type: str = "chat") -> Prompt:
    """Return a model's reply in the form of the transcript: a string, or a list with one message."""
    return as_response(response).said


async def parse_is_truncated(response: Any, message_type: str = "chat") -> bool:
    """Return whether a reply was cut at the token limit."""
    return as_response(response).is_truncated


# Awaitables


async def maybe_await(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, and await the result if it is awaitable."""
    result = func(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def maybe_call_with_named_args(func: Callable[..., Any], **objects: Any) -> Any:
    """Call a function with those of the given values that it has parameters for, and await the result if necessary."""
    parameters = inspect.signature(func).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return await maybe_await(func, **{k: v for k, v in objects.items() if takes_all or k in parameters})


async def maybe_semaphore(limit: int | None = None) -> Any:
    """Return a semaphore with a limit; without a limit, one that never blocks."""
    return asyncio.Semaphore(limit) if limit and limit > 0 else contextlib.nullcontext()


# Keys


class MissingKeyError(ValueError):
    """Required environment variables, such as API keys, are not set."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = list(keys)
        names = ", ".join(self.keys)
        super().__init__(f"these environment variables are not set: {names}. Export them, or put them into a .env file")


def ensure_keys(keys: list[str]) -> None:
    """Validate that these environment variables are set.

    Raises:
        MissingKeyError: one or more are not set; the message names them.
    """
    missing = [key for key in keys if not os.getenv(key)]
    if missing:
        raise MissingKeyError(missing)
