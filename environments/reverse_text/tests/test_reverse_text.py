"""Texts that are reversed, nearly reversed and not at all, and the subsequence behind the grade."""

from __future__ import annotations

import asyncio
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import for_each_row

from harness import ModelResponse, Prompt, State
from harness.keys import ExampleKeys
from reverse_text import MAX_CHARACTERS, load_environment, longest_common_subsequence, read_reversed

texts = st.text("ab c", max_size=12)


def by_table(one: str, other: str) -> int:
    """The textbook's table, to compare with."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@settings(deadline=None)
@given(texts, texts)
def test_the_longest_common_subsequence_is_the_tables(one: str, other: str) -> None:
    assert longest_common_subsequence(one, other) == by_table(one, other)


@settings(deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_it_holds_for_any_characters_and_is_no_shorter_than_what_difflib_finds(one: str, other: str) -> None:
    length = longest_common_subsequence(one, other)
    assert length == longest_common_subsequence(other, one) == longest_common_subsequence(one[::-1], other[::-1])
    matched = sum(block.size for block in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    assert matched <= length <= min(len(one), len(other))


@for_each_row(
    ("reply", "text"),
    [
        ("<reversed>cba</reversed>", "cba"),
        ("Sure: <reversed>\n cba \n</reversed>.", "cba"),
        ("<reversed>c b\na</reversed>", "c b\na"),
        ("<think><reversed>x</reversed></think><reversed>cba</reversed>", "cba"),
        ("<reversed>cba</reversed><reversed> cba </reversed>", "cba"),
        ("<reversed>cba</reversed><reversed>abc</reversed>", ""),
        ("<think><reversed>cba</reversed>", ""),
        ("<reversed>cba", ""),
        ("cba", ""),
        ("", ""),
        ("<reversed>" * 50_000, ""),
        ("<reversed>" + "a" * (MAX_CHARACTERS + 1) + "</reversed>", ""),
    ],
)
def test_a_text_is_read_or_there_is_none(reply: str, text: str) -> None:
    assert read_reversed(reply) == text


class Saying:
    """A model that answers with a function of the text it is given."""

    model = "saying"

    def __init__(self, said: str) -> None:
        self.said = said

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        return ModelResponse({"role": "assistant", "content": self.said}, "stop")


def score(said: str, answer: str) -> State:
    env = load_environment(num_examples=1)
    state = State.begin(ExampleKeys().example(env.row(0), 0), 0, "saying", {})
    state["answer"] = answer

    async def main() -> None:
        await env.rollout(state, Saying(said))
        await env.rubric.score([state])

    asyncio.run(main())
    return state


@for_each_row(
    ("reply", "reward"),
    [
        ("dcba", 1.0),
        ("dcb", 6 / 7),
        ("dcxba", 8 / 9),
        ("dbca", 0.75),
        ("DCBA", 0.0),
        ("abcd", 0.25),
        ("dcba" * 3, 0.5),  # repeating the text does not pay
        ("abcd" * 4, 0.4),  # nor does holding every subsequence
        ("xyz", 0.0),
    ],
)
def test_the_grade_is_the_ratio(reply: str, reward: float) -> None:
    state = score(f"<reversed>{reply}</reversed>", "dcba")
    assert state["reward"] == pytest.approx(reward)
    assert state["metrics"] == {"lcs_ratio": state["reward"], "exact": float(reply == "dcba")}


def test_the_longest_reply_and_text_are_graded_at_once() -> None:
    text = load_environment(num_examples=1, sentences=20).row(0).answer
    assert score(f"<reversed>{(text * 100)[:MAX_CHARACTERS]}</reversed>", text)["reward"] < 0.3


def test_texts_are_sentences_without_surprises() -> None:
    env = load_environment()
    for index in range(env.row_count):
        prompt, text = env.row(index).prompt, env.row(index).answer[::-1]
        assert prompt[-1] == {"role": "user", "content": text}
        assert text.isascii() and text == text.strip() and "  " not in text and "<" not in text
        assert text[0].isupper() and text.endswith(".")
        assert 40 < len(text) < 160


@for_each_row("sentences", [1, 5])
def test_sentences_make_a_text_longer(sentences: int) -> None:
    assert load_environment(num_examples=1, sentences=sentences).row(0).answer.count(".") == sentences
