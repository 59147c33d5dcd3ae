"""Tool test: make several given tool calls in one reply, each with exactly the given arguments.

Owns the prompt, the rewards and the reference policy. `tools` has the tools, `requests` makes the examples and compares
calls.
"""

from __future__ import annotations

import json

from harness import Example, JsonDict, Message, Messages, Prompt, Rubric, ToolEnv
from harness.errors import ConfigError
from tool_test.requests import MAX_CALLS, calls_of, make_rows, matching
from tool_test.tools import TOOLS

SYSTEM_PROMPT = (
    "Make every tool call that you are asked for, with exactly the arguments that are given and no others, all of them "
    "in one reply. Once they are made, say that you are done."
)


class ToolTestEnv(ToolEnv):
    """One reply that calls the tools, and one that ends the conversation."""

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """The right calls, all at once; then a last word."""
        if messages[-1].get("role") == "tool":
            return "Done."
        calls: list[JsonDict] = example.info["calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for number, call in enumerate(calls)
            ],
        }


async def exact_calls(completion: Prompt, info: JsonDict) -> float:
    """1 if the first reply makes exactly the calls that were asked for, in any order, else 0."""
    made = calls_of(completion)
    return float(len(made) == len(info["calls"]) == matching(made, info["calls"]))


async def matching_calls(completion: Prompt, info: JsonDict) -> float:
    """The share of right calls in the first reply, among those that were made or asked for, whichever are more."""
    made = calls_of(completion)
    return matching(made, info["calls"]) / max(len(made), len(info["calls"]))


def load_environment(
    num_examples: int = 1000, seed: int = 0, min_calls: int = 2, max_calls: int = 5, system_prompt: str = SYSTEM_PROMPT
) -> ToolTestEnv:
    """The environment; an example depends on its index and these arguments alone.

    Args:
        num_examples: How many examples there are.
        seed: Another seed gives other examples.
        min_calls: Fewest calls that an example asks for.
        max_calls: Most calls that an example asks for.
        system_prompt: Asks for all calls at once.

    Raises:
        ConfigError: an argument is out of range or of the wrong type.
    """
    check_count("num_examples", num_examples, 1, 100_000)
    check_count("seed", seed, 0)
    check_count("min_calls", min_calls, 1, MAX_CALLS)
    check_count("max_calls", max_calls, min_calls, MAX_CALLS)
    return ToolTestEnv(
        tools=TOOLS,
        max_turns=2,
        eval_dataset=lambda: make_rows(num_examples, seed, min_calls, max_calls),
        system_prompt=system_prompt,
        rubric=Rubric(funcs=[exact_calls, matching_calls], weights=[1.0, 0.0]),
    )


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse an argument that is no whole number in its range.

    Raises:
        ConfigError: names the argument, its range and what it was.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ConfigError(f"{name} must be a whole number {bounds}, not {value!r}")
