"""One endpoint over real HTTP: the reference server with scripted faults, and sockets that speak no HTTP at all."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from dead_ports import free_port, listening

from harness.core.errors import ConfigError, ContextLengthError, ModelError, ResponseError, SystemicError
from harness.core.redact import redactor
from harness.core.types import ModelCall, ModelResponse, Usage
from harness.models.chat import ChatClient
from harness.models.clock import ManualClock
from harness.models.delays import note_of
from harness.models.failures import without_advice
from harness.models.health import Health, HealthPolicy
from harness.models.limits import Limiter
from harness.models.retry import RetryPolicy
from harness.models.target import RequestTarget
from harness.plugins.faults.options import fault_script
from harness.plugins.faults.rules import MALFORMED, Fault, ScriptedFaults
from harness.reference.http import FIXED_TEXT
from harness.reference.server import ReferenceServer

KEY = "canary-key-0123456789"
ASK = ModelCall("some-model", [{"role": "user", "content": "hello"}])
QUICK = RetryPolicy(base=0.001, cap=0.01, rng=random.Random(0))
PATIENCE = HealthPolicy(grace=5.0, probe_gap=0.01, probe_gap_cap=0.05)

STREAMS = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(*faults: Fault, then: Fault | None = None, port: int = 0) -> AsyncGenerator[ReferenceServer]:
    server = ReferenceServer(faults=ScriptedFaults(faults, then), port=port)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def client_of(url: str, bound: float = 8, **options: Any) -> AsyncGenerator[ChatClient]:
    health = Health("endpoint", options.pop("patience", PATIENCE))
    target = options.pop("target", None) or RequestTarget(url, KEY, key_name="SOME_KEY", label="endpoint")
    client = ChatClient(target, Limiter(bound), health=health, **{"policy": QUICK, "request_timeout": 5.0, **options})
    try:
        yield client
    finally:
        await client.close()
        assert client.limiter.in_flight == 0


@asynccontextmanager
async def raw_server(talk: STREAMS) -> AsyncGenerator[str]:
    """A TCP server that is no HTTP server."""
    open_writers: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer in open_writers:
            writer.transport.abort()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.002)


async def outcomes(client: ChatClient, count: int, call: ModelCall = ASK) -> list[ModelResponse | BaseException]:
    return await asyncio.gather(*(client.request(call) for _ in range(count)), return_exceptions=True)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())


def status(number: int, message: str = "", **headers: str) -> Fault:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    body = b'{"error": {"message": "%s"}}' % message.encode() if message else None
    return Fault("status", status=number, headers=named, body=body)


def test_a_reply_over_the_wire() -> None:
    async def main() -> None:
        async with serving() as server, client_of(server.url) as client:
            response = await client.request(ASK)
            assert response.message == {"role": "assistant", "content": FIXED_TEXT}
            assert response.usage == Usage(2, 200, requests=1)
            assert (response.finish_reason, response.attempts, response.model) == ("stop", 1, "some-model")
            assert response.seconds > 0
            completion = await client.request(ModelCall("m", "Once upon", sampling_args={"max_tokens": 3}))
            assert completion.message["content"] == FIXED_TEXT[:12]
            assert completion.is_truncated

    run(main)


def test_a_prompt_of_megabytes_is_sent_and_sent_again() -> None:
    async def main() -> None:
        call = ModelCall("reference/echo", [{"role": "user", "content": "x" * 3_000_000}])
        async with serving(status(500)) as server, client_of(server.url) as client:
            response = await client.request(call)
            assert len(response.message["content"]) == 3_000_000
            assert response.attempts == 2

    run(main)


def test_the_server_sees_exactly_the_bound() -> None:
    async def main() -> None:
        async with serving(then=Fault(latency=0.02)) as server, client_of(server.url, bound=5) as client:
            answers = await outcomes(client, 40)
            assert all(isinstance(answer, ModelResponse) for answer in answers)
            assert server.stats.peak_in_flight == client.limiter.peak == 5

    run(main)


def test_the_bound_holds_under_faults_and_timeouts() -> None:
    async def main() -> None:
        rates = ("500|503|408@share=0.2", "reset@share=0.1", "hang@share=0.05", "malformed@share=0.05")
        faults = fault_script(*rates, latency=0.005, sigma=1.0, seed=3)
        server = ReferenceServer(faults=faults)
        async with client_of(await server.start(), bound=6, request_timeout=0.3, request_retries=20) as client:
            answers = await outcomes(client, 150)
        await server.stop()
        failed = [answer for answer in answers if not isinstance(answer, ModelResponse)]
        # Only a call that met three unreadable bodies may fail.
        assert all(isinstance(answer, ResponseError) for answer in failed)
        assert len(failed) <= 2
        assert client.limiter.peak == 6
        # A client that gave up is noticed by the server a moment later than by its own limiter.
        assert 6 <= server.stats.peak_in_flight <= 8

    run(main)


@pytest.mark.parametrize("number", [408, 409, 429, 500, 502, 503, 504])
def test_what_may_heal_is_tried_again(number: int) -> None:
    async def main() -> None:
        async with serving(status(number), status(number)) as server, client_of(server.url) as client:
            assert (await client.request(ASK)).attempts == 3
            assert server.stats.requests == 3

    run(main)


@pytest.mark.parametrize("number", [400, 422])
def test_a_bad_request_is_never_retried_and_stops_nothing_else(number: int) -> None:
    async def main() -> None:
        async with serving(status(number, "no such parameter")) as server, client_of(server.url) as client:
            with pytest.raises(ModelError, match=f"endpoint: HTTP {number}: no such parameter") as caught:
                await client.request(ASK)
            assert not isinstance(caught.value, SystemicError)
            assert (caught.value.reason, caught.value.retryable, caught.value.status) == ("bad_request", False, number)
            assert server.stats.requests == 1
            assert (await client.request(ASK)).attempts == 1

    run(main)


def test_a_prompt_that_does_not_fit_is_its_own_error() -> None:
    async def main() -> None:
        fault = status(400, "This model's maximum context length is 10 tokens")
        async with serving(fault) as server, client_of(server.url) as client:
            with pytest.raises(ContextLengthError):
                await client.request(ASK)
            assert server.stats.requests == 1

    run(main)


def test_retries_are_bounded() -> None:
    async def main() -> None:
        async with serving(then=status(503)) as server, client_of(server.url, request_retries=2) as client:
            with pytest.raises(ModelError, match="3 attempts") as caught:
                await client.request(ASK)
            assert (caught.value.reason, caught.value.retryable) == ("server_error", True)
            assert server.stats.requests == 3

    run(main)


@pytest.mark.parametrize("body", MALFORMED)
def test_an_unreadable_200_is_retried_a_few_times_only(body: bytes) -> None:
    async def main() -> None:
        malformed = Fault("body", body=body)
        async with serving(malformed, malformed) as server, client_of(server.url) as client:
            assert (await client.request(ASK)).attempts == 3
        async with serving(Fault(), then=malformed) as server, client_of(server.url) as client:
            await client.request(ASK)
            with pytest.raises(ResponseError, match="HTTP 200, but") as caught:
                await client.request(ASK)
            assert caught.value.reason == "bad_response"
            assert server.stats.requests == 4

    run(main)


@pytest.mark.parametrize("body", MALFORMED)
def test_what_never_spoke_as_an_api_is_given_up_and_bad_luck_is_not(body: bytes) -> None:
    is_page = body.startswith(b"<") or not body

    async def main() -> None:
        async with serving(then=Fault("body", body=body)) as server, client_of(server.url, bound=4) as client:
            errors = await outcomes(client, 100)
            assert {type(error) for error in errors} == {SystemicError if is_page else ResponseError}
            assert {getattr(error, "reason", "") for error in errors} == {"bad_response"}
            assert {"is the base URL that of an OpenAI-compatible API?" in str(error) for error in errors} == {True}
            assert server.stats.requests < 300 if is_page else server.stats.requests == 300
            other = [await outcomes(client, 1, ModelCall("another", ASK.prompt))]
            assert type(other[0][0]) is (SystemicError if is_page else ResponseError), "each model has its own chance"

    run(main)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "upstream died"}}', "HTTP 200, but the reply contains an error: upstream died"),
        (b'{"choices": [{"message": {"content": "4"}, "error": "cut off"}]}', "the reply contains an error: cut off"),
        (b'{"choices": [{"message": {"content": "4"}, "finish_reason": "error"}]}', "the finish_reason is `error`"),
        (b'{"detail": "no worker"}', "the reply contains an error: no worker"),
    ],
)
def test_an_error_that_a_provider_describes_does_not_question_the_address(body: bytes, words: str) -> None:
    async def main() -> None:
        async with serving(then=Fault("body", body=body)) as server, client_of(server.url) as client:
            (error,) = await outcomes(client, 1)
            assert isinstance(error, ResponseError) and error.reason == "bad_response"
            assert str(error).endswith(f"{words} (3 attempts); try again later, with retry_failed")
            assert without_advice(error) == (str(error).partition(";")[0], "server_error")

    run(main)


def test_pages_from_one_host_of_several_do_not_stop_what_waits_for_a_slow_answer() -> None:
    async def main() -> None:
        page = Fault("body", body=b"<html>busy</html>")
        async with (
            serving(Fault(latency=1.0), page, page, page) as server,
            client_of(server.url, request_retries=2) as client,
            asyncio.TaskGroup() as tasks,
        ):
            slow = tasks.create_task(client.request(ASK))
            await until(lambda: bool(server.stats.requests))
            [unlucky] = await outcomes(client, 1)
            assert type(unlucky) is ResponseError, "this call alone"
            assert not slow.done()
            [well] = await outcomes(client, 1)
            assert isinstance(well, ModelResponse), "the endpoint is still asked"
            assert (await slow).attempts == 1
            assert server.stats.requests == 5

    run(main)


def test_another_models_replies_are_told_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(then=Fault(edit="wrong-model", value="cheap\x1b[2J")) as server:
            async with client_of(server.url) as client:
                answers = await outcomes(client, 5)
                assert {getattr(answer, "model", "") for answer in answers} == {"cheap\x1b[2J"}
            assert [record.getMessage() for record in caplog.records] == [
                "endpoint: some-model was requested, but cheap?[2J answered"
            ]

    run(main)


def test_an_absurd_retry_after_slows_nothing_longer_than_it_is_obeyed() -> None:
    async def main() -> None:
        day = status(429, Retry_After="86400")
        policy = RetryPolicy(base=0.001, cap=0.01, retry_after_cap=0.05, rng=random.Random(0))
        clock = ManualClock()
        limiter = Limiter(8, clock=clock)
        async with serving(day) as server:
            client = ChatClient(RequestTarget(server.url), limiter, policy=policy)
            started = time.monotonic()
            assert (await client.request(ASK)).attempts == 2
            assert time.monotonic() - started >= 0.05
            await client.close()
        window = limiter.window
        assert window < 8
        await clock.advance(60.0)
        limiter.refused(clock.now(), None)
        assert limiter.window < window, "a minute later the next 429 counts, not a day later"

    run(main)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("huge", status=401, size=100 * 2**20),
        Fault("status", status=401, delivery="hang"),
        Fault("status", status=401, delivery="reset"),
        Fault("status", status=401, delivery="close"),
    ],
)
def test_an_error_counts_by_its_status_whatever_becomes_of_its_body(fault: Fault) -> None:
    async def main() -> None:
        async with serving(then=fault) as server, client_of(server.url, request_timeout=20.0) as client:
            with pytest.raises(SystemicError, match="HTTP 401") as caught:
                await client.request(ASK)
            assert caught.value.reason == "auth"
            assert server.stats.requests == 1

    run(main)


def test_retry_after_is_obeyed_in_every_form() -> None:
    async def main() -> None:
        date = format_datetime(datetime.fromtimestamp(1_700_000_000, UTC), usegmt=True)
        later = format_datetime(datetime.fromtimestamp(1_700_000_001, UTC), usegmt=True)
        cases = {
            0.2: status(429, retry_after_ms="200"),
            0.25: status(503, Retry_After="0.25"),
            0.15: status(429, x_ratelimit_reset_requests="150ms"),
            1.0: status(429, Retry_After=later, Date=date),
        }
        for seconds, fault in cases.items():
            async with serving(fault) as server, client_of(server.url) as client:
                started = time.monotonic()
                assert (await client.request(ASK)).attempts == 2
                assert time.monotonic() - started >= seconds

    run(main)


def test_backing_off_holds_no_slot() -> None:
    async def main() -> None:
        async with serving(status(429, Retry_After="60")) as server, client_of(server.url, bound=1) as client:
            refused = asyncio.ensure_future(client.request(ASK))
            await until(lambda: "backing off (rate_limit)" in note_of(client.delays()))
            assert client.limiter.in_flight == 0
            assert all(isinstance(answer, ModelResponse) for answer in await outcomes(client, 5))
            refused.cancel()
            await asyncio.gather(refused, return_exceptions=True)
            assert "backing off" not in note_of(client.delays())

    run(main)


def test_after_a_storm_of_429_the_bound_comes_back() -> None:
    async def main() -> None:
        storm = [status(429, retry_after_ms="1")] * 40
        async with (
            serving(*storm, then=Fault(latency=0.002)) as server,
            client_of(server.url, bound=8, request_retries=30) as client,
        ):
            calls = asyncio.ensure_future(outcomes(client, 200))
            await until(lambda: client.limiter.window <= 4)
            assert all(isinstance(answer, ModelResponse) for answer in await calls)
            assert server.stats.requests == 240
            assert client.limiter.window == 8

    run(main)


def test_a_bad_key_fails_everybody_at_once_with_one_message() -> None:
    async def main() -> None:
        refusal = status(401, f"Incorrect API key provided: {KEY}")
        async with serving(then=refusal) as server, client_of(server.url, bound=4) as client:
            errors = await outcomes(client, 200)
            assert all(isinstance(error, SystemicError) for error in errors)
            assert {str(error) for error in errors} == {
                "endpoint: HTTP 401: Incorrect API key provided: [redacted]; check the key in SOME_KEY"
            }
            assert server.stats.requests <= 4
            with pytest.raises(SystemicError):
                await client.request(ASK)
            assert server.stats.requests <= 4

    run(main)


def test_an_unknown_model_is_systemic_for_that_model_only() -> None:
    async def main() -> None:
        async with serving() as server, client_of(server.url) as client:
            with pytest.raises(SystemicError, match="did you mean reference/oracle") as caught:
                await client.request(ModelCall("reference/oracel", ASK.prompt))
            assert caught.value.reason == "not_found"
            assert "'reference/oracel'" in str(caught.value)
            assert (await client.request(ASK)).attempts == 1

    run(main)


def test_a_wrong_base_url_says_so() -> None:
    async def main() -> None:
        async with serving() as server, client_of(server.url.removesuffix("/v1")) as client:
            with pytest.raises(SystemicError, match="check the model name 'some-model' and the base URL"):
                await client.request(ASK)

    run(main)


def test_a_key_that_has_worked_gets_three_chances() -> None:
    async def main() -> None:
        script = [Fault(), status(401), status(401), Fault(), status(401), status(401), status(401)]
        async with serving(*script) as server, client_of(server.url) as client:
            kinds = [type(answer) for _ in script for answer in await outcomes(client, 1)]
            assert kinds == [
                ModelResponse, ModelError, ModelError, ModelResponse, ModelError, ModelError, SystemicError,
            ]  # fmt: skip

    run(main)


def test_a_dead_port_is_given_up_quickly_for_every_waiter() -> None:
    async def main() -> None:
        url = f"http://127.0.0.1:{free_port()}/v1"
        for count in (1, 50):
            async with client_of(url, bound=4, policy=RetryPolicy()) as client:
                errors = await outcomes(client, count)
                assert {type(error) for error in errors} == {SystemicError}
                assert len({str(error) for error in errors}) == 1
                assert "connection refused, and it has never answered" in str(errors[0])

    run(main)


def test_a_host_that_does_not_exist_is_given_up() -> None:
    async def main() -> None:
        async with client_of("http://no-such-host.invalid/v1") as client:
            with pytest.raises(SystemicError, match=r"no-such-host\.invalid cannot be resolved"):
                await client.request(ASK)

    run(main)


def test_what_speaks_no_http_is_given_up() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\x00\xff garbage\r\n\r\n")
        await writer.drain()

    async def main() -> None:
        async with raw_server(talk) as url, client_of(url) as client:
            with pytest.raises(SystemicError, match="not valid HTTP"):
                await client.request(ASK)

    run(main)


def test_an_endpoint_that_goes_away_and_comes_back_costs_nothing() -> None:
    async def main() -> None:
        async with serving() as server, client_of(server.url) as client:
            await client.request(ASK)
            port = int(server.url.split(":")[2].split("/")[0])
            await server.stop()
            waiting = asyncio.ensure_future(outcomes(client, 30))
            await until(lambda: "endpoint cannot be reached" in note_of(client.delays()))
            await until(lambda: client.limiter.in_flight == 0)
            async with serving(port=port) as again:
                assert all(isinstance(answer, ModelResponse) for answer in await waiting)
                assert again.stats.requests == 30
            assert note_of(client.delays()) == ""

    run(main)


def test_an_endpoint_that_stays_away_stops_everybody_after_the_grace_period() -> None:
    async def main() -> None:
        patience = HealthPolicy(grace=0.3, probe_gap=0.01, probe_gap_cap=0.05)
        async with serving() as server, client_of(server.url, patience=patience) as client:
            await client.request(ASK)
            await server.stop()
            errors = await outcomes(client, 20)
            assert {type(error) for error in errors} == {SystemicError}
            assert {"answered before" in str(error) for error in errors} == {True}

    run(main)


def test_resets_are_retried_and_do_not_condemn_an_endpoint() -> None:
    async def main() -> None:
        reset = Fault("reset")
        async with serving(reset, reset, reset) as server, client_of(server.url) as client:
            assert (await client.request(ASK)).attempts == 4
            assert server.stats.requests == 4
        async with serving(Fault(), then=reset) as server, client_of(server.url, request_retries=3) as client:
            await client.request(ASK)
            with pytest.raises(ModelError) as caught:
                await client.request(ASK)
            assert not isinstance(caught.value, SystemicError)
            assert (caught.value.reason, caught.value.retryable) == ("connection", True)

    run(main)


def test_silence_is_bounded_by_the_request_timeout() -> None:
    async def main() -> None:
        hang = Fault("hang")  # of the server's own choice: it answers `GET /models`, so somebody is there
        async with (
            serving(hang, hang) as server,
            client_of(server.url, request_timeout=0.1, request_retries=1) as client,
        ):
            with pytest.raises(ModelError, match=r"no reply within 0\.1 s") as caught:
                await client.request(ASK)
            assert not isinstance(caught.value, SystemicError)
            assert (caught.value.reason, caught.value.retryable) == ("timeout", True)
            assert server.stats.requests == 2

    run(main)


class Silent:
    """A TCP server that takes everything and says nothing, until it is told to answer."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answers = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            self.asked.append(head.split(b" ")[0])
            await self.answers.wait()
            body = b'{"choices": [{"message": {"content": "ok"}}]}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()


def test_an_endpoint_that_takes_requests_and_never_says_a_byte_is_given_up() -> None:
    async def main() -> None:
        silent = Silent()
        patience = HealthPolicy(connect_deadline=0.1)
        async with raw_server(silent) as url, client_of(url, request_timeout=0.2, patience=patience) as client:
            errors = await outcomes(client, 20)
            assert {type(error) for error in errors} == {SystemicError}
            assert {str(error) for error in errors} == {
                "endpoint: no reply within 0.2 s (request_timeout), and it has never answered any request; "
                "is the base URL right, and does it work?"
            }
            assert silent.asked.count(b"GET") == 1, "one probe, and no second attempt"
            assert silent.asked.count(b"POST") == 8, "the bound"

    run(main)


@pytest.mark.parametrize("comes_back", [True, False])
def test_an_endpoint_that_falls_silent_is_waited_for_like_one_that_is_gone(comes_back: bool) -> None:
    async def main() -> None:
        silent = Silent()
        silent.answers.set()
        grace = 20.0 if comes_back else 0.5
        patience = HealthPolicy(connect_deadline=0.1, grace=grace, probe_gap=0.01, probe_gap_cap=0.02)
        options = {"request_timeout": 0.2, "request_retries": 0, "patience": patience}
        async with raw_server(silent) as url, client_of(url, **options) as client:
            await client.request(ASK)
            silent.answers.clear()
            waiting = asyncio.ensure_future(outcomes(client, 20))
            await until(lambda: "endpoint cannot be reached" in note_of(client.delays()))
            if comes_back:
                silent.answers.set()
                assert all(isinstance(answer, ModelResponse) for answer in await waiting)
            else:
                errors = await waiting
                assert {type(error) for error in errors} == {SystemicError}
                assert {"it answered before, but not for the last 0.5 s" in str(error) for error in errors} == {True}

    run(main)


def test_a_trickle_of_bytes_does_not_reset_the_timeout() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with raw_server(talk) as url, client_of(url, request_timeout=0.2, request_retries=0) as client:
            with pytest.raises(ModelError) as caught:
                await client.request(ASK)
            assert caught.value.reason == "timeout"

    run(main)


def test_a_reply_that_breaks_off_is_tried_again() -> None:
    async def main() -> None:
        tries = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal tries
            tries += 1
            await reader.readuntil(b"\r\n\r\n")
            body = b'{"choices": [{"message": {"content": "ok"}}]}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body if tries == 3 else body[:10])
            await writer.drain()

        async with raw_server(talk) as url, client_of(url) as client:
            response = await client.request(ASK)
            assert (response.message["content"], response.attempts) == ("ok", 3)
            assert response.usage.unreported == 1

    run(main)


def test_cancelled_calls_leak_nothing() -> None:
    async def main() -> None:
        rng = random.Random(5)
        async with serving(then=Fault(latency=0.01)) as server, client_of(server.url, bound=4) as client:
            tasks = [asyncio.ensure_future(client.request(ASK)) for _ in range(200)]
            while not all(task.done() for task in tasks):
                rng.choice(tasks).cancel()
                await asyncio.sleep(rng.choice((0.0, 0.001, 0.003)))
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (client.limiter.in_flight, client.limiter.queued) == (0, 0)
            assert all(isinstance(answer, ModelResponse) for answer in await outcomes(client, 8))
            assert client.limiter.peak <= 4

    run(main)


async def headers_seen(target_of: Callable[[str], RequestTarget], call: ModelCall) -> str:
    seen = ""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = b'{"choices": [{"message": {"content": "ok"}}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with raw_server(talk) as url, client_of(url, target=target_of(url)) as client:
        await client.request(call)
    return seen


def test_headers_of_endpoint_and_call() -> None:
    async def main() -> None:
        call = ModelCall("m", ASK.prompt, headers={"X-Bench-Rollout": "lane;e;r", "X-Own": "1"})
        seen = await headers_seen(lambda url: RequestTarget(url, KEY, {"X-Org": "me"}), call)
        assert f"authorization: bearer {KEY}" in seen
        assert "x-org: me" in seen
        assert "x-bench-rollout: lane;e;r" in seen
        assert "x-own: 1" in seen
        assert "content-type: application/json" in seen
        without = await headers_seen(lambda url: RequestTarget(url, KEY, {"AUTHORIZATION": "Basic 0123456789"}), ASK)
        assert without.count("authorization:") == 1
        assert "basic 0123456789" in without
        keyless = await headers_seen(RequestTarget, ASK)
        assert "authorization" not in keyless

    run(main)


@pytest.mark.parametrize("args", [{"stream": True}, {"n": 2}, {"extra_body": {"n": 4}}])
def test_replies_that_would_not_be_read_are_not_asked_for(args: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving() as server, client_of(server.url) as client:
            with pytest.raises(ModelError, match=r"sampling_args\."):
                await client.request(replace(ASK, sampling_args=args))
            assert server.stats.requests == 0

    run(main)


def test_the_rollout_header_never_leaves_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is on this machine, and the host behind it is not."""
    heard: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def main() -> None:
        async with raw_server(proxy) as url:
            monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
            call = replace(ASK, headers={"x-bench-rollout": "lane;e;r", "X-Own": "1"})
            async with client_of("http://api.example.invalid/v1") as client:
                with pytest.raises(SystemicError):
                    await client.request(call)

    run(main)
    [head] = heard
    assert b"api.example.invalid" in head and b"X-Own: 1" in head
    assert b"rollout" not in head.lower()


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "", "http://", "/v1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http"):
        RequestTarget(url)


def test_credentials_in_a_url_are_refused_without_being_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        RequestTarget("https://me:hunter22@host/v1")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(("key", "headers"), [("two\nlines", {}), (None, {"X-Org": "a\r\nX-Evil: 1"})])
def test_a_line_break_in_a_header_is_refused_without_being_repeated(key: str | None, headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="control character") as caught:
        RequestTarget("https://host/v1", key, headers)
    assert "lines" not in str(caught.value)


@pytest.mark.parametrize("key", ["\u201csk-canary-0123456789\u201d", "\ufeffsk-canary-0123456789", "sk-cana\u20266789"])
def test_a_key_that_was_copied_with_something_else_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^host: the key contains '.{1,6}', which is not valid in a key; was the key copied"
    ) as caught:
        RequestTarget("https://host/v1", key)
    assert "cana" not in str(caught.value)


def test_secrets_of_headers_are_known_to_the_redactor() -> None:
    RequestTarget("https://host/v1", None, {"Api-Key": "canary-header-1", "Authorization": "Basic canary-header-2",
                                     "X-Token-Limit": "100000", "X-Monkey": "banana-banana-1",
                                     "X-AccessToken": "canary-header-3", "XAPIKey": "canary-header-4"})  # fmt: skip
    said = "canary-header-1 canary-header-2 100000 banana-banana-1 canary-header-3 canary-header-4"
    text = redactor.text(said, patterns=False)
    assert text == "[redacted] [redacted] 100000 banana-banana-1 [redacted] [redacted]"


def test_a_host_that_swallows_connections_is_given_up() -> None:
    async def main() -> None:
        with listening(full=True) as port:
            url = f"http://127.0.0.1:{port}/v1"
            patience = HealthPolicy(connect_deadline=0.3)
            async with client_of(url, patience=patience, request_timeout=0.5) as client:
                errors = await outcomes(client, 5)
                assert {type(error) for error in errors} == {SystemicError}
                assert "no connection in time, and it has never answered" in str(errors[0])

    run(main)


def test_a_target_does_not_show_its_key() -> None:
    assert KEY not in repr(RequestTarget("https://host/v1", KEY, {"X-Token": KEY}))
