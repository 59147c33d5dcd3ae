"""Model replies of the classic API. One class supports both `response.choices[0].message.content`, as in the older API
(generation B), and `response.message`, as in the newer one (generation C). Also converts `harness.types.ModelResponse`
and the replies of an author's own client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, ModelResponse, Prompt
from harness.plugins.classic.messages import AssistantMessage, WireMessage, message_of
from harness.plugins.classic.records import Record, plain, recorded


class ReplyMessage(WireMessage):
    """The message of a choice in a model's reply; missing fields are None."""

    declared = ("content", "refusal", "tool_calls", "function_call", "audio", "annotations")


class ResponseMessage(AssistantMessage):
    """The typed message of a model's reply, in the newer classic API (generation C)."""

    declared = (*AssistantMessage.declared, "finish_reason", "is_truncated", "tokens")


class Usage(Record):
    """Token usage of a model call."""

    declared = ("reasoning_tokens", "prompt_tokens_details", "completion_tokens_details")


class Choice(Record):
    """One choice of a model's reply, as in the OpenAI API."""

    declared = ("logprobs", "finish_reason")


class Response(Record):
    """A model's reply, created by bench or by an author's client. Its JSON has the OpenAI wire format.

    Args:
        *args: The fields as one mapping.
        **values: The fields: `choices` in the OpenAI wire format, or a typed `message`; `id`, `created`, `model` and
            `usage` are optional.

    Raises:
        EnvironmentFault: there is neither a choice nor a message.
    """

    declared = ("usage", "system_fingerprint", "service_tier")

    def __init__(self, *args: Any, **values: Any) -> None:
        fields: JsonDict = dict(*args, **values)
        message = fields.pop("message", None)
        choices = [_choice(each) for each in fields.pop("choices", None) or ()]
        if message is not None:
            choices[:1] = [_choice_of(message, choices[0]["finish_reason"] if choices else None)]
        if not choices:
            raise EnvironmentFault("vf.Response(…) requires the argument `choices` or `message`")
        usage = fields.pop("usage", None)
        kind = "text_completion" if "message" not in choices[0] else "chat.completion"
        filled = {name: fields.pop(name, None) or default for name, default in _filled(kind).items()}
        super().__init__({**filled, "choices": choices, **fields, **({"usage": _usage(usage)} if usage else {})})

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "message":
            self.__dict__.pop("_typed", None)
            self["choices"] = [_choice_of(value, None), *self["choices"][1:]]
            return
        super().__setitem__(name, _usage(value) if name == "usage" and value else value)

    def __getitem__(self, name: str) -> Any:
        if name == "choices" and "_typed" in self.__dict__:
            self._take_in()
        return super().__getitem__(name)

    @property
    def message(self) -> ResponseMessage:
        """The reply's message as a typed message. Changes to it also change the reply."""
        if "_typed" not in self.__dict__:
            choice = self["choices"][0]
            fields = {"role": "assistant", "content": choice.get("text"), **plain(choice.get("message") or {})}
            reason = choice["finish_reason"]
            typed = ResponseMessage(**fields, finish_reason=reason, is_truncated=reason == "length")
            self.__dict__["_typed"] = (typed, plain(typed))
        typed: ResponseMessage = self.__dict__["_typed"][0]
        return typed

    def _take_in(self) -> None:
        """Write changes of the message object back into the choice of the completion."""
        typed, before = self.__dict__["_typed"]
        if (now := plain(typed)) != before:
            self.__dict__["_typed"] = (typed, now)
            choices: list[Choice] = super().__getitem__("choices")
            choices[0] = _choice_of(typed, None, is_text=self.is_text)

    @property
    def is_truncated(self) -> bool:
        """Whether the reply was cut at the token limit."""
        return self["choices"][0]["finish_reason"] == "length"

    @property
    def is_text(self) -> bool:
        """Whether the reply is a text completion."""
        return self["object"] == "text_completion"

    @property
    def said(self) -> Prompt:
        """The reply in the form of the transcript: a string, or a list with one message."""
        choice = self["choices"][0]
        return str(choice.get("text") or "") if self.is_text else cast("Prompt", [message_of(dict(choice["message"]))])

    def model_dump(self, *, exclude_none: bool = False, **options: Any) -> JsonDict:
        """Convert the reply to a plain dict in the OpenAI wire format."""
        _ = self["choices"]
        return super().model_dump(exclude_none=exclude_none, **options)


def _filled(kind: str) -> JsonDict:
    return {"id": "", "object": kind, "created": int(time.time()), "model": ""}


def _usage(value: object) -> Usage:
    """Convert token counts to the names of the OpenAI wire format; missing ones are 0."""
    given: JsonDict = plain(value) if isinstance(value, Mapping) or hasattr(value, "model_dump") else plain(vars(value))
    tokens = Usage(recorded(given))
    for name, other in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        tokens[name] = tokens.get(name) or given.get(other) or 0
    tokens["total_tokens"] = tokens.get("total_tokens") or tokens["prompt_tokens"] + tokens["completion_tokens"]
    return tokens


def _part(value: object, name: str) -> Any:
    """Return a field of a mapping or an attribute of an object; None if it is missing."""
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _choice(value: object) -> Choice:
    """Convert a dict or an object to a choice."""
    text, message = _part(value, "text"), _part(value, "message")
    reason = _part(value, "finish_reason")
    if message is None:
        return Choice({"index": 0, "finish_reason": reason, "text": "" if text is None else str(text)})
    return _choice_of(message, reason)


def _choice_of(message: object, finish_reason: str | None, *, is_text: bool = False) -> Choice:
    """Wrap a message, given as a string, a dict, or an object with `content`, in a choice."""
    if isinstance(message, str):
        fields: JsonDict = {"content": message}
    elif isinstance(message, Mapping) or hasattr(message, "model_dump"):
        fields = dict(plain(message))
    else:
        parts = {name: _part(message, name) for name in ("role", *ResponseMessage.declared)}
        fields = {name: plain(part) for name, part in parts.items() if part is not None}
    reason = fields.pop("finish_reason", None) or finish_reason
    if fields.pop("is_truncated", None):
        reason = "length"
    fields.pop("tokens", None)
    choice = Choice({"index": 0, "finish_reason": reason})
    if is_text:
        choice["text"] = str(fields.get("content") or "")
    else:
        choice["message"] = ReplyMessage({**fields, "role": "assistant"})
    return choice


def response_of(reply: ModelResponse, *, is_text: bool, model: str) -> Response:
    """Convert a `ModelResponse` of bench to a reply of the classic API."""
    usage = reply.usage
    tokens = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    said: JsonDict = {"text": reply.message.get("content") or ""} if is_text else {"message": reply.message}
    return Response(
        id=reply.id, model=reply.model or model, choices=[{"finish_reason": reply.finish_reason, **said}],
        usage=None if usage.unreported else tokens,
    )  # fmt: skip


def response_for(said: Prompt | JsonDict, extra: Mapping[str, Any]) -> Response:
    """Restore a model's reply from its record in the journal.

    Args:
        said: The reply's text or message in the transcript.
        extra: Further recorded fields: `model`, `id`, `created`, `usage` and `finish_reason`.
    """
    message = said[0] if isinstance(said, list) else said
    calls = not isinstance(message, str) and message.get("tool_calls")
    reason = extra.get("finish_reason") or ("tool_calls" if calls else "stop")
    choice = {"finish_reason": reason, "text" if isinstance(message, str) else "message": message}
    return Response({**{name: part for name, part in extra.items() if name != "finish_reason"}, "choices": [choice]})


def is_response(value: object) -> bool:
    """Return whether a value can be converted to a reply."""
    return isinstance(value, Response | ModelResponse) or bool(_part(value, "choices") or _part(value, "message"))


def as_response(value: Any) -> Response:
    """Convert the return value of a `get_model_response` or a client to a `Response`.

    Args:
        value: A reply of bench or of the openai package, or any object or dict with `choices` or a `message`.

    Raises:
        EnvironmentFault: the value has neither `choices` nor a `message`.
    """
    if isinstance(value, Response):
        return value
    if isinstance(value, ModelResponse):
        return response_of(value, is_text=False, model="")
    if not is_response(value):
        kind = type(cast(object, value)).__name__
        raise EnvironmentFault(f"a reply must have `choices` or a `message`, but {kind} {value!r:.80} has neither")
    names = ("id", "object", "created", "model", "usage", "choices", "message")
    return Response({name: part for name in names if (part := _part(value, name)) is not None})
