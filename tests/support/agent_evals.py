"""Agent evaluations as their users have them: an agent, a folder of MCP tools, eval functions and rows in a working
directory, and a model that can add behind a loopback endpoint; `bench` runs in this process. A `conftest.py` takes the
fixture over by importing it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sums_model import SumsModel

from harness.cli.main import main

AGENT = """
import asyncio
from osmosis_ai.rollout import RolloutAgentLoop, create_tool_result, get_tool_call_info, serialize_tool_result

print("printed by the agent's module")
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
FUNCTION = {"name": "calculate", "description": "Add numbers.", "parameters": PARAMETERS}

class MyAgentLoop(RolloutAgentLoop):
    name = "calc"

    def get_tools(self, request):
        return [{"type": "function", "function": FUNCTION}]

    async def run(self, ctx):
        if "raise" in ctx.request.messages[-1]["content"]:
            raise ValueError("the agent cannot do this row")
        if "give up" in ctx.request.messages[-1]["content"]:
            return ctx.error("gave up")
        if "wait" in ctx.request.messages[-1]["content"]:
            await asyncio.sleep(3600)
        messages = list(ctx.request.messages)
        for _ in range(ctx.request.max_turns):
            reply = await ctx.chat(messages, **ctx.request.completion_params)
            messages.append(reply.message)
            if not reply.has_tool_calls:
                return ctx.complete(messages, reward=0.25)
            for call in reply.tool_calls:
                call_id, _, arguments = get_tool_call_info(call)
                total = sum(map(int, arguments["expression"].split("+")))
                messages.append(create_tool_result(call_id, serialize_tool_result(total)))
                ctx.record_tool_call()
        return ctx.complete(messages, finish_reason="max_turns")

agent_loop = MyAgentLoop()
"""

REWARDS = """
from osmosis_ai import osmosis_reward

@osmosis_reward
def compute_reward(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    return 1.0 if solution_str.strip() == ground_truth.strip() else 0.0

exact_match = compute_reward

def partial_match(messages, ground_truth, metadata, **kwargs):
    return min(1.0, len([m for m in messages if m["role"] == "assistant"]) / 3)

async def semantic_similarity(messages, ground_truth, metadata):
    return 1.0 if metadata["level"] == "easy" else 0.5

def broken(messages, ground_truth, metadata):
    if ground_truth == "4":
        raise KeyError("colour")
    return 0.5
"""

MCP = '''
from fastmcp import FastMCP

mcp = FastMCP("my_tools")

@mcp.tool()
def calculate(expression: str) -> str:
    """Add numbers."""
    return str(sum(map(int, expression.split("+"))))

@mcp.tool()
def lookup(key: str) -> str:
    """Look up a value by key."""
    return {"pi": "3.14159"}.get(key, "not found")
'''

FILES = {
    "my_agent.py": AGENT,
    "server.py": AGENT,
    "rewards.py": REWARDS,
    "reward_fn.py": REWARDS,
    "mcp/main.py": MCP,
}

_MODULES = ("my_agent", "server", "rewards", "reward_fn")


@dataclass(frozen=True)
class Done:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """stdout, line by line."""
        return self.out.splitlines()


@dataclass
class Evals:
    """A working directory, and `bench` in it."""

    cwd: Path
    model: SumsModel
    capture: pytest.CaptureFixture[str]

    def rows(self, *questions: str, name: str = "data.jsonl") -> None:
        """Write the dataset: a sum a row, or anything else."""
        lines = [row_of(question, index) for index, question in enumerate(questions)]
        (self.cwd / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def bench(self, *args: str) -> Done:
        """Run a command in this process, from the console script's own function."""
        self.capture.readouterr()
        code = main(list(args))
        captured = self.capture.readouterr()
        return Done(code, captured.out, captured.err)

    def eval(self, *args: str, model: str = "my-model", fns: tuple[str, ...] = ("rewards:exact_match",)) -> Done:
        """`bench eval` of the agent over the dataset, at the endpoint."""
        return self.bench("eval", *self.asked(model, fns), *args)

    def asked(self, model: str = "my-model", fns: tuple[str, ...] = ("rewards:exact_match",)) -> list[str]:
        """The usual options of `bench eval`."""
        functions = [word for each in fns for word in ("--eval-fn", each)]
        return [
            "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", *functions, "--model", model,
            "--base-url", self.model.url,
        ]  # fmt: skip

    def test(self, *args: str, model: str = "my-model") -> Done:
        """`bench test` of the agent over the dataset, at the endpoint."""
        usual = ["-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--model", model, "--base-url", self.model.url]
        return self.bench("test", *usual, *args)

    def runs(self) -> list[Path]:
        """Every run folder, oldest first."""
        found = [path.parent for path in (self.cwd / "outputs" / "evals").glob("*/*/run.json")]
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def results(self, name: str = "results.json") -> dict[str, Any]:
        """A results file."""
        return json.loads((self.cwd / name).read_text())


def row_of(question: str, index: int) -> dict[str, str]:
    """A row; its truth is the sum, if it is one."""
    parts = question.split("+")
    truth = str(sum(map(int, parts))) if all(part.strip().isdecimal() for part in parts) else "none"
    level = "easy" if index % 2 == 0 else "hard"
    return {"system_prompt": "Add.", "user_prompt": question, "ground_truth": truth, "level": level}


def write_files(folder: Path) -> None:
    """Put agent, tools and functions into a folder."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def evals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Evals]:
    """Three sums, `2 + 2`, `3 + 3` and `5 + 7`, for an agent that adds with a tool; no key in the environment."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LITELLM_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in _MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    write_files(tmp_path)
    with SumsModel() as model:
        made = Evals(tmp_path, model, capsys)
        made.rows("2 + 2", "3 + 3", "5 + 7")
        yield made
    for name in _MODULES:
        sys.modules.pop(name, None)
