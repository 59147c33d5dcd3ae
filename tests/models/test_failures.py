"""What an error means, and that its words hold no secrets."""

from __future__ import annotations

import json

import pytest

from harness.core.errors import ContextLengthError, ModelError, ResponseError
from harness.core.redact import redactor
from harness.models.failures import DETAIL_LENGTH, bad_reply, clean, from_status, timed_out


def body(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "reason", "retry"),
    [
        (400, "bad_request", False), (401, "auth", False), (402, "auth", False), (403, "auth", False),
        (404, "not_found", False), (405, "not_found", False), (408, "timeout", True), (409, "server_error", True),
        (422, "bad_request", False), (429, "rate_limit", True), (500, "server_error", True),
        (503, "server_error", True), (529, "server_error", True),
    ],
)  # fmt: skip
def test_statuses(status: int, reason: str, retry: bool) -> None:
    failure = from_status(status, body("words"))
    assert (failure.reason, failure.retry, failure.status) == (reason, retry, status)
    assert failure.denied == (reason in ("auth", "not_found"))


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (400, body("x", code="context_length_exceeded")),
        (400, body("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens")),
        (400, body("This model's maximum context length is 262144 tokens. However, you requested 0 output tokens")),
        (400, body("the model's context length is only 1024 tokens", code=400)),
        (400, body("Input length (265330) exceeds model's maximum context length (262144).")),
        (400, body("Input length 877338 exceeds the maximum allowed input length of 639968 tokens", code="400")),
        (400, body("prompt is too long: 200001 tokens > 200000 maximum", type="invalid_request_error")),
        (400, body("input length and `max_tokens` exceed context limit: 174167 + 64000 > 200000")),
        (400, body("the request exceeds the available context size", type="exceed_context_size_error")),
        (400, body("This model's maximum prompt length is 131072 but the request contains 537812 tokens")),
        (400, body("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)")),
        (400, body("too many tokens: total number of tokens in the prompt cannot exceed 4081")),
        (422, b'{"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"}'),
        (413, body("Input is too long for requested model.")),
        (400, b'{"object":"error","message":"The decoder prompt is longer than the maximum model length of 2048"}'),
        (400, body("Please reduce the length of the messages or completion")),
    ],
)
def test_a_prompt_that_does_not_fit_is_recognised(status: int, raw: bytes) -> None:
    failure = from_status(status, raw)
    assert failure.too_long
    assert not failure.retry
    assert not failure.denied
    error = failure.error("host", 1)
    assert isinstance(error, ContextLengthError)
    assert not error.retryable


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (429, body("Too many tokens, please wait before trying again. Reduce the length of the prompt")),
        (400, body("max_tokens is too large: 100000. This model supports at most 16384 completion tokens")),
        (400, body("Unsupported value: 'temperature'")),
        (503, body("context length service unavailable")),
    ],
)
def test_other_errors_are_not_taken_for_it(status: int, raw: bytes) -> None:
    assert not from_status(status, raw).too_long


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (400, body("Model Not Exist")),
        (400, body("Invalid model: foo", type="invalid_model")),
        (404, body("The model `foo` does not exist or you do not have access to it.", code="model_not_found")),
    ],
)
def test_an_unknown_model_is_a_denial(status: int, raw: bytes) -> None:
    failure = from_status(status, raw)
    assert (failure.reason, failure.denied) == ("not_found", True)


def test_an_empty_account_is_not_waited_for() -> None:
    failure = from_status(429, body("You exceeded your current quota", code="insufficient_quota"))
    assert (failure.reason, failure.retry, failure.denied) == ("auth", False, True)


def test_a_flagged_prompt_is_not_a_bad_key() -> None:
    failure = from_status(403, body("Your input was flagged by moderation"))
    assert (failure.reason, failure.denied) == ("bad_request", False)


def test_a_redirect_says_where_to() -> None:
    failure = from_status(308, b"", {"Location": "https://elsewhere.example/v1"})
    assert failure.denied
    assert "https://elsewhere.example/v1" in failure.detail


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"<html>Bad Gateway</html>",
        b'"text"',
        b"[1]",
        b'{"error": "flat"}',
        b'{"detail": [{"msg": 1}]}',
    ],
)
def test_any_body_makes_a_message(raw: bytes) -> None:
    assert from_status(502, raw).detail.startswith("HTTP 502")


def test_a_message_names_the_endpoint_the_attempts_and_the_next_step() -> None:
    error = from_status(429, body("slow down")).error("api.example", 7)
    assert type(error) is ModelError
    assert str(error) == (
        "api.example: HTTP 429: slow down (7 attempts); "
        "lower max_concurrent, or set rpm and tpm to the endpoint's limits"
    )
    assert (error.status, error.retryable, error.reason) == (429, True, "rate_limit")
    assert timed_out(2.5).error("h", 1).reason == "timeout"
    bad = bad_reply("the body is empty").error("h", 3)
    assert isinstance(bad, ResponseError)
    assert (bad.reason, bad.retryable) == ("bad_response", True)


def test_long_and_dirty_provider_text_is_cut_and_cleaned() -> None:
    redactor.add("canary-failures-1")
    text = "bad\x1b[31m\u202e key canary-failures-1 " + "x" * 5000
    message = clean(text)
    assert len(message) == DETAIL_LENGTH
    assert message.startswith("bad?[31m? key [redacted]")


def test_a_key_at_the_cut_is_redacted_first() -> None:
    redactor.add("canary-failures-2")
    assert "canary" not in clean("x" * (DETAIL_LENGTH - 8) + "canary-failures-2")
