"""Description of a failed attempt at a request, with its kind, reason and message, and parsing of HTTP statuses and
error bodies. The module `retry` decides about retries; `health` decides whether the endpoint is usable. Messages
never contain keys or request headers; text from the provider is redacted and shortened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

import orjson

from harness.core.errors import ContextLengthError, ModelError, ResponseError
from harness.core.redact import redactor
from harness.core.types import JsonDict, Usage
from harness.models.retry import read_retry_after, retryable_status

DETAIL_LENGTH = 300
"""Maximum number of characters of a provider's text in a message: enough for a sentence, too few for an HTML page."""

Kind: TypeAlias = Literal["status", "reply", "page", "timeout", "unreachable", "broken", "unsent"]
"""Kind of a failure. `status`: an HTTP error. `reply`: a 2xx reply that cannot be used. `page`: a 2xx reply that does
not come from an OpenAI-compatible API, such as a web page. `timeout`: no reply within `request_timeout`. `unreachable`:
no connection, so nothing was sent. `broken`: the connection broke, or the reply is not HTTP. `unsent`: a request that
cannot be sent."""

_REASONS = {
    401: "auth", 402: "auth", 403: "auth", 404: "not_found", 405: "not_found", 408: "timeout",
    409: "server_error", 429: "rate_limit",
}  # fmt: skip

_ADVICE = {
    "rate_limit": "lower max_concurrent, or set rpm and tpm to the endpoint's limits",
    "timeout": "raise request_timeout, or set max_tokens",
    "server_error": "try again later, with retry_failed",
    "connection": "try again later, with retry_failed",
    "bad_response": "is the base URL that of an OpenAI-compatible API?",
}

_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"})

_CONTEXT_WORDS = re.compile(
    r"""
      context[ _-]?(?:length|window|size|limit)
    | (?:prompt|input)\ is\ too\ long
    | maximum\ (?:model|prompt|allowed\ input)\ length | max_model_len
    | input\ (?:token\ count|length)\b.{0,40}\bexceed
    | exceeds?\ the\ (?:maximum|max)\ number\ of\ (?:input\ )?tokens
    | inputs?`?\ tokens\ \+\ `?max_new_tokens
    | too\ many\ tokens.{0,60}\bprompt
    | reduce\ the\ length\ of\ the\ (?:messages|input|prompt)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Error messages for a prompt that exceeds the context window, as sent by OpenAI, Azure, vLLM, SGLang, TGI, llama.cpp,
Anthropic, Google, Bedrock, Mistral, Cohere, xAI, GLM and routers. Searched only for the statuses 400, 413 and 422, so
that a rate limit ("too many tokens, please wait") does not match."""

_UNKNOWN_MODEL_CODES = frozenset({"model_not_found", "invalid_model", "unknown_model"})
_UNKNOWN_MODEL_WORDS = re.compile(
    r"\bmodel\b.{0,120}\b(?:not exist|not found|not a valid)\b|\b(?:invalid|unknown|no such) model\b", re.IGNORECASE
)

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""Error codes that mark a 429 as permanent, so that it is not retried."""

_STATUS_OF_CODE = {
    "invalid_request_error": 400, "bad_request": 400, "badrequesterror": 400, "bad_request_error": 400,
    "invalid_argument": 400, "failed_precondition": 400, "unsupported_parameter": 400, "unsupported_value": 400,
    "content_filter": 400, "content_policy_violation": 400, "responsibleaipolicyviolation": 400,
    "context_length_exceeded": 400, "exceed_context_size_error": 400, "context_window_exceeded": 400,
    "invalid_api_key": 401, "incorrect_api_key": 401, "authentication_error": 401, "authenticationerror": 401,
    "unauthorized": 401, "unauthenticated": 401, "access_denied": 401, "payment_required": 402,
    "insufficient_credits": 402, "insufficient_balance": 402, "permission_denied": 403, "permission_error": 403,
    "permissiondeniederror": 403, "forbidden": 403, "not_found": 404, "notfounderror": 404, "not_found_error": 404,
    "model_not_found": 404, "invalid_model": 404, "unknown_model": 404, "deploymentnotfound": 404,
    "request_timeout": 408, "deadline_exceeded": 504, "timeout": 504, "timeout_error": 504,
    "insufficient_quota": 429, "billing_hard_limit_reached": 429, "billing_not_active": 429, "rate_limit": 429,
    "rate_limit_exceeded": 429, "rate_limit_error": 429, "ratelimiterror": 429, "too_many_requests": 429,
    "resource_exhausted": 429, "requests": 429, "tokens": 429, "server_error": 500, "internal_server_error": 500,
    "internalservererror": 500, "internal": 500, "internal_error": 500, "api_error": 500, "bad_gateway": 502,
    "unavailable": 503, "unavailable_error": 503, "service_unavailable": 503, "overloaded": 503,
    "overloaded_error": 503, "engine_overloaded": 503,
}  # fmt: skip
"""HTTP status that corresponds to an error's `code`, `type` or (Google) `status`, in lower case, as sent by providers.
Needed for errors in the body of a reply with status 200."""

_ERROR_FINISHES = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})
"""Finish reasons that OpenRouter, vLLM, SGLang, Zhipu and DeepSeek document as failures of the server."""

_DROP_IT = "remove it from the sampling arguments"

_COMPLETION_TOKENS = re.compile(
    r"\bmax_tokens\b.{0,160}?\b(?:use|try|with)\b\W{0,3}(?:the\W+)?(?:parameter\W+)?max_completion_tokens",
    re.DOTALL | re.IGNORECASE,
)
"""Pattern of the message with which OpenAI's reasoning models reject `max_tokens`, also as quoted by a proxy."""

_MODERATION_WORDS = re.compile(r"moderation|flagged", re.IGNORECASE)
"""Pattern of OpenRouter's message for a prompt that its moderation rejects. Any other 403 means a rejected key."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt at a request."""

    kind: Kind
    reason: str
    """Short reason, as in `ModelError.reason`."""
    detail: str
    """Description that can be used as part of a sentence; redacted and shortened."""
    retry: bool
    """Whether the same request may succeed later."""
    status: int | None = None
    retry_after: float | None = None
    """Seconds to wait, as requested by the endpoint."""
    denied: bool = False
    """Whether the endpoint rejected the key, quota or model, so that every request will probably fail."""
    too_long: bool = False
    """Whether the prompt exceeds the context window."""
    slow: bool = False
    """Whether no connection was made within the connect timeout."""
    usage: Usage | None = None
    """Usage reported by a reply that cannot be used."""
    advice: str = ""
    """Advice that is more specific than the general advice for `reason`."""
    wants_completion_tokens: bool = False
    """Whether the model requires `max_completion_tokens` instead of `max_tokens`."""
    resend: bool = False
    """Whether the provider has adapted its request. It is then sent again at once, and the failure is not counted as an
    attempt."""

    def error(self, label: str, attempts: int, wasted: Usage | None = None) -> ModelError:
        """Create the exception for a call that ends with this failure.

        Args:
            label: Name of the endpoint for messages.
            attempts: Number of requests that were sent for the call.
            wasted: Usage of failed replies of the call.
        """
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        advice = self.advice or _ADVICE.get(self.reason)
        message = f"{label}: {self.detail}{tries}" + (f"; {advice}" if advice else "")
        if self.too_long:
            error: ModelError = ContextLengthError(message, status=self.status, reason="context_length")
        else:
            kind = ResponseError if self.kind in ("reply", "page") else ModelError
            error = kind(message, status=self.status, retryable=self.retry, reason=self.reason)
        error.wasted = wasted
        return error


def without_advice(error: ModelError) -> tuple[str, str]:
    """Return the message of an error created by `Failure.error` without the advice at its end, and the reason to give
    advice for: that of the error, or `server_error` if the provider itself describes an error in a 200 reply."""
    text, advices = str(error), {**_ADVICE, "bad_request": _DROP_IT}
    given = (reason for reason in (error.reason, "server_error") if text.endswith(f"; {advices.get(reason)}"))
    reason = next(given, error.reason)
    return text.removesuffix(f"; {advices.get(reason)}"), reason


class AttemptFailed(Exception):
    """Raised by a provider when an attempt to send a request failed.

    Args:
        failure: Description of the failure, including whether to retry.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def from_status(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Failure:
    """Create the failure for an HTTP status of 300 or more.

    Args:
        status: 300 to 599.
        body: Body of the reply, whole or only the beginning.
        headers: Headers of the reply, which may contain the time of the next retry or the target of a redirect.
    """
    headers = headers or {}
    if status < 400:
        detail = f"HTTP {status} redirects to {clean(headers.get('Location', ''))}, but redirects are not followed"
        return Failure("status", "not_found", detail, False, status, denied=True)
    code, words = read_error(body)
    too_long = status in (400, 413, 422) and (code in _CONTEXT_CODES or bool(_CONTEXT_WORDS.search(words)))
    unknown_model = status in (400, 404) and (code in _UNKNOWN_MODEL_CODES or bool(_UNKNOWN_MODEL_WORDS.search(words)))
    out_of_quota = status == 429 and code in _QUOTA_CODES
    moderated = status == 403 and bool(_MODERATION_WORDS.search(words))
    if moderated:
        reason = "bad_request"
    elif out_of_quota:
        reason = "auth"
    elif unknown_model and not too_long:
        reason = "not_found"
    else:
        reason = _REASONS.get(status) or ("server_error" if status >= 500 else "bad_request")
    return Failure(
        "status",
        reason,
        f"HTTP {status}" + (f": {clean(words)}" if words.strip() else ""),
        retryable_status(status) and not out_of_quota,
        status,
        read_retry_after(headers, status),
        denied=reason in ("auth", "not_found") and not too_long,
        too_long=too_long,
        advice=_DROP_IT if reason == "bad_request" and code in ("unsupported_parameter", "unsupported_value") else "",
        # Searched in the whole body, since routers include the provider's message beside their own.
        wants_completion_tokens=status in (400, 422)
        and b"max_completion_tokens" in body
        and bool(_COMPLETION_TOKENS.search(body.decode("utf-8", "replace"))),
    )


def error_inside(reply: Mapping[str, object], choice: Mapping[str, object] | None) -> Failure | None:
    """Parse an error inside a reply with a 2xx status. Returns None if the reply contains no error.

    Args:
        reply: The decoded body of the reply.
        choice: The choice that would be used; None if the reply has none.
    """
    if choice is not None:
        finish = choice.get("finish_reason")
        if "error" in choice and (failure := _named_error(choice)) is not None:
            return failure
        if isinstance(finish, str) and finish.lower() in _ERROR_FINISHES:
            return _named_error(reply) or _unnamed_status(f"the finish_reason is `{finish}`")
    if "error" in reply and (failure := _named_error(reply)) is not None:
        return failure
    if "base_resp" in reply and (failure := _minimax_error(reply["base_resp"])) is not None:
        return failure
    if choice is not None and reply.get("object") != "error":
        return None
    return _bare_error(reply)


def _named_error(fields: Mapping[str, object]) -> Failure | None:
    """Parse the field `error` of a reply; None if it is empty: some servers always send null, {} or empty fields."""
    error = fields.get("error")
    if _is_empty(error):
        return None
    named = "code" if isinstance(error, int) and not isinstance(error, bool) else "message"
    own = cast("Mapping[str, object]", error) if isinstance(error, dict) else {named: error}
    # FastAPI and others send the status beside an error that is only text.
    beside = {name: fields[name] for name in ("code", "status", "status_code") if name in fields}
    return _from_fields({**beside, **own})


def _minimax_error(base: object) -> Failure | None:
    """Parse the field `base_resp` of a reply, in which MiniMax sends errors; None if the field reports success."""
    fields = json_object(base)
    if _is_empty(fields.get("status_code")):
        return None
    code = str(fields["status_code"])
    status = {"1002": 429, "1004": 401, "1008": 402, "1039": 429, "2013": 400, "2049": 401}.get(code)
    return _from_fields({"message": fields.get("status_msg") or f"status_code {code}", "code": status})


def _bare_error(reply: Mapping[str, object]) -> Failure | None:
    """Parse a reply without choices whose whole body is an error, as sent by vLLM, FastAPI and Cloudflare."""
    for name in ("detail", "errors"):
        if not _is_empty(found := reply.get(name)):
            first: object = cast("list[object]", found)[0] if isinstance(found, list) else found
            return _named_error({**reply, "error": first})
    if reply.get("object") == "error" or (isinstance(reply.get("message"), str) and reply["message"]):
        return _from_fields(reply)
    return None


def _from_fields(error: Mapping[str, object]) -> Failure:
    """Create the failure for a decoded error object of a provider."""
    status = next(
        (found for name in ("code", "status", "status_code", "type") if (found := _status_in(error, name))), 0
    )
    if status:
        return from_status(status, orjson.dumps({"error": error}, default=str))
    words = error.get("message") or error.get("msg") or error.get("code") or error.get("type")
    text = words if isinstance(words, str) else orjson.dumps(words or error, default=str).decode()
    return _unnamed_status(f"the reply contains an error: {clean(text)}")


def _unnamed_status(detail: str) -> Failure:
    """Create the failure for an error of the provider that corresponds to no HTTP status. The provider has answered as
    an API, so the base URL is right."""
    return replace(bad_reply(detail), advice=_ADVICE["server_error"])


def _status_in(error: Mapping[str, object], name: str) -> int:
    """Return the HTTP status that a field of an error corresponds to; 0 if there is none."""
    value = error.get(name)
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) == 3 else _STATUS_OF_CODE.get(value.lower(), 0)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else 0


def _is_empty(value: object) -> bool:
    """Return whether a field is empty: null, false, 0, "", or a table or list of such values."""
    if isinstance(value, dict):
        return all(_is_empty(each) for each in cast("dict[str, object]", value).values())
    if isinstance(value, list):
        return all(_is_empty(each) for each in cast("list[object]", value))
    return not value or value == "0"


BROKE_OFF = Failure("broken", "connection", "the reply broke off in the middle", True)
"""Failure for a reply of which only the beginning was received."""


def bad_reply(detail: str, status: int = 200, *, kind: Kind = "reply") -> Failure:
    """Create the failure for a reply with a 2xx status that is not a model's reply."""
    return Failure(kind, "bad_response", f"HTTP {status}, but {detail}", True, status)


def timed_out(seconds: float) -> Failure:
    """Create the failure for a request without a complete reply within `request_timeout`."""
    return Failure("timeout", "timeout", f"no reply within {seconds:g} s (request_timeout)", True)


def read_error(body: bytes) -> tuple[str, str]:
    """Parse code and message of an error body in any known format; otherwise the whole body is the message."""
    try:
        error = unlisted(orjson.loads(body))
    except orjson.JSONDecodeError:
        error = None
    if fields := json_object(error):
        error = fields.get("error") or fields.get("detail") or fields
    if fields := json_object(error):
        code = fields.get("code") or fields.get("type") or ""
        message = fields.get("message") or fields.get("msg")
        return str(code), message if isinstance(message, str) else orjson.dumps(fields).decode()
    return "", error if isinstance(error, str) else body[: DETAIL_LENGTH * 4].decode("utf-8", "replace")


def unlisted(value: object) -> object:
    """Return the only entry of a list, or any other value unchanged. Google sends errors as lists with one entry."""
    entries = cast("list[object]", value) if isinstance(value, list) else ()
    return entries[0] if len(entries) == 1 else cast("object", value)


def json_object(value: object) -> JsonDict:
    """Return the value if it is a JSON object, otherwise an empty object."""
    return cast("JsonDict", value) if isinstance(value, dict) else {}


def clean(text: str) -> str:
    """Make a provider's text fit for a message: one short line without secrets or control characters."""
    # Redact before cutting: the redactor does not recognise a part of a key.
    line = redactor.text(" ".join(text[: DETAIL_LENGTH * 20].split()))
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= DETAIL_LENGTH else line[: DETAIL_LENGTH - 1] + "…"
