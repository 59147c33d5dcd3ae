"""What went wrong with one attempt at a request, in words and in kind. Owns the meaning of statuses and error bodies
and the messages that people read; decides neither when to retry (`retry`) nor whether the endpoint is dead (`health`).

Nothing here ever holds a key or a request header; provider text is redacted and cut."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import orjson

from harness.clients.retry import retryable_status
from harness.errors import ContextLengthError, ModelError, ResponseError
from harness.redact import redactor
from harness.types import Usage

DETAIL_LENGTH = 300
"""Characters of a provider's own words that a message keeps: enough for its sentence, not for its HTML."""

Kind: TypeAlias = Literal["status", "reply", "page", "timeout", "unreachable", "broken", "unsent"]
"""`status` an HTTP error; `reply` a 2xx that is no reply; `page` one that no such API would send; `timeout` nothing
within `request_timeout`; `unreachable` no connection (nothing was sent); `broken` a connection that died, or that does
not speak HTTP; `unsent` a request that this side cannot send."""

_REASONS = {
    401: "auth", 402: "auth", 403: "auth", 404: "not_found", 405: "not_found", 408: "timeout",
    409: "server_error", 429: "rate_limit",
}  # fmt: skip

_ADVICE = {
    "rate_limit": "lower max_concurrent, or set rpm and tpm to the endpoint's limits",
    "timeout": "raise request_timeout, or set max_tokens",
    "server_error": "try again later (--retry-failed)",
    "connection": "try again later (--retry-failed)",
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
"""How OpenAI, Azure, vLLM, SGLang, TGI, llama.cpp, Anthropic, Google, Bedrock, Mistral, Cohere, xAI, GLM and the
routers in front of them say that a prompt does not fit. Read for 400, 413 and 422 only, so that a throttled request
("too many tokens, please wait") is never taken for one."""

_CONTEXT_STATUS = frozenset({400, 413, 422})

_UNKNOWN_MODEL_CODES = frozenset({"model_not_found", "invalid_model", "unknown_model"})
_UNKNOWN_MODEL_WORDS = re.compile(
    r"\bmodel\b.{0,120}\b(?:not exist|not found|not a valid)\b|\b(?:invalid|unknown|no such) model\b", re.IGNORECASE
)

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""A 429 that time does not heal."""

_MODERATION_WORDS = re.compile(r"moderation|flagged", re.IGNORECASE)
"""A 403 about this prompt, not about the key (OpenRouter)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that brought no reply."""

    kind: Kind
    reason: str
    """As in `ModelError.reason`."""
    detail: str
    """What happened, as part of a sentence; redacted and cut."""
    retry: bool
    """Whether the same request may succeed later."""
    status: int | None = None
    retry_after: float | None = None
    """Seconds that the endpoint asked to wait."""
    denied: bool = False
    """Bad key, no quota or unknown model: a sign that every request will fail."""
    too_long: bool = False
    slow: bool = False
    """Whether it is our own patience that ran out."""
    usage: Usage | None = None
    """Of a reply that says what it took, and cannot be used all the same."""

    def error(self, label: str, attempts: int, wasted: Usage | None = None) -> ModelError:
        """The exception for a call that ends with this failure.

        Args:
            label: The endpoint, as people know it.
            attempts: Requests made for the call.
            wasted: What the replies among them took.
        """
        error = self._error(label, attempts)
        error.wasted = wasted
        return error

    def _error(self, label: str, attempts: int) -> ModelError:
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        advice = _ADVICE.get(self.reason)
        message = f"{label}: {self.detail}{tries}" + (f"; {advice}" if advice else "")
        if self.too_long:
            return ContextLengthError(message, status=self.status, reason="context_length")
        if self.kind in ("reply", "page"):
            return ResponseError(message, status=self.status, retryable=self.retry, reason=self.reason)
        return ModelError(message, status=self.status, retryable=self.retry, reason=self.reason)


def without_advice(error: ModelError) -> str:
    """The message of `Failure.error` without what runs can do about it, for whoever says that in other words."""
    advice = _ADVICE.get(error.reason)
    return str(error).removesuffix(f"; {advice}") if advice else str(error)


class WireFault(Exception):
    """An attempt failed below HTTP, or its body is beyond reading."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def from_status(status: int, body: bytes, retry_after: float | None = None, location: str | None = None) -> Failure:
    """Read an HTTP error.

    Args:
        status: 300 to 599.
        body: Of the reply, whole or its beginning.
        retry_after: Seconds from the reply's headers.
        location: Where a redirect points.
    """
    if status < 400:
        detail = f"HTTP {status} redirects to {clean(location or '')}, which is not followed"
        return Failure("status", "not_found", detail, False, status, denied=True)
    code, words = read_error(body)
    too_long = status in _CONTEXT_STATUS and (code in _CONTEXT_CODES or bool(_CONTEXT_WORDS.search(words)))
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
        retry_after,
        denied=reason in ("auth", "not_found") and not too_long,
        too_long=too_long,
    )


def bad_reply(detail: str, status: int = 200, *, kind: Kind = "reply") -> Failure:
    """A 2xx whose body is no model reply."""
    return Failure(kind, "bad_response", f"HTTP {status}, but {detail}", True, status)


def timed_out(seconds: float) -> Failure:
    """No whole reply within `request_timeout`."""
    return Failure("timeout", "timeout", f"no reply within {seconds:g} s (request_timeout)", True)


def read_error(body: bytes) -> tuple[str, str]:
    """Code and message of an error body in any of the shapes in use; unknown shapes are their own message."""
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", body[: DETAIL_LENGTH * 4].decode("utf-8", "replace")
    error = value
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        error = fields.get("error") or fields.get("detail") or fields
    if isinstance(error, dict):
        fields = cast("dict[str, object]", error)
        code = fields.get("code") or fields.get("type") or ""
        message = fields.get("message") or fields.get("msg")
        return str(code), message if isinstance(message, str) else orjson.dumps(fields).decode()
    return "", error if isinstance(error, str) else body[: DETAIL_LENGTH * 4].decode("utf-8", "replace")


def clean(text: str) -> str:
    """Foreign text made fit for a message: one line, no secrets, no control characters, cut to `DETAIL_LENGTH`."""
    # Redact before cutting: half a key would no longer be recognised.
    line = redactor.text(" ".join(text[: DETAIL_LENGTH * 20].split()))
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= DETAIL_LENGTH else line[: DETAIL_LENGTH - 1] + "…"
