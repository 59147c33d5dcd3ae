"""Make the logs in `inspect/` with inspect_ai 0.3.285, which needs an environment of its own: `python make_inspect.py`
in an empty folder."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inspect_ai import Epochs, Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import CORRECT, INCORRECT, NOANSWER, PARTIAL, Score, accuracy, includes, match, mean, scorer
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import tool

MODEL = "mockllm/model"


@tool
def add() -> Any:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: First.
            y: Second.
        """
        return x + y

    return execute


@scorer(metrics=[accuracy()])
def graded() -> Any:
    grades = {"Lima": CORRECT, "Nairobi": PARTIAL, "Oslo": NOANSWER}

    async def score(state: Any, target: Any) -> Score:
        value = grades.get(target.text, INCORRECT)
        return Score(value=value, answer=state.output.completion, explanation="because")

    return score


@scorer(metrics={"len": [mean()], "ok": [accuracy()]})
def parts() -> Any:
    async def score(state: Any, target: Any) -> Score:
        said = state.output.completion
        return Score(value={"len": len(said), "ok": float(target.text in said)})

    return score


@scorer(metrics=[mean()])
def flaky() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=float("nan") if target.text == "Oslo" else 1.5, metadata={"m": 1})

    return score


@solver
def maybe_fail() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        if state.sample_id == "broken":
            raise ValueError("solver broke")
        return state

    return solve


def said(text: str) -> ModelOutput:
    output = ModelOutput.from_content(MODEL, text)
    output.usage = ModelUsage(input_tokens=10, output_tokens=4, total_tokens=14)
    return output


def capitals() -> Iterator[ModelOutput]:
    yield said("The capital is Lima")
    while True:
        yield said("The capital is Lima or Nairobi")


def sums() -> Iterator[ModelOutput]:
    called = ModelOutput.for_tool_call(MODEL, "add", {"x": 2, "y": 3})
    called.usage = ModelUsage(input_tokens=10, output_tokens=4, total_tokens=19, input_tokens_cache_read=5)
    yield called
    yield said("5")


ROWS = MemoryDataset(
    [
        Sample(id="peru", input="Capital of Peru?", target="Lima", metadata={"level": 1}),
        Sample(
            id="kenya",
            input=[ChatMessageSystem(content="Be brief."), ChatMessageUser(content="Capital of Kenya?")],
            target="Nairobi",
        ),
        Sample(id=3, input="Capital of Norway?", target="Oslo"),
        Sample(id="broken", input="Capital of Nowhere?", target="?"),
    ],
    name="capitals",
)

for form in ("eval", "json"):
    task = Task(
        dataset=ROWS,
        name="capitals",
        solver=[maybe_fail(), generate()],
        scorer=[includes(), graded(), parts(), flaky()],
        epochs=Epochs(2, "mean"),
    )
    model = get_model(MODEL, custom_outputs=capitals())
    eval(task, model=model, log_dir=form, log_format=form, fail_on_error=False, display="none", temperature=0.5)

task = Task(
    dataset=[Sample(input="2+3?", target="5")],
    name="tools",
    solver=[use_tools(add()), generate()],
    scorer=[match(), graded()],
)
eval(task, model=get_model(MODEL, custom_outputs=sums()), log_dir="tools", display="none")
