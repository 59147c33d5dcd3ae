"""Which choice a reply commits to: strictly, leniently, and not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import is_linear
from tables import for_each_row

from multiple_choice.extraction import LETTERS, lenient_choice, strict_choice

CITIES = ["Paris", "London", "Rome", "New York"]


@for_each_row(
    ("reply", "letter"),
    [
        ("Answer: B", "B"),
        ("Let me think.\n\nAnswer: D", "D"),
        ("Answer: B\nAnswer: B", "B"),
        ("<think>Answer: A</think>\nAnswer: C", "C"),
        ("Answer: B  \n", "B"),
        ("Answer: B.", None),
        ("**Answer: B**", None),
        ("Answer: (B)", None),
        ("answer: B", None),
        ("Answer: b", None),
        ("Answer: B) London", None),
        ("The answer is B", None),
        ("B", None),
        ("Answer: B\nI am sure.", None),
        ("Answer: A\nAnswer: B", None),
        ("Answer: E", None),  # there are four choices
        ("<think>Answer: B", None),
        ("Answer: B</think>", None),
        ("", None),
    ],
)
def test_strict_is_the_format_and_nothing_else(reply: str, letter: str | None) -> None:
    assert strict_choice(reply, 4) == (None if letter is None else LETTERS.index(letter))


@for_each_row(
    ("reply", "letter"),
    [
        ("Answer: B", "B"),
        ("**Answer:** B", "B"),
        ("**Answer: (B) London**", "B"),
        ("The answer is B.", "B"),
        ("The answer is **B**: London", "B"),
        ("So the correct option is (C).", "C"),
        ("the best choice would be: D", "D"),
        (r"Therefore \boxed{B}.", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"$\boxed{\textbf{(B)}\ London}$", "B"),
        ("B", "B"),
        ("(B)", "B"),
        ("b", None),
        ("Reasoning first.\nB.", "B"),
        ("I choose option C because it is in Italy.", "C"),
        ("I'd say B is correct.", "B"),
        ("B) London", "B"),
        ("B. London", "B"),
        ("Option B fits.", "B"),
        ("London", "B"),
        ("It must be london.", "B"),
        ("It must be New York!", "D"),
        # the last statement counts
        ("The answer is A. No, wait: the answer is B.", "B"),
        ("Answer: A\nOn reflection, that was too quick.\nAnswer: C", "C"),
        ("A) is in France\nB) is in England\nThe answer is B.", "B"),
        ("The answer is B.\nA) would be France.\nC) would be Italy.", "B"),
        ("Answer: B, since option A is in France.", "B"),
        ("The answer is A because of the river.", "A"),
        # other ways to state it
        ("I'd go with B", "B"),
        ("I would say A is best.", "A"),
        ('The answer is "B".', "B"),
        ("The answer is “B”.", "B"),
        ("The answer is 'B'.", "B"),
        ('{"answer": "B"}', "B"),
        ("<answer>B</answer>", "B"),
        ("<answer>A</answer> no, wait: <answer>B</answer>", "B"),
        ("It's B", "B"),
        ("It’s B.", "B"),
        ("Therefore B.", "B"),
        ("Hence, (B)", "B"),
        ("Choose B.", "B"),
        ("Do not choose A. Choose B.", "B"),
        ("answer: b", "B"),
        ("The correct statement is B", "B"),
        ("answer: because", None),
        ("<answer>A or B</answer>", None),
        ("The answer is B's.", None),
        ("It's A dog.", None),
        ("It's B flat", None),
        ("So A is out.", None),
        ("So B or C.", None),
        ("Therefore A dog barks.", None),
        ("I say that B is nice", None),
        ("You might pick C.", None),
        # what is denied elsewhere in the sentence says nothing of the answer
        ("Not A, not C, so the answer is B.", "B"),
        ("The answer cannot be A, so the answer is B.", "B"),
        ("I'm not sure, but the answer is B.", "B"),
        ("Thus the correct answer is B, not C.", "B"),
        ("The correct answer isn't A, it's B", "B"),
        ("Instead of A the answer is B.", "B"),
        ("Rather than A, the answer is B.", "B"),
        ("No doubt the answer is B.", "B"),
        ("The wrong answer is A, so the answer is B.", "B"),
        ("Since A isn't right, C is the correct answer.", "C"),
        ("The answer is B: it is false that A holds.", "B"),
        ("The answer is B. This is not true of A.", "B"),
        ("Answer: B\nNot A.", "B"),
        ("The answer is A. A is not wrong.", "A"),
        # a rejected choice never wins
        ("At first glance the answer is A. But we can eliminate A and C, so the answer is B.", "B"),
        ("One might say the answer is A.\nThat is wrong, since Paris is not in England; the answer is B.", "B"),
        ("The answer is A? No, it isn't A, so the answer must be B.", "B"),
        ("If it were so, the answer is A; that's wrong, so the answer is D.", "D"),
        ("Answer: B\n\nHad the question asked about France, the answer would be A.", "B"),
        ("One might say the answer is A.", None),
        ("The answer is A?", None),
        ("The answer is A. But A is wrong.", None),
        ("The answer is A, but that is wrong.", None),
        ("The answer is B, which is wrong.", None),
        ("The answer is A. Then again, we can rule out A and D.", None),
        ("Option B fits. But B can't be.", None),
        ("I don't think the answer is A.", None),
        ("I doubt the answer is A.", None),
        ("The wrong answer is A.", None),
        ("Had it been France, the answer would be A.", None),
        # the last statement is denied, and nothing says that the one before counts again
        ("The answer is B. Some say the answer is A. But A is wrong.", None),
        # denials say nothing
        ("The answer is B. Option C is wrong.", "B"),
        ("The answer is not A. The answer is B.", "B"),
        ("The incorrect answer is A.", None),
        ("The answer is not B.", None),
        ("Option B is not right.", None),
        ("It is not Paris.", None),
        # several letters commit to none of them
        ("The answer is A or B.", None),
        ("Answer: B, C", None),
        ("Answer: A and D", None),
        ("Answer: A/B", None),
        ("A) Paris\nB) London\nC) Rome\nD) New York", None),
        ("Option A or option B.", None),
        ("Paris or London", None),
        # a letter in prose is nothing
        ("A good question, I think.", None),
        ("I am not able to say.", None),
        ("A dog in Berlin", None),
        ("The answer is A dog.", None),
        ("I do not know.", None),
        ("Answer: E", None),
        ("Answer: Because", None),
        ("", None),
        ("<think>The answer is B.", None),
        ("<think>The answer is A.</think> The answer is C.", "C"),
    ],
)
def test_lenient_is_the_last_clear_statement(reply: str, letter: str | None) -> None:
    assert lenient_choice(reply, CITIES) == (None if letter is None else LETTERS.index(letter))


@for_each_row(
    ("reply", "choices", "index"),
    [
        ("It is 1.", ["1", "10", "1.5"], 0),
        ("It is 1.5", ["1", "10", "1.5"], 2),
        ("It is 10.", ["1", "10", "1.5"], 1),
        ("1 and 2", ["1", "1 and 2"], 1),
        ("Neither of them", ["Both of them", "Neither of them"], 1),
        ("-5", ["5", "-5"], 1),
        ("the whale, of course", ["whale", "sperm whale"], 0),
        ("the sperm whale", ["whale", "sperm whale"], 1),
        ("the letter i", ["the letter i", "the letter a"], 0),
        ("I is the answer", [str(n) for n in range(10)], None),
        ("Answer: I", [str(n) for n in range(10)], 8),
        ("3", ["3", "4", "3"], None),
    ],
)
def test_a_choice_may_be_named_by_its_text_if_it_is_one(reply: str, choices: list[str], index: int | None) -> None:
    assert lenient_choice(reply, choices) == index


PIECES = st.sampled_from(
    ["Answer: A", "Answer: B", "Answer: C", "The answer is not B.", "\n", " ", "option A", "(C)", "A or B",
     "\\boxed{A}", "Paris", "London", "</think>", "<think>", "**", "I think", "wrong"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_what_is_right_strictly_is_right_leniently(reply: str) -> None:
    strict = strict_choice(reply, 4)
    if strict is not None:
        assert lenient_choice(reply, CITIES) == strict


@settings(deadline=None)
@given(st.text("ABCI().:* \nanswerio\\{}not", max_size=200))
def test_no_reply_breaks_the_reading(reply: str) -> None:
    assert lenient_choice(reply, CITIES) in (None, 0, 1, 2, 3)
    assert strict_choice(reply, 4) in (None, 0, 1, 2, 3)


@pytest.mark.slow
@for_each_row(
    "part",
    [
        "Answer: A ",
        "A) ",
        "the answer is ",
        "option A or ",
        "London. ",
        "\\boxed{",
        "A\n",
        "  ",
        "A \n\n",
        "eliminate A, ",
        "not ",
        "(",
        "that is ",
        '" ',
    ],
)
def test_a_long_reply_takes_no_long_time(part: str) -> None:
    assert strict_choice(part * 40_000, 4) in (None, 0, 1)
    assert lenient_choice(part * 40_000, CITIES) in (None, 0, 1)
    assert is_linear(lambda size: (strict_choice(part * size, 4), lenient_choice(part * size, CITIES)), 5_000)
