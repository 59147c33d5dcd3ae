"""Request bodies and replies, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import ConfigError, ModelError, ResponseError
from harness.core.redact import redactor
from harness.core.types import ModelCall, ModelResponse, Usage
from harness.models.failures import Failure
from harness.models.wire import (
    asked_output_tokens,
    build_request,
    check_sampling_args,
    check_settings_of_sampling,
    estimate_prompt_tokens,
    is_another_model,
    merge_sampling_args,
    read_reply,
    read_usage,
)

MESSAGES = [{"role": "user", "content": "hi"}]


def built(call: ModelCall) -> dict[str, Any]:
    return json.loads(build_request(call))


def reply(message: object, finish: object = "stop", **fields: object) -> bytes:
    return json.dumps(
        {"id": "r1", "model": "m-1", "choices": [{"message": message, "finish_reason": finish}], **fields}
    ).encode()


def good(body: bytes, *, is_chat: bool = True) -> ModelResponse:
    read = read_reply(body, 200, is_chat=is_chat)
    assert isinstance(read, ModelResponse), read
    return read


def bad(body: bytes, *, is_chat: bool = True) -> Failure:
    read = read_reply(body, 200, is_chat=is_chat)
    assert isinstance(read, Failure), read
    return read


def test_sampling_args_go_as_they_are() -> None:
    call = ModelCall(
        "m", MESSAGES, [{"type": "function"}],
        {"max_tokens": 5, "temperature": 0.0, "top_p": None, "extra_body": {"top_k": 3, "min_p": None}},
    )  # fmt: skip
    assert json.loads(build_request(call)) == {
        "model": "m", "messages": MESSAGES, "tools": [{"type": "function"}],
        "max_tokens": 5, "temperature": 0.0, "top_k": 3, "min_p": None,
    }  # fmt: skip


def test_a_string_prompt_is_a_text() -> None:
    body = build_request(ModelCall("m", "Once upon", sampling_args={"stop": ["\n"]}))
    assert json.loads(body) == {"model": "m", "prompt": "Once upon", "stop": ["\n"]}


def test_what_orjson_refuses_and_json_allows_is_sent() -> None:
    sent = built(ModelCall("m", [{"role": "user", "content": "\ud83d lone"}], sampling_args={"seed": 2**70}))
    assert sent["seed"] == 2**70
    assert sent["messages"][0]["content"] == "\ud83d lone"


def test_what_is_no_json_is_an_error_of_this_call() -> None:
    with pytest.raises(ModelError, match="cannot be written as JSON") as caught:
        build_request(ModelCall("m", [{"role": "user", "content": object()}]))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "args", [{"stream": True}, {"n": 2}, {"extra_body": {"stream": True}}, {"extra_body": {"n": 4}}]
)
def test_replies_that_would_not_be_read_are_not_asked_for(args: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"sampling_args\."):
        check_sampling_args(args)
    check_sampling_args({"n": 1, "stream": False, "extra_body": {}})


@pytest.mark.parametrize("args", [{"model": "x"}, {"messages": []}, {"prompt": "x"}, {"extra_body": {"model": "x"}}])
def test_settings_do_not_ask_for_another_model_or_question_than_the_one_on_record(args: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^sampling_args\.(\w+) would replace the \1 that the run records; "):
        check_settings_of_sampling(args)
    check_sampling_args(args)  # an agent may
    with pytest.raises(ConfigError, match=r"^sampling_args\.n is 2, "):
        check_settings_of_sampling({"n": 2})


@pytest.mark.parametrize("args", [{"api_key": "canary-0123"}, {"extra_body": {"api_key": "canary-0123"}}])
def test_a_key_is_no_sampling_argument(args: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_sampling_args(args)
    assert str(caught.value) == (
        "sampling_args must not contain an api_key, because runs record sampling arguments; set the name of an "
        "environment variable with the key instead"
    )
    assert redactor.text(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html></html>", "page"), (b"", "page"), (b"null", "page"), (b"[]", "page"), (b"OK", "page"),
        (b'data: {"id": 1}', "page"), (b' {"id": "x", "choices": [{"mess', "reply"), (b'{"choices": []}', "reply"),
    ],
)  # fmt: skip
def test_what_no_api_would_send_is_told_from_an_api_with_bad_luck(body: bytes, kind: str) -> None:
    failure = read_reply(body, 200, is_chat=True)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.reason, failure.retry) == (kind, "bad_response", True)
    assert type(failure.error("host", 1)) is ResponseError


def test_a_calls_arguments_lie_over_the_runs() -> None:
    base = {"temperature": 1.0, "max_tokens": 10, "extra_body": {"a": 1, "b": 2}}
    over = {"max_tokens": None, "extra_body": {"b": 3}}
    merged = merge_sampling_args(base, over)
    assert merged == {"temperature": 1.0, "max_tokens": None, "extra_body": {"a": 1, "b": 3}}
    assert base["extra_body"] == {"a": 1, "b": 2}
    assert built(ModelCall("m", MESSAGES, sampling_args=merged)) == {
        "model": "m", "messages": MESSAGES, "temperature": 1.0, "a": 1, "b": 3,
    }  # fmt: skip


@pytest.mark.parametrize("content", ["text", "", None, [{"type": "text", "text": "part"}]])
def test_any_content_is_an_answer(content: object) -> None:
    response = good(reply({"role": "assistant", "content": content}))
    assert response.message == {"role": "assistant", "content": content}
    assert (response.id, response.model, response.finish_reason) == ("r1", "m-1", "stop")


def test_a_message_without_content_has_none() -> None:
    assert good(reply({"role": "assistant"})).message["content"] is None


def test_truncation_and_refusal_are_answers() -> None:
    assert good(reply({"content": "abc"}, "length")).is_truncated
    refused = good(reply({"content": None, "refusal": "I will not"}))
    assert refused.is_refusal
    assert refused.message["refusal"] == "I will not"
    filtered = good(reply({"content": ""}, "content_filter"))
    assert filtered.is_refusal
    assert filtered.message["refusal"] == "content_filter"  # the transcript alone must tell


def test_nulls_and_empty_lists_go_other_fields_stay() -> None:
    raw = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "tool_calls": [], "signature": "s"}
    assert good(reply(raw)).message == {"role": "assistant", "content": "x", "signature": "s"}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_has_one_name(name: str) -> None:
    message = good(reply({"content": "42", name: "because"})).message
    assert message == {"role": "assistant", "content": "42", "reasoning_content": "because"}


def test_tool_calls_keep_their_text_even_if_it_is_no_json() -> None:
    arguments = '{"city": "Paris",,}"'
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
        "extra_content": {"k": 1},
    }
    message = good(reply({"content": None, "tool_calls": [call]}, "tool_calls")).message
    assert message["tool_calls"] == [call]


def test_sloppy_tool_calls_are_completed() -> None:
    raw = [
        {"function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "x", "function": {"name": "g", "arguments": None}},
    ]
    calls = good(reply({"content": "", "tool_calls": raw})).message["tool_calls"]
    assert calls == [
        {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "x", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]


def test_a_completion_is_a_message_too() -> None:
    body = json.dumps({"choices": [{"text": " there was", "finish_reason": "length"}]}).encode()
    response = good(body, is_chat=False)
    assert response.message == {"role": "assistant", "content": " there was"}
    assert response.is_truncated


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b'{"choices": [{"mess', "not a JSON object"),
        (b"<!doctype html><html>Sign in</html>", "web page"),
        (b'data: {"choices": []}\n\ndata: [DONE]\n', "event stream"),
        (b"[]", "not a JSON object"),
        (b'{"choices": []}', "list of choices is empty"),
        (b'{"choices": null}', "list of choices is empty"),
        (b'{"choices": [null]}', "list of choices is empty"),
        (b'{"choices": [{"finish_reason": "stop"}]}', "no message"),
        (b'{"choices": [{"message": {"content": 7}}]}', "content of the message has the wrong type int"),
        (b'{"choices": [{"message": {"tool_calls": [{"id": "1"}]}}]}', "a tool call has no function name"),
        (b'{"choices": [{"message": {"tool_calls": "f()"}}]}', "a tool call has no function name"),
        (b'{"choices": [{"message": {"content": "half"}, "finish_reason": "error"}]}', "finish_reason is `error`"),
        (b'{"error": {"message": "upstream died"}}', "upstream died"),
    ],
)
def test_what_is_no_reply_is_named(body: bytes, words: str) -> None:
    failure = bad(body)
    assert words in failure.detail
    assert (failure.reason, failure.retry) == ("bad_response", True)


def test_completions_need_text() -> None:
    assert "no text" in bad(b'{"choices": [{"message": {"content": "x"}}]}', is_chat=False).detail
    assert "wrong type list" in bad(b'{"choices": [{"text": []}]}', is_chat=False).detail


ANSWER: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
MINIMAX = {"status_code": 1002, "status_msg": "rate limit"}
FILTER_DOWN = {"error": {"code": "content_filter_error", "message": "The contents are not filtered"}}


@pytest.mark.parametrize(
    ("more", "in_choice", "becomes"),
    [
        # What the schema of a provider calls an error, beside a whole answer.
        ({"error": {"message": "x", "code": 429}}, {}, (429, "rate_limit", True)),
        ({"error": {"message": "x", "code": "502"}}, {"finish_reason": None}, (502, "server_error", True)),
        ({"error": {"code": 503}}, {"finish_reason": "length"}, (503, "server_error", True)),
        ({"error": "upstream died"}, {}, (200, "bad_response", True)),
        ({"error": True}, {}, (200, "bad_response", True)),
        ({"error": 500}, {}, (500, "server_error", True)),
        ({"error": "no key", "status": 401}, {}, (401, "auth", False)),
        ({"error": {"message": "x", "type": "overloaded_error"}}, {}, (503, "server_error", True)),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}}, {}, (429, "rate_limit", True)),
        ({"error": {"code": "insufficient_quota", "message": "x"}}, {}, (429, "auth", False)),
        ({"error": {"code": 1302, "message": "x"}}, {}, (200, "bad_response", True)),
        ({"error": {"code": 403, "message": "flagged by moderation"}}, {}, (403, "bad_request", False)),
        ({"object": "error", "message": "x", "code": 400}, {}, (400, "bad_request", False)),
        ({"base_resp": MINIMAX}, {}, (429, "rate_limit", True)),
        ({}, {"error": {"message": "x", "code": 500}}, (500, "server_error", True)),
        ({}, {"error": "cut off"}, (200, "bad_response", True)),
        ({}, {"finish_reason": "error"}, (200, "bad_response", True)),
        ({}, {"finish_reason": "insufficient_system_resource"}, (200, "bad_response", True)),
        # Without a choice.
        ({"choices": [], "error": {"code": 429}}, None, (429, "rate_limit", True)),
        ({"choices": None, "detail": "x", "status_code": 401}, None, (401, "auth", False)),
        ({"detail": [{"msg": "field required", "type": "missing"}]}, None, (200, "bad_response", True)),
        ({"object": "error", "message": "x", "type": "BadRequestError"}, None, (400, "bad_request", False)),
        ({"success": False, "errors": [{"code": 7000, "message": "x"}]}, None, (200, "bad_response", True)),
        # No error, though the word stands there.
        ({"error": None}, {"error": None}, None),
        ({"error": {}}, {"error": {"message": "", "code": None}}, None),
        ({"error": ""}, {"error": False}, None),
        ({"error": {"code": 0, "message": ""}}, {}, None),
        ({"base_resp": {"status_code": 0, "status_msg": ""}}, {}, None),
        ({"code": 0, "message": "success", "detail": "x"}, {}, None),
        ({}, {"content_filter_results": FILTER_DOWN}, None),
        # Nor does any provider's schema have these beside an answer.
        ({"errors": [{"message": "x"}]}, {}, None),
        ({}, {"message": {"role": "assistant", "content": "4", "error": "x"}}, None),
    ],
)  # fmt: skip
def test_an_error_inside_a_200_is_one_whatever_stands_beside_it(
    more: dict[str, Any], in_choice: dict[str, Any] | None, becomes: tuple[int, str, bool] | None
) -> None:
    body = more if in_choice is None else {"choices": [{**ANSWER, **in_choice}], **more}
    read = read_reply(json.dumps(body).encode(), 200, is_chat=True)
    if becomes is None:
        assert isinstance(read, ModelResponse) and read.message["content"] == "4"
    else:
        assert isinstance(read, Failure), "this would be scored"
        assert (read.status, read.reason, read.retry) == becomes


def test_an_error_in_googles_list_of_one_counts_as_its_own_status() -> None:
    failure = bad(b'[{"error": {"code": 400, "message": "API key not valid", "status": "INVALID_ARGUMENT"}}]')
    assert (failure.status, failure.detail) == (400, "HTTP 400: API key not valid")


@pytest.mark.parametrize("indices", [(1, 0), (2, 0, 1), (None, 0), (0, 0)])
def test_of_several_choices_that_of_index_0_is_used(indices: tuple[int | None, ...]) -> None:
    choices = [{**ANSWER, "index": index, "message": {"content": str(index)}} for index in indices]
    assert good(json.dumps({"choices": choices}).encode()).message["content"] == "0"


def test_nan_and_lone_surrogates_do_not_cost_the_answer() -> None:
    body = b'{"choices": [{"message": {"content": "a\\ud83d b"}, "logprobs": {"x": -Infinity, "y": NaN}}]}'
    assert good(body).message["content"] == "a\ufffd b"


def test_usage_is_read_in_full() -> None:
    assert read_usage({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}) == Usage(3, 4, requests=1)
    full = {
        "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "cost": 0.25,
        "completion_tokens_details": {"reasoning_tokens": 15, "audio_tokens": None},
        "prompt_tokens_details": {"cached_tokens": 8},
    }  # fmt: skip
    assert read_usage(full) == Usage(10, 20, 15, 8, requests=1, cost=0.25)
    deepseek = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "prompt_cache_hit_tokens": 6}
    assert read_usage(deepseek).cached_tokens == 6


@pytest.mark.parametrize(
    ("asked", "answered", "is_another"),
    [
        ("gpt-4.1-mini", "gpt-4.1-mini-2025-04-14", False),
        ("openai/gpt-4o", "gpt-4o-2024-08-06", False),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", False),
        ("qwen3", "/models/Qwen3.gguf", False),
        ("gpt-4o", "gpt-3.5-turbo", True),
        ("gpt-4.1", "gpt-4.1-mini", True),
        ("gpt-4.1", "gpt-4.1-nano-2025-04-14", True),
        ("llama-3.1-8b", "meta/Llama-3.1-8B-Instruct-Turbo", False),
        ("my-model", "another-model", True),
    ],
)
def test_another_model_is_told_from_a_longer_name(asked: str, answered: str, is_another: bool) -> None:
    assert is_another_model(asked, answered) is is_another


@pytest.mark.parametrize("number", [-1, True, 2**62, 1.5, "7"])
def test_a_count_that_cannot_be_one_is_unknown(number: object) -> None:
    assert read_usage({"prompt_tokens": number, "completion_tokens": 3}) == Usage(requests=1, unreported=1)
    details = {"reasoning_tokens": number}
    whole = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4, "completion_tokens_details": details}
    assert read_usage(whole) == Usage(1, 3, requests=1)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, "0.1"])
def test_a_cost_that_cannot_be_one_is_unknown(cost: object) -> None:
    assert read_usage({"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4, "cost": cost}).cost is None


@pytest.mark.parametrize("role", ["assistant", "user", "tool", "model", 7, None, ""])
def test_a_reply_is_the_assistants(role: object) -> None:
    assert good(reply({"role": role, "content": "x"})).message == {"role": "assistant", "content": "x"}


def test_ids_of_tool_calls_are_texts() -> None:
    function = {"name": "f", "arguments": "{}"}
    raw = [{"id": 7, "type": None, "function": function}, {"id": ["x"], "type": {}, "function": function}]
    calls = good(reply({"content": None, "tool_calls": raw})).message["tool_calls"]
    assert [(call["id"], call["type"]) for call in calls] == [("7", "function"), ("call_1", "function")]


@pytest.mark.parametrize("usage", [None, {}, [], "x", {"prompt_tokens": None, "completion_tokens": 3}])
def test_missing_usage_is_unknown_not_zero(usage: object) -> None:
    assert read_usage(usage) == Usage(requests=1, unreported=1)


def test_estimates_for_pacing() -> None:
    assert estimate_prompt_tokens("x" * 400) == 101
    parts = [{"type": "text", "text": "x" * 40}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert estimate_prompt_tokens([{"role": "user", "content": parts}, {"role": "user", "content": "y" * 40}]) == 1024
    assert asked_output_tokens(ModelCall("m", "x", sampling_args={"max_tokens": 7})) == 7
    assert asked_output_tokens(ModelCall("m", "x", sampling_args={"max_completion_tokens": 9, "max_tokens": 7})) == 9
    assert asked_output_tokens(ModelCall("m", "x")) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    max_leaves=8,
)


@given(json_values, json_values, json_values, st.booleans())
def test_no_json_body_crashes_the_reader(message: object, usage: object, finish: object, is_chat: bool) -> None:
    body = {"choices": [{"message": message, "text": message, "finish_reason": finish}], "usage": usage, "error": usage}
    assert isinstance(read_reply(json.dumps(body).encode(), 200, is_chat=is_chat), ModelResponse | Failure)


@given(st.binary())
def test_no_bytes_crash_the_reader(body: bytes) -> None:
    assert isinstance(read_reply(body, 200, is_chat=True), Failure)


def test_a_cost_is_read_beside_two_counts_without_their_sum() -> None:
    assert read_usage({"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.5}) == Usage(3, 2, requests=1, cost=0.5)


def test_a_cost_counts_without_tokens() -> None:
    assert read_usage({"cost": 0.5}) == Usage(requests=1, unreported=1, cost=0.5)


def test_a_router_with_a_key_of_ours_is_paid_twice() -> None:
    said = {"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.05, "cost_details": {"upstream_inference_cost": 1.0}}
    assert read_usage({**said, "is_byok": False}).cost == read_usage(said).cost == 0.05, "the same dollars, told twice"
    assert read_usage({**said, "is_byok": True}).cost == pytest.approx(1.05)
    assert read_usage({**said, "is_byok": True, "cost_details": None}).cost is None, "the greater part is unknown"


@pytest.mark.parametrize("spoilt", [{"choices": []}, {"choices": [{"message": None}]}, {"error": {"code": 502}}])
def test_a_reply_that_cannot_be_used_says_what_it_took(spoilt: dict[str, object]) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    failure = read_reply(json.dumps({**spoilt, "usage": usage}).encode(), 200, is_chat=True)
    assert isinstance(failure, Failure) and failure.usage == Usage(3, 2, requests=1)
    silent = read_reply(json.dumps(spoilt).encode(), 200, is_chat=True)
    assert isinstance(silent, Failure) and silent.usage is None
