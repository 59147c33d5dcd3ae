"""Messages of an Inspect log: conversion of roles, content parts, reasoning and tool calls; and the transcript of a
sample, with one event for each model reply and each tool result. Inspect's viewer and its `messages_df` read
conversations from events. The input of a reply is a range in a shared list of messages, so that the size grows linearly
with the conversation. The times of single turns are not recorded: every event has the start time of the rollout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, cast

from harness.core.types import JsonDict, Message
from harness.plugins.exports.foreign import as_list, as_text, calls_of, text_of
from harness.store.rows import content_text
from harness.store.values import table

Origin: TypeAlias = Literal["input", "generate"]

_ROLES = {name: name for name in ("system", "user", "assistant", "tool")} | {"developer": "system", "function": "tool"}
"""Role of a message in an Inspect log, by its role in the run."""

_MAPPED = frozenset(
    {"role", "content", "tool_calls", "function_call", "tool_call_id", "reasoning_content", "refusal", "id"}
)
"""Fields of a message that have a field in an Inspect log. `name` and all others become metadata."""

_DETAILS = frozenset({"auto", "low", "high", "original"})
_AUDIO = frozenset({"wav", "mp3"})


class Conversation:
    """Converts the messages of a conversation for an Inspect log. They must be added in order, since a tool result gets
    the name of the tool from its call.

    Args:
        mark: Prefix of the message ids, which must be unique in a log.
        model: Model that wrote the replies.
    """

    def __init__(self, mark: str, model: str) -> None:
        self._mark = mark
        self._model = model
        self._count = 0
        self._tools: dict[str, str] = {}
        """Names of the called tools, by the id of the tool call."""

    def add(self, messages: Iterable[Message], origin: Origin) -> list[JsonDict]:
        """Convert messages to the format of an Inspect log."""
        return [self._turned(message, origin) for message in messages]

    def _turned(self, message: Message, origin: Origin) -> JsonDict:
        written = message.get("role")
        role = _ROLES.get(written, "user") if isinstance(written, str) else "user"
        self._count += 1
        turned: JsonDict = {"id": f"{self._mark}-{self._count}", "content": _content(message, role)}
        if role == "assistant" or (role != "tool" and origin == "input"):
            turned["source"] = origin
        extra = {name: value for name, value in message.items() if name not in _MAPPED}
        if _ROLES.get(text_of(written)) != written:
            extra["role"] = written
        turned["role"] = role
        if role == "assistant":
            self._add_calls(message, turned)
            if origin == "generate":
                turned["model"] = self._model
        else:
            dropped = ("reasoning_content", "refusal", "tool_calls")
            extra |= {name: message[name] for name in dropped if message.get(name)}
        if role == "tool":
            call_id, name = message.get("tool_call_id"), as_text(message.get("name"))
            if call_id is not None:
                turned["tool_call_id"] = text_of(call_id)
                name = name or self._tools.get(text_of(call_id))
            if name:
                turned["function"] = name
        if extra:
            turned["metadata"] = extra
        return turned

    def _add_calls(self, message: Message, turned: JsonDict) -> None:
        calls: list[JsonDict] = []
        for call in calls_of(message):
            self._tools[call.id] = call.name
            item: JsonDict = {"id": call.id, "function": call.name, "arguments": call.arguments}
            if call.problem is not None:
                item["parse_error"] = call.problem
            calls.append({**item, "type": "custom" if call.is_custom else "function"})
        if calls:
            turned["tool_calls"] = calls


def _content(message: Message, role: str) -> str | list[JsonDict]:
    content = cast(object, message.get("content"))
    parts = [_part(part) for part in as_list(cast(object, content))] if isinstance(content, list) else None
    before: list[JsonDict] = []
    if role == "assistant":
        if reasoning := as_text(message.get("reasoning_content")):
            before.append({"type": "reasoning", "reasoning": reasoning})
        if refusal := as_text(message.get("refusal")):
            before.append({"type": "text", "text": refusal, "refusal": True})
    if parts is None:
        text = text_of("" if content is None else cast(object, content))
        if not before:
            return text
        parts = [{"type": "text", "text": text}] if text else []
    return [*before, *parts]


def _part(part: object) -> JsonDict:
    """Convert one part of a message's content. A part of an unknown kind is stored unchanged, as data."""
    if not isinstance(part, dict):
        return {"type": "text", "text": text_of(part)}
    item = cast(JsonDict, part)
    kind = item.get("type")
    text = as_text(item.get("text"))
    if kind in ("text", "input_text", "output_text") and text is not None:
        return {"type": "text", "text": text}
    if kind == "refusal":
        return {"type": "text", "text": text_of(item.get("refusal", "")), "refusal": True}
    if kind == "thinking" and isinstance(item.get("thinking"), str):
        return {"type": "reasoning", "reasoning": item["thinking"]}
    return _medium(item) or {"type": "data", "data": item}


def _medium(item: JsonDict) -> JsonDict | None:
    """Convert an image or audio part of a message; return None for any other part."""
    if item.get("type") in ("image_url", "input_image"):
        written = item.get("image_url")
        place = written if isinstance(written, str) else as_text(table(written).get("url"))
        if place is None:
            return None
        detail = table(written).get("detail", item.get("detail"))
        return {"type": "image", "image": place, "detail": detail if detail in _DETAILS else "auto"}
    if item.get("type") == "input_audio":
        audio = table(item.get("input_audio"))
        form, data = audio.get("format"), as_text(audio.get("data"))
        if data is not None and form in _AUDIO:
            return {"type": "audio", "audio": f"data:audio/{form};base64,{data}", "format": form}
    return None


def transcript(messages: list[JsonDict], asked: int, *, model: str, started: str, output: JsonDict) -> JsonDict:
    """Create the fields `events` and `events_data` of a sample in an Inspect log.

    Args:
        messages: The whole conversation, in Inspect's format.
        asked: Number of leading messages that are the prompt.
        model: Model that wrote the replies.
        started: Start time of the rollout.
        output: The sample's output, used as the event of the last reply.
    """
    events: list[JsonDict] = []
    calls: dict[str, JsonDict] = {}
    replies = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index >= asked]
    for index, message in enumerate(messages[asked:], asked):
        base: JsonDict = {"uuid": f"{message['id']}e", "timestamp": started, "working_start": 0.0}
        calls |= {call["id"]: call for call in message.get("tool_calls", ())}
        if message["role"] == "assistant":
            written = output if index == replies[-1] else _output(message, model)
            events.append({
                **base, "event": "model", "model": model, "input": [], "input_refs": [[0, index]] if index else [],
                "tools": [], "tool_choice": "auto", "config": {}, "output": written,
            })  # fmt: skip
        elif message["role"] == "tool":
            call_id, result = message.get("tool_call_id", ""), content_text(message["content"]) or ""
            events.append({
                **base, "event": "tool", "type": "function", "id": call_id, "function": message.get("function", ""),
                "arguments": calls.get(call_id, {}).get("arguments", {}), "result": result,
                "events": [], "message_id": message["id"],
            })  # fmt: skip
    if not replies:
        return {"events": events}
    return {"events": events, "events_data": {"messages": messages[: replies[-1]], "calls": []}}


def _output(message: JsonDict, model: str) -> JsonDict:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"message": message, "stop_reason": reason}
    return {"model": model, "choices": [choice], "completion": content_text(message["content"]) or ""}
