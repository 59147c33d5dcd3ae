"""Names, parameters and draws of the reference models."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.records import Example, Row
from harness.core.state import State
from harness.core.types import Message, Messages
from harness.reference.header import RolloutHeader, format_header, parse_header
from harness.reference.panel import ReferencePanel
from harness.reference.player import EnvironmentPlayer
from harness.reference.policies import Policy, echo, is_reference, parse_model

EXAMPLE = Example("k", 0, [{"role": "user", "content": "1 + 1"}], answer="2")


class Sums:
    """A toy environment: adds two numbers."""

    row_count = 3

    def row(self, i: int, /) -> Row:
        return Row(i, [{"role": "system", "content": "add"}, {"role": "user", "content": f"{i} + 1"}], str(i + 1))

    def reference_reply(self, example: Example, messages: Messages, /) -> Message | str:
        return {"role": "assistant", "content": example.answer, "turn": len(messages)}

    def null_reply(self, example: Example, messages: Messages, /) -> Message | str:
        return "no idea"

    def reference_verdict(self, example: Example, messages: Messages, /) -> str:
        return f"{example.answer} in {len(messages)}"


def player() -> EnvironmentPlayer:
    built = EnvironmentPlayer(Sums())
    built.learn_all()
    return built


def test_names() -> None:
    assert parse_model("reference/oracle") == Policy("oracle")
    assert parse_model("reference/noisy?accuracy=0.25&seed=7") == Policy("noisy", 0.25, 7)
    assert parse_model("reference/noisy") == Policy("noisy", 0.7, 0)
    assert parse_model("reference/null").name == "null"
    assert not parse_model("reference/echo").needs_player
    assert parse_model("reference/judge") == Policy("judge")
    assert parse_model("reference/judge").needs_player
    assert is_reference("reference/anything")
    assert not is_reference("openai/gpt-4.1-mini")


@for_each_row(
    ("model", "words"),
    [
        ("reference/oracel", "did you mean reference/oracle?"),
        ("reference/xyz", "known are reference/oracle, reference/noisy"),
        ("reference/", "known are reference/oracle"),
        ("oracle", "did you mean reference/oracle?"),
        ("reference/noisy?acuracy=0.5", "did you mean accuracy?"),
        ("reference/noisy?temperature=0.5", "it takes accuracy and seed"),
        ("reference/oracle?seed=1", "it takes no parameters"),
        ("reference/noisy?accuracy=70", "from 0 to 1"),
        ("reference/noisy?accuracy=nan", "from 0 to 1"),
        ("reference/noisy?accuracy=", "from 0 to 1"),
        ("reference/noisy?seed=x", "whole number"),
        ("reference/noisy?seed=1&seed=2", "sets the parameter seed twice"),
        ("reference/noisy?&", "write parameters as in"),
    ],
)
def test_wrong_names_say_what_is_right(model: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_model(model)
    assert words in str(caught.value)


def test_noise_is_drawn_from_seed_and_key_alone() -> None:
    policy = Policy("noisy", 0.5, 3)
    drawn = int.from_bytes(hashlib.sha256(b"3:key").digest()[:8], "big") / 2**64
    assert policy.is_ideal("key") == (drawn < 0.5)
    ideal = [policy.is_ideal(str(i)) for i in range(4000)]
    assert 1880 < sum(ideal) < 2120
    assert ideal == [Policy("noisy", 0.5, 3).is_ideal(str(i)) for i in range(4000)]
    assert ideal != [Policy("noisy", 0.5, 4).is_ideal(str(i)) for i in range(4000)]
    assert all(Policy("noisy", 1.0).is_ideal(str(i)) for i in range(100))
    assert not any(Policy("noisy", 0.0).is_ideal(str(i)) for i in range(100))
    # A higher accuracy only adds ideal rollouts: accuracies of one seed are comparable rollout by rollout.
    assert all(Policy("noisy", 0.8, 3).is_ideal(str(i)) for i in range(4000) if ideal[i])


def test_replies() -> None:
    toy = player()
    messages: Messages = [{"role": "system", "content": "add"}, {"role": "user", "content": "1 + 1"}]
    example = toy.find(None, messages)
    assert example is not None
    assert Policy("oracle").reply(toy, example, messages, "k") == {"role": "assistant", "content": "2", "turn": 2}
    assert Policy("null").reply(toy, example, messages, "k") == {"role": "assistant", "content": "no idea"}
    assert Policy("echo").reply(toy, example, messages, "k")["content"] == "1 + 1"


def test_the_judge_says_what_the_environment_says() -> None:
    example = player().find(None, Sums().row(1).prompt)
    asked: Messages = [{"role": "user", "content": "right?"}]
    reply = Policy("judge").reply(player(), example, asked, "key")
    assert reply == {"role": "assistant", "content": "2 in 1"}


def test_echo() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert echo([{"role": "user", "content": parts}, {"role": "assistant", "content": "x"}]) == "ab"
    assert echo([]) == ""


def test_examples_are_found_by_key_and_by_the_prompt_that_a_conversation_begins_with() -> None:
    toy = player()
    prompt: Messages = [{"role": "system", "content": "add"}, {"role": "user", "content": "2 + 1"}]
    later = [*prompt, {"role": "assistant", "content": "?"}, {"role": "user", "content": "again"}]
    by_prompt = toy.find(None, prompt)
    assert by_prompt is not None
    assert by_prompt.answer == "3"
    assert toy.find(None, later) == by_prompt
    assert toy.find(by_prompt.key, [{"role": "user", "content": "whatever"}]) == by_prompt
    assert toy.find("unknown key", later) == by_prompt
    assert toy.find(None, [{"role": "user", "content": "2 + 1"}]) is None
    toy.forget(by_prompt.key)
    assert toy.find(by_prompt.key, prompt) is None


@given(st.text(), st.text(), st.text())
def test_the_header_holds_any_text(lane: str, example: str, rollout: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in lane + example + rollout):
        return
    value = format_header(lane, example, rollout)
    assert value.isascii()
    assert value.isprintable()
    assert parse_header(value) == RolloutHeader(lane, example, rollout)


@for_each_row("value", [None, "", "a;b", "a;b;c;d"])
def test_other_headers_are_no_rollouts(value: str | None) -> None:
    assert parse_header(value) is None


def returning(value: object) -> Any:
    class Wrong(Sums):
        def reference_reply(self, example: Example, messages: Messages, /) -> Any:
            return value

        def null_reply(self, example: Example, messages: Messages, /) -> Any:
            return value

        def reference_verdict(self, example: Example, messages: Messages, /) -> Any:
            return value

    return Wrong()


METHODS = [("oracle", "reference_reply"), ("null", "null_reply"), ("judge", "reference_verdict")]

WRONG: list[tuple[object, str]] = [
    (None, "returned NoneType, not a string or a message (missing return statement?)"),
    (1.0, "returned float, not a string or a message"),
    ({}, "returned a dict that is not a message"),
    ({"content": 3}, "returned a dict that is not a message"),
    ({"content": None, "tool_calls": "f"}, "returned a dict that is not a message"),
]


@for_each_row(("value", "words"), WRONG)
@for_each_row(("policy", "method"), METHODS)
def test_what_is_no_message_is_the_environments_fault(policy: Any, method: str, value: object, words: str) -> None:
    built = EnvironmentPlayer(returning(value))
    built.learn_all()
    example = built.find(None, [{"role": "system", "content": "add"}, {"role": "user", "content": "1 + 1"}])
    assert example is not None
    with pytest.raises(EnvironmentFault) as caught:
        Policy(policy).reply(built, example, [], "k")
    assert str(caught.value).startswith(f"{method} {words}")


def test_an_async_method_is_named_and_never_left_unawaited() -> None:
    async def later() -> str:
        return "2"

    built = EnvironmentPlayer(returning(later()))
    built.learn_all()
    with pytest.raises(EnvironmentFault, match=r"reference_reply returned a coroutine, .* make it a plain def"):
        Policy("oracle").reply(built, built.find(None, [{"role": "user", "content": "?"}]) or EXAMPLE, [], "k")


@for_each_row(("value", "words"), WRONG)
def test_a_judge_without_a_server_says_the_same(value: object, words: str) -> None:
    chat = ReferencePanel(returning(value)).chat(None, State.begin(EXAMPLE, 0, "m", {}))
    with pytest.raises(EnvironmentFault) as caught:
        asyncio.run(chat([{"role": "user", "content": "?"}]))
    assert str(caught.value).startswith(f"reference_verdict {words}")


def test_a_judge_without_a_server_answers() -> None:
    chat = ReferencePanel(returning("CORRECT!")).chat(None, State.begin(EXAMPLE, 0, "m", {}))
    response = asyncio.run(chat([{"role": "user", "content": "12345678"}]))
    assert response.message == {"role": "assistant", "content": "CORRECT!"}
    assert (response.usage.input_tokens, response.usage.output_tokens) == (2, 2)
