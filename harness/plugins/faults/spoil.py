"""Changes that turn a correct reply into a faulty one. `rules` chooses the requests; `catalogue` names the faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import orjson

from harness.core.types import JsonDict

CHARS_PER_TOKEN = 4
"""Characters per token, to cut a reply after a number of tokens; the same as in the server's token counts."""


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
    """Return the name of the first tool that the request offers; `lookup` if it offers none."""
    tools: object = request.get("tools")
    first = cast("list[Any]", tools)[0] if isinstance(tools, list) and tools else None
    function: object = cast("JsonDict", first).get("function") if isinstance(first, dict) else None
    name: object = cast("JsonDict", function).get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else "lookup"


def _choice(reply: JsonDict) -> dict[str, Any]:
    return cast("dict[str, Any]", cast("list[object]", reply["choices"])[0])


def _say(reply: JsonDict, content: object, finish: str) -> None:
    """Set the answer of a chat or text completion to `content`, and remove tool calls."""
    choice = _choice(reply)
    choice["finish_reason"] = finish
    if "text" in choice:
        choice["text"] = content
        return
    choice["message"] = {"role": "assistant", "content": content}


ROUTER_ERROR: JsonDict = {"message": "the provider behind this router failed"}


def _error_beside(reply: JsonDict, value: str, request: JsonDict) -> None:
    form, code, finish = orjson.loads(value)
    _choice(reply)["finish_reason"] = finish
    ERROR_PLACES[form](reply, code)


ERROR_PLACES: dict[str, Callable[[JsonDict, object], object]] = {
    "top": lambda reply, code: reply.update(error={**ROUTER_ERROR, "code": code}),
    "choice": lambda reply, code: _choice(reply).update(error={**ROUTER_ERROR, "code": code}),
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


def refused(edit: str, request: JsonDict) -> JsonDict | None:
    """Return the error body (HTTP 400) with which a model refuses a request; None if the model accepts the request."""
    if edit != "no-max-tokens" or "max_tokens" not in request:
        return None
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    error = {"message": words, "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter"}
    return {"error": error}


GARBLINGS: dict[str, Callable[[JsonDict], object]] = {
    "cut": lambda call: call["function"].update(arguments='{"x": "half a wo'),
    "quote": lambda call: call["function"].update(arguments=f'{call["function"]["arguments"]}"'),
    "array": lambda call: call["function"].update(arguments="[1, 2]"),
    "empty": lambda call: call["function"].update(arguments=""),
    "null": lambda call: call["function"].update(arguments=None),
    "object": lambda call: call["function"].update(arguments={"x": 1}),
    "unknown": lambda call: call["function"].update(name="no_such_tool"),
    "nameless": lambda call: call["function"].pop("name"),
    "id": lambda call: call.update(id=7),
}
"""Forms of a bad tool call: arguments cut, with a stray quote, an array, empty, null or an object instead of text; an
unknown tool or no tool name; an id that is a number."""

EDITS: dict[str, Callable[[JsonDict, str, JsonDict], object]] = {
    "no-choices": lambda reply, value, request: reply.update(choices=[]),
    "no-usage": lambda reply, value, request: reply.pop("usage"),
    "wrong-model": lambda reply, value, request: reply.update(model=value),
    "null-content": lambda reply, value, request: _say(reply, None, "stop"),
    "empty-content": lambda reply, value, request: _say(reply, "", "stop"),
    "content-filter": lambda reply, value, request: _say(reply, "", "content_filter"),
    "refusal": _refusal,
    "length": _length,
    "bad-tool-call": _bad_tool_call,
    "error-beside": _error_beside,
    "two-choices": _two_choices,
    "no-max-tokens": lambda reply, value, request: None,
    "cut-gzip": lambda reply, value, request: None,
    "partial": lambda reply, value, request: None,
}
"""Functions that change a complete reply in place, by name. Each gets the reply, the parameter of the change (which may
be empty) and the request's body. The last three affect only how the reply is sent."""
