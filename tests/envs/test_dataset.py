"""Datasets: what may be handed over, what rows become, and what is said of wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tables import for_each_row

from harness import Rubric, SingleTurnEnv
from harness.core.errors import EnvironmentFault
from harness.core.records import Row


def env_of(*rows: Any, **options: Any) -> SingleTurnEnv:
    return SingleTurnEnv(dataset=list(rows), **options)


def test_a_question_becomes_a_prompt() -> None:
    shots = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
    env = env_of({"question": "2+2", "answer": "4"}, system_prompt="Count.", few_shot=shots)
    assert env.row_count == 1
    assert env.row(0) == Row(
        0, [{"role": "system", "content": "Count."}, *shots, {"role": "user", "content": "2+2"}], "4", "", {}
    )


def test_a_prompt_is_taken_as_it_is_and_gaps_of_a_table_are_closed() -> None:
    prompt = [
        {"role": "user", "content": "hi", "tool_calls": None, "name": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    ]
    row = env_of({"prompt": prompt, "question": "ignored"}, system_prompt="S").row(0)
    assert row.prompt == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    ]
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "hi"}]
    assert env_of({"prompt": own}, system_prompt="S").row(0).prompt == own


def test_all_columns_are_read_and_others_left_alone() -> None:
    env = env_of(
        {"question": "q", "answer": "a", "task": "t", "info": {"n": 1}, "example_id": "id-1", "level": 5},
        {"question": "q", "answer": None, "task": None, "info": json.dumps({"n": 2}), "example_id": 7},
        {"question": "q", "info": None},
    )
    assert [(r.example_id, r.answer, r.task, r.info) for r in map(env.row, range(3))] == [
        ("id-1", "a", "t", {"n": 1}),
        (7, "", "", {"n": 2}),
        (2, "", "", {}),
    ]


def test_a_completion_environment_has_text_prompts() -> None:
    assert env_of({"question": "Once"}, message_type="completion").row(0).prompt == "Once"
    assert env_of({"prompt": "Once"}, message_type="completion").row(0).prompt == "Once"
    with pytest.raises(EnvironmentFault, match=r"row 0, column 'prompt': must be a string"):
        env_of({"prompt": [{"role": "user", "content": "x"}]}, message_type="completion")


GOOD = {"question": "q"}


@for_each_row(
    ("row", "words"),
    [
        ({"questoin": "q"}, r"row 1: a column 'prompt' or 'question' is required; the columns are questoin"),
        ({"question": 3}, r"row 1, column 'question': must be a string, not int"),
        ({"question": "  "}, r"row 1, column 'question': is empty"),
        ({"question": "q", "answer": 4}, r"row 1, column 'answer': must be a string, not int; use str\(\)"),
        ({"question": "q", "task": ["t"]}, r"row 1, column 'task': must be a string, not list"),
        ({"question": "q", "info": "not json"}, r"row 1, column 'info': is not JSON"),
        ({"question": "q", "info": "[1]"}, r"row 1, column 'info': must be a dict, or a JSON object"),
        ({"question": "q", "info": 3}, r"row 1, column 'info': must be a dict"),
        ({"question": "q", "example_id": 1.5}, r"row 1, column 'example_id': must be an integer or a string"),
        ({"question": "q", "example_id": True}, r"row 1, column 'example_id': must be an integer or a string"),
        ({"prompt": "text"}, r"row 1, column 'prompt': must be a list of messages.*rename the column to 'question'"),
        ({"prompt": []}, r"row 1, column 'prompt': must be a list of messages, not \[\]"),
        ({"prompt": {"role": "user"}}, r"row 1, column 'prompt': must be a list of messages"),
        ({"prompt": ["hi"]}, r"row 1, column 'prompt': message 0 must be a dict"),
        ({"prompt": [{"content": "hi"}]}, r"row 1, column 'prompt': message 0 has no role"),
        ({"prompt": [{"role": "user"}]}, r"row 1, column 'prompt': message 0 has no content"),
        ({"prompt": [{"role": "user", "content": 3}]}, r"row 1, column 'prompt': message 0 has a content of type int"),
        ("q", r"row 1 must be a dict of columns, not str"),
    ],
)
def test_a_wrong_row_is_refused_at_construction_with_row_and_column(row: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        env_of(GOOD, row)


def test_an_example_id_may_occur_once() -> None:
    with pytest.raises(EnvironmentFault, match=r"row 2, column 'example_id': 'a' is also the id of row 0"):
        env_of({**GOOD, "example_id": "a"}, {**GOOD, "example_id": "b"}, {**GOOD, "example_id": "a"})


def test_few_shot_has_no_place_before_a_finished_prompt() -> None:
    with pytest.raises(EnvironmentFault, match="cannot be combined with few_shot"):
        env_of({"prompt": [{"role": "user", "content": "x"}]}, few_shot=[{"role": "user", "content": "y"}])


@for_each_row(
    ("source", "words"),
    [
        ([], "dataset is empty"),
        ("rows", "must be a list of dicts.*not str"),
        (3, "must be a list of dicts.*not int"),
        (iter([GOOD]), "must be a list of dicts.*not list_iterator"),
        ({"train": [GOOD], "test": [GOOD]}, "not a mapping; choose one of: train, test"),
    ],
)
def test_what_holds_no_rows_is_refused(source: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        SingleTurnEnv(dataset=source)


def test_there_is_a_dataset() -> None:
    with pytest.raises(EnvironmentFault, match="SingleTurnEnv needs a dataset or an eval_dataset"):
        SingleTurnEnv(rubric=Rubric())


def test_the_evaluation_dataset_is_the_one_that_counts() -> None:
    env = SingleTurnEnv(dataset=[GOOD], eval_dataset=[{"question": "e"}, {"question": "f"}])
    assert env.row_count == 2
    assert env.row(1).prompt == [{"role": "user", "content": "f"}]


def test_there_are_no_rows_outside_the_dataset() -> None:
    env = env_of(GOOD)
    for index in (1, -1):
        with pytest.raises(IndexError, match="dataset has 1 rows"):
            env.row(index)


def test_a_builder_is_called_once_and_only_when_needed() -> None:
    calls: list[str] = []

    def build(name: str) -> Any:
        calls.append(name)
        return [{"question": name}]

    env = SingleTurnEnv(dataset=lambda: build("train"), eval_dataset=lambda: build("eval"))
    assert calls == []
    assert (env.row_count, env.row(0).prompt, env.row_count) == (1, [{"role": "user", "content": "eval"}], 1)
    assert calls == ["eval"]


def test_what_a_builder_makes_is_checked_like_anything_else() -> None:
    env = SingleTurnEnv(dataset=lambda: [GOOD, {"question": 3}])
    with pytest.raises(EnvironmentFault, match="row 1, column 'question'"):
        _ = env.row_count
    env = SingleTurnEnv(dataset=lambda: [])
    with pytest.raises(EnvironmentFault, match="dataset is empty"):
        _ = env.row_count


def test_a_builder_that_raises_is_told_as_the_environments_fault() -> None:
    def build() -> Any:
        raise OSError("no network")

    with pytest.raises(EnvironmentFault, match="dataset function raised OSError: no network"):
        SingleTurnEnv(eval_dataset=build).row(0)


class Made(Sequence[dict[str, Any]]):
    """A million rows that are made when they are read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: Any) -> Any:
        self.read.append(index)
        if index == 500:
            raise RuntimeError("this one cannot be made")
        return {"question": f"{index}?"}

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the whole set must never be read")


def test_rows_of_a_sequence_are_read_one_at_a_time() -> None:
    rows = Made()
    env = SingleTurnEnv(dataset=rows)
    assert env.row_count == 1_000_000
    assert env.row(999_999).prompt == [{"role": "user", "content": "999999?"}]
    assert rows.read == [0, 999_999]
    with pytest.raises(EnvironmentFault, match="row 500 cannot be read: RuntimeError: this one"):
        env.row(500)


def test_a_datasets_dataset_is_read_without_being_copied() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list(
        [
            {"question": "a", "answer": "1", "info": {"x": 1, "y": None}, "example_id": 10},
            {"question": "b", "answer": "2", "info": {"x": None, "y": "z"}, "example_id": 11},
        ]
    )
    env = SingleTurnEnv(dataset=table)
    assert env.row(1) == Row(11, [{"role": "user", "content": "b"}], "2", "", {"x": None, "y": "z"})
    assert SingleTurnEnv(dataset=lambda: table).row_count == 2
    twice = datasets.Dataset.from_list([{"question": "a", "example_id": 1}] * 2)
    with pytest.raises(EnvironmentFault, match="row 1, column 'example_id': 1 is also the id of row 0"):
        SingleTurnEnv(dataset=twice)
    with pytest.raises(EnvironmentFault, match="choose one of: train"):
        SingleTurnEnv(dataset=datasets.DatasetDict({"train": table}))


def test_lists_need_no_datasets_library() -> None:
    program = (
        "import sys; from harness import SingleTurnEnv; SingleTurnEnv(dataset=[{'question': 'q'}]).row(0); "
        "print('datasets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
