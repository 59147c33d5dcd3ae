"""The rules of Wordle, and games that end well, badly and against the rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import for_each_row

from harness import ModelResponse, Prompt, State
from harness.keys import ExampleKeys
from wordle import load_environment
from wordle.game import broken_hint, marks, read_guess, secrets, word_list

words = st.text("abc", min_size=5, max_size=5)  # three letters, so that they repeat


@for_each_row(
    ("secret", "guess", "shown"),
    [
        ("crane", "crane", "GGGGG"),
        ("crane", "zzzzz", "-----"),
        ("abbey", "babes", "YYGG-"),
        ("abbey", "kebab", "-YGYY"),
        ("speed", "erase", "Y--YY"),
        ("speed", "eerie", "YY---"),  # two E in the word: the third gets no mark
        ("steal", "speed", "G-G--"),  # the E that stands right takes the only E
        ("level", "eleve", "YYYY-"),
    ],
)
def test_marks(secret: str, guess: str, shown: str) -> None:
    assert marks(secret, guess) == shown


@settings(deadline=None)
@given(words, words)
def test_a_letter_is_marked_as_often_as_both_words_have_it_and_right_places_first(secret: str, guess: str) -> None:
    shown = marks(secret, guess)
    assert [mark == "G" for mark in shown] == [a == b for a, b in zip(secret, guess, strict=True)]
    for letter, count in Counter(guess).items():
        own = [mark for mark, here in zip(shown, guess, strict=True) if here == letter]
        assert len(own) - own.count("-") == min(count, secret.count(letter))
        loose = [mark for mark in own if mark != "G"]
        assert loose == sorted(loose, reverse=True)  # "Y" sorts after "-": the leftmost get it


@settings(deadline=None)
@given(words, st.lists(words, max_size=5))
def test_the_secret_is_always_allowed_in_hard_mode(secret: str, guesses: Sequence[str]) -> None:
    assert broken_hint(secret, [(guess, marks(secret, guess)) for guess in guesses]) == ""


@for_each_row(
    ("guess", "problem"),
    [
        ("crane", ""),
        ("trace", "Hard mode: letter 1 must be C."),
        ("chase", "Hard mode: the guess must contain N."),
    ],
)
def test_hard_mode_says_which_hint_a_guess_breaks(guess: str, problem: str) -> None:
    assert broken_hint(guess, [("candy", "GYY--")]) == problem


def test_hard_mode_counts_letters() -> None:
    assert broken_hint("abide", [("eerie", "Y---G")]) == "Hard mode: the guess must contain E twice."


@for_each_row(
    ("reply", "word"),
    [
        ("<guess>crane</guess>", "crane"),
        ("I try <guess>\n C R A N E \n</guess>.", "crane"),
        ("<think><guess>slate</guess></think><guess>crane</guess>", "crane"),
        ("<guess>slate</guess></think><guess>crane</guess>", "crane"),
        ("<guess>crane</guess> that is <guess>CRANE</guess>", "crane"),
    ],
)
def test_a_guess_is_read(reply: str, word: str) -> None:
    assert read_guess(reply) == (word, "")


@for_each_row(
    ("reply", "problem"),
    [
        ("", "Write one guess"),
        ("crane", "Write one guess"),
        ("<guess>crane", "Write one guess"),
        ("<think><guess>crane</guess>", "Write one guess"),
        ("<guess>crane</guess><guess>slate</guess><guess>crane</guess>", "Only one guess"),
        ("<guess></guess>", "A guess has 5 letters"),
        ("<guess>cranes</guess>", "A guess has 5 letters"),
        ("<guess>cr4ne</guess>", "A guess has 5 letters"),
        ("<guess>cráne</guess>", "A guess has 5 letters"),
        ("<guess>" * 50_000, "Write one guess"),
    ],
)
def test_what_is_no_guess_says_why(reply: str, problem: str) -> None:
    assert read_guess(reply)[1].startswith(problem)


def test_secrets_are_the_same_words_in_another_order_for_another_seed() -> None:
    assert len(word_list()) > 900
    assert sorted(secrets(0)) == sorted(secrets(1)) == list(word_list())
    assert secrets(0) != secrets(1)


class Guesser:
    """A model that makes the given replies."""

    model = "guesser"

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        return ModelResponse({"role": "assistant", "content": self.replies.pop(0)}, "stop")


def play(*replies: str, hard_mode: bool = False) -> State:
    """A game for the secret `steam`, scored."""
    env = load_environment(hard_mode=hard_mode)
    index = next(i for i in range(env.row_count) if env.row(i).answer == "steam")
    state = State.begin(ExampleKeys().example(env.row(index), 0), 0, "guesser", {})

    async def main() -> None:
        await env.rollout(state, Guesser(*replies))
        await env.rubric.score([state])

    asyncio.run(main())
    return state


def guess(*guesses: str) -> list[str]:
    return [f"<guess>{word}</guess>" for word in guesses]


def test_a_game_won_with_the_third_guess() -> None:
    state = play(*guess("crane", "stale", "steam"))
    assert state["metrics"] == {"win": 1.0, "turns": 4 / 6, "format": 1.0, "num_turns": 3.0}
    assert state["reward"] == 0.75 + 0.125 * 4 / 6 + 0.125
    assert state["stop_condition"] == "has_final_env_response"
    assert [message["content"] for message in state["completion"] if message["role"] == "user"] == [
        "C R A N E\n- - Y - Y\n5 guesses left.",
        "S T A L E\nG G Y - Y\n4 guesses left.",
        "S T E A M\nG G G G G\nYou found the word.",
    ]


def test_a_lost_game_earns_no_more_than_its_format() -> None:
    state = play(*guess("crane", "slate", "stale", "steel", "stead"), "I give up.")
    assert state["metrics"] == {"win": 0.0, "turns": 0.0, "format": 5 / 6, "num_turns": 6.0}
    assert state["reward"] == pytest.approx(0.125 * 5 / 6)
    assert state["completion"][-1]["content"].endswith("No guesses left. The word was STEAM.")


def test_a_win_with_the_last_guess_still_beats_the_pass_threshold() -> None:
    state = play("", "", "", "", "", *guess("steam"))
    assert state["metrics"]["win"] == 1.0
    assert state["reward"] > 0.75


def test_hard_mode_refuses_a_guess_that_ignores_a_hint_and_counts_it() -> None:
    state = play(*guess("stale", "crane", "steam"), hard_mode=True)
    assert state["completion"][3]["content"] == "Hard mode: letter 1 must be S.\n4 guesses left."
    assert [turn["marks"] for turn in state["guesses"]] == ["GGY-Y", "", "GGGGG"]
    assert state["metrics"] == {"win": 1.0, "turns": 4 / 6, "format": 1.0, "num_turns": 3.0}


def test_after_the_journal_the_game_scores_the_same() -> None:
    state = play(*guess("crane", "steam"))
    exported, lost = state.export()
    assert lost == ()
    assert exported["guesses"] == state["guesses"]
