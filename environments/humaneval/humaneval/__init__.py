"""HumanEval: write the Python function that a signature and a docstring describe.

Owns the prompts, the rewards and the reference policies. `source` reads the problems, `sample` holds some that need no
network, `extraction` finds the program in a reply, `grading` runs it against the hidden tests in a sandbox.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, cast

from harness import Environment, JsonDict, Messages, Parser, Prompt, Rubric, SingleTurnEnv, State
from harness.errors import ConfigError, EnvironmentFault
from harness.records import Example
from harness.sandbox import find_sandbox
from humaneval.extraction import program_of
from humaneval.grading import Grader
from humaneval.source import SOURCE, read_rows

Form: TypeAlias = Literal["chat", "completion"]

FORMS: tuple[Form, ...] = ("chat", "completion")

INSTRUCTION = (
    "Complete the following Python function. Reply with the whole function, with the imports that it needs, in one "
    "fenced code block.\n\n```python\n{prompt}```"
)


class HumanEvalEnv(SingleTurnEnv):
    """One problem, one program."""

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """The problem's own solution."""
        if self.message_type == "completion":
            return example.answer
        return f"```python\n{example.info['prompt']}{example.answer}```"

    def null_reply(self, example: Example, messages: Messages) -> str:
        """A function that returns nothing, or no function."""
        return "    return None\n" if self.message_type == "completion" else "I do not know."


async def passed(completion: Prompt, info: JsonDict, state: State, parser: Parser, grader: Grader) -> float:
    """1 if the program passes all hidden tests, else 0."""
    program = program_of(_text(completion, parser), info)
    verdict = await grader.grade(program, info) if program is not None else None
    state["verdict"] = {
        "passed": verdict is not None and verdict.passed,
        "timed_out": verdict is not None and verdict.timed_out,
        "reason": verdict.reason if verdict is not None else "the reply holds no program",
    }
    return float(state["verdict"]["passed"])


def has_code(completion: Prompt, info: JsonDict, parser: Parser) -> float:
    """1 if there is a program to run at all: tells wrong programs from missing ones."""
    return float(program_of(_text(completion, parser), info) is not None)


def timed_out(state: State) -> float:
    """1 if the program was still running when its time was up."""
    if "verdict" not in state:
        raise EnvironmentFault("the program was not graded; see the reason that `passed` gives")
    return float(state["verdict"]["timed_out"])


def _text(completion: Prompt, parser: Parser) -> str:
    return completion if isinstance(completion, str) else parser.parse_answer(completion) or ""


def load_environment(
    dataset: str = "openai/openai_humaneval",
    split: str = "test",
    form: Form = "chat",
    sandbox: str = "auto",
    timeout_seconds: float = 10.0,
) -> Environment:
    """The environment over one source of problems; nothing is read before the first problem is needed.

    Args:
        dataset: A Hub id, or the path of a .jsonl or .jsonl.gz file, with HumanEval's columns.
        split: A split of the Hub dataset, or `sample` for a few problems that ship with the package.
        form: `chat` asks for the whole function; `completion` lets a base model go on with the prompt.
        sandbox: Where programs run; see `harness.sandbox.find_sandbox`.
        timeout_seconds: Processor time for one program and its tests.

    Raises:
        ConfigError: the arguments contradict each other, or name a file that does not exist.
        SandboxMissing: there is no sandbox to run programs in.
    """
    SOURCE.check(dataset, split)
    if form not in FORMS:
        raise ConfigError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    seconds = cast(object, timeout_seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ConfigError(f"timeout_seconds must be a number above 0, not {timeout_seconds!r}")
    if not isinstance(cast(object, sandbox), str):
        raise ConfigError(f"sandbox must be a name, not {sandbox!r}")
    grader = Grader(find_sandbox(sandbox), timeout_seconds)
    return HumanEvalEnv(
        eval_dataset=lambda: [_row(problem, form) for problem in read_rows(dataset, split)],
        message_type=form,
        rubric=Rubric(funcs=[passed, has_code, timed_out], weights=[1.0, 0.0, 0.0], class_objects={"grader": grader}),
    )


def _row(problem: dict[str, str], form: Form) -> JsonDict:
    prompt = problem["prompt"]
    info = {name: problem[name] for name in ("task_id", "prompt", "entry_point", "test")}
    return {
        "question": prompt if form == "completion" else INSTRUCTION.format(prompt=prompt),
        "answer": problem["canonical_solution"],
        "info": {**info, "form": form},
    }
