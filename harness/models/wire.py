"""OpenAI wire format: build request bodies, parse replies. A reply is valid even if the answer in it is empty, null or
truncated, or if the model refused to answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, cast

import orjson

from harness.core.errors import ConfigError, ModelError
from harness.core.types import JsonDict, Message, ModelCall, ModelResponse, Prompt, Usage
from harness.models.failures import Failure, bad_reply, clean, error_inside, json_object, unlisted

CHARS_PER_TOKEN = 4
"""Estimated characters per token, for rate limits only. Close enough for English; corrected by the reply's usage."""

_MOST_DOLLARS = 1e9
"""Costs of one reply above this number of dollars are ignored as invalid."""

MOST_TOKENS = 10**9
"""Token counts of one reply above this number are ignored as invalid."""

IMAGE_TOKENS = 1000
"""Estimated number of tokens of a content part that is not text, used only for rate limits."""

_CHECKED = frozenset({"stream", "n", "api_key", "extra_body"})
"""Sampling arguments that `check_sampling_args` looks at."""


def check_sampling_args(args: Mapping[str, Any]) -> None:
    """Validate sampling arguments, which must not request streaming or more than one answer (the others would be paid
    for and discarded) and must not contain an API key.

    Raises:
        ConfigError: `stream` is set, `n` is more than 1, or an `api_key` is given.
    """
    if args.keys().isdisjoint(_CHECKED):  # the usual case, in every call
        return
    for source in _bodies(args):
        if source.get("stream"):
            raise ConfigError("sampling_args.stream: streamed replies are not supported; remove this argument")
        n = source.get("n")
        if isinstance(n, int) and n > 1:
            raise ConfigError(
                f"sampling_args.n is {n}, but only one answer per request is used",
                remedy="for more rollouts, raise {rollouts_per_example}",
            )
        if "api_key" in source:
            raise ConfigError(
                "sampling_args must not contain an api_key, because runs record sampling arguments; set the name of "
                "an environment variable with the key instead"
            )


def check_settings_of_sampling(args: Mapping[str, Any]) -> None:
    """Validate sampling arguments that are given as settings. They must not change the model or the prompt.

    (Only the calls of an agent may set model and prompt.)

    Raises:
        ConfigError: as for `check_sampling_args`, or an argument is `model`, `messages` or `prompt`.
    """
    check_sampling_args(args)
    for source in _bodies(args):
        other = next((name for name in ("model", "messages", "prompt") if name in source), None)
        if other is not None:
            raise ConfigError(f"sampling_args.{other} would replace the {other} that the run records; remove it")


def _bodies(args: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Yield the sampling arguments themselves and, if they contain one, their `extra_body`."""
    extra = args.get("extra_body")
    return [args, cast("Mapping[str, Any]", extra)] if isinstance(extra, Mapping) else [args]


def merge_sampling_args(base: Mapping[str, Any], over: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the sampling arguments `base`, overridden by those in `over`; `extra_body` is merged key by key. An
    argument whose value is None stays in the result, and is left out when the request body is built."""
    merged = {**base, **(over or {})}
    below, above = base.get("extra_body"), (over or {}).get("extra_body")
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        merged["extra_body"] = {**cast("Mapping[str, Any]", below), **cast("Mapping[str, Any]", above)}
    return merged


def request_fields(call: ModelCall, *, completion_tokens: bool = False) -> JsonDict:
    """Return the fields of the request body for `call`: model, messages or prompt, tools, sampling arguments.

    Args:
        call: The model call.
        completion_tokens: Whether to rename `max_tokens` of a chat to `max_completion_tokens`, unless that is set too.
    """
    is_chat = not isinstance(call.prompt, str)
    body: JsonDict = {"model": call.model, ("messages" if is_chat else "prompt"): call.prompt}
    if call.tools:
        body["tools"] = list(call.tools)
    for name, value in call.sampling_args.items():
        if name == "extra_body" and isinstance(value, Mapping):
            body.update(cast("Mapping[str, Any]", value))
        elif value is not None and name != "extra_body":
            body[name] = value
    if completion_tokens and is_chat and "max_tokens" in body:
        limit = body.pop("max_tokens")
        body.setdefault("max_completion_tokens", limit)
    return body


def build_request(call: ModelCall, *, completion_tokens: bool = False) -> bytes:
    """Build the body of the HTTP request for `call`, from the fields that `request_fields` returns.

    Raises:
        ModelError: the call contains a value that JSON cannot represent.
    """
    fields = request_fields(call, completion_tokens=completion_tokens)
    try:
        return orjson.dumps(fields)
    except TypeError:
        try:
            # JSON allows more than orjson: integers beyond 64 bits, lone surrogates, keys that are not strings.
            return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode("ascii")
        except (TypeError, ValueError) as error:
            raise ModelError(f"the request cannot be written as JSON: {error}", reason="bad_request") from error


def estimate_prompt_tokens(prompt: Prompt) -> int:
    """Estimate the number of tokens of a prompt, for the `tpm` limit."""
    if isinstance(prompt, str):
        return len(prompt) // CHARS_PER_TOKEN + 1
    total = 0
    for message in prompt:
        content = message.get("content")
        if isinstance(content, str):
            total += len(content) // CHARS_PER_TOKEN + 4
        elif isinstance(content, list):
            for part in cast("list[object]", content):
                text = cast("dict[str, object]", part).get("text") if isinstance(part, dict) else None
                total += len(text) // CHARS_PER_TOKEN if isinstance(text, str) else IMAGE_TOKENS
    return total


def asked_output_tokens(call: ModelCall) -> int | None:
    """Return the call's sampling argument `max_completion_tokens` or `max_tokens`; None if neither is an integer."""
    for name in ("max_completion_tokens", "max_tokens"):
        value = call.sampling_args.get(name)
        if isinstance(value, int):
            return value
    return None


def read_reply(body: bytes, status: int, *, is_chat: bool) -> ModelResponse | Failure:
    """Parse a reply with a 2xx status. Only the choice with index 0 is used.

    Returns:
        The parsed reply, or a failure if the body is not JSON, has no choices, has fields of the wrong type or contains
        an error. (Routers send errors with status 200, even together with a choice. Such an error is treated like the
        HTTP status that it names.)
    """
    if status == 206:
        return bad_reply("the reply is incomplete (partial content)", status)
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            value = plain_json(json.loads(body))  # accepts more than orjson: NaN, infinities, lone surrogates
        except (ValueError, RecursionError):
            value = None
    value = unlisted(value)
    if not isinstance(value, dict):
        # A truncated JSON object comes from an API that fails; any other text comes from another kind of server.
        return bad_reply(_describe_body(body), status, kind="reply" if body.lstrip()[:1] == b"{" else "page")
    return read_fields(cast("JsonDict", value), status, is_chat=is_chat)


def read_fields(fields: JsonDict, status: int, *, is_chat: bool) -> ModelResponse | Failure:
    """Parse the decoded body of a reply with a 2xx status; see `read_reply`."""
    usage = read_usage(fields.get("usage"))
    choice = first_choice(fields.get("choices"))
    outcome = error_inside(fields, choice) or _read_message(choice, is_chat)
    if isinstance(outcome, str):
        outcome = bad_reply(outcome, status)
    if isinstance(outcome, Failure):
        return outcome if usage.unreported and usage.cost is None else replace(outcome, usage=usage)
    message = outcome
    choice = choice or {}
    finish, model, reply_id = choice.get("finish_reason"), fields.get("model"), fields.get("id")
    logprobs = choice.get("logprobs")
    if finish == "content_filter" and not message.get("content") and not message.get("refusal"):
        # The transcript has no finish reason: the provider's refusal would look like an empty answer.
        message["refusal"] = "content_filter"
    return ModelResponse(
        message,
        finish if isinstance(finish, str) else None,
        usage,
        model if isinstance(model, str) else None,
        reply_id if isinstance(reply_id, str) else None,
        logprobs=json_object(logprobs) if logprobs else None,
    )


def first_choice(choices: object) -> dict[str, Any] | None:
    """Return the choice with index 0, at any position in the list, or else the first choice. None if there are no
    choices."""
    if not isinstance(choices, list) or not choices:
        return None
    found = cast("list[object]", choices)
    first = found[0]
    if len(found) > 1:
        first = next((each for each in found if json_object(each).get("index") == 0), first)
    return cast("dict[str, Any]", first) if isinstance(first, dict) else None


def is_another_model(asked: str, answered: str) -> bool:
    """Return whether a reply names a model other than the requested one. Dates and variants that providers add to a
    model's name, and prefixes that routers add, do not count as differences. A smaller variant (`mini`) does."""
    theirs, ours = _words(answered), _words(asked)
    return not (theirs <= ours or ours <= theirs) or bool((theirs ^ ours) & {"mini", "nano", "lite"})


def _words(model: str) -> set[str]:
    """Return the words and numbers of a model's name, without a prefix."""
    return set(re.findall(r"[a-z]+|\d+", model.lower().rstrip("/").rpartition("/")[2])) - {"latest", "preview"}


def read_usage(usage: object) -> Usage:
    """Parse the tokens and the cost in the field `usage` of a reply. If a token count is missing or invalid, the reply
    counts as `unreported`."""
    if not isinstance(usage, dict):
        return Usage(requests=1, unreported=1)
    fields = cast("dict[str, Any]", usage)
    tokens_in, tokens_out = fields.get("prompt_tokens"), fields.get("completion_tokens")
    if not _is_count(tokens_in) or not _is_count(tokens_out):
        return Usage(requests=1, unreported=1, cost=_cost(fields))
    cost = fields.get("cost")
    if len(fields) <= 3 and cost is None:  # the common case
        return Usage(tokens_in, tokens_out, requests=1)
    return Usage(
        tokens_in,
        tokens_out,
        _count(json_object(fields.get("completion_tokens_details")).get("reasoning_tokens")),
        _count(json_object(fields.get("prompt_tokens_details")).get("cached_tokens"))
        or _count(fields.get("prompt_cache_hit_tokens")),
        requests=1,
        cost=_cost(fields),
    )


def _cost(usage: dict[str, Any]) -> float | None:
    """Return the reported cost of a reply. With a user's own key (`is_byok`): router's fee plus provider's cost."""
    cost = _dollars(usage.get("cost"))
    if cost is None or usage.get("is_byok") is not True:
        return cost
    upstream = _dollars(json_object(usage.get("cost_details")).get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _dollars(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value < _MOST_DOLLARS:
        return None
    return float(value)


def _count(value: object) -> int:
    return value if _is_count(value) else 0


def _is_count(value: object) -> TypeGuard[int]:
    """Return whether a value is a plausible token count. Some providers send -1; huge counts would overflow."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def _read_message(choice: dict[str, Any] | None, is_chat: bool) -> Message | str:
    """Return the assistant message of a choice for the transcript, or a string that describes the error in the reply.
    Fields that only this provider uses are kept, because the provider may need them in the next request (signatures).
    Nulls and empty lists are removed, `reasoning` is renamed to `reasoning_content`, and the arguments of tool calls
    remain the string that the model wrote."""
    if choice is None:
        return "the list of choices is empty"
    if not is_chat:
        text = choice.get("text")
        if text is not None and not isinstance(text, str):
            return f"the text of the choice has the wrong type {type(text).__name__}"
        return {"role": "assistant", "content": text} if "text" in choice else "the choice has no text"
    raw = choice.get("message")
    if not isinstance(raw, dict):
        return "the choice has no message"
    fields = cast("dict[str, Any]", raw)
    content: object = fields.get("content")
    if not (content is None or isinstance(content, str | list)):
        return f"the content of the message has the wrong type {type(content).__name__}"
    # Some servers return another role, which would be taken for another speaker.
    message: Message = {"role": "assistant", "content": content}
    for name, value in fields.items():
        if value is not None and value != [] and name not in message:
            message[name] = value
    if isinstance(message.get("reasoning"), str):
        message.setdefault("reasoning_content", message["reasoning"])
        del message["reasoning"]
    if "tool_calls" in message:
        calls = _tool_calls(message["tool_calls"])
        if calls is None:
            return "a tool call has no function name"
        message["tool_calls"] = calls
    return message


def _tool_calls(raw: object) -> list[JsonDict] | None:
    if not isinstance(raw, list):
        return None
    calls: list[JsonDict] = []
    for index, entry in enumerate(cast("list[object]", raw)):
        call = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        function = call.get("function")
        named = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
        if not isinstance(named.get("name"), str):
            return None
        arguments: object = named.get("arguments")
        if not isinstance(arguments, str):
            # Some servers send a parsed object; the wire format requires text.
            arguments = "" if arguments is None else json.dumps(arguments)
        calls.append(
            {
                **call,
                # The result of a tool call repeats its id, which endpoints accept only as text.
                "id": _text(call.get("id")) or f"call_{index}",
                "type": _text(call.get("type")) or "function",
                "function": {**named, "arguments": arguments},
            }
        )
    return calls


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def plain_json(value: object) -> object:
    """Convert a value to one that JSON can represent: lone surrogates become U+FFFD, other objects become strings."""
    if isinstance(value, dict):
        return {str(key): plain_json(entry) for key, entry in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain_json(entry) for entry in cast("Sequence[object]", value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _describe_body(body: bytes) -> str:
    """Describe the body of a reply that is not a JSON object."""
    text = body[:2000].decode("utf-8", "replace").strip()
    if not text:
        return "the body is empty"
    if text[:1] == "<":
        return f"the body is a web page, not JSON: {clean(text)}"
    if text.startswith(("data:", "event:", ":")):
        return "the body is an event stream, which was not requested"
    return f"the body is not a JSON object: {clean(text)}"
