"""Requests that litellm carries: the real package, over loopback, against a provider that speaks no OpenAI at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main as bench
from harness.core.errors import ConfigError, ContextLengthError, ModelError, ResponseError, SystemicError
from harness.core.redact import redactor
from harness.core.types import ROLLOUT_HEADER, JsonDict, ModelCall, Usage
from harness.models.chat import ChatClient
from harness.models.delays import note_of
from harness.models.health import Health, HealthPolicy
from harness.models.limits import Limiter
from harness.models.litellm import LiteLLMProvider, load
from harness.models.pool import CallSettings, ClientPool
from harness.models.preflight import preflight
from harness.models.retry import RetryPolicy
from harness.models.target import RequestTarget
from harness.models.transport import BODY_CAP
from harness.settings.endpoints import Endpoint
from harness.settings.providers import LITELLM_ADDRESSES, LITELLM_PROVIDERS, PROVIDERS

pytestmark = pytest.mark.slow
"""The first test pays for the import."""

KEY = "canary-key-0123456789"
ASK = ModelCall("claude-sonnet-4-5", [{"role": "user", "content": "hello"}], sampling_args={"max_tokens": 64})
QUICK = RetryPolicy(base=0.001, cap=0.01, retry_after_cap=0.05, rng=random.Random(0))
PATIENCE = HealthPolicy(grace=5.0, probe_gap=0.01, probe_gap_cap=0.05)

TEXT: JsonDict = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn",
    "usage": {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0},
}  # fmt: skip
"""What Anthropic's own Messages API answers with."""


@dataclass
class Answer:
    """What the stand-in does with one request."""

    body: JsonDict | bytes = field(default_factory=lambda: TEXT)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0
    cut: bool = False
    """Close the connection instead."""


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: JsonDict


class Provider:
    """A stand-in for a provider: answers from a script, the last answer for ever, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers) or [Answer()]
        self.asked: list[Asked] = []
        self.in_flight = self.peak = 0
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def take(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def leave(self) -> None:
        with self._lock:
            self.in_flight -= 1


@contextmanager
def providing(*answers: Answer) -> Generator[tuple[Provider, str]]:
    provider = Provider(*answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = provider.take(Asked(self.path, headers, body))
            provider.ended.wait(answer.seconds)
            provider.leave()
            if answer.cut:
                self.close_connection = True
                return
            payload = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that has gone is what some of these tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider, f"http://127.0.0.1:{server.server_port}"
    finally:
        provider.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_ambient_keys_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "LITELLM_API_KEY")
    for name in (*keys, "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def client_of(provider: str = "anthropic", key: str | None = KEY, bound: float = 8, **options: Any) -> ChatClient:
    target = RequestTarget(f"litellm://{provider}", key, options.pop("headers", {}), key_name="MY_KEY" if key else "")
    health = Health(target.label, PATIENCE)
    return ChatClient(
        target,
        Limiter(bound),
        health=health,
        **{"policy": QUICK, "request_timeout": 10.0, "request_retries": 2, **options},
    )


def run(client: ChatClient, main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            try:
                await main()
            finally:
                await client.close()
                assert client.limiter.in_flight == 0

    asyncio.run(bounded())


def test_a_reply_of_another_wire_format(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of(headers={"X-Team": "evals"})

        async def main() -> None:
            call = ModelCall(
                "claude-sonnet-4-5",
                [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
                sampling_args={"max_tokens": 64, "temperature": 0.5, "top_p": None, "extra_body": {"top_k": 3}},
                headers={ROLLOUT_HEADER: "secret of ours", "X-Call": "1"},
            )
            response = await client.request(call)
            assert response.message == {"role": "assistant", "content": "4"}
            assert response.usage == Usage(12, 3, cached_tokens=5, requests=1)
            assert (response.finish_reason, response.attempts) == ("stop", 1)
            assert response.model == "claude-sonnet-4-5-20250929"
            assert response.seconds > 0

        run(client, main)
        [asked] = provider.asked
        assert asked.path == "/v1/messages"
        assert asked.headers["x-api-key"] == KEY
        assert (asked.headers["x-team"], asked.headers["x-call"]) == ("evals", "1")
        assert ROLLOUT_HEADER.lower() not in asked.headers
        assert asked.body == {
            "model": "claude-sonnet-4-5",
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}],
            "max_tokens": 64, "temperature": 0.5, "top_k": 3,
        }  # fmt: skip
    assert capfd.readouterr() == ("", "")


def test_tools_and_reasoning_go_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    thinks = {"type": "thinking", "thinking": "I should add.", "signature": "c2ln"}
    calls = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2, "b": 2}}
    first = Answer(
        {**TEXT, "content": [thinks, {"type": "text", "text": "Let me see."}, calls], "stop_reason": "tool_use"}
    )
    tool = {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        },
    }
    with providing(first, Answer()) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of()

        async def main() -> None:
            asked = [{"role": "user", "content": "2 + 2?"}]
            thinking = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
            turn = await client.request(ModelCall("claude-sonnet-4-5", asked, [tool], thinking))
            assert turn.finish_reason == "tool_calls"
            assert turn.message["content"] == "Let me see."
            assert turn.message["reasoning_content"] == "I should add."
            assert turn.message["thinking_blocks"] == [thinks]
            [call] = turn.message["tool_calls"]
            assert (call["id"], call["type"], call["function"]["name"]) == ("toolu_1", "function", "add")
            assert json.loads(call["function"]["arguments"]) == {"a": 2, "b": 2}
            told = [*asked, turn.message, {"role": "tool", "tool_call_id": "toolu_1", "content": "4"}]
            last = await client.request(ModelCall("claude-sonnet-4-5", told, [tool], thinking))
            assert last.message["content"] == "4"

        run(client, main)
    first_body, second_body = (asked.body for asked in provider.asked)
    assert first_body["tools"][0]["name"] == "add"
    assert first_body["tools"][0]["input_schema"]["properties"]["a"] == {"type": "integer"}
    assert first_body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    _, assistant, result = second_body["messages"]
    assert thinks in assistant["content"]
    assert calls in assistant["content"]
    assert result["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}]


def error(kind: str, words: str) -> JsonDict:
    return {"type": "error", "error": {"type": kind, "message": words}}


REFUSALS = {
    "auth": (Answer(error("authentication_error", "invalid x-api-key"), 401), SystemicError, "auth", 1,
             "anthropic (litellm): HTTP 401: invalid x-api-key; check the key in MY_KEY"),
    "billing": (Answer(error("billing_error", "no credit"), 402), SystemicError, "auth", 1,
                "anthropic (litellm): HTTP 402: no credit; check the key in MY_KEY"),
    "permission": (Answer(error("permission_error", "not for you"), 403), SystemicError, "auth", 1,
                   "anthropic (litellm): HTTP 403: not for you; check the key in MY_KEY"),
    "model": (Answer(error("not_found_error", "model: claude-9"), 404), SystemicError, "not_found", 1,
              "anthropic (litellm): HTTP 404: model: claude-9; check the model name 'claude-sonnet-4-5' and the base "
              "URL litellm://anthropic"),
    "context": (Answer(error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), 400),
                ContextLengthError, "context_length", 1,
                "anthropic (litellm): HTTP 400: prompt is too long: 210000 tokens > 200000 maximum"),
    "request": (Answer(error("invalid_request_error", "temperature: range 0..1"), 400), ModelError, "bad_request", 1,
                "anthropic (litellm): HTTP 400: temperature: range 0..1"),
    "rate": (Answer(error("rate_limit_error", "slow down"), 429, {"Retry-After": "30"}), ModelError, "rate_limit", 3,
             "anthropic (litellm): HTTP 429: slow down (3 attempts); lower max_concurrent, or set rpm and tpm to the "
             "endpoint's limits"),
    "overloaded": (Answer(error("overloaded_error", "busy"), 529), ModelError, "server_error", 3,
                   "anthropic (litellm): HTTP 529: busy (3 attempts); try again later, with retry_failed"),
    "page": (Answer(b"<html>hi</html>"), ResponseError, "bad_response", 3, "litellm cannot read the reply: "),
    "empty": (Answer(b""), ResponseError, "bad_response", 3, "litellm cannot read the reply: "),
    "cut": (Answer(cut=True), SystemicError, "connection", 3, "at every attempt, and it has never answered"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_an_error_means_what_it_means_over_http(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, kind, reason, requests, words = REFUSALS[name]
    with providing(answer) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of()

        async def main() -> None:
            with pytest.raises(ModelError) as caught:
                await client.request(ASK)
            assert type(caught.value) is kind
            assert caught.value.reason == reason
            assert words in str(caught.value)
            if answer.status != 200:
                assert (str(caught.value), caught.value.status) == (words, answer.status)
            assert caught.value.retryable == (requests > 1)

        run(client, main)
        assert len(provider.asked) == requests
        if reason == "rate_limit":
            assert note_of(client.limiter.delays())  # our limiter has heard of it


def test_what_may_heal_is_tried_again_and_retry_after_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Answer(error("rate_limit_error", "slow down"), 429, {"retry-after-ms": "300"})
    with providing(slow, Answer(error("api_error", "boom"), 500), Answer()) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of(policy=RetryPolicy(base=0.001, cap=0.01, rng=random.Random(0)))

        async def main() -> None:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            response = await client.request(ASK)
            assert (response.message["content"], response.attempts) == ("4", 3)
            assert loop.time() - begun >= 0.3

        run(client, main)
        assert len(provider.asked) == 3


def test_a_refused_connection_is_no_attempt_and_a_dead_provider_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing() as (_, url):
        pass  # nobody listens there now
    monkeypatch.setenv("ANTHROPIC_API_BASE", url)
    client = client_of()

    async def main() -> None:
        with pytest.raises(SystemicError) as caught:
            await client.request(ASK)
        assert str(caught.value) == (
            "anthropic (litellm): connection refused, and it has never answered; is the server running, "
            "and is the base URL right?"
        )

    run(client, main)


def test_our_own_time_limit_holds_and_frees_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(Answer(seconds=30)) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of(request_timeout=0.3, request_retries=1)

        async def main() -> None:
            with pytest.raises(ModelError, match=r"no reply within 0\.3 s") as caught:
                await client.request(ASK)
            assert caught.value.reason == "timeout"
            assert client.limiter.in_flight == 0
            async with asyncio.TaskGroup() as tasks:
                waits = tasks.create_task(client.request(ASK))
                while len(provider.asked) < 3:  # noqa: ASYNC110 - another thread's list has no event
                    await asyncio.sleep(0.005)
                waits.cancel()
            assert client.limiter.in_flight == 0

        run(client, main)


def test_our_limiter_decides_how_many_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(Answer(seconds=0.05)) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of(bound=3)

        async def main() -> None:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(12):
                    tasks.create_task(client.request(ASK))

        run(client, main)
        assert (len(provider.asked), provider.peak) == (12, 3)


def completion(**fields: object) -> JsonDict:
    choice = {"index": 0, "finish_reason": "stop", **fields}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def test_a_reply_without_usage_is_unreported_and_a_text_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(Answer(completion(message={"role": "assistant", "content": None, "refusal": "no"}))) as (
        provider,
        url,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        client = client_of("openai")

        async def main() -> None:
            refusal = await client.request(ModelCall("m", [{"role": "user", "content": "hi"}]))
            assert refusal.message["content"] is None
            assert refusal.usage == Usage(requests=1, unreported=1)
            with pytest.raises(ModelError, match="a text prompt cannot be sent through litellm") as caught:
                await client.request(ModelCall("m", "Hello", sampling_args={"max_tokens": 3}))
            assert (caught.value.reason, caught.value.retryable) == ("bad_request", False)

        run(client, main)
        assert [asked.path for asked in provider.asked] == ["/v1/chat/completions"]


def test_litellm_finds_a_key_by_itself_and_no_message_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "plain-word-secret"
    with providing(Answer(), Answer(error("authentication_error", f"bad key {own}"), 401)) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", own)
        client = client_of(key=None)

        async def main() -> None:
            await client.request(ASK)
            with pytest.raises(ModelError) as caught:
                await client.request(ASK)
            assert str(caught.value) == "anthropic (litellm): HTTP 401: bad key [redacted]"

        run(client, main)
    assert [asked.headers["x-api-key"] for asked in provider.asked] == [own, own]


def test_without_any_key_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of(key=None)

        async def main() -> None:
            with pytest.raises(
                SystemicError, match="litellm found no key: set api_key_var to the name of the variable"
            ) as caught:
                await client.request(ASK)
            assert caught.value.reason == "auth"

        run(client, main)
        assert provider.asked == []


@pytest.mark.parametrize(("named", "path"), [("anthropic", "/v1/messages"), ("openai", "/v1/chat/completions")])
def test_no_redirect_takes_prompt_and_key_elsewhere(named: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with providing() as (elsewhere, other):
        moved = Answer(b"", 307, {"Location": f"{other}/taken"})
        with providing(moved) as (provider, url):
            monkeypatch.setenv("ANTHROPIC_API_BASE", url)
            monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
            client = client_of(named)

            async def main() -> None:
                with pytest.raises(SystemicError) as caught:
                    await client.request(ASK)
                assert f"HTTP 307 redirects to {other}/taken, but redirects are not followed" in str(caught.value)

            run(client, main)
            assert [asked.path for asked in provider.asked] == [path]
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    "args", [{"mock_response": "4"}, {"api_base": "http://127.0.0.1:9"}, {"fallbacks": ["x/y"]}, {"timeout": 0.001}]
)
def test_who_answers_is_no_sampling_arguments_business(
    args: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of()

        async def main() -> None:
            with pytest.raises(ModelError) as caught:
                await client.request(replace(ASK, sampling_args=args))
            [name] = args
            assert str(caught.value) == (
                f"anthropic (litellm): {name}: an option of litellm is not allowed as a sampling argument; remove it"
            )
            assert (caught.value.reason, caught.value.retryable) == ("bad_request", False)

        run(client, main)
        assert provider.asked == []


def test_time_limits_may_be_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(Answer(completion(message={"role": "assistant", "content": "4"}))) as (provider, url):
        monkeypatch.setenv("GROQ_API_BASE", f"{url}/v1")
        monkeypatch.setenv("TOGETHERAI_API_BASE", f"{url}/v1")
        monkeypatch.setenv("TOGETHER_AI_API_BASE", f"{url}/v1")
        client = client_of("together_ai", request_timeout=10)

        async def main() -> None:
            assert (await client.request(ASK)).message["content"] == "4"

        run(client, main)
        assert len(provider.asked) == 1


def test_a_provider_whose_code_knows_no_retries_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(Answer(completion(message={"role": "assistant", "content": "4"}))) as (provider, url):
        monkeypatch.setenv("GRADIENT_AI_AGENT_ENDPOINT", url)
        client = client_of("gradient_ai")

        async def main() -> None:
            assert (await client.request(ASK)).message["content"] == "4"

        run(client, main)
        assert [asked.headers["authorization"] for asked in provider.asked] == [f"Bearer {KEY}"]


def test_what_litellm_lacks_is_said_at_once_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    client = client_of("azure")

    async def main() -> None:
        words = "Must provide one of the `base_url` or `azure_endpoint` arguments"
        with pytest.raises(SystemicError) as caught:
            await preflight(client, "gpt-5")
        assert str(caught.value).startswith(
            f"The endpoint cannot be used. Check api_base_url, api_key and model. Details: azure (litellm): {words}"
        )
        with pytest.raises(SystemicError, match=words):  # and in a run, for every rollout at once
            await client.request(ASK)
        assert client.health.blocked

    run(client, main)


def test_an_argument_that_litellm_refuses_is_that_requests_fault_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(Answer(completion(message={"role": "assistant", "content": "4"}))) as (provider, url):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        client = client_of("openai")

        async def main() -> None:
            with pytest.raises(ModelError, match="does not support parameters") as caught:
                await client.request(replace(ASK, sampling_args={"reasoning_effort": "low"}))
            assert (type(caught.value), caught.value.reason) == (ModelError, "bad_request")
            assert (await client.request(ASK)).message["content"] == "4"

        run(client, main)
        assert len(provider.asked) == 1


@pytest.mark.parametrize("provider", ["hosted_vllm", "xinference", "lm_studio", "openai_like"])
def test_a_provider_that_is_nowhere_is_refused(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LITELLM_ADDRESSES.values():
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigError, match=f"^{provider!r} has no default address: give your server's address as base URL"
    ):
        client_of(provider).open()


def test_openai_is_not_asked_for_what_litellm_has_no_address_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing() as (proxy, url):
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, url)  # whatever leaves comes here
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "")
        client = client_of("ai21")

        async def main() -> None:
            with pytest.raises(SystemicError) as caught:
                await client.request(replace(ASK, model="some-model"))
            assert str(caught.value) == (
                "ai21 (litellm): litellm has no address for this provider, and would have sent the request to "
                "api.openai.com"
            )

        run(client, main)
        assert proxy.asked == []


@pytest.mark.parametrize("answer", [Answer(b"<html>hi</html>"), Answer(seconds=30)], ids=["page", "hang"])
def test_before_a_run_it_is_asked_once_whatever_it_answers(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    with providing(answer) as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of(request_timeout=0.3)

        async def main() -> None:
            await preflight(client, "claude-sonnet-4-5")

        run(client, main)
        assert len(provider.asked) == 1


def test_no_proxy_is_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing() as (_, dead):
        pass
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, dead)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "intranet.example")
    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        client = client_of()

        async def main() -> None:
            assert (await client.request(ASK)).attempts == 1

        run(client, main)
        assert len(provider.asked) == 1
    assert os.environ["NO_PROXY"] == "intranet.example,localhost,127.0.0.1,::1"


def test_credentials_of_any_name_are_unsayable_and_settings_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "login.json"
    file.touch()
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "plain-bearer-0123")
    monkeypatch.setenv("WATSONX_APIKEY", "plain-watsonx-0123")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "plain-azure-0123")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    monkeypatch.setenv("MAX_NEXT_TOKEN", "123456")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM_MODE", "never-in-workers")
    client = client_of()

    async def main() -> None:
        client.open()

    run(client, main)
    said = f"plain-bearer-0123 plain-watsonx-0123 plain-azure-0123 {file} 123456 never-in-workers"
    assert redactor.text(said, patterns=False) == (f"[redacted] [redacted] [redacted] {file} 123456 never-in-workers")


def test_an_unknown_provider_is_refused_before_anything_is_sent() -> None:
    client = client_of("nosuch")
    with pytest.raises(ConfigError) as caught:
        client.open()
    assert str(caught.value) == (
        "Invalid LiteLLM model format. Use 'provider/model' (for example: openai/gpt-5-mini). Received "
        "model='nosuch/…'. Details: litellm does not know the provider 'nosuch'"
    )


def test_connections_are_shared_and_closed_with_the_last_client(monkeypatch: pytest.MonkeyPatch) -> None:
    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)

        async def main() -> None:
            first, second = client_of(), client_of()
            await first.request(ASK)
            await second.request(ASK)
            await first.close()
            await first.close()
            await second.request(ASK)
            await second.close()

        for _ in range(2):  # a second event loop must not be given what the first one left
            asyncio.run(main())
        assert len(provider.asked) == 6


def test_the_pool_gives_such_a_client_its_key_and_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ClientPool(environ={"MY_KEY": KEY}, policy=QUICK)
    endpoint = Endpoint("litellm://anthropic", "MY_KEY", "claude-sonnet-4-5", rpm=600)
    client = pool.get([endpoint], CallSettings(max_in_flight=4, request_timeout=10))
    assert isinstance(client, ChatClient)
    assert client.limiter.bound == 4
    assert client is pool.get([endpoint], CallSettings(max_in_flight=2, request_timeout=10))

    async def main() -> None:
        try:
            pool.open()
            await preflight(client, "claude-sonnet-4-5")
            assert (await client.request(ASK)).message["content"] == "4"
        finally:
            await pool.close()

    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        asyncio.run(main())
    assert [asked.headers["x-api-key"] for asked in provider.asked] == [KEY, KEY]
    assert provider.asked[0].body["max_tokens"] == 1


def test_where_it_is_absent_the_pool_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)  # what the import system takes for "there is none"
    words = r"not installed: pip install 'bench-harness\[litellm\]'"
    with pytest.raises(ConfigError, match=words):
        ClientPool().get([Endpoint("litellm://anthropic", None, "m")])
    with pytest.raises(ConfigError, match=words):
        LiteLLMProvider(RequestTarget("litellm://anthropic"), timeout=1, connect_timeout=1)


def test_every_name_that_is_left_to_litellm_is_one_of_its_own() -> None:
    known = {str(getattr(each, "value", each)) for each in load("any").provider_list}
    assert known.issuperset(LITELLM_PROVIDERS)
    assert known.issuperset(PROVIDERS)


WATCH = """
import os, sys
reached = []
network = ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda event, arguments: reached.append(event) if event in network else None)
from harness.models.litellm import load
load("anthropic")
print(reached, os.environ.get("FROM_DOTENV"), file=sys.stderr)
"""


def test_its_import_asks_nobody_reads_no_file_of_the_users_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WATCH], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "[] None\n")


TOY = """
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

def load_environment():
    return SingleTurnEnv(dataset=[{"question": "2 + 2?", "answer": "4"}], rubric=Rubric([correct]))
"""


def test_bench_run_asks_a_provider_through_litellm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    command = ["run", "./toy.py", "-r", "2", "-m", "claude-sonnet-4-5", "-b", "litellm://anthropic", "--json"]
    with providing() as (provider, url):
        monkeypatch.setenv("ANTHROPIC_API_BASE", url)
        assert bench(command) == 0
    said = capsys.readouterr()
    [done] = json.loads(said.out)["runs"]
    assert (done["state"], done["summary"]["reward"]["mean"]) == ("done", 1.0)
    assert "no API key is sent" not in said.err
    assert [asked.headers["x-api-key"] for asked in provider.asked] == [KEY, KEY]
    written = "".join(
        path.read_text() for path in (tmp_path / "outputs").rglob("*.*") if path.suffix in {".json", ".toml"}
    )
    assert "litellm://anthropic" in written
    assert KEY not in written


ROUTED: JsonDict = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip
[CHOICE] = ROUTED["choices"]
REFUSED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"error": {"message": "x", "code": 429}}, "rate_limit"),
        ({"error": {"message": "x", "code": 429}, "choices": []}, "rate_limit"),
        ({"error": {"message": "x", "code": 401}}, "auth"),
        ({"choices": [{**CHOICE, "error": {"message": "x", "code": 502}}]}, "server_error"),
        ({"choices": [{**CHOICE, "finish_reason": "error"}]}, "bad_response"),
        ({"error": None}, ""),
    ],
)
def test_an_error_inside_a_200_is_one_also_where_litellm_passes_over_it(
    more: JsonDict, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providing(Answer({**ROUTED, **more})) as (_, url):
        monkeypatch.setenv("OPENROUTER_API_BASE", url)
        client = client_of("openrouter", request_retries=0)
        found: list[str] = []

        async def main() -> None:
            try:
                await client.request(replace(ASK, model="m"))
            except ModelError as error:
                found.append(error.reason)

        run(client, main)
        assert found == ([reason] if reason else [])


PACKED = gzip.compress(json.dumps(ROUTED).encode())


@pytest.mark.parametrize(
    ("answer", "became"),
    [
        (
            Answer(
                {
                    **ROUTED,
                    "choices": [{**CHOICE, "index": 1, "message": {"role": "assistant", "content": "?"}}, CHOICE],
                }
            ),
            "4",
        ),
        (Answer(ROUTED, status=206), "bad_response"),
        (Answer(PACKED, headers={"Content-Encoding": "gzip"}), "4"),
        (Answer(PACKED[:-6], headers={"Content-Encoding": "gzip"}), "connection"),
        (Answer(gzip.compress(b" " * (BODY_CAP + 1)), headers={"Content-Encoding": "gzip"}), "bad_response"),
    ],
)
def test_half_replies_and_choices_out_of_order_are_seen_behind_litellm(
    answer: Answer, became: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providing(answer) as (_, url):
        monkeypatch.setenv("OPENROUTER_API_BASE", url)
        client = client_of("openrouter", request_retries=0)
        found: list[object] = []

        async def main() -> None:
            try:
                found.append((await client.request(replace(ASK, model="m"))).message["content"])
            except ModelError as error:
                found.append(error.reason)

        run(client, main)
        assert found == [became]


def test_max_tokens_is_renamed_for_a_model_that_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Answer({"error": {"message": REFUSED, "code": "unsupported_parameter"}}, status=400)
    with providing(refusal, Answer(ROUTED)) as (provider, url):
        monkeypatch.setenv("OPENROUTER_API_BASE", url)
        client = client_of("openrouter")

        async def main() -> None:
            for _ in range(2):
                assert (await client.request(replace(ASK, model="m"))).attempts == 1

        run(client, main)
        limits = [name for asked in provider.asked for name in asked.body if "_tokens" in name]
        assert limits == ["max_tokens", "max_completion_tokens", "max_completion_tokens"]
