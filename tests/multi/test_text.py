"""What of a reply is scored."""

from __future__ import annotations

from pace import is_linear
from tables import for_each_row

from harness.core.types import Message
from harness.multi.text import estimated_tokens, output_of, without_thoughts


@for_each_row(
    ("text", "left"),
    [
        ("<think>so and so</think>  hello ", "hello"),
        ("<THINK>a\nb</Think>hello<thinking>c</THINKING>", "hello"),
        ("a <think>x</think>b<think>y</think> c", "a b c"),
        ("<think>a<think>b</think>c</think>", "c</think>"),
        ("<think>never closed", "<think>never closed"),
        ("<thinking>x</think>", "<thinking>x</think>"),
        ("</think>hello", "</think>hello"),
        ("<think>outer <thinking>inner</think> left</thinking>", "left</thinking>"),
        ("<thinking>a <think>b</think> c</thinking>d", "d"),
        ("<think></think>", ""),
        ("\ufeff plain\u00a0", "plain"),
        ("", ""),
    ],
)
def test_thoughts_are_left_out(text: str, left: str) -> None:
    assert without_thoughts(text) == left


def test_a_model_that_repeats_itself_holds_up_nothing() -> None:
    text = "<think>" * 200_000
    assert without_thoughts(text) == text
    assert is_linear(lambda size: without_thoughts("<think>" * size), 10_000)


@for_each_row(
    ("completion", "output"),
    [
        ([{"role": "assistant", "content": " hi "}], "hi"),
        ([{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}], ""),
        ([{"role": "assistant", "content": None, "refusal": "I will not."}], ""),
        ([{"role": "assistant", "content": ""}], ""),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "tool"}], "b"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "x"}, "b", 1]}], "a b"),
        ([{"role": "assistant", "content": 5}], ""),
        ([], ""),
        ("<think>x</think>text", "text"),
    ],
)
def test_the_output_is_the_text_of_the_last_reply(completion: list[Message] | str, output: str) -> None:
    assert output_of(completion) == output


@for_each_row(
    ("output", "tokens"),
    [("hello", 2), ("", 0), ("  ", 0), ("a b", 3), ("one two three four five six seven", 10), ("a\n\nb\tc", 5)],
)
def test_tokens_are_estimated_from_words(output: str, tokens: int) -> None:
    assert estimated_tokens(output) == tokens
