"""The reference server over its own HTTP, asked by a plain aiohttp client."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.core.records import Example, Row
from harness.core.types import ROLLOUT_HEADER, Message, Messages
from harness.plugins.faults.rules import Fault, ScriptedFaults
from harness.reference.header import format_header
from harness.reference.player import EnvironmentPlayer
from harness.reference.policies import Policy
from harness.reference.server import ReferenceServer

Ask = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]


class Questions:
    """A toy environment whose ideal player fails in chosen ways."""

    row_count = 2

    def row(self, i: int, /) -> Row:
        return Row(i, [{"role": "user", "content": f"question {i}"}], f"answer {i}")

    def reference_reply(self, example: Example, messages: Messages, /) -> Message | str:
        if "crash" in messages[-1]["content"]:
            raise KeyError("bug")
        if "tool" in messages[-1]["content"]:
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        return example.answer

    def null_reply(self, example: Example, messages: Messages, /) -> Message | str:
        return ""

    def reference_verdict(self, example: Example, messages: Messages, /) -> str:
        return f"<verdict>{example.answer}</verdict>"


class Unplayable(Questions):
    """A toy environment without a reference policy."""

    def reference_reply(self, example: Example, messages: Messages, /) -> Message | str:
        raise NotImplementedError("questions has no reference policy; use -m with a real model")


def learned(environment: Questions) -> EnvironmentPlayer:
    player = EnvironmentPlayer(environment)
    player.learn_all()
    return player


def serve(server: ReferenceServer, talk: Callable[[Ask], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            url = await server.start()
            assert url == server.url

            async def ask(
                model: str,
                content: object = "hi",
                path: str = "/chat/completions",
                header: str | None = None,
                **body: Any,
            ) -> tuple[int, dict[str, Any]]:
                asked = {"messages": content if isinstance(content, list) else [{"role": "user", "content": content}]}
                if path == "/completions":
                    asked = {"prompt": content}
                headers = {} if header is None else {ROLLOUT_HEADER: header}
                async with session.post(url + path, json={"model": model, **asked, **body}, headers=headers) as reply:
                    return reply.status, await reply.json()

            try:
                await talk(ask)
            finally:
                await server.stop()
                await server.stop()

    asyncio.run(main())


def text(reply: tuple[int, dict[str, Any]]) -> str:
    assert reply[0] == 200, reply
    choice = reply[1]["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def test_without_environments_any_name_answers_a_fixed_text() -> None:
    async def talk(ask: Ask) -> None:
        status, body = await ask("my-model")
        assert status == 200
        assert body["model"] == "my-model"
        assert body["usage"] == {"prompt_tokens": 1, "completion_tokens": 200, "total_tokens": 201}
        assert body["choices"][0]["finish_reason"] == "stop"
        cut = await ask("my-model", max_tokens=2)
        assert len(text(cut)) == 8
        assert cut[1]["choices"][0]["finish_reason"] == "length"
        assert cut[1]["usage"]["completion_tokens"] == 2
        assert text(await ask("my-model", "Once", "/completions")).startswith("To answer this")
        assert text(await ask("reference/echo", "say that")) == "say that"
        assert text(await ask("reference/echo", "say that", "/completions")) == "say that"

    serve(ReferenceServer(), talk)


def test_a_policy_without_its_environment_says_what_to_do() -> None:
    async def talk(ask: Ask) -> None:
        status, body = await ask("reference/oracle")
        assert status == 404
        assert "with an environment" in body["error"]["message"]
        status, body = await ask("reference/nosy")
        assert (status, body["error"]["code"]) == (404, "model_not_found")
        assert "did you mean reference/noisy?" in body["error"]["message"]

    serve(ReferenceServer(), talk)


def test_players_answer_by_lane_by_key_and_by_prompt() -> None:
    server = ReferenceServer(count_rollouts=True)
    player = learned(Questions())
    server.add("lane one", player)
    example = player.find(None, [{"role": "user", "content": "question 1"}])
    assert example is not None

    async def talk(ask: Ask) -> None:
        assert text(await ask("reference/oracle", "question 0")) == "answer 0"
        assert text(await ask("reference/null", "question 0")) == ""
        header = format_header("lane one", example.key, "r1")
        assert text(await ask("reference/oracle", "a later turn", header=header)) == "answer 1"
        other = format_header("another lane", example.key, "r1")
        assert text(await ask("reference/oracle", "a later turn", header=other)) == "answer 1"
        assert server.stats.rollouts == {"r1": 2}
        status, body = await ask("reference/oracle", "unheard of")
        assert (status, body["error"]["code"]) == (404, "no_player")
        server.remove("lane one")
        assert (await ask("reference/oracle", "question 0"))[0] == 404

    serve(server, talk)


def test_noise_follows_the_rollouts_key() -> None:
    server = ReferenceServer()
    player = learned(Questions())
    server.add("lane", player)
    example = player.find(None, [{"role": "user", "content": "question 0"}])
    assert example is not None
    policy = Policy("noisy", 0.5, 1)

    async def talk(ask: Ask) -> None:
        for number in range(40):
            header = format_header("lane", example.key, f"r{number}")
            answer = text(await ask("reference/noisy?accuracy=0.5&seed=1", "question 0", header=header))
            assert answer == ("answer 0" if policy.is_ideal(f"r{number}") else "")

    serve(server, talk)


def test_other_names_can_be_given_a_policy() -> None:
    server = ReferenceServer(policy=Policy("oracle"))
    server.add("lane", learned(Questions()))

    async def talk(ask: Ask) -> None:
        assert text(await ask("my-model", "question 1")) == "answer 1"

    serve(server, talk)


def test_tool_calls_of_a_player_reach_the_client() -> None:
    server = ReferenceServer()
    server.add("lane", learned(Questions()))

    async def talk(ask: Ask) -> None:
        _, body = await ask(
            "reference/oracle", [{"role": "user", "content": "question 0"}, {"role": "user", "content": "tool"}]
        )
        assert body["choices"][0]["finish_reason"] == "tool_calls"
        assert body["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}

    serve(server, talk)


def test_a_bug_in_a_player_is_that_requests_error() -> None:
    server = ReferenceServer()
    server.add("lane", learned(Questions()))
    crash = [{"role": "user", "content": "question 0"}, {"role": "user", "content": "crash"}]

    async def talk(ask: Ask) -> None:
        status, body = await ask("reference/oracle", crash)
        assert (status, body["error"]["code"]) == (400, "environment_error")
        assert "KeyError: 'bug'" in body["error"]["message"]
        assert text(await ask("reference/oracle", "question 0")) == "answer 0"

    serve(server, talk)


@for_each_row(
    ("returned", "words"),
    [
        (None, "reference_reply returned NoneType, not a string or a message (missing return statement?)"),
        ({"content": "x", "extra": object()}, "the environment's reply cannot be sent as JSON"),
        ("half \ud800 of a pair", "the environment's reply cannot be sent as JSON"),
    ],
)
def test_a_player_that_returns_no_message_is_that_requests_error(returned: Any, words: str) -> None:
    class Forgetful(Questions):
        def reference_reply(self, example: Example, messages: Messages, /) -> Any:
            return returned

    server = ReferenceServer()
    server.add("lane", learned(Forgetful()))

    async def talk(ask: Ask) -> None:
        status, body = await ask("reference/oracle", "question 0")
        assert (status, body["error"]["code"]) == (400, "environment_error")
        assert body["error"]["message"].startswith(words)
        assert server.stats.in_flight == 0

    serve(server, talk)


def test_an_environment_without_a_reference_policy_is_named() -> None:
    server = ReferenceServer()
    server.add("lane", learned(Unplayable()))

    async def talk(ask: Ask) -> None:
        status, body = await ask("reference/oracle", "question 0")
        assert (status, body["error"]["code"]) == (404, "no_reference_policy")
        assert "questions has no reference policy" in body["error"]["message"]

    serve(server, talk)


def test_what_is_no_request_is_refused() -> None:
    async def main() -> None:
        server = ReferenceServer()
        url = await server.start()
        async with aiohttp.ClientSession() as session:
            for data in (b"", b"{", b"[]", b'{"model": "m"}', b'{"model": 1, "messages": []}'):
                async with session.post(f"{url}/chat/completions", data=data) as reply:
                    assert (reply.status, "error" in await reply.json()) == (400, True)
            async with session.get(f"{url}/chat/completions") as reply:
                assert reply.status == 404
            async with session.get(f"{url}/models") as reply:
                assert "reference/oracle" in [entry["id"] for entry in (await reply.json())["data"]]
            async with session.get(url.removesuffix("/v1") + "/stats") as reply:
                assert await reply.json() == {"requests": 5, "in_flight": 0, "peak_in_flight": 1}
            asked = {"model": "reference/echo", "messages": [{"role": "user", "content": "x" * 3_000_000}]}
            big = io.BytesIO(json.dumps(asked).encode())
            async with session.post(f"{url}/chat/completions", data=big) as reply:
                assert len((await reply.json())["choices"][0]["message"]["content"]) == 3_000_000
        await server.stop()

    asyncio.run(main())


def test_injected_faults() -> None:
    script = [
        Fault("status", status=429, headers=(("Retry-After", "3"),)),
        Fault("reset"),
        Fault("body", body=b"<html>"),
        Fault("hang"),
    ]
    server = ReferenceServer(faults=ScriptedFaults(script))

    async def main() -> None:
        url = await server.start() + "/chat/completions"
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json=body) as reply:
                assert (reply.status, reply.headers["Retry-After"]) == (429, "3")
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.post(url, json=body)
            async with session.post(url, json=body) as reply:
                assert (reply.status, await reply.read()) == (200, b"<html>")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await session.post(url, json=body)
            # The client has gone: its place is free although the handler would have waited for ever.
            async with asyncio.timeout(60):
                while server.stats.in_flight:  # noqa: ASYNC110 - the server offers a number, not an event
                    await asyncio.sleep(0.005)
            async with session.post(url, json=body) as reply:
                assert reply.status == 200
        await server.stop()

    asyncio.run(main())


def test_stopping_cuts_what_hangs() -> None:
    async def main() -> None:
        server = ReferenceServer(faults=ScriptedFaults([], then=Fault("hang")))
        url = await server.start() + "/chat/completions"
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            hanging = asyncio.ensure_future(session.post(url, json={"model": "m", "messages": []}))
            while not server.stats.in_flight:  # noqa: ASYNC110 - the server offers a number, not an event
                await asyncio.sleep(0.005)
            await server.stop()
            with pytest.raises(aiohttp.ClientConnectionError):
                await hanging

    asyncio.run(main())


def test_a_taken_port_is_named() -> None:
    async def main() -> None:
        first = ReferenceServer()
        port = int((await first.start()).split(":")[2].removesuffix("/v1"))
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*port 0 selects a free port"):
            await ReferenceServer(port=port).start()
        await first.stop()

    asyncio.run(main())
