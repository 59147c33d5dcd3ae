"""`ExternalLLMClient` alone, over a real endpoint."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest
from dead_ports import free_port
from eval_api import CALCULATE
from sums_model import SumsModel

from harness.agents import (
    CompletionsResult,
    ExternalLLMClient,
    OpenAIFunctionToolSchema,
    ProviderError,
    RolloutMetrics,
    SystemicProviderError,
    ToolValidationError,
)
from harness.core.errors import ConfigError
from harness.core.redact import redactor


def ask(client: ExternalLLMClient, text: str = "2 + 3", **arguments: Any) -> CompletionsResult:
    """One call, in an event loop of its own."""

    async def main() -> CompletionsResult:
        async with client:
            return await client.chat_completions([{"role": "user", "content": text}], **arguments)

    return asyncio.run(main())


def test_its_documented_signature_and_attributes() -> None:
    parameters = inspect.signature(ExternalLLMClient).parameters
    assert {name: each.default for name, each in parameters.items()} == {
        "model": "gpt-5-mini", "api_key": None, "api_base": None,
    }  # fmt: skip
    client = ExternalLLMClient("my-org/my-llama", "key-canary-0001", "http://localhost:8000/v1")
    assert (client.display_name, client.model) == ("my-org/my-llama", "my-org/my-llama")
    assert (client._api_key, client._api_base) == ("key-canary-0001", "http://localhost:8000/v1")
    assert repr(client) == "ExternalLLMClient('my-org/my-llama', api_base='http://localhost:8000/v1')"
    assert redactor.text("key-canary-0001") == "[redacted]"
    routed = [ExternalLLMClient(name) for name in ("gpt-5-mini", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5")]
    assert [each.model for each in routed] == ["gpt-5-mini", "gpt-5-mini", "claude-sonnet-4-5"]
    assert ExternalLLMClient().display_name == "gpt-5-mini"


def test_a_reply() -> None:
    with SumsModel() as model:
        reply = ask(ExternalLLMClient("my-org/adds", api_base=model.url), temperature=0.5, stop=["\n"])
    assert (reply.content, reply.finish_reason, reply.tool_calls) == ("5", "stop", [])
    assert reply.usage == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert model.requests == [
        {
            "model": "my-org/adds", "messages": [{"role": "user", "content": "2 + 3"}], "temperature": 0.5,
            "stop": ["\n"],
        }
    ]  # fmt: skip
    assert model.keys == [None]  # a keyless server of one's own


def test_tools_are_offered_until_they_are_cleared() -> None:
    with SumsModel() as model:
        client = ExternalLLMClient("adds", api_base=model.url)

        async def main() -> list[CompletionsResult]:
            question = [{"role": "user", "content": "2 + 3"}]
            async with client:
                client.set_tools([OpenAIFunctionToolSchema.model_validate(CALCULATE)])
                offered = await client.chat_completions(question)
                none = await client.chat_completions(question, tools=None)
                client.clear_tools()
                cleared = await client.chat_completions(question)
                own = await client.chat_completions(question, tools=[CALCULATE], model="other")
            return [offered, none, cleared, own]

        replies = asyncio.run(main())
        with pytest.raises(ToolValidationError, match="Tool 'a b'"):
            client.set_tools([{"type": "function", "function": {"name": "a b"}}])
    assert [reply.has_tool_calls for reply in replies] == [True, False, False, True]
    assert replies[0].tool_calls[0]["function"] == {"name": "calculate", "arguments": '{"expression": "2 + 3"}'}
    assert "content" not in replies[0].message
    assert ["tools" in body for body in model.requests] == [True, False, False, True]
    assert [body["model"] for body in model.requests] == ["adds", "adds", "adds", "other"]


def test_metrics_are_of_all_calls_since_the_reset() -> None:
    with SumsModel(latency=0.01) as model:
        client = ExternalLLMClient("adds", api_base=model.url)

        async def main() -> list[RolloutMetrics]:
            found = [client.get_metrics()]
            async with client:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(3):
                        tasks.create_task(client.chat_completions([{"role": "user", "content": "1 + 1"}]))
                found.append(client.get_metrics())
                client.reset_metrics()
                found.append(client.get_metrics())
                await client.chat_completions([{"role": "user", "content": "1 + 1"}])
            return [*found, client.get_metrics()]

        metrics = asyncio.run(main())
    assert [each.num_llm_calls for each in metrics] == [0, 3, 0, 1]
    assert [(each.prompt_tokens, each.response_tokens) for each in metrics] == [(0, 0), (30, 15), (0, 0), (10, 5)]
    assert metrics[1].llm_latency_ms >= 30 and metrics[2].llm_latency_ms == 0


def test_closing_is_idempotent_and_no_end() -> None:
    with SumsModel() as model:
        client = ExternalLLMClient("adds", api_base=model.url)

        async def main() -> list[str | None]:
            await client.close()  # nothing is open yet
            texts: list[str | None] = []
            for _ in range(2):
                async with client as same:
                    assert same is client
                    texts.append((await client.chat_completions([{"role": "user", "content": "1 + 1"}])).content)
                await client.close()
            texts.append((await client.chat_completions([{"role": "user", "content": "1 + 1"}])).content)
            await client.close()
            return texts

        assert asyncio.run(main()) == ["2", "2", "2"]
        assert ask(client).content == "5"  # in another event loop


def test_a_key_goes_where_it_was_meant_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "LITELLM_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with SumsModel() as model:
        assert ask(ExternalLLMClient("adds", api_key="key-canary-0002", api_base=model.url)).content == "5"
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key-canary-0003")
        ask(ExternalLLMClient("adds", api_base=model.url))
        ask(ExternalLLMClient("openai/adds"))
        ask(ExternalLLMClient("adds", api_key="key-canary-0004"))
    assert model.keys == ["Bearer key-canary-0002", None, "Bearer key-canary-0003", "Bearer key-canary-0004"]
    assert [body["model"] for body in model.requests] == ["adds"] * 4


def test_what_a_name_or_a_missing_key_leads_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "LITELLM_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"^Model cannot be empty\. Pass a value with model\.$"):
        ExternalLLMClient("  ")
    with pytest.raises(ConfigError, match=r"Invalid LiteLLM model format.*give its address with api_base"):
        ExternalLLMClient("foo/bar")
    with pytest.raises(ConfigError, match=r'^api_base = "localhost:8000": must be an http'):
        ExternalLLMClient("m", api_base="localhost:8000")
    client = ExternalLLMClient("anthropic/claude-sonnet-4-5")  # the key is looked up when it is needed
    with pytest.raises(ConfigError) as caught:
        ask(client)
    assert isinstance(caught.value, ProviderError)  # as scripts catch it
    with pytest.raises(ProviderError, match="Missing API key"):
        asyncio.run(client.preflight_check())
    assert str(caught.value) == (
        "Missing API key for provider 'anthropic'. Set ANTHROPIC_API_KEY or LITELLM_API_KEY, or pass api_key."
    )
    with pytest.raises(ConfigError, match="is a reference model, which answers only inside a run"):
        ask(ExternalLLMClient("reference/oracle"))


def test_errors_are_of_two_kinds() -> None:
    with SumsModel() as model:
        with pytest.raises(SystemicProviderError, match="Incorrect API key provided") as caught:
            ask(ExternalLLMClient("refusing", api_key="key-canary-0005", api_base=model.url))
        assert "key-canary-0005" not in str(caught.value)
        with pytest.raises(TypeError, match="api_base"):
            ask(ExternalLLMClient("adds", api_base=model.url), api_base="http://elsewhere/v1")
        with pytest.raises(ProviderError, match="cannot be written as JSON") as bad:
            ask(ExternalLLMClient("adds", api_base=model.url), stop=object())
        assert not isinstance(bad.value, SystemicProviderError)


def test_an_endpoint_that_comes_back_is_asked_again() -> None:
    port = free_port()
    client = ExternalLLMClient("refusing", api_base=f"http://127.0.0.1:{port}/v1")

    async def main() -> str | None:
        with SumsModel(port=port):
            with pytest.raises(SystemicProviderError):
                await client.chat_completions([{"role": "user", "content": "1 + 1"}])
            client.model = client.display_name = "adds"
            reply = await client.chat_completions([{"role": "user", "content": "1 + 1"}])
            await client.close()
        return reply.content

    assert asyncio.run(main()) == "2"


def test_preflight() -> None:
    with SumsModel() as model:

        async def check(name: str) -> None:
            async with ExternalLLMClient(name, api_base=model.url) as client:
                await client.preflight_check()

        asyncio.run(check("adds"))
        assert model.requests == [{"model": "adds", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}]
        with pytest.raises(
            SystemicProviderError, match=r"^Authentication failed\. Check your API key .*api_key"
        ) as bad:
            asyncio.run(check("refusing"))
        assert "--" not in str(bad.value)
        with pytest.raises(SystemicProviderError, match="no such model or path"):
            asyncio.run(check("absent"))


def test_it_needs_no_runner_and_writes_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SumsModel() as model:
        reply = ask(ExternalLLMClient("adds", api_base=model.url))
    assert json.dumps(reply.message) and list(tmp_path.iterdir()) == []
