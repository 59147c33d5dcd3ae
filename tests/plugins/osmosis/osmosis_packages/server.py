"""A rollout server for the calculator agent: `osmosis serve -m server:agent_loop`."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Dict, List, Optional

try:
    from osmosis_ai.rollout import (
        RolloutAgentLoop,
        RolloutContext,
        RolloutRequest,
        RolloutResult,
        create_app,
    )
except ModuleNotFoundError as e:
    raise ModuleNotFoundError("The SDK is missing:  pip install osmosis-ai[server]") from e

from rewards import compute_reward
from tools import TOOLS, answer_calls

logger = logging.getLogger(__name__)


def last_answer(messages: List[Dict[str, Any]]) -> Optional[str]:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return message.get("content", "")
    return None


class CalculatorAgentLoop(RolloutAgentLoop):
    """Lets the model calculate until it has an answer."""

    name = "calculator"

    def get_tools(self, request: RolloutRequest):
        return TOOLS

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        messages = list(ctx.request.messages)
        finish_reason = "stop"
        spent = 0

        for turn in range(ctx.request.max_turns):
            ctx.log_event("pre_llm", turn=turn, num_messages=len(messages))
            result = await ctx.chat(messages, **ctx.request.completion_params)
            messages.append(result.message)
            ctx.log_event("llm_response", turn=turn, has_tool_calls=result.has_tool_calls)

            usage = result.usage or {}
            spent += int(usage.get("completion_tokens") or 0)
            if spent >= ctx.request.max_tokens_total:
                finish_reason = "max_tokens"
                break

            if not result.has_tool_calls:
                finish_reason = result.finish_reason or "stop"
                break

            start = time.monotonic()
            tool_results = await answer_calls(result.tool_calls)
            latency_ms = (time.monotonic() - start) * 1000.0 / max(1, len(result.tool_calls))
            for _ in result.tool_calls:
                ctx.record_tool_call(latency_ms=latency_ms)
            messages.extend(tool_results)
        else:
            finish_reason = "max_turns"

        truth = ctx.request.metadata.get("ground_truth")
        reward = compute_reward(last_answer(messages) or "", truth, dict(ctx.request.metadata)) if truth else None
        ctx.log_event("rollout_complete", finish_reason=finish_reason, reward=reward, total_turns=turn + 1)
        return ctx.complete(messages, finish_reason=finish_reason, reward=reward)


agent_loop = CalculatorAgentLoop()

app = create_app(agent_loop, debug_dir=os.getenv("ROLLOUT_DEBUG_DIR"))


if __name__ == "__main__":
    import uvicorn

    uvicorn.run("server:app", host="0.0.0.0", port=int(os.getenv("PORT", "9000")), reload=False)
