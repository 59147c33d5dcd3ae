"""Results as models read them."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tables import for_each_row

from harness.tools.results import cap, to_content, to_text


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    ADA = "Ada"


@dataclass
class Point:
    x: int
    when: date


class Item(BaseModel):
    name: str


class Thing:
    def __str__(self) -> str:
        return "a thing"


ITSELF: list[object] = [1]
ITSELF.append(ITSELF)


@for_each_row(
    ("result", "text"),
    [
        ("as it is\n ", "as it is\n "),
        ("", ""),
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        ([1, "é"], '[1, "é"]'),
        ({"a": [None]}, '{"a": [null]}'),
        ((1, 2), "[1, 2]"),
        ([], "[]"),
        ({1}, "[1]"),
        (Colour.RED, "red"),
        (Name.ADA, "Ada"),
        ({"c": Colour.RED}, '{"c": "red"}'),
        (Point(1, date(2026, 1, 2)), '{"x": 1, "when": "2026-01-02"}'),
        ([Item(name="n")], '[{"name": "n"}]'),
        ({"t": Thing()}, '{"t": "a thing"}'),
        (Thing(), "a thing"),
        (Path("a/b"), "a/b"),
        (b"caf\xc3\xa9 \xff", "café �"),
        ("\ud800 alone", "� alone"),
        (ITSELF, "[1, [...]]"),
    ],
)
def test_a_result_becomes_text(result: object, text: str) -> None:
    assert to_text(result) == text
    assert type(to_text(result)) is str


PARTS = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


def test_content_parts_pass_through() -> None:
    assert to_content(PARTS, None) is PARTS
    assert to_content(PARTS) == PARTS


@for_each_row("result", [[{"type": "text"}], [{"type": "cat", "cat": 1}], [{"text": "x"}, "y"], [{"type": 1}]])
def test_a_list_that_only_looks_like_parts_is_json(result: object) -> None:
    assert to_content(result) == json.dumps(result)


def test_texts_among_parts_share_one_cap_and_images_are_never_cut() -> None:
    parts = [
        {"type": "text", "text": "a" * 8},
        PARTS[1],
        {"type": "text", "text": "b" * 8},
        {"type": "text", "text": "c"},
    ]
    assert to_content(parts, 10) == [
        {"type": "text", "text": "a" * 8},
        PARTS[1],
        {"type": "text", "text": "b\n[… 6 characters left out …]\nb"},
        {"type": "text", "text": "[… 1 characters left out …]"},
    ]


def test_a_long_text_keeps_both_ends_around_a_line_that_counts_the_rest() -> None:
    assert cap("0123456789", 10) == "0123456789"
    assert cap("0123456789x", 10) == "01234\n[… 1 characters left out …]\n6789x"
    assert to_content("x" * 1_000_000, 3) == "xx\n[… 999,997 characters left out …]\nx"
    assert len(str(to_content("x" * 1_000_000))) == 20_000 + len("\n[… 980,000 characters left out …]\n")
    assert cap("x" * 100, None) == "x" * 100


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_the_cap_keeps_exactly_what_it_says(text: str, most: int) -> None:
    kept = cap(text, most)
    if len(text) <= most:
        assert kept == text
        return
    line = f"[… {len(text) - most:,} characters left out …]"
    head, _, tail = kept.partition(line)
    assert text.startswith(head.removesuffix("\n")) and text.endswith(tail.removeprefix("\n"))
    assert len(kept) - len(line) == most + (2 if most > 1 else 1)
