r"""GSM8K: grade-school word problems, answered with one number in `\boxed{}`.

Owns the prompt, the reward and the reference policy. `source` reads the questions, `sample` makes up some that need no
network, `grading` says what a reply's final answer is.
"""

from __future__ import annotations

from gsm8k.grading import final_answer, number
from gsm8k.source import SOURCE, read_rows
from harness import Example, Messages, Parser, Prompt, Rubric, SingleTurnEnv

SYSTEM_PROMPT = (
    "Solve the problem step by step. Then give the final answer, one number and nothing else, in \\boxed{}. "
    "Use \\boxed{} only once."
)


class Gsm8kEnv(SingleTurnEnv):
    """One question, one reply."""

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """The right number in a box."""
        return f"The answer is \\boxed{{{example.answer}}}."


def correct_answer(completion: Prompt, answer: str, parser: Parser) -> float:
    """1 if the reply commits to exactly the right number, else 0."""
    return float(final_answer(parser.parse_answer(completion) or "") == number(answer))


def has_answer(completion: Prompt, parser: Parser) -> float:
    """1 if the reply commits to a number at all: tells wrong answers from missing ones."""
    return float(final_answer(parser.parse_answer(completion) or "") is not None)


def load_environment(
    dataset: str = "openai/gsm8k", split: str = "test", subset: str | None = None, system_prompt: str = SYSTEM_PROMPT
) -> Gsm8kEnv:
    """The environment over one source of questions; nothing is read before the first question is needed.

    Args:
        dataset: A Hub id, or the path of a .jsonl or .parquet file, with the columns `question` and `answer`.
        split: A split of the Hub dataset, or `sample` for 200 generated problems that ship with the package.
        subset: A configuration of the Hub dataset; `main` for `openai/gsm8k` unless given.
        system_prompt: Asks for the final answer in a box.

    Raises:
        ConfigError: the arguments contradict each other, or name a file that does not exist.
    """
    SOURCE.check(dataset, split, subset)
    return Gsm8kEnv(
        eval_dataset=lambda: read_rows(dataset, split, subset),
        system_prompt=system_prompt,
        rubric=Rubric(funcs=[correct_answer, has_answer], weights=[1.0, 0.0]),
    )
