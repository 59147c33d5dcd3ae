"""Conversion of the messages of an Inspect log to messages in OpenAI's wire format: the inverse of
`plugins/exports/inspect_messages.py`. What has no field there stays unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from harness.core.types import JsonDict, Message, Messages, Prompt
from harness.store.values import table

_ATTACHMENT = "attachment://"

_OWN = frozenset({"id", "source", "role", "content", "model", "metadata", "tool_calls", "tool_call_id", "function"})
"""Fields of a message in a log that are converted or are of no use outside of the log. All others stay unchanged."""


def resolved(value: Any, attachments: Mapping[str, str]) -> Any:
    """Replace references such as `attachment://HASH`, in all strings of a JSON value, by the texts they stand for."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_ATTACHMENT), value) if value.startswith(_ATTACHMENT) else value
    if isinstance(value, dict):
        return {name: resolved(item, attachments) for name, item in cast(JsonDict, value).items()}
    if isinstance(value, list):
        return [resolved(item, attachments) for item in cast("list[object]", value)]
    return value


def conversation(given: str | list[JsonDict], messages: list[JsonDict], own: JsonDict | None) -> tuple[Prompt, Prompt]:
    """Split the messages of a sample into prompt and completion.

    Args:
        given: The input of the sample.
        messages: All messages of the sample; empty if the sample failed early.
        own: Data that `bench export` added; None if another tool wrote the log. There, the prompt ends before the
            first reply of the model.
    """
    asked: list[JsonDict] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    size = len(asked)
    if own is None and messages:
        replies = (
            place for place, each in enumerate(messages)
            if each.get("role") == "assistant" and each.get("source") != "input"
        )  # fmt: skip
        size = next(replies, len(messages))
    elif own is not None and given == "":
        size = 0
    called = {
        str(call.get("id")) for each in messages for call in _items(each.get("tool_calls"))
    }  # fmt: skip
    before = [_message(each, called) for each in (messages[:size] or asked)]
    after = [_message(each, called) for each in messages[size:]]
    texts = cast("list[object]", [] if own is None else own.get("texts", []))
    return _text(before) if "prompt" in texts else before, _text(after) if "completion" in texts else after


def _text(messages: Messages) -> Prompt:
    """Return the text of the only message."""
    return str(messages[0].get("content") or "") if messages else ""


def _items(value: object) -> list[JsonDict]:
    return [table(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def _message(message: JsonDict, called: set[str]) -> Message:
    extra = table(message.get("metadata"))
    told: Message = {"role": message.get("role", "user")}
    content, reasoning, refusal = _content(message.get("content"))
    told["content"] = content
    if content == "" and message.get("tool_calls"):
        told["content"] = None  # as endpoints send it
    if reasoning:
        told["reasoning_content"] = reasoning
    if refusal:
        told["refusal"] = refusal
    if calls := [_call(each) for each in _items(message.get("tool_calls"))]:
        told["tool_calls"] = calls
    if (call_id := message.get("tool_call_id")) is not None:
        told["tool_call_id"] = call_id
    if (name := message.get("function")) and str(call_id) not in called:
        told["name"] = name
    told |= {name: value for name, value in message.items() if name not in _OWN and value is not None}
    return told | extra


def _call(call: JsonDict) -> JsonDict:
    arguments = call.get("arguments")
    name, call_id = call.get("function"), call.get("id")
    if call.get("type") == "custom":
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": table(arguments).get("input")}}
    if call.get("parse_error") and isinstance(text := table(arguments).get("arguments"), str):
        arguments = text
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}


def _content(content: object) -> tuple[object, str, str]:
    """Convert the content of a message; also return the reasoning and the refusal in it."""
    if not isinstance(content, list):
        return content, "", ""
    parts, reasoning, refusals = list[JsonDict](), list[str](), list[str]()
    for part in _items(cast("list[object]", content)):
        if part.get("type") == "reasoning":
            reasoning.append(str(part.get("reasoning") or part.get("summary") or ""))
        elif part.get("type") == "text" and part.get("refusal") is True:
            refusals.append(str(part.get("text") or ""))
        else:
            parts.append(_part(part))
    separated = bool(reasoning or refusals)
    is_plain = separated and all(part.keys() == {"type", "text"} for part in parts) and len(parts) <= 1
    rest: object = "".join(str(part["text"]) for part in parts) if is_plain else parts
    return rest, "\n".join(reasoning), "\n".join(refusals)


def _part(part: JsonDict) -> JsonDict:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("text")}
    if kind == "image":
        detail = part.get("detail", "auto")
        return {
            "type": "image_url",
            "image_url": {"url": part.get("image")} | ({} if detail == "auto" else {"detail": detail}),
        }
    if kind == "audio" and isinstance(place := part.get("audio"), str):
        return {"type": "input_audio", "input_audio": {"data": place.partition(",")[2], "format": part.get("format")}}
    return table(part.get("data")) or part if kind == "data" else part
