"""`vf.load_example_dataset` and related functions of the classic API, with a table of fifteen question-and-answer
datasets on the Hugging Face Hub: the repository, split and columns of each."""

from __future__ import annotations

import difflib
import importlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, Messages
from harness.rubrics.extract import extract_boxed_answer, extract_hash_answer

BOXED_SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."
THINK_BOXED_SYSTEM_PROMPT = (
    "Think step-by-step inside <think>...</think> tags.     Then, give your final answer inside \\boxed{}."
)

Cells = Mapping[str, Any]
LETTERS = "ABCDEFGHIJ"


def strip_non_numeric(text: str) -> str:
    """Return only the digits and decimal points of a string."""
    return "".join(letter for letter in text if letter.isdigit() or letter == ".")


def _columns(question: str, answer: str = "answer") -> Callable[[Cells], JsonDict]:
    return lambda cells: {"question": cells[question], "answer": cells[answer]}


def _lettered(cells: Cells, options: Sequence[str]) -> str:
    shown = "".join(f"\n{letter}: {option}" for letter, option in zip(LETTERS, options, strict=False))
    return f"Question: {cells['question']}\n{shown}"


def _gpqa(cells: Cells) -> JsonDict:
    letters = list("ABCD")
    random.Random(str(cells["Question"])).shuffle(letters)  # the same order in every process
    texts = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    options = dict(sorted(zip(letters, (cells[text] for text in texts), strict=True)))
    shown = "\n".join(f"{letter}: {option}" for letter, option in options.items())
    return {"question": f"Question: {cells['Question']}\n\n{shown}", "answer": letters[0]}


def _openbook(cells: Cells) -> JsonDict:
    choices = cells["choices"]
    shown = "\n".join(f"{label}. {text}" for label, text in zip(choices["label"], choices["text"], strict=True))
    return {"question": f"Question: {cells['question_stem']}\n\nChoices:\n{shown}", "answer": cells["answerKey"]}


@dataclass(frozen=True, slots=True)
class ExampleSet:
    """A dataset that `vf.load_example_dataset` can load by its short name."""

    repository: str
    split: str
    read: Callable[[Cells], JsonDict]
    configs: tuple[str | None, ...] = (None,)
    keep: Callable[[Cells], bool] | None = None


_CODING = "Solve the following coding problem using the programming language python:"
_problem = _columns("problem")

SETS: dict[str, ExampleSet] = {
    "aime2024": ExampleSet(
        "HuggingFaceH4/aime_2024", "train", lambda c: {"question": c["problem"], "answer": str(int(c["answer"]))}
    ),
    "aime2025": ExampleSet(
        "opencompass/AIME2025",
        "test",
        lambda c: {"question": c["question"], "answer": strip_non_numeric(c["answer"])},
        ("AIME2025-I", "AIME2025-II"),
    ),
    "amc2023": ExampleSet("knoveleng/AMC-23", "train", _problem),
    "gpqa_diamond": ExampleSet("Idavidrein/gpqa", "train", _gpqa, ("gpqa_diamond",)),
    "gpqa_main": ExampleSet("Idavidrein/gpqa", "train", _gpqa, ("gpqa_main",)),
    "gsm8k": ExampleSet(
        "openai/gsm8k",
        "test",
        lambda c: {"question": c["question"], "answer": extract_hash_answer(c["answer"])},
        ("main",),
    ),
    "math": ExampleSet(
        "chiayewken/competition_math",
        "train",
        lambda c: {"question": c["problem"], "answer": extract_boxed_answer(c["solution"])},
    ),
    "math500": ExampleSet("HuggingFaceH4/MATH-500", "test", _problem),
    "mmlu": ExampleSet(
        "cais/mmlu",
        "dev",
        lambda c: {"question": _lettered(c, c["choices"]), "answer": LETTERS[c["answer"]]},
        ("all",),
    ),
    "mmlu_pro": ExampleSet(
        "TIGER-Lab/MMLU-Pro",
        "validation",
        lambda c: {"question": _lettered(c, c["options"]), "answer": c["answer"]},
    ),
    "openbookqa": ExampleSet("allenai/openbookqa", "train", _openbook, ("main",)),
    "openrs": ExampleSet("knoveleng/open-rs", "train", _problem),
    "openrs_easy": ExampleSet("knoveleng/open-rs", "train", _problem, keep=lambda c: c["level"] == "Easy"),
    "openrs_hard": ExampleSet("knoveleng/open-rs", "train", _problem, keep=lambda c: c["level"] == "Hard"),
    "prime_code": ExampleSet(
        "PrimeIntellect/verifiable-coding-problems",
        "train",
        _columns("prompt", "verification_info"),
        keep=lambda c: c["prompt"].startswith(_CODING),
    ),
}


def load_example_dataset(name: str = "gsm8k", split: str | None = None, n: int | None = None, seed: int = 0) -> Any:
    """Load one of fifteen known datasets from the Hub, with the columns `question` and `answer`.

    Args:
        name: Name of the dataset.
        split: Split of the dataset; by default the one usually used.
        n: Number of rows, sampled with `seed`; all by default.
        seed: Seed of the sample.

    Raises:
        EnvironmentFault: the name is unknown.
    """
    if name not in SETS:
        near = difflib.get_close_matches(name, SETS, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise EnvironmentFault(
            f"load_example_dataset({name!r}): unknown dataset; {hint}known names are {', '.join(SETS)}"
        )
    chosen = SETS[name]
    hub: Any = importlib.import_module("datasets")
    parts: list[Any] = [
        hub.load_dataset(chosen.repository, config, split=split or chosen.split) for config in chosen.configs
    ]
    dataset: Any = parts[0] if len(parts) == 1 else hub.concatenate_datasets(parts)
    if chosen.keep is not None:
        dataset = dataset.filter(chosen.keep)
    if n is not None and n > 0:
        dataset = dataset.shuffle(seed=seed).select(range(min(n, len(dataset))))
    return dataset.map(chosen.read, remove_columns=dataset.column_names)


def format_dataset(
    dataset: Any,
    system_prompt: str | None = None,
    few_shot: Messages | None = None,
    question_key: str = "question",
    answer_key: str = "answer",
    map_kwargs: JsonDict | None = None,
) -> Any:
    """Convert a dataset to the columns `example_id` and `prompt`."""
    if "example_id" not in dataset.column_names:
        dataset = dataset.add_column("example_id", range(len(dataset)))
    if "prompt" in dataset.column_names:
        return dataset
    head: Messages = [{"role": "system", "content": system_prompt}] if system_prompt else []

    def prompted(cells: Cells) -> JsonDict:
        messages = [*head, *(few_shot or []), {"role": "user", "content": cells[question_key]}]
        return {"prompt": messages, "answer": cells[answer_key]} if answer_key in cells else {"prompt": messages}

    return dataset.map(prompted, **(map_kwargs or {}))
