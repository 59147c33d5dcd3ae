"""Helper functions of the classic API for authors: on messages, replies, errors and awaitables. Our own environments do
not need them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from harness.core.types import JsonDict, Message, Messages, Prompt, text_of
from harness.plugins.classic.context import generation
from harness.plugins.classic.faults import Error
from harness.plugins.classic.messages import Tool, concat, message_of, messages_of
from harness.plugins.classic.records import plain
from harness.plugins.classic.responses import as_response
from harness.tools import read_tool

# Messages


def concat_messages(messages_list: Sequence[Any]) -> Prompt:
    """Concatenate texts, or lists of messages."""
    return concat(messages_list)


def normalize_messages(messages: Any, field_name: str = "messages") -> Messages:
    """Convert to typed messages; a text becomes one message."""
    if isinstance(messages, str):
        return [message_of({"role": "text", "content": messages}, "C")]
    return cast(Messages, messages_of(messages, "C"))


def maybe_normalize_messages(messages: Any, field_name: str = "messages", on_normalize: Any = None) -> Messages:
    """As `normalize_messages`."""
    return normalize_messages(messages, field_name)


def from_raw_message(message: Mapping[str, Any]) -> Message:
    """Convert to a typed message."""
    return message_of(message, "C")


def from_raw_content_part(part: Any) -> Any:
    """Convert to a part of a message's content."""
    return part


def message_role(message: Any) -> str:
    """The role of a message."""
    return str(plain(message).get("role", ""))


def strip_nones_from_content(messages: Messages) -> Messages:
    """The messages without None fields in their content parts."""
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


def message_to_printable(message: Mapping[str, Any]) -> JsonDict:
    """The message with images and audio replaced by words."""
    fields: JsonDict = plain(message)
    content = fields.get("content")
    words: list[str] = []
    for part in [content] if isinstance(content, str) else cast("list[Any]", content or []):
        kind = "text" if isinstance(part, str) else str(part.get("type", ""))
        named = {"text": text_of({"content": part if isinstance(part, str) else [part]}), "image_url": "[image]"}
        words.append(named.get(kind, "[audio]" if kind.startswith("input_audio") else f"[{kind}]"))
    return {**fields, "content": "\n\n".join(words)}


def messages_to_printable(messages: Prompt) -> Prompt:
    """The messages with images and audio replaced by words."""
    return messages if isinstance(messages, str) else [message_to_printable(message) for message in messages or []]


def sanitize_tool_calls(messages: Prompt) -> Prompt:
    """The messages with tool calls as JSON texts."""
    if isinstance(messages, str):
        return messages
    return [
        {**message, "tool_calls": [json.dumps(plain(call)) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def get_messages(messages: Messages, role: str | None = None) -> Messages:
    """The messages of a role, typed."""
    return [message for message in normalize_messages(messages) if role is None or message["role"] == role]


# Tools


def convert_func_to_oai_tool(func: Callable[..., Any]) -> JsonDict:
    """A function's definition in the OpenAI wire shape."""
    return read_tool(func).definition


def convert_func_to_tool_def(func: Callable[..., Any]) -> Tool:
    """A function's definition as a `vf.Tool`."""
    return Tool(**read_tool(func).definition["function"])


VALID_TOOL_CONTENT_PART_TYPES = frozenset({"text", "image_url"})
"""Types of content parts that a tool may return."""


def is_valid_tool_content_parts(value: Any) -> bool:
    """Whether a tool's result is a list of content parts."""
    from harness.tools.results import is_parts

    return is_parts(plain(value))


# Replies


async def parse_response_messages(response: Any, message_type: str = "chat") -> Prompt:
    """The reply for the transcript."""
    return as_response(response).said


async def parse_response_message(response: Any) -> Prompt:
    """The reply for the transcript."""
    return as_response(response).said


async def parse_is_truncated(response: Any, message_type: str = "chat") -> bool:
    """Whether a reply was cut at the token limit."""
    return as_response(response).is_truncated


async def parse_response_tokens(response: Any, *args: Any, **kwargs: Any) -> None:
    """None: tokens are only for training."""


def extract_usage_tokens(response: Any) -> tuple[int, int]:
    """A reply's prompt and completion tokens."""
    usage: JsonDict = as_response(response).get("usage") or {}
    return int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0))


# Awaitables


async def maybe_await(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, and await the result if it is awaitable."""
    result = func(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def maybe_call_with_named_args(func: Callable[..., Any], **objects: Any) -> Any:
    """Call a function with those of the named values that are its parameters."""
    parameters = inspect.signature(func).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return await maybe_await(func, **{k: v for k, v in objects.items() if takes_all or k in parameters})


class NullAsyncContext(contextlib.nullcontext[None]):
    """A semaphore that never blocks."""


async def maybe_semaphore(limit: int | None = None) -> Any:
    """A semaphore; without a limit, one that never blocks."""
    return asyncio.Semaphore(limit) if limit and limit > 0 else NullAsyncContext()


async def with_sem(sem: Any, coro: Any) -> Any:
    """Await a coroutine under a semaphore."""
    async with sem:
        return await coro


def maybe_retry(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function itself: the run's `max_retries` retries rollouts."""
    return func


# Errors and keys


def get_error_chain(error: BaseException | None, parent_type: type[BaseException] | None = None) -> list[BaseException]:
    """An error and its causes, filtered by type."""
    chain: list[BaseException] = []
    while error is not None and (parent_type is None or isinstance(error, parent_type)):
        chain.append(error)
        error = error.__cause__
    return chain


def get_vf_error_chain(error: BaseException) -> list[BaseException]:
    """An error and its causes, filtered by `vf.Error`."""
    return get_error_chain(error, Error)


class ErrorChain:
    """An error with its causes; equal to another with the same types."""

    def __init__(self, error: BaseException, build_error_chain: Callable[..., Any] = get_error_chain) -> None:
        self.root_error = error
        self.chain: list[BaseException] = build_error_chain(error)

    def __contains__(self, kind: type[BaseException]) -> bool:
        return any(isinstance(error, kind) for error in self.chain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ErrorChain) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return " -> ".join(type(error).__name__ for error in self.chain)

    def __str__(self) -> str:
        return ", caused by ".join(repr(error) for error in self.chain)


class MissingKeyError(ValueError):
    """Environment variables are missing."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = list(keys)
        names = ", ".join(self.keys)
        super().__init__(f"these environment variables are not set: {names}. Export them, or put them into a .env file")


def ensure_keys(keys: list[str]) -> None:
    """Validate that these environment variables are set.

    Raises:
        MissingKeyError: some are not set; the message names them.
    """
    missing = [key for key in keys if not os.getenv(key)]
    if missing:
        raise MissingKeyError(missing)


def load_environment(env_id: str, **env_args: Any) -> Any:
    """Load another environment by its id."""
    from harness.engine import loader

    return loader.load_environment(env_id, **env_args)


def current_generation() -> str:
    """The generation of the calling code, for messages."""
    return generation()
