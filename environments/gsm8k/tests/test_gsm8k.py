"""The reward, the sources of questions, and the sample."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import nursery
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import for_each_row

from gsm8k import load_environment
from gsm8k.grading import final_answer, number
from gsm8k.sample import TEMPLATES, problems
from harness import ModelResponse, Prompt, State
from harness.errors import ConfigError, EnvironmentLoadError
from harness.keys import ExampleKeys

OFFICIAL = Path(__file__).parents[4] / "shared" / "data" / "gsm8k" / "test.jsonl"
"""The official test split, where the checkout lies beside a folder that has it."""


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
        ([{"question": " ", "answer": "1"}], r"row 1: column 'question' must be a non-blank string"),
        ([{"question": "a?", "answer": None}], r"row 1: column 'answer' must be a non-blank string"),
        ([{"question": "a?", "answer": "many"}], r"row 1: column 'answer' must be a number or end in `#### <number>`"),
        ([{"question": "a?", "answer": "#### 1 or 2"}], r"row 1: column 'answer' must be a number"),
        ([["a?", "1"]], r"row 1: must be an object"),
        ([], r"has no rows"),
    ],
)
def test_a_wrong_row_is_named_with_file_row_and_column(tmp_path: Path, rows: list[object], words: str) -> None:
    with pytest.raises(EnvironmentLoadError, match=words):
        _ = load_environment(dataset=jsonl(tmp_path, rows)).row_count


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "a?", "answer": "1"}\n\n{"question": ', encoding="utf-8")
    with pytest.raises(EnvironmentLoadError, match=r"rows\.jsonl, row 3: not JSON"):
        _ = load_environment(dataset=str(path)).row_count


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(EnvironmentLoadError, match=r"rows\.parquet cannot be read as parquet"):
        _ = load_environment(dataset=str(path)).row_count


@for_each_row(
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
    done = nursery.run(
        ["-c", "import gsm8k; gsm8k.load_environment().row_count"],
        environ={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    words = (
        "dataset 'openai/gsm8k', subset 'main' (split 'test') cannot be loaded from the Hub; "
        "to run without the Hub, use -a "
    )
    assert f"EnvironmentLoadError: {words}" in done.stderr
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
