"""MCP demo: answer questions about a stockroom that only the tools of an MCP server know.

Owns the prompt, the reward and the reference policy. `stockroom` makes what is in stock and the questions, `server` is
the MCP server, `serve` the program that runs it, and `grading` reads the answer out of a reply.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, cast

from harness import Example, JsonDict, MCPEnv, Message, Messages, Parser, Prompt, Rubric
from harness.errors import ConfigError
from mcp_demo.grading import read_number
from mcp_demo.server import make_server
from mcp_demo.stockroom import MAX_EXAMPLES, make_rows

SYSTEM_PROMPT = (
    "You look after a stockroom. Find out what you are asked with your tools, and then give the number in \\boxed{}, "
    "for example \\boxed{17}."
)

TOOLS = ("find_item", "stock_of", "price_of")

SCRIPT = Path(__file__).with_name("serve.py")


class McpDemoEnv(MCPEnv):
    """Questions whose answers only the server knows."""

    def reference_reply(self, example: Example, messages: Messages) -> Message | str:
        """Look the item up, then ask for all that is needed at once, then answer from what came back."""
        info = example.info
        results = [message["content"] for message in messages if message.get("role") == "tool"]
        if not results:
            return _calls([("find_item", {"name": info["item"]})], 0)
        found = cast("list[JsonDict]", json.loads(results[0]))
        number = next(item["number"] for item in found if item["name"] == info["item"])
        if len(results) == 1:
            wanted = [("stock_of", {"number": number, "shelf": shelf}) for shelf in info["shelves"]]
            prices = [("price_of", {"number": number})] if info["asks"] == "worth" else []
            return _calls([*wanted, *prices], 1)
        values = [int(result) for result in results[1:]]
        return f"\\boxed{{{values[0] * values[1] if info['asks'] == 'worth' else sum(values)}}}"


async def correct(completion: Prompt, answer: str, parser: Parser) -> float:
    """1 if the last reply gives the right number, else 0."""
    return float(read_number(parser.parse_answer(completion) or "") == answer)


def load_environment(
    num_examples: int = 200,
    seed: int = 0,
    transport: Literal["memory", "stdio"] = "memory",
    scope: Literal["shared", "rollout"] = "shared",
    system_prompt: str = SYSTEM_PROMPT,
) -> McpDemoEnv:
    """The environment; an example depends on its index and the seed alone.

    Args:
        num_examples: How many examples there are, at most 2,000.
        seed: Another seed gives another stockroom and other questions.
        transport: `memory` runs the server in this process, `stdio` as a process of its own.
        scope: `shared` opens one server for all rollouts, `rollout` one for each.
        system_prompt: Asks for the number in a box.

    Raises:
        ConfigError: an argument is out of range or of the wrong type.
    """
    check_count("num_examples", num_examples, 1, MAX_EXAMPLES)
    check_count("seed", seed, 0)
    if transport not in ("memory", "stdio"):
        raise ConfigError(f"transport must be memory or stdio, not {transport!r}")
    if scope not in ("shared", "rollout"):
        raise ConfigError(f"scope must be shared or rollout, not {scope!r}")
    command = {"command": sys.executable, "args": ["-P", str(SCRIPT), str(seed)]}
    server = command if transport == "stdio" else {"server": partial(make_server, seed)}
    return McpDemoEnv(
        {"stockroom": server},
        scope=scope,
        allowed_tools=TOOLS,
        max_turns=6,
        eval_dataset=lambda: make_rows(num_examples, seed),
        system_prompt=system_prompt,
        rubric=Rubric(funcs=[correct]),
    )


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse an argument that is no whole number in its range.

    Raises:
        ConfigError: names the argument, its range and what it was.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ConfigError(f"{name} must be a whole number {bounds}, not {value!r}")


def _calls(calls: Sequence[tuple[str, JsonDict]], turn: int) -> Message:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{turn}_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(calls)
        ],
    }
