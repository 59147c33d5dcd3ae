"""The query language: parsing, evaluation, errors with their place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.errors import UsageError
from harness.store.query import (
    DEEPEST,
    LONGEST,
    AllOf,
    AnyOf,
    Negation,
    Node,
    QueryError,
    Term,
    parse_query,
    pointer,
    query_text,
    terms_of,
)
from harness.store.query_match import QueryColumn, QueryColumns, compare_numbers, compile_query


@dataclass
class Thing:
    values: dict[str, Any] = field(default_factory=dict[str, Any])


def reader(name: str) -> Callable[[Thing], object]:
    return lambda thing: thing.values.get(name)


COLUMNS: QueryColumns[Thing] = QueryColumns(
    {
        "reward": QueryColumn("reward", "number", reader("reward")),
        "tokens": QueryColumn("tokens", "number", reader("tokens")),
        "text": QueryColumn("text", "text", reader("text")),
        "stop": QueryColumn("stop", "text", reader("stop")),
        "tool": QueryColumn("tool", "text", reader("tool")),
        "example": QueryColumn("example", "name", reader("example")),
        "outcome": QueryColumn("outcome", "choice", reader("outcome"), choices=("scored", "unscored")),
    },
    {
        "info": lambda name: QueryColumn(f"info.{name}", "any", reader(name)),
        "metric": lambda name: QueryColumn("metric.format", "number", reader("format")) if name == "format" else None,
    },
    ["metric.format"],
    {"failed": lambda thing: (thing.values.get("reward") or 0) < 1},
    {"score": "reward"},
)


def holds(query: str, **values: Any) -> bool:
    return compile_query(query, COLUMNS).matches(Thing(values))


SAYS = {"text": "Well, let me\n  THINK about it", "stop": "max_turns_reached", "reward": 0.5, "tool": ("add", "search")}

TRUE = [
    "", "  ", "reward<1", "reward < 1", "reward=0.5", "reward:0.5", "reward!=1", "reward>=.5", "reward<=5e-1",
    "reward>-1", 'text:"let me think"', '"let me think"', "think", "'about it'", "stop:turns", "stop=MAX_TURNS_REACHED",
    "stop:turns reward<1", "stop:turns and reward<1", "stop:length or reward<1", "reward>1 or reward<1 stop:turns",
    "-stop:length", "not stop:length", "NOT(stop:length OR reward>1)", "-(stop:length or reward>1)", "--reward<1",
    "tool:search", "tool:sea", "tool=add", "tool!=subtract", "has:reward", "-has:tokens", "is:failed", "-tokens>5",
    "-tokens<=5", "-tokens!=5", "(reward<1)", "((reward<1) stop:turns)",
]  # fmt: skip

FALSE = [
    "reward>=1", "reward!=0.5", "text:thinking", "stop:length", "stop=turns", "stop!=max_turns_reached", "tool=sea",
    "tool!=add", "tokens>5", "tokens<=5", "tokens!=5", "has:tokens", "has:info.level", "info.level!=3", "-is:failed",
    "reward<1 stop:length", "stop:length or reward>1", "-(reward<1)", "reward<1 -stop:turns", "nothing",
]  # fmt: skip


@for_each_row("query", TRUE)
def test_a_query_that_matches(query: str) -> None:
    assert holds(query, **SAYS)


@for_each_row("query", FALSE)
def test_a_query_that_does_not_match(query: str) -> None:
    assert not holds(query, **SAYS)


def test_and_binds_more_tightly_than_or() -> None:
    tree = parse_query("a:1 b:2 or c:3")
    assert tree == AnyOf((AllOf((Term("a", ":", "1"), Term("b", ":", "2"))), Term("c", ":", "3")))


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "", "many"])
def test_every_comparison_with_a_missing_number_is_false_and_its_negation_true(value: object) -> None:
    for operator in (":", "=", "!=", "<", "<=", ">", ">="):
        assert not holds(f"tokens{operator}3", tokens=value)
        assert holds(f"-tokens{operator}3", tokens=value)


def test_rounding_errors_do_not_count() -> None:
    assert holds("reward=0.3", reward=0.1 + 0.2) and not holds("reward>0.3", reward=0.1 + 0.2)
    assert not holds("reward<1", reward=1 - 1e-12) and holds("reward<1", reward=1 - 1e-6)
    assert holds("tokens=1000000000", tokens=10**9) and not holds("tokens=1000000000", tokens=10**9 + 10)


def test_a_json_value_is_compared_by_its_type() -> None:
    assert holds("info.level>3", level=5) and holds("info.level>3", level="5") and not holds("info.level>3", level="x")
    assert holds("info.level:5", level=5.0) and not holds("info.level:5", level=55)
    assert holds("info.name:bra", name="Algebra") and not holds("info.name=bra", name="Algebra")
    assert holds("info.tags=b", tags=["a", "b"]) and holds("info.tags>2", tags=[1, 3])
    assert holds("info.ok:true", ok=True) and not holds("info.ok:rue", ok=True)
    assert holds('info.deep:"\\"x\\":1"', deep={"x": 1}) and holds("has:info.n", n=0) and not holds("has:info.n", n=[])


def test_two_equals_signs_are_one() -> None:
    assert parse_query("reward==1") == parse_query("reward = 1") and holds("stop==length", stop="length")
    assert query_text(parse_query('text:"&&" reward == 1')) == "text:&& reward=1"


def test_an_id_is_compared_as_a_whole() -> None:
    assert holds("example:1", example=1) and not holds("example:1", example=11) and holds("example<10", example="9")
    assert holds("example:q/1", example="Q/1") and not holds("example:q", example="q/1")
    assert holds("outcome:scored", outcome="scored") and not holds("outcome:scored", outcome="unscored")


WRONG = [
    ("rewrd<1", 0, 5, 'there is no column "rewrd"; did you mean "reward"?'),
    ("stop:x rewrd <1", 7, 12, 'did you mean "reward"?'),
    ("score<1", 0, 5, 'did you mean "reward"?'),
    ("format=0", 0, 6, 'did you mean "metric.format"?'),
    ("metric.fromat=0", 0, 13, 'did you mean "metric.format"?'),
    ("zzzz:1", 0, 4, "there are reward, tokens, text, stop, tool, example, outcome, info.NAME, metric.NAME"),
    ("info.:1", 0, 5, 'there is no column "info."'),
    ("reward<one", 7, 10, 'reward< takes a finite number, not "one"'),
    ("reward<nan", 7, 10, "takes a finite number"),
    ("reward<1_0", 7, 10, "takes a finite number"),
    ("example<x", 8, 9, "takes a finite number"),
    ("stop<3", 0, 6, "stop is a column of text: use :, = or != here, not <"),
    ("outcome:unscord", 8, 15, 'outcome is never "unscord"; did you mean "unscored"?'),
    ("outcome:7", 8, 9, "it is one of scored, unscored"),
    ("is:faild", 3, 8, 'there is no property "faild"; did you mean "failed"?'),
    ("is=failed", 0, 9, "is takes a colon: is:NAME"),
    ("has:rewad", 4, 9, 'did you mean "reward"?'),
    ("reward<", 7, 7, "a value is expected after reward<"),
    ("(reward<)", 8, 9, "a value is expected after reward<"),
    ("text:(x)", 5, 6, "quote a text that begins with a parenthesis"),
    ('stop:""', 5, 7, "the value is empty; -has:stop finds rollouts without a value"),
    ("<3", 0, 1, "a column is expected before the operator"),
    ("(reward<1", 0, 1, '"(" has no ")" after it'),
    ("reward<1)", 8, 9, '")" has no "(" before it'),
    ("()", 1, 2, "a condition such as reward<1 is expected here"),
    ("or reward<1", 0, 1, "expected here, not 'or'"),
    ("reward<1 or", 11, 11, "a condition such as reward<1 is expected here"),
    ("reward<1 and", 12, 12, "a condition such as reward<1 is expected here"),
    ("reward<1 and and stop:x", 13, 14, "expected here, not 'and'"),
    ("reward<1 -", 9, 10, "a condition is expected after the negation"),
    ("reward<1 && stop:x", 9, 11, "write and, or quotes around a text to search for"),
    ("reward<1 || stop:x", 9, 11, "write or, or quotes"),
    ("not or", 4, 6, "a condition is expected here, not 'or'"),
    ('text:"abc', 5, 9, "the quote is not closed"),
    ('text:"abc"d', 10, 11, "a space is expected after the closing quote"),
    ("(" * (DEEPEST + 1) + "a", DEEPEST, DEEPEST + 1, "are nested"),
    ("-" * 10_000, DEEPEST, DEEPEST + 1, "are nested"),
    ("a" * (LONGEST + 1), LONGEST, LONGEST + 1, "has more than 10,000 characters"),
]


@pytest.mark.parametrize(("query", "start", "end", "said"), WRONG)
def test_a_mistake_is_pointed_at(query: str, start: int, end: int, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_query(query, COLUMNS)
    assert said in str(caught.value)
    assert (caught.value.start, caught.value.end) == (start, end)


def test_the_carets_stand_below_the_mistake() -> None:
    with pytest.raises(UsageError) as caught:
        compile_query("stop:x rewrd<1 tokens>3", COLUMNS)
    assert str(caught.value).splitlines()[1:] == ["  stop:x rewrd<1 tokens>3", "         ^^^^^"]


@pytest.mark.parametrize(
    ("query", "start", "end", "lines"),
    [
        ("text:日本 x", 8, 9, ("  text:日本 x", "            ^")),
        ("a\tb\x1b[2J", 2, 3, ("  a b\ufffd[2J", "    ^")),
        ("x" * 200, 100, 101, ("  …" + "x" * 121 + "…", " " * 63 + "^")),
        ("abc", 3, 3, ("  abc", "     ^")),
    ],
)
def test_the_excerpt_is_safe_and_short(query: str, start: int, end: int, lines: tuple[str, str]) -> None:
    assert tuple(pointer(query, start, end)) == lines


names = st.from_regex(r"[a-z]{1,6}(\.[^\x00]{1,6})?", fullmatch=True)
terms = st.builds(Term, names, st.sampled_from([":", "=", "!=", "<", "<=", ">", ">="]), st.text(max_size=12))
trees: st.SearchStrategy[Node] = st.recursive(
    terms,
    lambda inner: st.one_of(
        st.builds(Negation, inner),
        st.builds(AllOf, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
fragments = st.lists(
    st.sampled_from(
        ["reward", "text", "stop", "info.a", "metric.format", "is", "has", ":", "=", "<", ">=", "!=", "(", ")", "-",
         "or", "and", "not", " ", '"', "'", "\\", "1", "0.5", "length", "failed", ".", "é", "\n"]
    )
).map("".join)  # fmt: skip


@given(trees)
def test_the_text_of_a_tree_parses_to_the_tree(tree: Node) -> None:
    assert parse_query(query_text(tree)) == tree


@given(st.one_of(st.text(max_size=60), fragments))
def test_any_text_is_a_query_or_an_error_at_a_place_in_it(text: str) -> None:
    try:
        query = compile_query(text, COLUMNS)
    except QueryError as error:
        assert 0 <= error.start <= error.end <= len(text)
        assert error.start < len(text) or error.start == error.end
        assert len(str(error).splitlines()) == 3
        return
    assert parse_query(query_text(query.tree)) == query.tree
    for term in terms_of(query.tree):
        assert 0 <= term.start <= term.value_start <= term.end <= len(text)
    query.matches(Thing(dict(SAYS)))


values = st.one_of(
    st.none(), st.floats(), st.integers(), st.text(max_size=5), st.booleans(), st.lists(st.text(max_size=3))
)


@given(fragments, values, values, values)
def test_negation_inverts_and_two_negations_cancel(text: str, reward: object, said: object, a: object) -> None:
    try:
        query = compile_query(text, COLUMNS)
    except QueryError:
        return
    if not text.strip():
        return
    thing = Thing({"reward": reward, "text": said, "a": a, "stop": said})
    assert compile_query(f"-({text})", COLUMNS).matches(thing) is not query.matches(thing)
    assert compile_query(f"not -({text})", COLUMNS).matches(thing) is query.matches(thing)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_of_two_numbers_one_is_less_or_they_are_equal(left: float, right: float) -> None:
    assert sum(compare_numbers(left, operator, right) for operator in ("<", "=", ">")) == 1
    assert compare_numbers(left, "!=", right) is not compare_numbers(left, "=", right)
    assert compare_numbers(left, "<=", right) is not compare_numbers(left, ">", right)
