import asyncio
from enum import Enum
from typing import Literal

from datasets import Dataset
from verifiers.envs.tool_env import ToolEnv

import verifiers as vf


class Size(str, Enum):
    SMALL = "small"
    LARGE = "large"


def add(first: int, second: int = 1) -> int:
    """Add two whole numbers.

    Args:
        first: One number.
        second: Another one.
    """
    return first + second


async def weigh(items: list[str], size: Size = Size.SMALL) -> dict:
    """Weigh a parcel.

    Args:
        items: What is in it.
        size: Of the box.
    """
    await asyncio.sleep(0)
    return {"items": len(items), "size": size if isinstance(size, str) else str(size)}


def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b


def stamp(kind: Literal["in", "out"]) -> str:
    """Put a stamp on it.

    Args:
        kind: Which one.
    """
    if kind == "out":
        raise PermissionError("nothing leaves today")
    return "stamped"


class DeskEnv(ToolEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.add_tool(stamp)


def right_answer(completion, answer) -> float:
    last = completion[-1]
    return float(last["role"] == "assistant" and last["content"] == answer)


def tools_in_order(completion, info) -> float:
    names = []
    for message in completion:
        if message["role"] == "assistant" and message.get("tool_calls"):
            for call in message["tool_calls"]:
                names.append(call["function"]["name"])
    return float(names == info["calls"])


def answered(completion) -> float:
    asked = [c["id"] for m in completion if m["role"] == "assistant" for c in m.get("tool_calls") or []]
    told = [m["tool_call_id"] for m in completion if m["role"] == "tool"]
    return float(asked == told)


def load_environment(max_turns: int = 3):
    rows = [
        {"question": "one: 2 + 3", "answer": "5", "info": {"calls": ["add"]}},
        {"question": "two: weigh and add", "answer": "done", "info": {"calls": ["weigh", "add", "stamp"]}},
        {"question": "three: divide by zero", "answer": "impossible", "info": {"calls": ["divide", "nothing"]}},
        {"question": "four: broken arguments", "answer": "sorry", "info": {"calls": ["add"]}},
        {"question": "five: take it out", "answer": "out", "info": {"calls": ["stamp"]}},
        {"question": "six: on and on", "answer": "-", "info": {"calls": ["add", "add", "add"]}},
        {"question": "seven: no tool", "answer": "9", "info": {"calls": []}},
    ]
    rubric = vf.Rubric(funcs=[right_answer, tools_in_order], weights=[1, 1])
    rubric.add_metric(answered)
    return DeskEnv(
        dataset=Dataset.from_list(rows),
        tools=[add, weigh, divide],
        max_turns=max_turns,
        rubric=rubric,
        system_prompt="Use the tools.",
        error_formatter=lambda e: f"{type(e).__name__}: {e}",
        stop_errors=[PermissionError],
    )
