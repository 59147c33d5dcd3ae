"""The smallest agent with a tool, and three that go wrong."""

import json
import logging

from osmosis_ai.rollout import (
    OpenAIFunctionToolSchema,
    OsmosisRolloutError,
    RolloutAgentLoop,
    RolloutContext,
    RolloutRequest,
    RolloutResult,
    create_tool_result,
    get_tool_call_info,
    serialize_tool_result,
)

logger = logging.getLogger(__name__)


def calculate(expression):
    return sum(int(part) for part in expression.split("+"))


IMPL = {"calculate": calculate}

TOOLS = [
    OpenAIFunctionToolSchema.model_validate(
        {
            "type": "function",
            "function": {
                "name": "calculate",
                "description": "Add whole numbers",
                "parameters": {
                    "type": "object",
                    "properties": {"expression": {"type": "string", "description": "Numbers with + between them"}},
                    "required": ["expression"],
                },
            },
        }
    )
]


class MyAgentLoop(RolloutAgentLoop):
    name = "my_agent"

    def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
        return TOOLS

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        msgs = list(ctx.request.messages)
        for _ in range(ctx.request.max_turns):
            r = await ctx.chat(msgs, **ctx.request.completion_params)
            msgs.append(r.message)
            if not r.has_tool_calls:
                return ctx.complete(msgs)
            for tc in r.tool_calls:
                cid, name, args = get_tool_call_info(tc)
                msgs.append(create_tool_result(cid, serialize_tool_result(IMPL[name](**args))))
                ctx.record_tool_call()
        return ctx.complete(msgs, finish_reason="max_turns")


agent_loop = MyAgentLoop()


class RobustAgent(RolloutAgentLoop):
    """Says itself that a model call has failed."""

    name = "robust_agent"

    def get_tools(self, request: RolloutRequest) -> list:
        return []

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        messages = list(ctx.request.messages)
        try:
            result = await ctx.chat(messages, **ctx.request.completion_params)
        except OsmosisRolloutError as e:
            logger.error(f"LLM call failed: {e}")
            return ctx.error(f"LLM call failed: {e}", final_messages=messages)
        return ctx.complete([*messages, result.message])


class CrashingAgent(RolloutAgentLoop):
    """Reads arguments that are no JSON, and does not see to it."""

    name = "crashing_agent"

    def get_tools(self, request: RolloutRequest) -> list:
        return TOOLS

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        result = await ctx.chat(list(ctx.request.messages))
        json.dumps(result.message)
        get_tool_call_info({"id": "c1", "function": {"name": "calculate", "arguments": "{not json"}})
        raise AssertionError


class WrongToolAgent(MyAgentLoop):
    """Offers a tool whose name no endpoint takes."""

    name = "wrong_tool_agent"

    def get_tools(self, request: RolloutRequest) -> list:
        wrong = TOOLS[0].model_copy(deep=True)
        wrong.function.name = "two words"
        return [wrong]
