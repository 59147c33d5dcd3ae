"""One request before a run, over real HTTP: what counts as an answer, what stops everything, and how soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from dead_ports import free_port

from harness.cli.labels import BASELINE, EVAL
from harness.core.errors import SystemicError
from harness.core.types import ROLLOUT_HEADER, JsonDict, ModelCall
from harness.models.pool import CallSettings, ClientPool, PooledClient
from harness.models.preflight import preflight, preflight_all
from harness.plugins.faults.rules import MALFORMED, Fault, ScriptedFaults
from harness.reference.header import format_header
from harness.reference.policies import message_text
from harness.reference.server import ReferenceServer
from harness.settings.endpoints import Endpoint

KEY = "canary-key-0123456789"

"""Seconds that what takes none may take on a busy machine. A run would wait a minute and more in its place."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


class Together:
    """Answers nobody before so many have asked, with one status for all."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self._all = asyncio.Event()

    @asynccontextmanager
    async def serving(self, status: int) -> AsyncGenerator[str]:
        """The address of a server."""

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            self._missing -= 1
            if not self._missing:
                self._all.set()
            await self._all.wait()
            body = b'{"choices": [{"message": {"content": "hi"}}]}'
            writer.write(b"HTTP/1.1 %d Well\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        finally:
            server.close()


@asynccontextmanager
async def serving(*faults: Fault, then: Fault | None = None) -> AsyncGenerator[ReferenceServer]:
    server = ReferenceServer(faults=ScriptedFaults(faults, then), count_rollouts=True)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def client_of(*urls: str, model: str = "m") -> AsyncGenerator[PooledClient]:
    """A client as runs have it: six retries, minutes of back-off."""
    pool = ClientPool(environ={"MY_KEY": KEY})
    try:
        yield pool.get([Endpoint(url, "MY_KEY", model) for url in urls])
    finally:
        await pool.close()


def refusing(status: int, message: str, **headers: str) -> Fault:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Fault("status", status=status, headers=named, body=b'{"error": {"message": "%s"}}' % message.encode())


def test_one_token_is_asked_for_once() -> None:
    class Keeps:
        """A policy that keeps what it was asked."""

        needs_player = False

        def __init__(self) -> None:
            self.asked: list[str] = []

        def reply(self, _player: object, _example: object, messages: Sequence[JsonDict], _key: str) -> JsonDict:
            self.asked.append(message_text(messages[-1]))
            return {"role": "assistant", "content": "x" * 100}

    async def main() -> None:
        policy = Keeps()
        server = ReferenceServer(policy=policy, count_rollouts=True)  # type: ignore[arg-type]
        await server.start()
        try:
            async with client_of(server.url) as client:
                await preflight(client, "m", {ROLLOUT_HEADER: format_header("lane", "e", "the-rollout")})
                assert policy.asked == ["hi"]
                assert dict(server.stats.rollouts) == {"the-rollout": 1}
                # The endpoint is known from then on: a later outage is waited out, not taken for a wrong address.
                assert client.health.reachable  # type: ignore[attr-defined]
        finally:
            await server.stop()

    run(main)


@pytest.mark.parametrize(
    "fault",
    [
        refusing(429, "slow down", Retry_After="60"),
        refusing(400, "Unsupported parameter: 'max_tokens'"),
        refusing(422, "max_tokens: must be at least 16"),
        refusing(403, "the prompt was flagged by moderation"),
        refusing(500, "boom"),
        refusing(503, "loading the model", Retry_After="60"),
        Fault("body", body=MALFORMED[2]),
    ],
    ids=lambda fault: f"{fault.act}-{fault.status}",
)
def test_whatever_else_it_answers_it_is_there_and_is_not_asked_again(fault: Fault) -> None:
    async def main() -> None:
        async with serving(then=fault) as server, client_of(server.url) as client:
            await preflight(client, "m")
            assert server.stats.requests == 1

    run(main)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (refusing(401, "wrong key"), "Authentication failed. Check your API key is valid (--api-key). Details: "
         "{host}: HTTP 401: wrong key; check the key in MY_KEY"),
        (refusing(402, "no credit"), "Authentication failed. Check your API key is valid (--api-key). Details: "
         "{host}: HTTP 402: no credit; check the key in MY_KEY"),
        (refusing(404, "no model m"), "The endpoint has no such model or path. Check --model and --base-url. Details: "
         "{host}: HTTP 404: no model m; check the model name 'm' and the base URL {url}"),
        (refusing(400, "Unknown model: m"), "The endpoint has no such model or path. Check --model and --base-url. "
         "Details: {host}: HTTP 400: Unknown model: m; check the model name 'm' and the base URL {url}"),
    ],
)  # fmt: skip
def test_a_refused_key_and_an_unknown_model_stop_everything(fault: Fault, text: str) -> None:
    async def main() -> None:
        async with serving(then=fault) as server, client_of(server.url) as client:
            with pytest.raises(SystemicError) as caught:
                await preflight(client, "m")
            host = server.url.split("/")[2]
            assert caught.value.text(EVAL) == text.format(host=host, url=server.url)
            assert caught.value.status == fault.status
            assert KEY not in str(caught.value)
            assert server.stats.requests == 1

    run(main)


@pytest.mark.parametrize("body", [b"<html>Welcome to nginx</html>", b"", b"[]", b"OK"])
def test_a_web_server_is_no_endpoint(body: bytes) -> None:
    async def main() -> None:
        async with serving(then=Fault("body", body=body)) as server, client_of(server.url) as client:
            with pytest.raises(SystemicError) as caught:
                await preflight(client, "m")
            host = server.url.split("/")[2]
            assert caught.value.text(EVAL).startswith(
                "The endpoint does not answer as an OpenAI-compatible API. Check --base-url. Details: "
                f"{host}: HTTP 200, but the body is "
            )
            assert server.stats.requests == 1

    run(main)


def test_the_baselines_options_are_named_for_the_baseline() -> None:
    async def main() -> None:
        async with serving(then=refusing(404, "no")) as server, client_of(server.url) as client:
            with pytest.raises(SystemicError) as caught:
                await preflight(client, "m")
            assert "Check --baseline-model and --baseline-base-url" in caught.value.text(BASELINE)

    run(main)


def test_a_server_that_is_not_there_is_reported_in_seconds() -> None:
    async def main() -> None:
        url = f"http://127.0.0.1:{free_port()}/v1"
        async with client_of(url) as client:
            with pytest.raises(SystemicError) as caught:
                await preflight(client, "m")
        host = url.split("/")[2]
        assert caught.value.text(EVAL) == (
            f"Cannot connect to API endpoint. Check your --base-url or network. Details: {host}: connection refused, "
            "and it has never answered; is the server running, and is the base URL right?"
        )
        assert caught.value.retryable

    run(main)


def test_what_cuts_every_connection_is_no_api_and_is_given_up_after_three() -> None:
    async def main() -> None:
        async with serving(then=Fault("reset")) as server, client_of(server.url) as client:
            with pytest.raises(SystemicError, match=r"^Cannot connect .* at every attempt, and it has never answered$"):
                await preflight(client, "m")
            assert server.stats.requests == 3

    run(main)


def test_one_that_hangs_is_left_to_the_runs_own_time_limits_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(then=Fault("hang")) as server, client_of(server.url) as client:
            await preflight(client, "m", patience=0.2)
            assert server.stats.requests == 1
            assert client.limiter.in_flight == 0  # type: ignore[attr-defined]

    run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "m has not answered a short request within 0.2 s; the run starts nevertheless"
    ]


def test_one_that_is_slower_than_the_runs_own_time_limit_is_asked_once() -> None:
    async def main() -> None:
        async with serving(then=Fault("hang")) as server:
            pool = ClientPool()
            try:
                client = pool.get([Endpoint(server.url, None, "m")], CallSettings(request_timeout=0.2))
                await preflight(client, "m")
                assert server.stats.requests == 1
            finally:
                await pool.close()

    run(main)


def test_a_broken_connection_may_heal() -> None:
    async def main() -> None:
        async with serving(Fault("reset"), Fault("reset")) as server, client_of(server.url) as client:
            await preflight(client, "m")
            assert server.stats.requests == 3

    run(main)


def test_an_ordinary_request_is_still_retried() -> None:
    async def main() -> None:
        async with serving(refusing(503, "busy", Retry_After="0")) as server:
            pool = ClientPool()
            try:
                client = pool.get([Endpoint(server.url, None, "m")], CallSettings(request_retries=1))
                assert (await client.request(ModelCall("m", [{"role": "user", "content": "hi"}]))).attempts == 2
            finally:
                await pool.close()

    run(main)


def test_of_replicas_one_that_works_is_enough() -> None:
    async def main() -> None:
        dead = f"http://127.0.0.1:{free_port()}/v1"
        async with serving() as server, client_of(dead, server.url) as client:
            await preflight(client, "m")
            await preflight(client, "m")
            assert server.stats.requests == 2, "both were answered, by the one that works"

    run(main)


def test_a_reference_policy_answers_only_for_its_examples_and_is_not_asked() -> None:
    async def main() -> None:
        async with serving() as server, client_of(server.url, model="reference/oracle") as client:
            await preflight(client, "reference/oracle")
            assert server.stats.requests == 0

    run(main)


def test_many_models_are_asked_at_the_same_time_and_answered_in_their_order() -> None:
    async def main() -> None:
        together = Together(3)
        async with (
            together.serving(200) as first,
            together.serving(401) as second,
            together.serving(200) as third,
            client_of(first) as a,
            client_of(second) as b,
            client_of(third) as c,
        ):
            good, bad, fine = await preflight_all([(a, "m"), (b, "m"), (c, "m")])
            assert (good, fine) == (None, None)
            assert bad is not None
            assert "(--baseline-api-key)" in bad.text(BASELINE)

    run(main)
