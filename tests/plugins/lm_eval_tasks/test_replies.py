"""Log-likelihoods in the replies of real servers, as those write them, and in replies that have none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.core.errors import EnvironmentFault, ModelError, SystemicError
from harness.core.types import ModelResponse
from harness.plugins.lm_eval_tasks.likelihood import SCORING, ScoredText, TextSplitter

TEXT = "Say: red"
"""A context of four characters and a continuation of four, in three tokens."""


def reply(tokens: list[str], *, shift: int = 0, values: list[float | None] | None = None) -> ModelResponse:
    """A reply whose offsets count the characters of all tokens."""
    found: dict[str, Any] = {
        "tokens": tokens,
        "text_offset": [shift + len("".join(tokens[:n])) for n in range(len(tokens))],
    }
    found["token_logprobs"] = values or [None, *(-float(number) for number in range(1, len(tokens)))]
    found["top_logprobs"] = [None if value is None else {"x": value} for value in found["token_logprobs"]]
    return ModelResponse({"role": "assistant", "content": ""}, "length", logprobs=found)


@pytest.mark.parametrize(
    ("tokens", "value"),
    [
        (["Say", ":", " red", "."], -2.0),
        (["Say", ":", " red"], -2.0),  # a reply of no token
        (["Say", ":", " re", "d", "."], -5.0),
        (["<s>", "Say", ":", " red", "."], -3.0),  # vLLM counts the characters of special tokens
        (["<|begin_of_text|>", "Say", ":", " red", "."], -3.0),
        (["", "Say", ":", " red", "."], -3.0),
        (["Say:", " red", "."], -1.0),
    ],
)
def test_a_continuation_has_the_tokens_that_begin_in_it(tokens: list[str], value: float) -> None:
    assert ScoredText(TEXT, 4).read(reply(tokens)) == (value, True)


@pytest.mark.parametrize(
    "tokens",
    [
        ["red"],  # an endpoint that ignores echo
        ["Say"],
        ["Say", " it", " is", " a", " red", " one"],  # and the number of tokens
        ["Say", ":", "red", "."],  # SentencePiece without its spaces: offsets of another text
        ["token_id:5", "token_id:6", "token_id:7"],
        ["Say", ":", " red", ".", " No"],
        ["Say", ":"],
        [],
    ],
)
def test_tokens_that_are_not_those_of_the_prompt_are_no_score(tokens: list[str]) -> None:
    with pytest.raises(SystemicError, match="no text_offset of the prompt that fits its tokens: set tokenizer"):
        ScoredText(TEXT, 4).read(reply(tokens))


def test_offsets_in_bytes_or_in_halves_of_characters_are_no_score() -> None:
    text = ScoredText("Wähle: rot", 6)
    good = reply(["W", "äh", "le", ":", " rot", "."])
    assert text.read(good) == (-4.0, True)
    assert good.logprobs is not None
    good.logprobs["text_offset"] = [0, 1, 4, 6, 7, 11]
    with pytest.raises(SystemicError):
        text.read(good)
    with pytest.raises(SystemicError):
        text.read(reply(["W", "\ufffd", "\ufffd", "h", "le", ":", " rot", "."]))
    with pytest.raises(SystemicError):  # the last character is in two tokens, the second one beyond the text
        ScoredText("Say: ä", 4).read(reply(["Say", ":", " ", "\ufffd", "\ufffd", "."]))


def test_sglang_and_llama_cpp_have_no_offsets() -> None:
    found = reply(["Say", ":", " red", "."])
    assert found.logprobs is not None
    for offsets in ([-1] * 4, [], None):
        found.logprobs["text_offset"] = offsets
        with pytest.raises(SystemicError):
            ScoredText(TEXT, 4).read(found)
    content = {"content": [{"token": " red", "logprob": -1.0, "top_logprobs": []}]}
    for logprobs in (content, {"token_logprobs": "x"}, None):
        with pytest.raises(SystemicError):
            ScoredText(TEXT, 4).read(ModelResponse({"role": "assistant", "content": ""}, "length", logprobs=logprobs))


def test_a_token_over_the_boundary_is_no_log_likelihood_of_zero() -> None:
    with pytest.raises(EnvironmentFault, match="no token begins in a continuation"):
        ScoredText("Say: red", 6).read(reply(["Say", ":", " red", "."]))
    assert ScoredText("Say: red", 8).read(reply(["Say", ":", " red", "."])) == (0, True)  # an empty one, as in lm-eval


def test_token_ids_need_a_value_each() -> None:
    text = ScoredText("", 2, [5, 6, 7])
    assert text.read(reply(["a", "b", "c"])) == (-2.0, True)
    assert text.read(reply(["a", "b", "c", "."])) == (-2.0, True)
    for tokens in (["c"], ["a", "b"], ["a", "b", "c", "d", "e"]):
        with pytest.raises(SystemicError, match="lacks log-probabilities of the prompt"):
            text.read(reply(tokens))
    with pytest.raises(SystemicError):
        text.read(reply(["a", "b", "c"], values=[None, -1.0, None]))
    with pytest.raises(SystemicError):  # an empty continuation, and an endpoint that ignores echo
        ScoredText("", 3, [5, 6, 7]).read(reply(["c"]))


def test_an_impossible_token_is_a_value_and_no_number_is_none() -> None:
    assert ScoredText(TEXT, 4).read(reply(["Say", ":", " red"], values=[None, -1.0, -math.inf])) == (-math.inf, True)
    for value in (math.nan, math.inf):
        with pytest.raises(ModelError, match="no number"):
            ScoredText(TEXT, 4).read(reply(["Say", ":", " red"], values=[None, -1.0, value]))


def test_the_likeliest_token_is_another() -> None:
    found = reply(["Say", ":", " red", "."])
    assert found.logprobs is not None
    found.logprobs["top_logprobs"][2] = {" red": -2.0, " blue": -1.0}
    assert ScoredText(TEXT, 4).read(found) == (-2.0, False)


def test_a_request_has_one_limit_of_tokens() -> None:
    arguments = {"max_completion_tokens": 9, **TextSplitter().pair("a", " b").sampling_args({})}
    assert arguments == {"max_completion_tokens": None, **SCORING}
