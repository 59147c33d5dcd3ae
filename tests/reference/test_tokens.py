"""Log-probabilities of prompts and the tokenizer of the embedded server."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tables import for_each_row

from harness.core.types import ModelCall
from harness.models.openai_provider import OpenAIProvider
from harness.models.target import RequestTarget
from harness.reference import tokens
from harness.reference.server import ReferenceServer

TEXTS = ("", "Question: what is é – 日本?\n\nAnswer: abcdefghij", "a  b\t<|endoftext|> c", " \x00 'quoted'", "x" * 50)


@for_each_row("text", TEXTS)
def test_tokens_are_the_text_and_those_of_a_beginning_begin_those_of_the_whole(text: str) -> None:
    assert "".join(tokens.tokens_of(text)) == text
    assert tokens.decode(tokens.encode(text)) == tokens.tokens_of(text)
    assert all(each < 2**53 for each in tokens.encode(text))
    for end in range(1, len(text)):
        whole, start = tokens.encode(text), tokens.encode(text[:end])
        assert start[:-1] == whole[: len(start) - 1] or "<|endoftext|>" in text


@for_each_row("wrong", [5, -1, True, "7", 2**60, 1.0])
def test_numbers_that_are_no_tokens_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not the id of a token"):
        tokens.decode([wrong])


async def posted(session: aiohttp.ClientSession, url: str, **body: Any) -> dict[str, Any]:
    async with session.post(url, json=body) as reply:
        return {"status": reply.status, **await reply.json()}


def test_a_prompt_is_echoed_with_log_probabilities() -> None:
    async def main() -> None:
        async with ReferenceServer() as server, aiohttp.ClientSession() as session:
            url = f"{server.url}/completions"
            score = {"echo": True, "logprobs": 1, "max_tokens": 1}
            text = "The sky is blue"
            one = await posted(session, url, model="m", prompt=text, **score)
            assert one == {**await posted(session, url, model="m", prompt=text, **score), "id": one["id"],
                           "created": one["created"]}  # fmt: skip
            choice = one["choices"][0]
            found = choice["logprobs"]
            assert choice["text"] == text + tokens.END
            assert found["tokens"] == ["The", " sky", " is", " blue", tokens.END]
            assert found["text_offset"] == [0, 3, 7, 10, 15]
            assert found["token_logprobs"][0] is None
            assert all(-8 < value < 0 for value in found["token_logprobs"][1:])
            pairs = zip(found["token_logprobs"][1:], found["top_logprobs"][1:], strict=True)
            assert all(value in top.values() for value, top in pairs)
            ids = tokens.encode(text)
            by_id = await posted(session, url, model="m", prompt=[ids, ids[:2]], **{**score, "max_tokens": 0})
            assert [each["index"] for each in by_id["choices"]] == [0, 1]
            assert by_id["choices"][0]["logprobs"]["token_logprobs"] == found["token_logprobs"][:-1]
            assert by_id["choices"][1]["text"] == "The sky"
            other = await posted(session, url, model="n", prompt=text, **score)
            assert other["choices"][0]["logprobs"]["token_logprobs"] != found["token_logprobs"]
            # Without log-probabilities the policy answers, after the prompt.
            echoed = await posted(session, url, model="reference/echo", prompt=ids, echo=True)
            assert echoed["choices"][0]["text"] == text * 2
            assert (await posted(session, url, model="m", prompt=7))["status"] == 400
            assert (await posted(session, url, model="m", prompt=[[5]]))["status"] == 400

    asyncio.run(main())


def test_the_server_has_the_tokenizer_of_its_log_probabilities() -> None:
    async def main() -> None:
        async with ReferenceServer() as server, aiohttp.ClientSession() as session:
            root = server.url.removesuffix("/v1")
            found = await posted(session, f"{root}/tokenize", prompt="Once upon")
            assert found["tokens"] == tokens.encode("Once upon")
            assert found["count"] == 2
            assert (await posted(session, f"{root}/detokenize", tokens=found["tokens"]))["prompt"] == "Once upon"
            assert (await posted(session, f"{root}/tokenize"))["status"] == 400
            assert (await posted(session, f"{root}/detokenize", tokens=[5]))["status"] == 400
            async with session.get(f"{root}/tokenizer_info") as reply:
                assert (await reply.json())["eos_token"] == tokens.END

    asyncio.run(main())


def test_a_reply_has_the_log_probabilities_and_its_whole_text() -> None:
    async def main() -> None:
        async with ReferenceServer() as server:
            provider = OpenAIProvider(RequestTarget(server.url), connect_timeout=10)
            try:
                score = {"echo": True, "logprobs": 1, "max_tokens": 1}
                reply = await provider.complete(ModelCall("m", "The sky", sampling_args=score))
                assert reply.message["content"] == f"The sky{tokens.END}"
                assert reply.logprobs is not None
                assert reply.logprobs["tokens"] == ["The", " sky", tokens.END]
                assert (await provider.complete(ModelCall("m", "The sky"))).logprobs is None
            finally:
                await provider.close()

    asyncio.run(main())
