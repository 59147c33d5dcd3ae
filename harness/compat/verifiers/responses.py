"""A model's reply as classic packages read it: `response.choices[0].message.content` (B) and `response.message` (C),
one object for both. Owns the way from our `ModelResponse`, and from a reply that an author's own client made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from harness.compat.verifiers.messages import AssistantMessage, WireMessage, message_of
from harness.compat.verifiers.records import Record, plain, recorded
from harness.types import JsonDict, ModelResponse, Prompt


class ReplyMessage(WireMessage):
    """The message of a choice: absent fields read as None."""

    declared = ("content", "refusal", "tool_calls", "function_call", "audio", "annotations")


class ResponseMessage(AssistantMessage):
    """The message of a reply of generation C."""

    declared = (*AssistantMessage.declared, "finish_reason", "is_truncated", "tokens")


class Usage(Record):
    """Tokens of a call."""

    declared = ("reasoning_tokens", "prompt_tokens_details", "completion_tokens_details")


class Choice(Record):
    """The answer of a reply."""

    declared = ("logprobs", "finish_reason")


class Response(Record):
    """A reply. Its JSON is that of the OpenAI wire."""

    declared = ("usage", "system_fingerprint", "service_tier")

    @property
    def message(self) -> ResponseMessage:
        """The answer as a typed message."""
        choice = self["choices"][0]
        fields = {"role": "assistant", "content": choice.get("text"), **plain(choice.get("message") or {})}
        reason = choice["finish_reason"]
        return ResponseMessage(**fields, finish_reason=reason, is_truncated=reason == "length")

    @property
    def is_truncated(self) -> bool:
        """Whether the endpoint stopped for want of tokens."""
        return self["choices"][0]["finish_reason"] == "length"

    @property
    def is_text(self) -> bool:
        """Whether a completion model said it."""
        return self["object"] == "text_completion"

    @property
    def said(self) -> Prompt:
        """What goes into the transcript: a text, or one message of the generation that runs."""
        choice = self["choices"][0]
        return str(choice.get("text") or "") if self.is_text else cast("Prompt", [message_of(dict(choice["message"]))])


def response_of(reply: ModelResponse, *, is_text: bool, model: str) -> Response:
    """Our reply in the classic shape."""
    usage = reply.usage
    tokens = Usage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
    return _response(
        reply.message, reply.finish_reason, is_text=is_text, id=reply.id or "", model=reply.model or model,
        usage=None if usage.unreported else tokens,
    )  # fmt: skip


def response_for(said: Prompt | JsonDict, told: Mapping[str, Any]) -> Response:
    """A reply rebuilt from what is recorded.

    Args:
        said: What went into the transcript.
        told: What else is known: its `model`, `id`, `created`, `usage` and `finish_reason`.
    """
    is_text = isinstance(said, str)
    message: JsonDict = {"content": said} if isinstance(said, str) else said if isinstance(said, dict) else said[0]
    reason = told.get("finish_reason") or ("tool_calls" if message.get("tool_calls") else "stop")
    usage = told.get("usage")
    made = _response(
        message, reason, is_text=is_text, id=str(told.get("id") or ""), model=str(told.get("model") or ""),
        usage=Usage(recorded(usage)) if usage else None,
    )  # fmt: skip
    if "created" in told:
        made["created"] = told["created"]
    return made


def is_response(value: object) -> bool:
    """Whether a value can be read as a reply."""
    return isinstance(value, Response | ModelResponse) or bool(
        getattr(value, "choices", None) or getattr(value, "message", None)
    )


def as_response(value: Any) -> Response:
    """What a `get_model_response` returned, as a `Response`.

    Args:
        value: Ours, the openai package's, or anything with `choices` or a `message`.
    """
    if isinstance(value, Response):
        return value
    if isinstance(value, ModelResponse):
        return response_of(value, is_text=False, model="")
    choices = cast("Sequence[Any] | None", getattr(value, "choices", None))
    usage = plain(getattr(value, "usage", None))
    common: JsonDict = {
        "id": str(getattr(value, "id", "") or ""),
        "model": str(getattr(value, "model", "") or ""),
        "usage": Usage(usage) if usage else None,
    }
    if choices:
        choice = choices[0]
        text = getattr(choice, "text", None)
        message = {"content": text} if text is not None else plain(choice.message)
        return _response(message, getattr(choice, "finish_reason", None), is_text=text is not None, **common)
    message = plain(value.message)
    return _response(message, message.get("finish_reason"), is_text=False, **common)


def _response(
    message: JsonDict, finish_reason: str | None, *, is_text: bool, id: str, model: str, usage: Usage | None
) -> Response:
    choice: JsonDict = {"index": 0, "finish_reason": finish_reason}
    if is_text:
        choice["text"] = message.get("content") or ""
    else:
        choice["message"] = ReplyMessage({"role": "assistant", **message})
    fields: JsonDict = {
        "id": id,
        "object": "text_completion" if is_text else "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [Choice(choice)],
    }
    return Response(fields if usage is None else {**fields, "usage": usage})
