"""The plain parser, and the ones for reasoning in tags."""

from __future__ import annotations

from tables import for_each_row

from harness.core.types import Messages, text_of
from harness.rubrics.extract import extract_boxed_answer
from harness.rubrics.parser import MaybeThinkParser, Parser, ThinkParser

TALK: Messages = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "first"},
    {"role": "tool", "content": "t", "tool_call_id": "1"},
    {"role": "assistant", "content": "last"},
]


def test_the_plain_parser_returns_the_last_reply() -> None:
    assert Parser().parse_answer(TALK) == "last"
    assert Parser(str.upper).parse_answer(TALK) == "LAST"
    assert Parser(str.upper).parse_answer("text") == "TEXT"
    assert Parser().parse_answer([]) is None
    assert Parser().get_format_reward_func()(TALK) == 1.0


def test_messages_are_told_apart_by_role() -> None:
    parser = Parser()
    assert [m["content"] for m in parser.get_assistant_messages(TALK)] == ["first", "last"]
    assert [m["content"] for m in parser.get_system_messages(TALK)] == ["s"]
    assert [m["content"] for m in parser.get_user_messages(TALK)] == ["u"]
    assert [m["content"] for m in parser.get_tool_messages(TALK)] == ["t"]
    assert parser.get_assistant_messages("text") == [{"role": "assistant", "content": "text"}]
    assert parser.get_user_messages("text") == []


@for_each_row(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}], "ab"),
        ([], ""),
    ],
)
def test_content_is_read_as_text(content: object, text: str) -> None:
    message = {"role": "assistant", "content": content}
    assert text_of(message) == text
    assert Parser().parse_answer([message]) == text


def test_text_of_a_message_without_content_is_empty() -> None:
    assert text_of({"role": "assistant", "tool_calls": []}) == ""


@for_each_row(
    ("text", "strict", "lenient"),
    [
        ("<think>hm</think> 4 ", "4", "4"),
        ("<think>a</think><think>b</think>5", "5", "5"),
        (" 6 ", "", "6"),
        ("<think>cut off", "", "<think>cut off"),
        ("<think>all</think>", "", ""),
    ],
)
def test_the_answer_stands_after_the_thinking(text: str, strict: str, lenient: str) -> None:
    assert ThinkParser().parse(text) == strict
    assert MaybeThinkParser().parse(text) == lenient


def test_thinking_and_extraction_combine() -> None:
    text = r"<think>\boxed{1}</think> so \boxed{2}"
    assert ThinkParser(extract_boxed_answer).parse_answer(text) == "2"
    assert ThinkParser(extract_boxed_answer).parse(r"\boxed{1}") == ""
    assert MaybeThinkParser(extract_boxed_answer).parse(r"\boxed{1}") == "1"


@for_each_row(
    ("text", "grade"),
    [
        ("<think>a</think> b", 1.0),
        ("  <think>a</think> b", 1.0),
        ("b", 0.0),
        ("x <think>a</think> b", 0.0),
        ("<think>a</think>", 0.0),
        ("<think>a</think><think>c</think> b", 0.0),
    ],
)
def test_the_format_is_one_thought_in_front_of_an_answer(text: str, grade: float) -> None:
    reward = ThinkParser().get_format_reward_func()
    assert reward([{"role": "assistant", "content": text}]) == grade
    good = {"role": "assistant", "content": "<think>a</think> b"}
    assert reward([good, {"role": "assistant", "content": text}]) == (1 + grade) / 2
    assert reward([]) == 0.0
    assert MaybeThinkParser().get_format_reward_func()([{"role": "assistant", "content": text}]) == 1.0
