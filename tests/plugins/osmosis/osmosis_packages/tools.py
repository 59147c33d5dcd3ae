"""The calculator's tools."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Dict, List

from osmosis_ai.rollout.core.exceptions import ToolArgumentError
from osmosis_ai.rollout.core.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
)
from osmosis_ai.rollout.tools import (
    create_tool_error_result,
    create_tool_result,
    execute_tool_calls,
    get_tool_call_info,
    serialize_tool_result,
)

logger = logging.getLogger(__name__)


async def calculate(expression: str) -> int:
    """Add numbers."""
    await asyncio.sleep(0)
    return sum(int(part) for part in expression.split("+"))


IMPLEMENTATIONS = {"calculate": calculate}


async def _answer(tool_call: Dict[str, Any]) -> Dict[str, str]:
    try:
        tool_call_id, name, arguments = get_tool_call_info(tool_call)
    except ToolArgumentError as e:
        return create_tool_error_result(e.tool_call_id or tool_call.get("id", "unknown"), str(e))
    function = IMPLEMENTATIONS.get(name)
    if function is None:
        return create_tool_error_result(tool_call_id, f"no tool {name}; there are {sorted(IMPLEMENTATIONS)}")
    try:
        return create_tool_result(tool_call_id, serialize_tool_result(await function(**arguments)))
    except (TypeError, ValueError) as e:
        return create_tool_error_result(tool_call_id, str(e))


async def answer_calls(tool_calls: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    return await execute_tool_calls(tool_calls, _answer)


TOOLS: List[OpenAIFunctionToolSchema] = [
    OpenAIFunctionToolSchema(
        type="function",
        function=OpenAIFunctionSchema(
            name="calculate",
            description="Add whole numbers",
            parameters=OpenAIFunctionParametersSchema(
                type="object",
                properties={
                    "expression": OpenAIFunctionPropertySchema(
                        type="string", description="Numbers with + between them"
                    ),
                    "style": OpenAIFunctionPropertySchema(type="string", enum=["short", "long"]),
                },
                required=["expression"],
            ),
        ),
    ),
]
