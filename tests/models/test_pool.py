"""What runs share, replicas, and one model as an environment sees it."""

from __future__ import annotations

import asyncio
import json
import math
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from dead_ports import free_port

from harness.core.errors import ConfigError, SystemicError
from harness.core.types import ModelCall, ModelResponse
from harness.models.chat import ChatClient
from harness.models.delays import note_of
from harness.models.pool import FILES_BESIDE, BoundChat, CallSettings, ClientPool, Replicas
from harness.reference.script import fault_script
from harness.reference.server import ReferenceServer
from harness.settings.endpoints import Endpoint

MESSAGES = [{"role": "user", "content": "hello"}]


def at(url: str, key_var: str | None = None, model: str = "m", **limits: Any) -> Endpoint:
    return Endpoint(url, key_var, model, **limits)


def only(client: object) -> ChatClient:
    assert isinstance(client, ChatClient)
    return client


@asynccontextmanager
async def serving(count: int, latency: float = 0.0) -> AsyncGenerator[list[ReferenceServer]]:
    servers = [ReferenceServer(faults=fault_script(latency=latency)) for _ in range(count)]
    for server in servers:
        await server.start()
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()


def test_runs_share_limiter_and_health_by_url_and_key() -> None:
    pool = ClientPool(environ={"A": "key-aaaaaa", "B": "key-bbbbbb"})
    url = "https://api.example/v1"
    first = only(pool.get([at(url, "A")], CallSettings(max_in_flight=8)))
    wider = only(pool.get([at(url + "/", "A", model="other")], CallSettings(max_in_flight=64)))
    other_key = only(pool.get([at(url, "B")], CallSettings(max_in_flight=4)))
    other_headers = only(pool.get([at(url, "A", headers={"X-Org": "1"})], CallSettings(max_in_flight=2)))
    assert first is wider
    assert other_headers is not first
    assert first.limiter is other_headers.limiter
    assert first.health is other_headers.health
    assert first.limiter is not other_key.limiter
    assert (first.limiter.bound, other_key.limiter.bound) == (64, 4)


def test_bounds_and_rates() -> None:
    pool = ClientPool()

    def bound(asked: int, allowed: int | None) -> float:
        endpoint = at(f"http://localhost:{1000 + asked}/v1", max_concurrent=allowed)
        return only(pool.get([endpoint], CallSettings(asked))).limiter.bound

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert bound(-1, None) == (math.inf if files == resource.RLIM_INFINITY else (files - FILES_BESIDE) // 2)
    assert bound(-1 + 50, 16) == 16
    assert bound(8, 16) == 8
    own = only(pool.get([at("http://localhost:1/v1", tpm=500)], CallSettings()))
    assert own.limiter.counts_tokens


def test_headers_of_the_run_lie_over_the_endpoints_whatever_their_case() -> None:
    pool = ClientPool()
    endpoint = at("http://localhost/v1", headers={"X-Org": "old", "X-Keep": "1"})
    client = only(pool.get([endpoint], CallSettings(headers={"x-org": "new"})))
    assert client.target.headers == {"X-Keep": "1", "x-org": "new"}


def test_a_key_variable_that_is_not_set_stops_before_the_first_call() -> None:
    pool = ClientPool(environ={})
    with pytest.raises(ConfigError, match=r"api\.example: the environment variable NO_KEY.* is not set"):
        pool.get([at("https://api.example/v1", "NO_KEY")])
    assert only(pool.get([at("http://localhost:1/v1", "NO_KEY")])).target.key is None
    padded = ClientPool(environ={"KEY": " canary-padded \n"})
    assert only(padded.get([at("https://api.example/v1", "KEY")])).target.key == "canary-padded"
    with pytest.raises(ConfigError):
        pool.get([])


def test_replicas_share_the_load() -> None:
    async def main() -> None:
        async with serving(3, latency=0.01) as servers:
            pool = ClientPool()
            client = pool.get([at(server.url, model=f"m{i}") for i, server in enumerate(servers)], CallSettings(4))
            call = ModelCall("m0", MESSAGES)
            answers = await asyncio.gather(*(client.request(call) for _ in range(60)))
            assert {answer.model for answer in answers} == {"m0", "m1", "m2"}
            assert [server.stats.requests for server in servers] == [20, 20, 20]
            assert all(server.stats.peak_in_flight <= 4 for server in servers)
            await pool.close()

    asyncio.run(main())


def test_a_dead_replica_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    dead = f"http://127.0.0.1:{free_port()}/v1"

    async def main() -> None:
        async with serving(1) as (server,):
            pool = ClientPool()
            client = pool.get([at(dead), at(server.url)], CallSettings(4))
            assert isinstance(client, Replicas)
            answers = await asyncio.gather(*(client.request(ModelCall("m", MESSAGES)) for _ in range(10)))
            assert all(isinstance(answer, ModelResponse) for answer in answers)
            assert server.stats.requests == 10
            assert "1 of 2 replicas left" in note_of(client.delays())
            alone = pool.get([at(dead), at(dead + "x")], CallSettings(4))
            with pytest.raises(SystemicError):
                await alone.request(ModelCall("m", MESSAGES))
            await client.close()
            await pool.close()

    asyncio.run(main())
    assert "a replica of m is no longer used" in caplog.text


class Recording:
    """A client that keeps what it is asked."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    async def request(self, call: ModelCall) -> ModelResponse:
        self.calls.append(call)
        return ModelResponse({"role": "assistant", "content": "ok"})

    async def close(self) -> None:
        return None


def test_a_bound_chat_adds_what_the_run_says() -> None:
    client = Recording()
    tool = {"type": "function", "function": {"name": "f"}}
    chat = BoundChat(client, "m", {"temperature": 1.0, "extra_body": {"a": 1}}, "lane", {"X": "1"}, True, [tool])

    async def main() -> None:
        await chat(MESSAGES)
        await chat("text", tools=[], sampling_args={"temperature": None, "extra_body": {"b": 2}})

    asyncio.run(main())
    plain, own = client.calls
    assert chat.model == "m"
    assert plain == ModelCall(
        "m", MESSAGES, [tool], {"temperature": 1.0, "extra_body": {"a": 1}}, {"X": "1"}, "lane", True
    )
    assert own.tools == []
    assert own.sampling_args == {"temperature": None, "extra_body": {"a": 1, "b": 2}}
    assert json.dumps(chat.sampling_args) == '{"temperature": 1.0, "extra_body": {"a": 1}}'


def test_a_bound_chat_refuses_what_would_be_dropped() -> None:
    with pytest.raises(ConfigError, match="for more rollouts, raise rollouts_per_example"):
        BoundChat(Recording(), "m", {"n": 4})


def test_closing_twice_is_fine_and_a_closed_client_says_so() -> None:
    async def main() -> None:
        pool = ClientPool()
        client = pool.get([at("http://localhost:1/v1")])
        await pool.close()
        await pool.close()
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await client.request(ModelCall("m", MESSAGES))

    asyncio.run(main())
