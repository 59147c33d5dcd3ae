"""The reward, the order of the options, the sources of questions over the real `datasets` library, and the sample."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nursery
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_repos import Account, Entry
from hub_runs import hub_env
from hub_server import HubServer
from tables import for_each_row

from harness import ModelResponse, Prompt, State
from harness.errors import ConfigError, EnvironmentLoadError
from harness.keys import ExampleKeys
from harness.records import Row
from multiple_choice import load_environment
from multiple_choice.choices import Question, rows
from multiple_choice.sample import TEMPLATES, questions

CITY = {"question": "Capital of France?", "choices": ["Paris", "London", "Rome"], "answer": 0}


class Saying:
    """A model that always says the same."""

    model = "saying"

    def __init__(self, reply: str) -> None:
        self.reply = reply

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        return ModelResponse({"role": "assistant", "content": self.reply}, "stop")


def score(reply: str, **arguments: Any) -> State:
    env = load_environment(**arguments)
    state = State.begin(ExampleKeys().example(env.row(0), 0), 0, "saying", {})

    async def main() -> None:
        await env.rollout(state, Saying(reply))
        await env.rubric.score([state])

    asyncio.run(main())
    return state


def jsonl(folder: Path, items: Iterable[object]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
    return str(path)


def loaded(**arguments: Any) -> list[Row]:
    env = load_environment(**arguments)
    return [env.row(index) for index in range(env.row_count)]


# The reward


@pytest.mark.parametrize(
    ("reply", "strict", "lenient", "has_answer"),
    [
        ("Thinking.\nAnswer: A", 1.0, 1.0, 1.0),
        ("The answer is (A).", 0.0, 1.0, 1.0),
        ("Answer: B", 0.0, 0.0, 1.0),
        ("A or B", 0.0, 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("extraction", ["strict", "lenient"])
def test_the_reward_is_the_reading_that_was_asked_for_and_the_other_is_watched(
    tmp_path: Path, extraction: str, reply: str, strict: float, lenient: float, has_answer: float
) -> None:
    state = score(reply, benchmark=jsonl(tmp_path, [CITY]), seed=None, extraction=extraction)
    assert state["reward"] == (strict if extraction == "strict" else lenient)
    assert state["metrics"] == {"strict_correct": strict, "lenient_correct": lenient, "has_answer": has_answer}


def test_where_the_right_option_occurs_twice_either_letter_is_right(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"question": "?", "choices": ["1", "2", "1"], "answer": "C"}])
    assert [score(f"Answer: {letter}", benchmark=path, seed=None)["reward"] for letter in "ABC"] == [1.0, 0.0, 1.0]


# The order of the options


def made(count: int, number: int) -> list[Question]:
    names = [f"choice {index}" for index in range(count)]
    return [Question(f"question {n}", tuple(names), 0, {}) for n in range(number)]


@for_each_row("count", range(2, 11))
def test_the_right_option_takes_every_place_equally_often_and_in_no_fixed_turn(count: int) -> None:
    answers = [row["answer"] for row in rows(made(count, 20 * count), 0)]
    assert set(Counter(answers).values()) == {20}
    for block in range(20):
        assert len(set(answers[block * count : (block + 1) * count])) == count
    assert len({tuple(answers[block * count : (block + 1) * count]) for block in range(20)}) > 1


def test_the_order_is_recorded_is_that_of_the_seed_and_does_not_depend_on_how_many_there_are() -> None:
    few, many, other = rows(made(5, 10), 3), rows(made(5, 40), 3), rows(made(5, 10), 4)
    assert few == many[:10]
    assert sum(a["info"]["order"] == b["info"]["order"] for a, b in zip(few, other, strict=True)) <= 2
    for row in few:
        info = row["info"]
        assert info["shuffled"] is True
        assert sorted(info["order"]) == [0, 1, 2, 3, 4]
        assert info["choices"] == [f"choice {index}" for index in info["order"]]
        assert info["order"]["ABCDE".index(row["answer"])] == 0
        assert row["question"].splitlines()[2:] == [
            f"{letter}) {c}" for letter, c in zip("ABCDE", info["choices"], strict=True)
        ]


def test_without_a_seed_the_options_stay_where_they_are() -> None:
    (row,) = rows([Question("?", ("a", "b", "c"), 2, {"id": "x"})], None)
    assert row == {
        "question": "?\n\nA) a\nB) b\nC) c",
        "answer": "C",
        "info": {"id": "x", "choices": ["a", "b", "c"], "order": [0, 1, 2], "shuffled": False},
    }


@for_each_row(
    "choice",
    ["All of the above", "None of the above.", "Both A and B", "A and C only", "A, B and C", "Neither B nor C",
     "Only A", "Option A is false", "the answers above"],
)  # fmt: skip
def test_options_that_speak_of_others_keep_their_place(choice: str) -> None:
    many = [Question(f"question {n}", ("first", "second", "third", choice), 3, {}) for n in range(20)]
    for row in rows(many, 0):
        assert (row["answer"], row["info"]["order"], row["info"]["shuffled"]) == ("D", [0, 1, 2, 3], False)


@for_each_row("choice", ["None of these", "a band", "Vitamin A", "an AND gate", "the I-beam", "overall"])
def test_other_options_are_shuffled(choice: str) -> None:
    many = [Question(f"question {n}", ("first", "second", "third", choice), 3, {}) for n in range(20)]
    assert all(row["info"]["shuffled"] for row in rows(many, 0))


# Files and columns


@pytest.mark.parametrize(
    ("columns", "cells", "answer"),
    [
        (None, {"question": "?", "choices": ["x", "y", "z"], "answer": 1}, "B"),
        (None, {"question": "?", "choices": ["x", "y", "z"], "answer": "C"}, "C"),
        (None, {"question": "?", "choices": ["x", "y", "z"], "answer": "c"}, "C"),
        (None, {"question": "?", "choices": [" x ", "y"], "answer": "x"}, "A"),
        (None, {"question": "?", "choices": [1, 2.5], "answer": "2.5"}, "B"),
        (None, {"question": "?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answer": "2"}, "B"),
        (None, {"question": "?", "choices": {"text": ["x", "y"], "label": [1, 2]}, "answer": 2}, "B"),
        (None, {"question": "?", "choices": [{"text": "x", "label": 5}, {"text": "y", "label": 7}], "answer": 7}, "B"),
        ({"question": "stem", "answer": "key"}, {"stem": "?", "choices": ["x", "y"], "key": 0}, "A"),
        ({"choices": ["a", "b", "c"], "answer": "b"}, {"question": "?", "a": "x", "b": "y", "c": "z"}, "B"),
        ({"choices": ["a", "b"], "answer": "right"}, {"question": "?", "a": "x", "b": "y", "right": "y"}, "B"),
    ],
)  # fmt: skip
def test_columns_are_read_as_they_are_named(
    tmp_path: Path, columns: dict[str, Any] | None, cells: Mapping[str, Any], answer: str
) -> None:
    (row,) = loaded(benchmark=jsonl(tmp_path, [cells]), columns=columns, seed=None)
    assert row.answer == answer
    assert row.info["shuffled"] is False


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({**CITY, "answer": 3}, r"rows\.jsonl, row 1: column 'answer' must name one choice \(0 to 2, ABC, or .*not 3"),
        ({**CITY, "answer": -1}, "must name one choice"),
        ({**CITY, "answer": "D"}, "must name one choice"),
        ({**CITY, "answer": "1"}, "must name one choice"),
        ({**CITY, "answer": True}, "must name one choice"),
        ({**CITY, "answer": None}, "must name one choice"),
        ({**CITY, "choices": ["B", "A"], "answer": "A"}, "must name one choice"),  # the letter, or the text?
        ({**CITY, "choices": ["x", "x"], "answer": "x"}, "must name one choice"),
        ({**CITY, "choices": {"text": ["x", "y"], "label": [1, 2]}, "answer": "A"}, r"must name one choice \(1, 2\)"),
        ({**CITY, "choices": {"text": ["x", "y"], "label": ["1", "1"]}}, "a label of its own"),
        ({**CITY, "choices": ["Paris"]}, "2 to 10 choices, not 1"),
        ({**CITY, "choices": [str(n) for n in range(11)]}, "2 to 10 choices, not 11"),
        ({**CITY, "choices": "Paris, London"}, "must be a list of texts"),
        ({**CITY, "choices": ["Paris", " "]}, "must be a list of texts"),
        ({**CITY, "choices": ["Paris", None]}, "must be a list of texts"),
        ({**CITY, "question": ""}, "column 'question' must be a non-blank string"),
        ({"choices": ["a", "b"], "answer": 0}, "there is no column 'question'; it has choices, answer"),
        (["?"], "must be an object"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_with_file_row_and_column(tmp_path: Path, cells: object, words: str) -> None:
    with pytest.raises(EnvironmentLoadError, match=words):
        loaded(benchmark=jsonl(tmp_path, [cells]))


def test_an_empty_file_and_a_line_that_is_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLoadError, match="holds no rows"):
        loaded(benchmark=jsonl(tmp_path, []))
    (tmp_path / "rows.jsonl").write_text("\n{", encoding="utf-8")
    with pytest.raises(EnvironmentLoadError, match=r"rows\.jsonl, row 2: not JSON"):
        loaded(benchmark=str(tmp_path / "rows.jsonl"))


@for_each_row(
    ("arguments", "words"),
    [
        ({"benchmark": "mmul"}, r"benchmark='mmul' is unknown; did you mean 'mmlu'\?"),
        ({"benchmark": "physics"}, "there are mmlu, gpqa, arc-challenge, arc-easy and sample"),
        ({"benchmark": "missing/rows.jsonl"}, "there is no such file"),
        ({"benchmark": "./rows.csv"}, r"must end in \.jsonl or \.parquet"),
        ({"benchmark": "sample", "split": "test"}, "no `subset` and no `split`"),
        ({"benchmark": "sample", "columns": {"answer": "key"}}, "has its own columns"),
        ({"benchmark": "mmlu", "columns": {"answer": "key"}}, "has its own columns"),
        ({"benchmark": "arc-easy", "subset": "ARC-Challenge"}, "has its own subset"),
        ({"benchmark": 5}, "benchmark must be a string, not 5"),
        ({"subset": 5}, "subset must be a string, not 5"),
        ({"extraction": "loose"}, "extraction must be 'strict' or 'lenient', not 'loose'"),
        ({"seed": -1}, "seed must be .*not -1"),
        ({"seed": True}, "seed must be .*not True"),
        ({"benchmark": "me/quiz", "columns": {"key": "answer"}}, "columns must be a table like"),
        ({"benchmark": "me/quiz", "columns": {"choices": ["a"]}}, "2 to 10 choices"),
        ({"benchmark": "me/quiz", "columns": {"answer": 1}}, "columns must be a table like"),
        ({"benchmark": "me/quiz", "columns": []}, "columns must be a table like"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_environment(**arguments)


# The Hub, through the real `datasets` library

MMLU_CARD = """\
---
configs:
- config_name: all
  data_files:
  - {split: test, path: all/test-*}
  - {split: dev, path: all/dev-*}
- config_name: anatomy
  data_files:
  - {split: test, path: anatomy/test-*}
dataset_info:
- config_name: all
  features: &columns
  - {name: question, dtype: string}
  - {name: subject, dtype: string}
  - {name: choices, sequence: string}
  - name: answer
    dtype: {class_label: {names: {'0': A, '1': B, '2': C, '3': D}}}
- config_name: anatomy
  features: *columns
---
"""
GPQA_CARD = """\
---
configs:
- {config_name: gpqa_main, data_files: gpqa_main.csv}
- {config_name: gpqa_diamond, data_files: gpqa_diamond.csv}
---
"""
ARC_CARD = """\
---
configs:
- config_name: ARC-Challenge
  data_files:
  - {split: test, path: ARC-Challenge/test-*}
- config_name: ARC-Easy
  data_files:
  - {split: test, path: ARC-Easy/test-*}
---
"""

GPQA_HEAD = "Pre-Revision Question,Question,Subdomain,High-level domain,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3,Record ID\n"  # noqa: E501
GPQA_ROW = "draft,{question},Quantum Mechanics,Physics,right {n}\\n,wrong a,wrong b,wrong c,rec{n}\n"

PRINT_ROWS = """
import json, sys
from multiple_choice import load_environment
env = load_environment(**json.loads(sys.argv[1]))
rows = [env.row(index) for index in range(env.row_count)]
print(json.dumps([[row.prompt[-1]["content"], row.answer, row.info] for row in rows]))
"""


def parquet(table: Mapping[str, list[Any]]) -> Entry:
    file = io.BytesIO()
    pq.write_table(pa.table(dict(table)), file)
    return Entry(file.getvalue(), lfs=True)


def put(server: HubServer, name: str, card: str, files: Mapping[str, Entry]) -> None:
    space, _, short = name.partition("/")
    repo = server.hub.create(Account(space), space, short, private=False)
    entries = {"README.md": Entry(card.encode()), **files}
    server.hub.large.update({entry.sha256: entry.data for entry in entries.values() if entry.lfs})
    repo.add("upload", entries)


def from_hub(server: HubServer, home: Path, **arguments: Any) -> list[list[Any]]:
    """Prompt, answer and info of every row, read by another process that knows no other Hub."""
    done = nursery.run(["-c", PRINT_ROWS, json.dumps(arguments)], environ=hub_env(server, home, None))
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def mmlu_table(subject: str, count: int) -> Entry:
    return parquet(
        {
            "question": [f"{subject} question {n}?" for n in range(count)],
            "subject": [subject] * count,
            "choices": [[f"w{n}", f"x{n}", f"y{n}", f"z{n}"] for n in range(count)],
            "answer": [n % 4 for n in range(count)],
        }
    )


@pytest.mark.slow
def test_mmlu_is_read_from_the_hub_whole_or_by_subject(tmp_path: Path) -> None:
    with HubServer() as server:
        files = {
            "all/test-00000-of-00001.parquet": mmlu_table("virology", 6),
            "all/dev-00000-of-00001.parquet": mmlu_table("astronomy", 1),
            "anatomy/test-00000-of-00001.parquet": mmlu_table("anatomy", 4),
        }
        put(server, "cais/mmlu", MMLU_CARD, files)
        every = from_hub(server, tmp_path)
        subject = from_hub(server, tmp_path, subset="anatomy", seed=None)
        dev = from_hub(server, tmp_path, split="dev")
    assert [info["subject"] for _, _, info in every] == ["virology"] * 6
    for n, (_, answer, info) in enumerate(every):
        assert info["choices"]["ABCD".index(answer)] == f"{'wxyz'[n % 4]}{n}"
    assert sorted(answer for _, answer, _ in every[:4]) == list("ABCD")
    assert [answer for _, answer, _ in subject] == list("ABCD")
    assert subject[1][0] == "anatomy question 1?\n\nA) w1\nB) x1\nC) y1\nD) z1"
    assert [info["subject"] for _, _, info in dev] == ["astronomy"]


@pytest.mark.slow
def test_gpqa_is_read_from_the_hub_and_its_right_answer_is_not_always_first(tmp_path: Path) -> None:
    lines = [GPQA_ROW.format(question=f"Why {n}?", n=n) for n in range(8)]
    with HubServer() as server:
        files = {
            "gpqa_diamond.csv": Entry((GPQA_HEAD + "".join(lines)).encode()),
            "gpqa_main.csv": Entry((GPQA_HEAD + "".join(lines[:2])).encode()),
        }
        put(server, "Idavidrein/gpqa", GPQA_CARD, files)
        diamond = from_hub(server, tmp_path, benchmark="gpqa")
        main = from_hub(server, tmp_path, benchmark="gpqa", subset="gpqa_main")
    assert Counter(answer for _, answer, _ in diamond) == {"A": 2, "B": 2, "C": 2, "D": 2}
    for n, (prompt, answer, info) in enumerate(diamond):
        assert prompt.startswith(f"Why {n}?\n\nA) ")
        assert info["choices"]["ABCD".index(answer)].startswith(f"right {n}")
        assert info["order"]["ABCD".index(answer)] == 0
        assert (info["Record ID"], info["Subdomain"]) == (f"rec{n}", "Quantum Mechanics")
    assert len(main) == 2


@pytest.mark.slow
def test_arc_is_read_from_the_hub_with_letters_digits_and_three_to_five_options(tmp_path: Path) -> None:
    choices = [
        {"text": ["p", "q", "r", "s"], "label": ["A", "B", "C", "D"]},
        {"text": ["p", "q", "r", "s"], "label": ["1", "2", "3", "4"]},
        {"text": ["p", "q", "r"], "label": ["A", "B", "C"]},
        {"text": ["p", "q", "r", "s", "t"], "label": ["A", "B", "C", "D", "E"]},
    ]
    table = {
        "id": ["Mercury_1", "Mercury_2", "Mercury_3", "Mercury_4"],
        "question": ["a?", "b?", "c?", "d?"],
        "choices": choices,
        "answerKey": ["D", "2", "C", "E"],
    }
    with HubServer() as server:
        files = {
            "ARC-Challenge/test-00000-of-00001.parquet": parquet(table),
            "ARC-Easy/test-00000-of-00001.parquet": parquet({name: cells[:1] for name, cells in table.items()}),
        }
        put(server, "allenai/ai2_arc", ARC_CARD, files)
        challenge = from_hub(server, tmp_path, benchmark="arc-challenge")
        easy = from_hub(server, tmp_path, benchmark="arc-easy", seed=None)
    right = [info["choices"]["ABCDE".index(answer)] for _, answer, info in challenge]
    assert right == ["s", "q", "r", "t"]
    assert [len(info["choices"]) for _, _, info in challenge] == [4, 4, 3, 5]
    assert [info["id"] for _, _, info in challenge] == table["id"]
    assert easy == [
        ["a?\n\nA) p\nB) q\nC) r\nD) s", "D",
         {"id": "Mercury_1", "choices": ["p", "q", "r", "s"], "order": [0, 1, 2, 3], "shuffled": False}]
    ]  # fmt: skip


@pytest.mark.slow
def test_any_dataset_of_the_hub_is_read_by_its_columns(tmp_path: Path) -> None:
    with HubServer() as server:
        table = {"stem": ["a?", "b?"], "good": ["x", "y"], "bad": ["u", "v"]}
        put(server, "me/quiz", "", {"data/validation-00000-of-00001.parquet": parquet(table)})
        columns = {"question": "stem", "choices": ["good", "bad"], "answer": "good"}
        found = from_hub(server, tmp_path, benchmark="me/quiz", split="validation", columns=columns)
        with pytest.raises(RuntimeError, match=r"me/quiz \[validation\], row 1: there is no column 'question'"):
            from_hub(server, tmp_path, benchmark="me/quiz", split="validation")
    assert [info["choices"]["AB".index(answer)] for _, answer, info in found] == ["x", "y"]


@pytest.mark.slow
def test_a_gated_dataset_says_what_to_do_and_a_missing_one_what_else_there_is(tmp_path: Path) -> None:
    with HubServer() as server:
        put(server, "Idavidrein/gpqa", GPQA_CARD, {"gpqa_diamond.csv": Entry(GPQA_HEAD.encode())})
        server.fail(
            "resolve",
            401,
            times=None,
            message="Access to dataset Idavidrein/gpqa is restricted.",
            headers={"X-Error-Code": "GatedRepo"},
        )
        with pytest.raises(RuntimeError) as gated:
            from_hub(server, tmp_path, benchmark="gpqa")
    with HubServer() as server:
        server.hub.account("hf_reader", "reader")
        with pytest.raises(RuntimeError) as missing:
            from_hub(server, tmp_path, benchmark="mmlu")
    assert (
        "EnvironmentLoadError: dataset 'Idavidrein/gpqa', subset 'gpqa_diamond' (split 'train') cannot be loaded from "
        "the Hub; it is gated: "
    ) in str(gated.value)
    assert "accept its conditions at https://huggingface.co/datasets/Idavidrein/gpqa" in str(gated.value)
    assert (
        "EnvironmentLoadError: dataset 'cais/mmlu', subset 'all' (split 'test') cannot be loaded from the Hub; "
        "to run without the Hub, use "
    ) in str(missing.value)
    assert '{"benchmark": "sample"}' in str(missing.value)
    assert "gated:" not in str(missing.value)


# The sample


def test_the_sample_holds_every_kind_of_question_and_none_twice() -> None:
    every = list(questions())
    assert len({question.text for question in every}) == len(every) == 200
    assert list(questions(20)) == every[:20]
    assert Counter(question.info["subject"] for question in every) == {t.__name__: 25 for t in TEMPLATES}
    assert {len(question.choices) for question in every} == {2, 3, 4, 5, 6, 7, 10}
    assert all(len(set(question.choices)) == len(question.choices) for question in every)


def test_a_random_guess_scores_what_the_readme_says() -> None:
    every = list(questions())
    floor = sum(1 / len(question.choices) for question in every) / len(every)
    assert f"{floor:.2f} on the sample" in (Path(__file__).parents[1] / "README.md").read_text()


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUMERALS = {"I": 1, "V": 5, "X": 10}


def roman(text: str) -> int:
    values = [NUMERALS[letter] for letter in text]
    return sum(-v if v < max(values[i:], default=0) else v for i, v in enumerate(values))


def solve(subject: str, text: str, choices: tuple[str, ...]) -> str:
    """The right choice, found without the code that wrote the question."""
    numbers = [int(word) for word in "".join(c if c.isdigit() else " " for c in text).split()]
    match subject:
        case "percentage":
            return str(numbers[0] * numbers[1] // 100)
        case "weekday":
            today = next(day for day in DAYS if day in text)
            return DAYS[(DAYS.index(today) + numbers[0]) % 7]
        case "sorting":
            return min(choices)
        case "triangle":
            return f"{180 - numbers[0] - numbers[1]} degrees"
        case "parity":
            return "No" if numbers[0] % numbers[1] else "Yes"
        case "roman":
            return next(choice for choice in choices if roman(choice) == numbers[0])
        case "remainder":
            return str(numbers[0] % numbers[1])
        case _:
            word = text.split("“")[1].split("”")[0]
            places = ("first", "second", "third", "fourth", "fifth", "sixth")
            return f"the letter {word[next(i for i, place in enumerate(places) if place in text)]}"


def test_the_first_choice_of_every_sample_question_is_right_and_the_others_are_not() -> None:
    for question in questions():
        right = solve(question.info["subject"], question.text, question.choices)
        assert question.choices.index(right) == question.answer == 0, question
        assert all("-" not in choice for choice in question.choices), question
