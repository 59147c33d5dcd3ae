"""The agent that the measurements evaluate: one question, one reply, graded by a plain function."""

from __future__ import annotations

from harness.agents import RolloutAgentLoop, RolloutContext, RolloutRequest, RolloutResult


class Asker(RolloutAgentLoop):
    """Asks once."""

    name = "asker"

    def get_tools(self, request: RolloutRequest) -> list[dict[str, object]]:
        """None."""
        return []

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """One turn."""
        reply = await ctx.chat(ctx.request.messages)
        return ctx.complete([*ctx.request.messages, reply.message])


def has_answer(solution_str: str, ground_truth: str, extra_info: dict[str, object] | None = None) -> float:
    """Whether the answer stands in the reply."""
    return float(ground_truth in solution_str)
