"""The grader against replies that try to get more than they earned, the sources of questions, and the sample."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsm8k import load_environment
from gsm8k.grading import final_answer, number
from gsm8k.sample import TEMPLATES, problems
from harness import ModelResponse, Prompt, State
from harness.errors import ConfigError
from harness.keys import ExampleKeys

OFFICIAL = Path(__file__).parents[4] / "shared" / "data" / "gsm8k" / "test.jsonl"
"""The official test split, where the checkout lies beside a folder that has it."""


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{18}",
        r"She makes $9 \cdot 2 = \boxed{18}$ dollars.",
        r"\boxed{18.0}",
        r"\boxed{18.}",
        r"\boxed{$18}",
        r"\boxed{\$18}",
        r"\boxed{\$\,18.00}",
        r"\boxed{18\%}",
        r"\boxed{ 18 }",
        r"\boxed{+18}",
        r"\boxed{018}",
        r"\boxed{18 \text{ dollars}}",
        r"\boxed{18\text{ dollars per day}}",
        r"\boxed{\text{18}}",
        r"\boxed{\mathbf{18}}",
        r"\boxed{{18}}",
        r"\boxed{\boxed{18}}",
        r"\boxed{x = 18}",
        r"\boxed{\text{Total: } 18}",
        r"\boxed{\frac{36}{2}}",
        r"\boxed{36/2}",
        r"\boxed{1.8e1}",
        r"\boxed{18}",
        r"\boxed{18 \text{ cm}^2}",
        r"\fbox{18}",
        r"\boxed {18}",
        "#### 18",
        "####18",
        "#### $18.00",
        "#### 18 apples",
        "#### **18**",
        "#### Answer: 18",
        "So it is #### 18",
        "9 * 2 = 18\n#### 18\n",
        "\\boxed{18}\n#### 18",
        "\\boxed{18}, that is \\boxed{18.00}.",
        "#### \\boxed{18}",
        "### Solution\n#### 1. Eggs\n16-7=9\n#### 2. Money\n9*2\n#### Final answer\n\\boxed{18}",
        "#### Step 1: count\n#### 18",
        r"<think>\boxed{17}? No, \boxed{19}?</think>\boxed{18}",
        r"\boxed{17} is too few.</think>\boxed{18}",
        r"\boxed{} should hold the answer: \boxed{18}",
        r"\boxed{\text{the answer}} is \boxed{18}",
    ],
)
def test_right_however_it_is_written(reply: str) -> None:
    assert final_answer(reply) == 18


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "18",
        "The answer is 18.",
        "The answer is **18**.",
        r"The answer is 18. \boxed{19}",  # the right text with the wrong box
        "18 is right.\n#### 19",
        r"\boxed{18} \boxed{19}",
        r"\boxed{19} \boxed{18}",
        r"\boxed{18} \boxed{19} \boxed{18}",
        "\\boxed{18}\n#### 19",
        "\\boxed{19}\n#### 18",
        "#### 19\n#### 18",
        "#### 18 or 19",
        "#### 18, 19",
        "#### 18 19",
        r"\boxed{18 \text{ or } 19}",
        r"\boxed{18, 19}",
        r"\boxed{18$19}",
        r"\boxed{18-19}",
        r"\boxed{17 < x < 19}",
        r"\boxed{9+9}",
        r"\boxed{9 \times 2}",
        r"\boxed{18 \pm 1}",
        r"\boxed{18 or more}",
        r"\boxed{18 to}",
        r"\boxed{18!}",
        r"\boxed{18k}",
        r"\boxed{18 thousand}",
        r"\boxed{18 dozen}",
        r"\boxed{18^2}",
        r"\boxed{18²}",
        r"\boxed{18½}",
        r"\boxed{18:30}",
        r"\boxed{1_8}",
        r"\boxed{0x12}",
        r"\boxed{not 18}",
        r"\boxed{-18}",
        r"\boxed{−18}",
        r"\boxed{18.5}",
        r"\boxed{18.0000000000000000001}",
        r"\boxed{17.99999999999999999999}",
        r"\boxed{1,8}",
        r"\boxed{}",
        r"\boxed{eighteen}",
        r"\boxed{NaN}",
        r"\boxed{Infinity}",
        r"\boxed{1e999999999}",
        r"\boxed{18/0}",
        r"\boxed{" + "1" * 5000 + "}",
        r"\boxed{18",  # cut off
        r"\boxed{18} and \boxed{19 \boxed{18}}",
        r"<think>\boxed{18}</think>",
        r"<think>\boxed{18}",
        r"\boxed{18}</think>",
        "<think>\n#### 18\n</think> I am not sure.",
        "##### 18",
        "### 18",
        "#### 18. The end",  # reads like a numbered heading
        "#### one\n18",
    ],
)
def test_not_right_whatever_it_says_beside(reply: str) -> None:
    assert final_answer(reply) != 18


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.0", 1234),
        ("1,234,567", 1234567),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        (r"1,\!234", 1234),
        ("1 234 567", 1234567),
        ("1 234", 1234),
        ("12,34,567", 1234567),
        ("$1,234.50", Fraction(2469, 2)),
        ("-$5", -5),
        ("$-5", -5),
        ("−5", -5),
        ("- 5", -5),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        ("50%", 50),
        ("20^\\circ C", 20),
        ("18 miles/hour", 18),
        ("٣", 3),
    ],
)
def test_the_value_of_a_number(text: str, value: Fraction) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "text", ["1,23", "1234,567", "1, 234", "1.2.3", "--5", "2 1/2", r"2\frac{1}{2}", "5:30", "/", "."]
)
def test_what_is_no_number(text: str) -> None:
    assert number(text) is None


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3))
def test_every_way_to_write_a_number_has_its_value(value: object) -> None:
    exact = Fraction(str(value))
    for text in (
        f"{value}",
        f"{value:,}",
        f"${value:,}",
        f"{value} km",
        f"\\text{{{value}}}",
        f"{value}".replace("-", "−"),
    ):
        assert final_answer(f"\\boxed{{{text}}}") == exact


@settings(deadline=None)
@given(st.text("1289,. $\\{}#boxedor-\n/%<think>", max_size=300))
def test_no_reply_breaks_the_grader(reply: str) -> None:
    final_answer(reply)
    final_answer(f"\\boxed{{{reply}}}")
    final_answer(f"#### {reply}")


@pytest.mark.parametrize(
    "part", [r"\boxed{", r"\boxed{1}", "#### ", "#### 1 ", "<think>", "</think>", "1", "{", r"\boxed{1 "]
)
def test_a_long_reply_takes_no_long_time(part: str) -> None:
    # quadratic time would be minutes here, and the suite's patience is the bound
    final_answer(part * 100_000)


class Saying:
    """A model that always says the same."""

    model = "saying"

    def __init__(self, reply: str) -> None:
        self.reply = reply

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        return ModelResponse({"role": "assistant", "content": self.reply}, "stop")


def score(reply: str, **arguments: str) -> State:
    env = load_environment(**arguments)
    state = State.begin(ExampleKeys().example(env.row(0), 0), 0, "saying", {})

    async def main() -> None:
        await env.rollout(state, Saying(reply))
        await env.rubric.score([state])

    asyncio.run(main())
    return state


@pytest.mark.parametrize(
    ("reply", "reward", "has_answer"),
    [
        (r"\boxed{18}", 1.0, 1.0),
        (r"\boxed{17}", 0.0, 1.0),
        ("It is 18.", 0.0, 0.0),
        (r"\boxed{18} \boxed{17}", 0.0, 0.0),
    ],
)
def test_the_reward_is_the_answer_and_the_format_is_only_watched(
    tmp_path: Path, reply: str, reward: float, has_answer: float
) -> None:
    path = jsonl(tmp_path, [{"question": "How many?", "answer": "9*2\n#### 18"}])
    state = score(reply, dataset=path)
    assert state["reward"] == reward
    assert state["metrics"] == {"correct_answer": reward, "has_answer": has_answer}


@pytest.mark.skipif(not OFFICIAL.is_file(), reason="the official test split is not beside this checkout")
def test_the_official_answers_all_score_one() -> None:
    env = load_environment(dataset=str(OFFICIAL))
    assert env.row_count == 1319
    keys = ExampleKeys()
    for index in range(env.row_count):
        example = keys.example(env.row(index), index)
        wanted = number(example.answer)
        assert wanted is not None
        assert final_answer(env.reference_reply(example, [])) == wanted
        assert final_answer(example.info["solution"]) == wanted
        assert final_answer(str(env.null_reply(example, []))) is None


# Where questions come from


def jsonl(folder: Path, rows: Iterable[object], name: str = "rows.jsonl") -> str:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


ROWS = [
    {"question": "How many?", "answer": "9*2=18\n#### 18"},
    {"question": "Line\u2028break?", "answer": 2.5, "more": None},
]


def test_a_jsonl_file_is_read(tmp_path: Path) -> None:
    env = load_environment(dataset=jsonl(tmp_path, ROWS))
    assert [env.row(i).answer for i in range(env.row_count)] == ["18", "2.5"]
    assert env.row(1).prompt[-1] == {"role": "user", "content": "Line\u2028break?"}
    assert env.row(0).info == {"solution": "9*2=18\n#### 18"}


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"question": ["a?", "b?"], "answer": ["#### 1", "#### 2"], "id": [7, 8]}), path)
    env = load_environment(dataset=str(path))
    assert [env.row(i).answer for i in range(env.row_count)] == ["1", "2"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"question": "a?", "answer": "1"}, {"question": "b?"}], r"rows\.jsonl, row 2: there is no column 'answer'"),
        ([{"query": "a?", "answer": "1"}], r"row 1: there is no column 'question'; it has query, answer"),
        ([{"question": " ", "answer": "1"}], r"row 1: column 'question' must be a text"),
        ([{"question": "a?", "answer": None}], r"row 1: column 'answer' must be a text"),
        ([{"question": "a?", "answer": "many"}], r"row 1: column 'answer' must be a number or end in `#### <number>`"),
        ([{"question": "a?", "answer": "#### 1 or 2"}], r"row 1: column 'answer' must be a number"),
        ([["a?", "1"]], r"row 1: must be an object"),
        ([], r"holds no rows"),
    ],
)
def test_a_wrong_row_is_named_with_file_row_and_column(tmp_path: Path, rows: list[object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _ = load_environment(dataset=jsonl(tmp_path, rows)).row_count


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "a?", "answer": "1"}\n\n{"question": ', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rows\.jsonl, row 3: not JSON"):
        _ = load_environment(dataset=str(path)).row_count


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ConfigError, match=r"rows\.parquet cannot be read as parquet"):
        _ = load_environment(dataset=str(path)).row_count


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dataset": "missing/test.jsonl"}, "there is no such file"),
        ({"dataset": "./rows.csv"}, r"a file must end in \.jsonl or \.parquet"),
        ({"split": "sample", "dataset": "rows.jsonl"}, "leave out `dataset`"),
        ({"split": "sample", "subset": "main"}, "leave out `dataset` and `subset`"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_at_once(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_environment(**arguments)


def test_a_file_has_no_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no `split`"):
        load_environment(dataset=jsonl(tmp_path, ROWS), split="train")


@pytest.mark.slow
def test_without_the_hub_loading_fails_and_names_both_alternatives(tmp_path: Path) -> None:
    """In a process of its own: the Hub's client reads its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", "import gsm8k; gsm8k.load_environment().row_count"],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "ConfigError: gsm8k: dataset 'openai/gsm8k' (split 'test') cannot be loaded from the Hub" in done.stderr
    assert '{"dataset": "PATH.jsonl"}' in done.stderr
    assert '{"split": "sample"}' in done.stderr


# The sample

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def value_of(expression: str) -> Fraction:
    """Evaluate `+ - * /` and parentheses, without trusting the code that wrote the expression."""
    inner = re.search(r"\(([^()]*)\)", expression)
    if inner:
        return value_of(expression.replace(inner[0], str(value_of(inner[1]))))
    for level in ("+-", "*/"):
        found = re.search(rf"^(.+)([{level}])([^{level}]+)$", expression)
        if found:
            return OPERATORS[found[2]](value_of(found[1]), value_of(found[3]))
    return Fraction(expression)


def test_every_step_of_the_sample_is_right_and_the_last_one_is_the_answer() -> None:
    for row in problems():
        *steps, last = row["answer"].split("\n")
        calculations = re.findall(r"([\d+*/()-]+)=<<\1=(-?\d+)>>(-?\d+)", row["answer"])
        assert len(calculations) == row["answer"].count("<<") == len(steps)
        for expression, result, shown in calculations:
            assert value_of(expression) == Fraction(result) == Fraction(shown), row
        assert last == f"#### {calculations[-1][1]}"


def test_the_sample_holds_every_kind_of_problem_evenly_and_none_twice() -> None:
    rows = list(problems())
    assert len(TEMPLATES) >= 10
    assert len({row["question"] for row in rows}) == len(rows) == 200
    assert list(problems(20)) == rows[:20]
    kinds = {re.sub(r"[A-Z][a-z]+|\d+", "", row["question"])[:30] for row in rows[: len(TEMPLATES)]}
    assert len(kinds) == len(TEMPLATES)


def test_the_numbers_of_the_sample_can_be_meant() -> None:
    for row in problems():
        results = [int(value) for value in re.findall(r"=(-?\d+)>>", row["answer"])]
        if "degrees" not in row["question"]:  # only a thermometer goes below zero
            assert min(results) > 0, row
        assert max(results) < 100_000
        assert not re.search(r"\b1 [a-z]+s\b", row["question"]), row
