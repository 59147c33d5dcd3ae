r"""Mathematics with a Python tool: problems with an answer in `\boxed{}`, and an interpreter in a sandbox.

Owns the conversation, the rewards and the reference policy. `source` reads the problems, `sample` makes up some that
need no network, `interpreter` is the tool, `repl` the program that it runs inside, `grading` finds the answer.
"""

from __future__ import annotations

import json
from typing import Any

from harness import Example, JsonDict, MathRubric, Message, Messages, Parser, Prompt, State, StatefulToolEnv, cleanup
from harness.errors import ConfigError
from harness.sandbox import Sandbox, find_sandbox
from math_python.grading import OneBox
from math_python.interpreter import Interpreter, packages
from math_python.source import SOURCE, read_rows

SYSTEM_PROMPT = (
    "Solve the problem. You may run Python with the tool `python`; its variables stay from call to call. When you know "
    "the answer, give it in \\boxed{}, and nothing else in it. Use \\boxed{} only once."
)


class MathPythonEnv(StatefulToolEnv):
    """A conversation that may call Python before it answers. `state["python"]` is the interpreter while it lasts.

    Args:
        sandbox: Where the model's code runs.
        tool_seconds: How long one call may take.
        max_turns: Replies of the model at most, the answer included.
        **options: See `EnvOptions`.
    """

    def __init__(self, sandbox: Sandbox, tool_seconds: float, max_turns: int, **options: Any) -> None:
        super().__init__(max_turns=max_turns, **options)
        self._sandbox = sandbox
        self._tool_seconds = tool_seconds
        self.add_tool(self.python, args_to_skip=["state"])

    async def python(self, code: str, state: State) -> str:
        """Run Python code. Variables, functions and imports stay from call to call. Returns what the code prints, the
        value of its last line if that is an expression, or a traceback.

        Args:
            code: The code to run.
            state: The rollout, which keeps the interpreter.
        """
        if "python" not in state:
            state["python"] = Interpreter(self._sandbox, self._tool_seconds)
        return await state["python"].run(code)

    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: object
    ) -> JsonDict:
        """Hand the tool its rollout."""
        return {**tool_args, "state": state}

    @cleanup
    async def end_interpreter(self, state: State) -> None:
        """End the interpreter; what it held is gone."""
        interpreter: Interpreter | None = state.pop("python", None)
        if interpreter is not None:
            await interpreter.close()

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """One call of the tool, then the right answer in a box."""
        if messages[-1].get("role") == "tool":
            return f"The answer is \\boxed{{{example.answer}}}."
        program = example.info.get("program") or f"print({example.answer!r})"
        call = {"name": "python", "arguments": json.dumps({"code": program})}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        }


async def has_answer(completion: Prompt, parser: Parser) -> float:
    """1 if the reply commits to an answer at all: tells wrong answers from missing ones."""
    return float(bool(parser.parse_answer(completion)))


def load_environment(
    dataset: str = "HuggingFaceH4/MATH-500",
    split: str = "test",
    sandbox: str = "auto",
    max_turns: int = 8,
    tool_seconds: float = 30,
    system_prompt: str = SYSTEM_PROMPT,
) -> MathPythonEnv:
    """The environment over one source of problems; nothing is read before the first problem is needed.

    Args:
        dataset: A Hub id, or the path of a .jsonl or .parquet file, with the columns `problem` and `answer`.
        split: A split of the Hub dataset, or `sample` for 200 generated problems that ship with the package.
        sandbox: Where code runs: `bubblewrap`, `docker`, `podman`, `auto` for the first that works, or `unsafe-local`.
        max_turns: Replies of the model at most, the answer included.
        tool_seconds: How long one call of the tool may take.
        system_prompt: Names the tool and asks for the final answer in a box.

    Raises:
        ConfigError: an argument is wrong, they contradict each other, or name a file that does not exist.
        SandboxMissing: there is no sandbox; says what to install.
    """
    SOURCE.check(dataset, split)
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 2:  # pyright: ignore[reportUnnecessaryIsInstance]  # it may come from JSON
        raise ConfigError(f"max_turns must be a whole number of at least 2, not {max_turns!r}")
    if isinstance(tool_seconds, bool) or not isinstance(tool_seconds, int | float) or not 0 < tool_seconds <= 3600:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"tool_seconds must be a number above 0 and up to 3600, not {tool_seconds!r}")
    if not isinstance(sandbox, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"sandbox must be a string, not {sandbox!r}")
    return MathPythonEnv(
        find_sandbox(sandbox, packages=packages()),
        tool_seconds,
        max_turns,
        eval_dataset=lambda: read_rows(dataset, split),
        system_prompt=system_prompt,
        parser=OneBox(),
        rubric=MathRubric(funcs=[has_answer], weights=[0.0]),
    )
