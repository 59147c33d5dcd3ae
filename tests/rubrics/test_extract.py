"""Answers marked in a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.rubrics.extract import extract_boxed_answer, extract_hash_answer


@for_each_row(
    ("text", "answer"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{x\right.}", r"\left\{x\right."),
        (r"\boxed{a \\ {b}}", r"a \\ {b}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{}", ""),
        (r"\boxed{\text{see \boxed{3}}}", "3"),
        (r"no box", "no box"),
        (r"\boxed{1} then \boxed{cut off", r"\boxed{1} then \boxed{cut off"),
        ("", ""),
    ],
)
def test_the_last_box_is_the_answer(text: str, answer: str) -> None:
    assert extract_boxed_answer(text) == answer


@for_each_row("text", ["no box", r"\boxed{1} then \boxed{cut off", ""])
def test_strict_reading_gives_nothing_without_a_closed_box(text: str) -> None:
    assert extract_boxed_answer(text, strict=True) == ""


balanced = st.recursive(
    st.text(st.characters(exclude_characters="{}\\"), max_size=8) | st.sampled_from([r"\{", r"\}", r"\\", r"\frac"]),
    lambda inner: st.lists(inner, max_size=3).map("".join) | inner.map(lambda text: "{" + text + "}"),
    max_leaves=12,
)


@given(
    before=st.text(max_size=20), inside=balanced, after=st.text(max_size=20).filter(lambda text: "\\boxed" not in text)
)
def test_whatever_is_balanced_comes_out_of_its_box(before: str, inside: str, after: str) -> None:
    assert extract_boxed_answer(f"{before} \\boxed{{{inside}}}{after}") == inside


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert extract_boxed_answer(text) in text
    assert extract_hash_answer(text) in text


@for_each_row(
    ("text", "answer"),
    [("work\n#### 42\n", "42"), ("#### 1 #### 2", "1"), ("none", "none"), ("####", ""), ("### 3", "### 3")],
)
def test_what_follows_the_hashes_is_the_answer(text: str, answer: str) -> None:
    assert extract_hash_answer(text) == answer
