"""Lists that are right, nearly right and wrong, and conversations of several turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import for_each_row

from alphabet_sort import load_environment
from alphabet_sort.lists import longest_common_subsequence, read_list, similarity_of
from alphabet_sort.names import FIRST_NAMES, LAST_NAMES, right_lists
from harness import ModelResponse, Prompt, State
from harness.keys import ExampleKeys

lists = st.lists(st.sampled_from("abcd"), max_size=8)


@for_each_row(
    ("reply", "names"),
    [
        ("<sorted>\nAda Lovelace\nAlan Turing\n</sorted>", ["Ada Lovelace", "Alan Turing"]),
        ("Here:\n<sorted>\n\n  Ada   Lovelace \n\nAlan Turing</sorted> Done.", ["Ada Lovelace", "Alan Turing"]),
        ("<sorted>\n- Ada Lovelace\n* Alan Turing\n</sorted>", ["Ada Lovelace", "Alan Turing"]),
        ("<sorted>\n1. Ada Lovelace\n2) Alan Turing\n</sorted>", ["Ada Lovelace", "Alan Turing"]),
        ("<think><sorted>\nX\n</sorted></think><sorted>\nAda\n</sorted>", ["Ada"]),
        ("<sorted>\nAda\n</sorted> again <sorted>Ada</sorted>", ["Ada"]),
        ("<sorted>\nAda\nAlan\n</sorted> or <sorted>\nAlan\nAda\n</sorted>", []),
        ("<think><sorted>\nAda\n</sorted>", []),
        ("<sorted>\nAda\nAlan", []),
        ("Ada\nAlan", []),
        ("<sorted></sorted>", []),
        ("", []),
        ("<sorted>" * 50_000, []),
        ("<sorted>" + "\n".join(map(str, range(1001))) + "</sorted>", []),
    ],
)
def test_a_list_is_read_or_there_is_none(reply: str, names: list[str]) -> None:
    assert read_list(reply) == names


@for_each_row(
    ("reply", "grade"),
    [
        (["a", "b", "c", "d"], 1.0),
        (["a", "c", "b", "d"], 0.75),  # one name out of place
        (["a", "b", "d"], 6 / 7),  # one name missing
        (["a", "b", "c", "d", "e"], 8 / 9),  # one name made up
        (["d", "c", "b", "a"], 0.25),
        (["a", "b", "c", "d"] * 2, 8 / 12),  # repeating the list does not pay
        (["x"], 0.0),
        ([], 0.0),
    ],
)
def test_how_near_a_list_is(reply: Sequence[str], grade: float) -> None:
    assert similarity_of(reply, ["a", "b", "c", "d"]) == grade


@settings(deadline=None)
@given(lists, lists)
def test_similarity_is_symmetric_and_one_for_equal_lists_alone(one: list[str], other: list[str]) -> None:
    assert similarity_of(one, other) == similarity_of(other, one)
    assert 0.0 <= similarity_of(one, other) <= 1.0
    assert (similarity_of(one, other) == 1.0) == (one == other)


@settings(deadline=None)
@given(lists, lists, st.sampled_from("abcd"))
def test_a_common_item_at_the_end_makes_the_common_subsequence_one_longer(
    one: list[str], other: list[str], item: str
) -> None:
    assert longest_common_subsequence([*one, item], [*other, item]) == longest_common_subsequence(one, other) + 1


def test_names_leave_no_doubt_about_their_order() -> None:
    for names in (FIRST_NAMES, LAST_NAMES):
        assert len({name.casefold() for name in names}) == len(names) >= 60
        assert all(name.isascii() and name.isalpha() and name.istitle() for name in names)


def test_the_right_list_grows_by_each_turns_names_in_the_order_that_was_asked_for() -> None:
    env = load_environment(num_examples=200)
    ways: set[str] = set()
    for index in range(env.row_count):
        row = env.row(index)
        by = row.info["sort_by"]
        ways.add(by)
        so_far: list[str] = []
        for names, right in zip(row.info["turns"], right_lists(row.info), strict=True):
            so_far += names
            assert sorted(right) == sorted(so_far)
            keys = [name.split()[0 if by == "first" else 1] for name in right]
            assert all(one < two for one, two in pairwise(keys))
        assert row.answer.split("\n") == right_lists(row.info)[-1]
        assert f"by {by} name" in str(row.prompt[-1])
    assert ways == {"first", "last"}


@for_each_row("by", ["first", "last"])
def test_arguments_shape_the_examples(by: str) -> None:
    env = load_environment(num_examples=100, min_turns=2, max_turns=4, max_names=3, sort_by=by)
    infos = [env.row(index).info for index in range(100)]
    assert {info["sort_by"] for info in infos} == {by}
    assert {len(info["turns"]) for info in infos} == {2, 3, 4}
    assert {len(info["turns"][0]) for info in infos} == {2, 3}
    assert {len(names) for info in infos for names in info["turns"][1:]} == {1, 2, 3}


class Replying:
    """A model that makes the given replies."""

    model = "replying"

    def __init__(self, replies: Sequence[str]) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        assert isinstance(prompt, list)
        self.asked.append(prompt[-1]["content"])
        return ModelResponse({"role": "assistant", "content": self.replies.pop(0)}, "stop")


def test_each_turn_is_graded_and_the_mean_counts() -> None:
    env = load_environment(num_examples=1, min_turns=3, max_turns=3)
    example = ExampleKeys().example(env.row(0), 0)
    first, second, third = right_lists(example.info)
    model = Replying(["<sorted>" + "\n".join(names) + "</sorted>" for names in (first, second[::-1], third)])
    state = State.begin(example, 0, "replying", {})

    async def main() -> None:
        await env.rollout(state, model)
        await env.rubric.score([state])

    asyncio.run(main())
    for names, asked in zip(example.info["turns"], model.asked, strict=True):
        assert "\n".join(names) in asked
    assert state["stop_condition"] == "all_turns_taken"
    assert state["completion"][-1]["role"] == "assistant"
    assert state["reward"] == pytest.approx((2 + similarity_of(second[::-1], second)) / 3)
    assert state["metrics"] == {"similarity": state["reward"], "exact": 0.0, "num_turns": 3.0}


def test_a_conversation_that_was_cut_off_loses_the_turns_it_did_not_take() -> None:
    env = load_environment(num_examples=1, min_turns=2, max_turns=2)
    example = ExampleKeys().example(env.row(0), 0)
    state = State.begin(example, 0, "replying", {})
    names = "\n".join(right_lists(example.info)[0])
    state["completion"] = [{"role": "assistant", "content": f"<sorted>{names}</sorted>"}]
    asyncio.run(env.rubric.score([state]))
    assert state["reward"] == 0.5
