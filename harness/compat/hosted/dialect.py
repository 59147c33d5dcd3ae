"""What differs between the releases that can be hosted: where their modules lie, which client a rollout is given,
whether messages are dicts or objects. Owns the translation of messages both ways; runs nothing.

Releases up to 0.1.10 speak in OpenAI's dicts and take the SDK's client. Later ones have message classes, tool calls
without the wire's nesting, and a client of their own around the SDK's."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, cast

from harness.types import JsonDict, Message, Messages, MessageType, Prompt

_BASE = ".envs.environment"
"""Ends the module of their `Environment`, in every release."""


@dataclass(frozen=True)
class Dialect:
    """One release's way of speaking."""

    root: str
    """The package that holds the classic API: `verifiers`, from 0.2 `verifiers.legacy`."""
    is_typed: bool
    """Whether messages are objects, and rollouts clean up after themselves however they end."""

    def client(self, sdk: object, message_type: MessageType) -> object:
        """What their `rollout` wants as its client.

        Args:
            sdk: An `AsyncOpenAI`.
            message_type: Of the environment.
        """
        if not self.is_typed:
            return sdk
        return (self._completions if message_type == "completion" else self._chat)(sdk)

    def messages(self, prompt: Prompt) -> Any:
        """Wire messages as their rubrics expect them."""
        if not self.is_typed:
            return prompt
        flat = prompt if isinstance(prompt, str) else [_flat(message) for message in prompt]
        return importlib.import_module(f"{self.root}.utils.message_utils").normalize_messages(flat)

    @cached_property
    def _chat(self) -> type:
        return self._lenient("openai_chat_completions_client", "OpenAIChatCompletionsClient")

    @cached_property
    def _completions(self) -> type:
        return self._lenient("openai_completions_client", "OpenAICompletionsClient")

    def _lenient(self, module: str, name: str) -> type:
        """Their client, less its refusal of replies that say nothing: an empty answer is an answer, and scored."""
        base = getattr(importlib.import_module(f"{self.root}.clients.{module}"), name)

        async def from_native_response(client: Any, response: object) -> Any:
            made = await base.from_native_response(client, response)
            if made.message.content is None and not made.message.tool_calls:
                made.message.content = ""
            return made

        methods = {"raise_from_native_response": _accept, "from_native_response": from_native_response}
        return type(name, (base,), {**methods, "__module__": __name__})


async def _accept(client: object, response: object) -> None:
    """Our client has looked at the reply already."""


def root_of(obj: object) -> str | None:
    """The package that holds the classic API of an environment; None if the object is no classic environment."""
    for kind in type(obj).__mro__:
        if kind.__name__ == "Environment" and kind.__module__.endswith(_BASE):
            return kind.__module__.removesuffix(_BASE)
    return None


def dialect_of(root: str) -> Dialect:
    """How a package speaks; its loggers are the run's from here on."""
    _hand_over_logging(root)
    return Dialect(root, find_spec(f"{root}.clients") is not None)


def is_theirs(kind: type) -> bool:
    """Whether a class is the package's own."""
    return kind.__module__ == "verifiers" or kind.__module__.startswith("verifiers.")


def _hand_over_logging(root: str) -> None:
    """Their loggers print on their own as soon as the package is imported; the run's logging decides that here."""
    for name in {root, root.split(".")[0]}:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


def to_wire(value: Any) -> Any:
    """Messages of any release as the wire has them: plain dicts, nested tool calls, no nulls."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_message(entry) for entry in cast("list[object]", value)]
    return plain(value)


def text_of(value: Any) -> str:
    """What a completion environment said: a text, or the contents of its messages in a row."""
    if isinstance(value, str):
        return value
    return "".join(str(message.get("content") or "") for message in cast(Messages, to_wire(value) or []))


def plain(value: Any) -> Any:
    """A value with pydantic objects in it as dicts and lists."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in cast("list[object]", value)]
    return value


def _message(entry: object) -> Message:
    fields = cast("JsonDict", plain(entry))
    message: Message = {name: value for name, value in fields.items() if value is not None or name == "content"}
    if "tool_calls" in message:
        message["tool_calls"] = [_nested(call) for call in cast("list[JsonDict]", message["tool_calls"])]
    if message.get("role") == "assistant":
        message.setdefault("content", None)
    return message


def _nested(call: JsonDict) -> JsonDict:
    if "function" in call or "name" not in call:
        return call
    function = {"name": call["name"], "arguments": call.get("arguments", "")}
    return {"id": call.get("id"), "type": "function", "function": function}


def _flat(message: Message) -> Message:
    calls = cast("list[JsonDict] | None", message.get("tool_calls"))
    if not calls:
        return message
    return {**message, "tool_calls": [{"id": call.get("id"), **call["function"]} for call in calls]}
