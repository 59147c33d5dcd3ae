"""Changes that turn a correct reply into a faulty one. `faults` chooses the requests; `catalogue` names the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import orjson

from harness.core.types import JsonDict

CHARS_PER_TOKEN = 4
"""Same ratio as the server's token counts."""


def spoil(edit: str, value: str, reply: JsonDict, request: JsonDict) -> JsonDict:
    """Apply one change to `reply` and return it.

    Args:
        edit: A key of `EDITS`.
        value: Parameter of the change; may be empty.
        reply: A complete reply of the server; changed in place.
        request: The request's body.
    """
    EDITS[edit](reply, value, request)
    return reply


def _no_choices(reply: JsonDict, value: str, request: JsonDict) -> None:
    reply["choices"] = []


def _no_usage(reply: JsonDict, value: str, request: JsonDict) -> None:
    del reply["usage"]


def _wrong_model(reply: JsonDict, value: str, request: JsonDict) -> None:
    reply["model"] = value


def _null_content(reply: JsonDict, value: str, request: JsonDict) -> None:
    _say(reply, None, "stop")


def _empty_content(reply: JsonDict, value: str, request: JsonDict) -> None:
    _say(reply, "", "stop")


def _content_filter(reply: JsonDict, value: str, request: JsonDict) -> None:
    _say(reply, "", "content_filter")


def _refusal(reply: JsonDict, value: str, request: JsonDict) -> None:
    if "text" in _choice(reply):  # text completions have no refusal field, so the text itself refuses
        _say(reply, value, "stop")
        return
    _say(reply, None, "stop")
    _choice(reply)["message"]["refusal"] = value


def _length(reply: JsonDict, value: str, request: JsonDict) -> None:
    choice = _choice(reply)
    whole: object = choice["text"] if "text" in choice else choice["message"].get("content")
    tokens = int(value)
    _say(reply, whole[: tokens * CHARS_PER_TOKEN] if isinstance(whole, str) else whole, "length")
    usage = cast("dict[str, int]", reply["usage"])
    usage["completion_tokens"] = min(tokens, usage["completion_tokens"])
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]


def _bad_tool_call(reply: JsonDict, value: str, request: JsonDict) -> None:
    choice = _choice(reply)
    calls: object = choice["message"].get("tool_calls") if "message" in choice else None
    if calls:
        call = cast("list[JsonDict]", calls)[0]
    else:
        call = {"id": "call_0", "type": "function", "function": {"name": _offered(request), "arguments": '{"x": 1}'}}
    GARBLINGS[value](call)
    message: JsonDict = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice.pop("text", None)
    choice.update(message=message, finish_reason="tool_calls")


def _offered(request: JsonDict) -> str:
    """The name of the first tool that the request offers; `lookup` if there is none."""
    tools: object = request.get("tools")
    first = cast("list[Any]", tools)[0] if isinstance(tools, list) and tools else None
    function: object = cast("JsonDict", first).get("function") if isinstance(first, dict) else None
    name: object = cast("JsonDict", function).get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else "lookup"


def _choice(reply: JsonDict) -> dict[str, Any]:
    return cast("dict[str, Any]", cast("list[object]", reply["choices"])[0])


def _say(reply: JsonDict, content: object, finish: str) -> None:
    """Set the answer of a chat or text completion to `content`, and drop tool calls."""
    choice = _choice(reply)
    choice["finish_reason"] = finish
    if "text" in choice:
        choice["text"] = content
        return
    message = {"role": "assistant", "content": content}
    choice["message"] = message


ROUTER_ERROR: JsonDict = {"message": "the provider behind this router failed"}


def _error_beside(reply: JsonDict, value: str, request: JsonDict) -> None:
    form, code, finish = orjson.loads(value)
    _choice(reply)["finish_reason"] = finish
    ERROR_PLACES[form](reply, code)


def _in_choice(reply: JsonDict, code: object) -> None:
    _choice(reply)["error"] = {**ROUTER_ERROR, "code": code}


ERROR_PLACES: dict[str, Callable[[JsonDict, object], None]] = {
    "top": lambda reply, code: reply.update(error={**ROUTER_ERROR, "code": code}),
    "choice": _in_choice,
    "text": lambda reply, code: reply.update(error=ROUTER_ERROR["message"], code=code),
    "code": lambda reply, code: reply.update(error={"code": code}),
    "object": lambda reply, code: reply.update(ROUTER_ERROR, object="error", code=code),
    "finish": lambda reply, code: None,
    "empty": lambda reply, code: reply.update(error={"message": "", "code": None}),
}
"""Places of an error in a 200 reply: at the top, in the choice, at the top as text, as a code alone, in fields of the
reply itself, or only in the finish reason. An `empty` error has no message and no code."""


def _two_choices(reply: JsonDict, value: str, request: JsonDict) -> None:
    other: JsonDict = {"index": 1, "finish_reason": "stop"}
    other |= {"text": "?"} if "text" in _choice(reply) else {"message": {"role": "assistant", "content": "?"}}
    reply["choices"] = [other, _choice(reply)]


def _as_it_is(reply: JsonDict, value: str, request: JsonDict) -> None:
    """Leave the reply unchanged; the fault concerns only how the reply is sent."""


def refused(edit: str, request: JsonDict) -> JsonDict | None:
    """The error body (HTTP 400) with which a model refuses the request; None if the model accepts it."""
    if edit != "no-max-tokens" or "max_tokens" not in request:
        return None
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    error = {"message": words, "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter"}
    return {"error": error}


def _arguments(text: object) -> Callable[[JsonDict], None]:
    def garble(call: JsonDict) -> None:
        cast("JsonDict", call["function"])["arguments"] = text

    return garble


def _stray_quote(call: JsonDict) -> None:
    function = cast("JsonDict", call["function"])
    function["arguments"] = f'{function["arguments"]}"'


def _unknown(call: JsonDict) -> None:
    cast("JsonDict", call["function"])["name"] = "no_such_tool"


def _nameless(call: JsonDict) -> None:
    del cast("JsonDict", call["function"])["name"]


def _number_as_id(call: JsonDict) -> None:
    call["id"] = 7


GARBLINGS: dict[str, Callable[[JsonDict], None]] = {
    "cut": _arguments('{"x": "half a wo'),
    "quote": _stray_quote,
    "array": _arguments("[1, 2]"),
    "empty": _arguments(""),
    "null": _arguments(None),
    "object": _arguments({"x": 1}),
    "unknown": _unknown,
    "nameless": _nameless,
    "id": _number_as_id,
}
"""Forms of a bad tool call: arguments cut, with a stray quote, an array, empty, null or an object instead of text; an
unknown tool or no tool name; an id that is a number."""

EDITS: dict[str, Callable[[JsonDict, str, JsonDict], None]] = {
    "no-choices": _no_choices,
    "no-usage": _no_usage,
    "wrong-model": _wrong_model,
    "null-content": _null_content,
    "empty-content": _empty_content,
    "content-filter": _content_filter,
    "refusal": _refusal,
    "length": _length,
    "bad-tool-call": _bad_tool_call,
    "error-beside": _error_beside,
    "no-max-tokens": _as_it_is,
    "cut-gzip": _as_it_is,
    "partial": _as_it_is,
    "two-choices": _two_choices,
}
