"""An agent with two tools: it lets the model calculate until it answers in words."""

from __future__ import annotations

import json

from harness.eval import RolloutAgentLoop, RolloutContext, RolloutRequest, RolloutResult, create_tool_result

_NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
_TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "a + b", "parameters": _NUMBERS}},
    {"type": "function", "function": {"name": "multiply", "description": "a · b", "parameters": _NUMBERS}},
]


class Calculator(RolloutAgentLoop):
    """Asks, calculates what the model wants calculated, and asks again."""

    name = "calculator"

    def get_tools(self, request: RolloutRequest) -> list[dict[str, object]]:
        """The same two for every row."""
        return _TOOLS

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Up to `--max-turns` replies."""
        messages = list(ctx.request.messages)
        for _ in range(ctx.request.max_turns):
            reply = await ctx.chat(messages)
            messages.append(reply.message)
            if not reply.has_tool_calls:
                return ctx.complete(messages)
            for call in reply.tool_calls:
                numbers = json.loads(call["function"]["arguments"])
                is_sum = call["function"]["name"] == "add"
                value = numbers["a"] + numbers["b"] if is_sum else numbers["a"] * numbers["b"]
                messages.append(create_tool_result(call["id"], str(value)))
                ctx.record_tool_call()
        return ctx.complete(messages, finish_reason="max_turns")
