"""Author code that asks through the real openai SDK is answered by our own chat, and sees what the SDK makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
import pytest
from dead_ports import free_port
from late import Late
from scripted_chat import Asked, ScriptedChat
from tables import for_each_row

from harness.core.errors import (
    ContextLengthError,
    EnvironmentFault,
    HarnessError,
    ModelError,
    ResponseError,
    SystemicError,
)
from harness.core.openai_client import Faults, async_openai, original
from harness.core.types import ModelCall, ModelResponse, Usage
from harness.models.health import HealthPolicy
from harness.models.pool import BoundChat, CallSettings, ClientPool
from harness.models.wire import build_request
from harness.settings.endpoints import Endpoint

openai = Late("openai")

ASK: list[Any] = [{"role": "user", "content": "question"}]


def run(call: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(call)


def test_a_reply_arrives_as_the_wire_would_have_brought_it() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "reasoning_content": "let me think",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
        "signature": "kept",
    }
    usage = Usage(10, 7, reasoning_tokens=3, cached_tokens=4, requests=1, cost=0.5)
    chat = ScriptedChat([ModelResponse(message, "tool_calls", usage, "served-model", "id-1")])
    reply = run(async_openai(chat).chat.completions.create(model="scripted", messages=ASK))
    assert type(reply).__name__ == "ChatCompletion"
    assert (reply.id, reply.model, reply.object) == ("id-1", "served-model", "chat.completion")
    choice = reply.choices[0]
    assert (choice.finish_reason, choice.index, choice.message.content) == ("tool_calls", 0, None)
    assert (choice.message.role, choice.message.refusal) == ("assistant", "no")
    assert (choice.message.reasoning_content, choice.message.signature) == ("let me think", "kept")
    call = choice.message.tool_calls[0]
    assert (call.id, call.type, call.function.name, call.function.arguments) == ("c1", "function", "add", '{"a":1}')
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (10, 7, 17)
    assert reply.usage.completion_tokens_details.reasoning_tokens == 3
    assert reply.usage.prompt_tokens_details.cached_tokens == 4
    assert reply.usage.cost == 0.5


def test_unreported_tokens_are_unknown_and_not_zero() -> None:
    chat = ScriptedChat([ModelResponse({"role": "assistant", "content": "x"}, None, Usage(requests=1, unreported=1))])
    reply = run(async_openai(chat).chat.completions.create(model="scripted", messages=ASK))
    assert reply.usage is None
    assert reply.choices[0].finish_reason is None
    assert reply.model == "scripted"


def test_a_request_reaches_the_chat_whole() -> None:
    chat = ScriptedChat()
    tools: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    messages: list[Any] = [*ASK, {"role": "assistant", "content": None, "tool_calls": None, "name": None}]
    run(
        async_openai(chat).chat.completions.create(
            model="scripted", messages=messages, tools=tools, temperature=0.5, max_completion_tokens=9, n=1,
            stream=False, tool_choice="auto", extra_body={"top_k": 3}, extra_headers={"X-Mine": "1"},
        )
    )  # fmt: skip
    assert chat.asked == [
        Asked(
            [*ASK, {"role": "assistant", "content": None}],
            tools,
            {"temperature": 0.5, "max_completion_tokens": 9, "tool_choice": "auto", "top_k": 3},
        )
    ]


def test_a_completion_is_a_prompt_in_text() -> None:
    chat = ScriptedChat([ModelResponse({"role": "assistant", "content": " world"}, "length", Usage(1, 2, requests=1))])
    client = async_openai(chat)
    reply = run(client.completions.create(model="scripted", prompt="hello", max_tokens=2))
    assert type(reply) is openai.types.Completion
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == (" world", "length")
    run(client.completions.create(model="scripted", prompt=["once more"]))
    assert chat.asked == [Asked("hello", None, {"max_tokens": 2}), Asked("once more", None, {})]


@for_each_row(
    ("of_run", "asked", "over"),
    [
        ({"max_tokens": 5}, {"max_completion_tokens": 5}, {}),
        ({"max_tokens": 5}, {"max_completion_tokens": 6}, {"max_completion_tokens": 6, "max_tokens": None}),
        ({"max_completion_tokens": 5}, {"max_tokens": 5}, {}),
        ({"max_completion_tokens": 5}, {"max_tokens": 4}, {"max_tokens": 4, "max_completion_tokens": None}),
        ({}, {"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
    ],
)
def test_a_renamed_token_limit_is_sent_once(
    of_run: dict[str, Any], asked: dict[str, Any], over: dict[str, Any]
) -> None:
    chat = ScriptedChat()
    run(
        async_openai(chat, sampling_args=of_run, inherits=False).chat.completions.create(
            model="scripted", messages=ASK, **asked
        )
    )
    assert chat.asked[0].sampling_args == over


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelError("slow down", status=429, retryable=True, reason="rate_limit"), "RateLimitError"),
        (ModelError("no key", status=401, reason="auth"), "AuthenticationError"),
        (ModelError("what?", reason="bad_request"), "BadRequestError"),
        (ModelError("gone", status=503, retryable=True, reason="server_error"), "InternalServerError"),
        (ModelError("too slow", retryable=True, reason="timeout"), "APITimeoutError"),
        (ModelError("refused", retryable=True, reason="connection"), "APIConnectionError"),
        (ResponseError("no json", status=200, retryable=True, reason="bad_response"), "InternalServerError"),
        (ContextLengthError("too long", status=413, reason="context_length"), "BadRequestError"),
        (SystemicError("dead", status=401, reason="auth"), "AuthenticationError"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.reason,
)
def test_our_error_becomes_the_sdk_s_and_is_found_again(error: ModelError, kind: str) -> None:
    chat = ScriptedChat([error])
    faults = Faults()
    client = async_openai(chat, faults=faults).with_options(max_retries=3 if error.status else 0)
    with pytest.raises(openai.APIError) as caught:
        run(client.chat.completions.create(model="scripted", messages=ASK))
    assert type(caught.value).__name__ == kind
    assert original(caught.value) is error
    assert len(chat.asked) == 1, "the SDK tried again what our client had given up"
    assert faults.error is (error if isinstance(error, SystemicError) else None)
    wrapped = RuntimeError("judge failed")
    wrapped.__cause__ = caught.value
    assert original(wrapped) is error


def test_a_prompt_that_is_too_long_is_known_to_every_classic_release() -> None:
    chat = ScriptedChat([ContextLengthError("box: HTTP 400: the prompt has 9 tokens", reason="context_length")])
    with pytest.raises(openai.BadRequestError) as caught:
        run(async_openai(chat).chat.completions.create(model="scripted", messages=ASK))
    text = caught.value.response.text.lower()
    assert "this model's maximum context length is" in text  # 0.1.8 to 0.3
    assert "box: http 400: the prompt has 9 tokens" in text
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: c.chat.completions.create(model="gpt-9", messages=ASK), "the model 'gpt-9'"),
        (lambda c: c.chat.completions.create(model="scripted", messages=ASK, stream=True), "stream=True"),
        (lambda c: c.completions.create(model="scripted", prompt=["a", "b"]), "several strings"),
        (lambda c: c.models.list(), "GET /models"),
        (lambda c: c.embeddings.create(model="scripted", input="x"), "POST /embeddings"),
        (lambda c: c.responses.create(model="scripted", input="x"), "POST /responses"),
    ],
    ids=["model", "stream", "texts", "models", "embeddings", "responses"],
)
def test_what_there_is_not_is_refused_past_any_except(ask: Any, words: str) -> None:
    chat = ScriptedChat()
    faults = Faults()

    async def author() -> str:
        try:
            await ask(async_openai(chat, faults=faults))
        except Exception as error:
            assert isinstance(original(error), EnvironmentFault)
            return "a fallback answer"
        raise AssertionError("the call went through")

    assert run(author()) == "a fallback answer"
    with pytest.raises(EnvironmentFault) as caught:
        faults.check()
    assert words in str(caught.value)
    assert chat.asked == []


def test_a_second_name_of_the_model_is_accepted() -> None:
    chat = ScriptedChat()
    run(async_openai(chat, names=["alias"]).chat.completions.create(model="alias", messages=ASK))
    assert len(chat.asked) == 1


def test_an_error_that_is_not_ours_has_no_original() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert original(first) is None
    assert original(None) is None


def test_cancelling_reaches_the_call() -> None:
    ended: list[str] = []

    class Hanging(ScriptedChat):
        async def __call__(self, prompt: Any, **options: Any) -> ModelResponse:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            raise AssertionError

    async def go() -> None:
        async with asyncio.timeout(0.05):
            await async_openai(Hanging()).chat.completions.create(model="scripted", messages=ASK)

    with pytest.raises(TimeoutError):
        run(go())
    assert ended == ["cancelled"]


def test_a_call_is_what_the_author_made_of_the_run_s_sampling_arguments() -> None:
    calls: list[ModelCall] = []

    class Recording:
        async def request(self, call: ModelCall) -> ModelResponse:
            calls.append(call)
            return ModelResponse({"role": "assistant", "content": "x"})

        async def close(self) -> None:
            return None

    args = {"temperature": 1.0, "max_tokens": 8, "seed": 1, "extra_body": {"top_k": 1, "min_p": 0}}
    ask = async_openai(BoundChat(Recording(), "m", args), sampling_args=args, inherits=False).chat.completions.create
    run(ask(model="m", messages=ASK, max_completion_tokens=8, temperature=0.2, extra_body={"top_k": 1}))
    run(ask(model="m", messages=ASK))
    bodies = [orjson.loads(build_request(call)) for call in calls]
    assert bodies == [
        {"model": "m", "messages": ASK, "temperature": 0.2, "max_tokens": 8, "top_k": 1},
        {"model": "m", "messages": ASK, "max_tokens": 8},
    ]


def test_without_them_a_call_is_laid_over_the_run_s() -> None:
    chat = ScriptedChat()
    run(async_openai(chat).chat.completions.create(model="scripted", messages=ASK, temperature=0.5))
    assert chat.asked[0].sampling_args == {"temperature": 0.5}


def test_a_dead_endpoint_is_a_dead_endpoint_through_the_sdk() -> None:
    endpoint = Endpoint(model="m", url=f"http://127.0.0.1:{free_port()}/v1", key_var=None)

    async def go() -> HarnessError | None:
        pool = ClientPool(health=HealthPolicy(refusals=1))
        chat = BoundChat(pool.get([endpoint], CallSettings(request_retries=0)), "m")
        try:
            await async_openai(chat, faults=faults).chat.completions.create(model="m", messages=ASK)
        except openai.OpenAIError as error:
            return original(error)
        finally:
            await pool.close()

    faults = Faults()
    found = run(go())
    assert isinstance(found, SystemicError)
    assert faults.error is found


def test_errors_of_the_harness_are_all_that_is_translated() -> None:
    """A bug of ours stays a bug: it is not dressed up as a failed request."""
    chat = ScriptedChat([ZeroDivisionError("bug")])
    with pytest.raises((ZeroDivisionError, openai.APIConnectionError)) as caught:
        run(async_openai(chat).chat.completions.create(model="scripted", messages=ASK))
    assert original(caught.value) is None
    assert not isinstance(caught.value, HarnessError)
