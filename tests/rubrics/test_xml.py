"""Answers in tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.types import Messages
from harness.rubrics.xml_parser import XMLParser


def said(*texts: str) -> Messages:
    return [{"role": "assistant", "content": text} for text in texts]


def test_fields_become_attributes() -> None:
    parser = XMLParser(["think", ("code", "answer")])
    found = parser.parse("<think>\n why \n</think> noise <answer>4</answer>")
    assert (found.think, found.code, found.answer) == ("why", None, "4")
    assert parser.parse("<think> why </think>", strip=False).think == " why "
    assert parser.parse("nothing").think is None


def test_first_or_last_occurrence() -> None:
    parser = XMLParser(["answer"])
    text = "<answer>1</answer><answer>2</answer><answer>never closed"
    assert parser.parse(text).answer == "1"
    assert parser.parse(text, last=True).answer == "2"


def test_the_answer_is_the_last_one_of_the_newest_reply_that_has_one() -> None:
    parser = XMLParser(["think", "answer"])
    talk = said("<answer>1</answer>", "<answer>2</answer><answer>3</answer>", "<think>no answer</think>")
    assert parser.parse_answer(talk) == "3"
    assert parser.parse_answer("<answer>4</answer>") == "4"
    assert parser.parse_answer(said("none")) is None
    assert parser.parse_answer([]) is None
    assert parser.parse_answer([{"role": "assistant", "content": None}]) is None
    assert XMLParser(["guess"], answer_field="guess").parse_answer(said("<guess> crane </guess>")) == "crane"
    assert XMLParser(["reasoning"]).parse_answer(said("<reasoning>x</reasoning>")) is None


def test_values_go_through_extract_fn() -> None:
    parser = XMLParser(["answer"], extract_fn=str.upper)
    assert parser.parse("<answer>a</answer>").answer == "A"
    assert parser.parse_answer("<answer>a</answer>") == "A"


def test_the_format_can_be_shown_and_written() -> None:
    parser = XMLParser(["think", ("code", "answer")])
    assert parser.get_fields() == ["think", "code"]
    assert parser.get_format_str() == "<think>\n...\n</think>\n<[ code | answer ]>\n...\n</[ code | answer ]>"
    assert parser.format(think="a", answer=4) == "<think>\na\n</think>\n<code>\n4\n</code>"
    with pytest.raises(ValueError, match=r"'code' \(allowed names: code, answer\)"):
        parser.format(think="a")
    with pytest.raises(ValueError, match="no field is called 'anser'"):
        parser.format(think="a", code="b", anser="c")


@for_each_row(
    ("fields", "error", "words"),
    [
        ([], ValueError, "at least one"),
        (["a", "a"], ValueError, "'a' occurs twice"),
        (["a", ("b", "a")], ValueError, "'a' occurs twice"),
        ([()], ValueError, "must not be empty"),
        ([""], ValueError, "must not be empty"),
        ([("a", 1)], TypeError, "tuple of strings"),
        ([3], TypeError, "tuple of strings"),
        ("answer", TypeError, "list of names"),
    ],
)
def test_wrong_fields_are_refused(fields: list[str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        XMLParser(fields)


def test_an_answer_field_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match='did you mean "guess"'):
        XMLParser(["think", "guess"], answer_field="gues")


@for_each_row(
    ("text", "grade"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        (" <think>a</think>\n<answer>b</answer> ", 1.0),
        ("<think>a</think><answer>b", 0.8),
        ("<think>a</think> <answer>b</answer> and more", 0.8),
        ("<answer>b</answer>", 0.6),
        ("so: <answer>b</answer> done", 0.4),
        ("<think>never closed", 0.2),
        ("plain text", 0.0),
        ("", 0.0),
    ],
)
def test_the_format_is_graded(text: str, grade: float) -> None:
    reward = XMLParser(["think", "answer"]).get_format_reward_func()
    assert reward(said(text)) == pytest.approx(grade)
    assert reward(said(text, "<think>a</think><answer>b</answer>")) == pytest.approx((grade + 1) / 2)


def test_no_reply_has_no_format() -> None:
    assert XMLParser(["answer"]).get_format_reward_func()([]) == 0.0


def test_a_reply_full_of_tags_that_never_close_is_read_in_linear_time() -> None:
    parser = XMLParser(["think", "answer"])
    text = "<think>" * 200_000  # quadratic search would take minutes
    assert parser.parse(text, last=True).think is None
    assert parser.parse_answer(text + "<answer>4</answer>") == "4"


names = st.text(st.sampled_from("abcdefgh_-.+*("), min_size=1, max_size=6)
values = st.text(st.characters(exclude_characters="<"), max_size=30).map(str.strip)


@given(fields=st.lists(names, min_size=1, max_size=4, unique=True), data=st.data())
def test_what_is_written_can_be_read(fields: list[str], data: st.DataObject) -> None:
    parser = XMLParser(fields, answer_field=fields[-1])
    written = {name: data.draw(values) for name in fields}
    text = parser.format(**written)
    assert vars(parser.parse(text)) == written
    assert vars(parser.parse(text, last=True)) == written
    assert parser.parse_answer(said(text)) == written[fields[-1]]
    assert parser.get_format_reward_func()(said(text)) == pytest.approx(1.0)


@given(st.text(st.sampled_from("<>/answer x\n"), max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    parser = XMLParser(["answer", "x"])
    parser.parse(text)
    assert 0.0 <= parser.get_format_reward_func()(said(text)) <= 1.0
