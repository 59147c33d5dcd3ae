"""What tests of the Python API evaluate: an agent that adds with a tool, rows, eval functions, and a client as callers
write them."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.agents import (
    CompletionsResult,
    EvalFnWrapper,
    RolloutAgentLoop,
    RolloutContext,
    RolloutMetrics,
    RolloutRequest,
    RolloutResult,
    create_tool_result,
    get_tool_call_info,
    serialize_tool_result,
)

PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
CALCULATE = {
    "type": "function",
    "function": {"name": "calculate", "description": "Adds numbers.", "parameters": PARAMETERS},
}


def rows_of(count: int, **more: str) -> list[dict[str, Any]]:
    """Sums of a number with itself: `0 + 0`, `1 + 1`, …"""
    return [
        {"user_prompt": f"{n} + {n}", "ground_truth": str(2 * n), "system_prompt": "Add.", **more} for n in range(count)
    ]


class Adder(RolloutAgentLoop):
    """Calls its tool as often as the model asks for, up to `max_turns`."""

    name = "adder"

    def __init__(self) -> None:
        self.requests: list[RolloutRequest] = []

    def get_tools(self, request: RolloutRequest) -> list[dict[str, Any]]:
        return [CALCULATE]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        self.requests.append(ctx.request)
        messages = list(ctx.request.messages)
        for _ in range(ctx.request.max_turns):
            reply = await ctx.chat(messages, **ctx.request.completion_params)
            messages.append(reply.message)
            if not reply.has_tool_calls:
                return ctx.complete(messages, reward=0.5)
            for call in reply.tool_calls:
                call_id, _, arguments = get_tool_call_info(call)
                total = sum(map(int, arguments["expression"].split("+")))
                messages.append(create_tool_result(call_id, serialize_tool_result(total)))
                ctx.record_tool_call()
                ctx.log_event("added", total=total)
        return ctx.complete(messages, finish_reason="max_turns")


class Asker(RolloutAgentLoop):
    """Asks once, without tools. A row's column `act` says what it does with the answer."""

    name = "asker"

    def get_tools(self, request: RolloutRequest) -> list[dict[str, Any]]:
        return []

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        messages = list(ctx.request.messages)
        reply = await ctx.chat(messages)
        messages.append(reply.message)
        act = ctx.request.metadata.get("act")
        if act == "raise":
            raise RuntimeError("the agent is broken")
        if act == "error":
            return ctx.error("the agent gives up", messages)
        return ctx.complete(messages)


def exact(solution_str: str, ground_truth: str, extra_info: Any = None, **kwargs: Any) -> float:
    """1.0 for the right answer."""
    return float(solution_str == ground_truth)


async def length(messages: list[Any], ground_truth: str, metadata: dict[str, Any], **kwargs: Any) -> float:
    """Messages of the conversation, in tens."""
    await asyncio.sleep(0)
    return len(messages) / 10


EXACT = EvalFnWrapper(exact, "rewards:exact")
LENGTH = EvalFnWrapper(length, "rewards:length")


class OwnClient:
    """A client as users write it for their tests: it answers by itself, one conversation at a time.

    Args:
        says: The answer; the sum that is asked for if None.
        reports: Whether replies say what they cost; otherwise only its metrics do.
    """

    def __init__(self, says: str | None = None, *, reports: bool = True) -> None:
        self.says = says
        self.reports = reports
        self.tools: list[Any] | None = None
        self.asked: list[dict[str, Any]] = []
        """Keywords of each call."""
        self.resets = self.closed = self.calls = self.talking = 0
        self.set: list[int] = []
        """Tools of each `set_tools`."""

    def set_tools(self, tools: list[Any]) -> None:
        self.tools = tools
        self.set.append(len(tools))

    def clear_tools(self) -> None:
        self.tools = None

    def reset_metrics(self) -> None:
        self.resets += 1
        self.calls = 0

    def get_metrics(self) -> RolloutMetrics:
        return RolloutMetrics(num_llm_calls=self.calls, prompt_tokens=7 * self.calls, response_tokens=self.calls)

    async def chat_completions(self, messages: list[Any], **kwargs: Any) -> CompletionsResult:
        self.asked.append(kwargs)
        self.talking += 1
        assert self.talking == 1, "two conversations at once"
        await asyncio.sleep(0)
        self.talking -= 1
        self.calls += 1
        text = self.says or str(sum(map(int, messages[1]["content"].split("+"))))
        usage = {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23} if self.reports else {}
        return CompletionsResult({"role": "assistant", "content": text}, [], [], usage, "stop")

    async def close(self) -> None:
        self.closed += 1
