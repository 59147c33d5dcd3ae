"""Multiple choice: MMLU, GPQA, ARC, any dataset of that kind, or a generated sample.

Owns the prompt, the rewards and the reference policy. `source` reads the questions, `choices` orders and shows the
choices, `extraction` says which one a reply commits to, `sample` makes up questions that need no network.
"""

from __future__ import annotations

from harness import Example, JsonDict, Messages, Parser, Prompt, Rubric, SingleTurnEnv
from harness.errors import ConfigError
from multiple_choice.choices import rows
from multiple_choice.extraction import LETTERS, lenient_choice, strict_choice
from multiple_choice.source import find_source, read_questions

SYSTEM_PROMPT = (
    "Answer the question by choosing one of the options. Think first if you need to. The last line of your reply must "
    "be `Answer: ` followed by the letter of one option, and nothing else."
)

EXTRACTIONS = ("strict", "lenient")


class MultipleChoiceEnv(SingleTurnEnv):
    """One question, one reply."""

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """The right letter in the form that was asked for."""
        return f"Answer: {example.answer}"


def strict_correct(completion: Prompt, answer: str, info: JsonDict, parser: Parser) -> float:
    """1 if the last line is `Answer: X` with the right letter, and no other such line names another; else 0."""
    choice = strict_choice(parser.parse_answer(completion) or "", len(info["choices"]))
    return float(_is_right(choice, answer, info))


def lenient_correct(completion: Prompt, answer: str, info: JsonDict, parser: Parser) -> float:
    """1 if the reply commits to the right choice in whatever form, else 0."""
    return float(_is_right(lenient_choice(parser.parse_answer(completion) or "", info["choices"]), answer, info))


def has_answer(completion: Prompt, info: JsonDict, parser: Parser) -> float:
    """1 if the reply commits to a choice in whatever form: tells wrong answers from missing ones."""
    return float(lenient_choice(parser.parse_answer(completion) or "", info["choices"]) is not None)


def load_environment(
    benchmark: str = "mmlu",
    subset: str | None = None,
    split: str | None = None,
    columns: JsonDict | None = None,
    extraction: str = "strict",
    seed: int | None = 0,
    system_prompt: str = SYSTEM_PROMPT,
) -> MultipleChoiceEnv:
    """The environment over one source of questions; nothing is read before the first question is needed.

    Args:
        benchmark: `mmlu`, `gpqa`, `arc-challenge`, `arc-easy`, `sample` (200 generated questions that ship with the
            package), a Hub id, or the path of a .jsonl or .parquet file.
        subset: A configuration of the Hub dataset: a subject of MMLU, `gpqa_main` or another part of GPQA.
        split: A split of the Hub dataset.
        columns: Of a dataset that is none of the benchmarks: the names of its columns `question`, `choices` (one with
            all, or a list of one each) and `answer`.
        extraction: Which reading of a reply is the reward: `strict` or `lenient`. The other is a metric.
        seed: Decides the order of the choices; None leaves them in the dataset's own.
        system_prompt: Asks for the letter of one option on the last line.

    Raises:
        ConfigError: an argument is wrong, they contradict each other, or name a file that does not exist.
    """
    source = find_source(benchmark, subset, split, columns)
    if extraction not in EXTRACTIONS:
        raise ConfigError(f"extraction must be 'strict' or 'lenient', not {extraction!r}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):  # pyright: ignore[reportUnnecessaryIsInstance]  # it may come from JSON
        raise ConfigError(f"seed must be a whole number of at least 0, or null for no shuffling, not {seed!r}")
    strict = extraction == "strict"
    return MultipleChoiceEnv(
        eval_dataset=lambda: rows(read_questions(source), seed),
        system_prompt=system_prompt,
        rubric=Rubric(
            funcs=[strict_correct, lenient_correct, has_answer], weights=[float(strict), float(not strict), 0.0]
        ),
    )


def _is_right(choice: int | None, answer: str, info: JsonDict) -> bool:
    # by text: a dataset may hold the right choice twice, and either letter is right then
    return choice is not None and info["choices"][choice] == info["choices"][LETTERS.index(answer)]
