"""Agent evaluation in Python: runners, results, and the types and helpers for agents, tools and eval functions. Public
names are imported lazily, at their first use, so `import harness.eval` is cheap. The first use also activates a
plugin's import hook, which makes the names available under the paths of the SDK they come from."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.agents.bench import BenchEvalSummary, BenchResult, BenchRowResult, BenchRunner, BenchRunResult
    from harness.agents.client import ExternalLLMClient
    from harness.agents.dataset import DatasetReader, DatasetRow
    from harness.agents.eval_functions import EvalFnWrapper, load_eval_fns
    from harness.agents.llm import StepEvent
    from harness.agents.loading import LoadedAgent, load_agent
    from harness.agents.loop import LLM, AgentLike, CompletionsResult, RolloutAgentLoop, RolloutContext, RolloutResult
    from harness.agents.mcp_agent import MCPAgentLoop
    from harness.agents.mcp_folder import load_mcp
    from harness.agents.messages import (
        count_messages_by_role,
        get_message_content,
        get_message_role,
        is_assistant_message,
        is_tool_message,
        is_user_message,
        normalize_stop,
        parse_tool_calls,
    )
    from harness.agents.results import (
        EvalEvalSummary,
        EvalModelSummary,
        EvalPaired,
        EvalResult,
        EvalRowResult,
        EvalRunResult,
    )
    from harness.agents.reward import osmosis_reward, osmosis_rubric
    from harness.agents.runner import EvalRunner
    from harness.agents.schemas import (
        OpenAIFunctionParametersSchema,
        OpenAIFunctionPropertySchema,
        OpenAIFunctionSchema,
        OpenAIFunctionToolSchema,
        RolloutMetrics,
        RolloutRequest,
        RolloutStatus,
    )
    from harness.agents.test_runner import LocalTestBatchResult, LocalTestRunner, LocalTestRunResult
    from harness.agents.tool_calls import (
        ToolArgumentError,
        ToolExecutionError,
        create_tool_error_result,
        create_tool_result,
        execute_tool_calls,
        get_tool_call_info,
        parse_tool_arguments,
        serialize_tool_result,
    )
    from harness.agents.validation import validate_tools
    from harness.core.errors import (
        AgentFailed,
        AgentLoadError,
        DatasetParseError,
        DatasetValidationError,
        EvalFnError,
        HarnessError,
        LocalExecutionError,
        MCPLoadError,
        ProviderError,
        SystemicProviderError,
        ToolValidationError,
    )
    from harness.stats.passk import pass_at_k

_HOMES: dict[str, tuple[str, ...]] = {
    "harness.agents.dataset": ("DatasetReader", "DatasetRow"),
    "harness.agents.eval_functions": ("EvalFnWrapper", "load_eval_fns"),
    "harness.agents.llm": ("StepEvent",),
    "harness.agents.loading": ("LoadedAgent", "load_agent"),
    "harness.agents.loop": (
        "AgentLike",
        "CompletionsResult",
        "LLM",
        "RolloutAgentLoop",
        "RolloutContext",
        "RolloutResult",
    ),
    "harness.agents.mcp_agent": ("MCPAgentLoop",),
    "harness.agents.mcp_folder": ("load_mcp",),
    "harness.agents.messages": (
        "count_messages_by_role",
        "get_message_content",
        "get_message_role",
        "is_assistant_message",
        "is_tool_message",
        "is_user_message",
        "normalize_stop",
        "parse_tool_calls",
    ),
    "harness.agents.reward": ("osmosis_reward", "osmosis_rubric"),
    "harness.agents.schemas": (
        "OpenAIFunctionParametersSchema",
        "OpenAIFunctionPropertySchema",
        "OpenAIFunctionSchema",
        "OpenAIFunctionToolSchema",
        "RolloutMetrics",
        "RolloutRequest",
        "RolloutStatus",
    ),
    "harness.agents.tool_calls": (
        "ToolArgumentError",
        "ToolExecutionError",
        "create_tool_error_result",
        "create_tool_result",
        "execute_tool_calls",
        "get_tool_call_info",
        "parse_tool_arguments",
        "serialize_tool_result",
    ),
    "harness.agents.validation": ("validate_tools",),
    "harness.core.errors": (
        "AgentFailed",
        "AgentLoadError",
        "DatasetParseError",
        "DatasetValidationError",
        "EvalFnError",
        "HarnessError",
        "LocalExecutionError",
        "MCPLoadError",
        "ProviderError",
        "SystemicProviderError",
        "ToolValidationError",
    ),
    "harness.agents.bench": ("BenchEvalSummary", "BenchResult", "BenchRowResult", "BenchRunResult", "BenchRunner"),
    "harness.agents.client": ("ExternalLLMClient",),
    "harness.agents.results": (
        "EvalEvalSummary",
        "EvalModelSummary",
        "EvalPaired",
        "EvalResult",
        "EvalRowResult",
        "EvalRunResult",
    ),
    "harness.agents.runner": ("EvalRunner",),
    "harness.agents.test_runner": ("LocalTestBatchResult", "LocalTestRunResult", "LocalTestRunner"),
    "harness.stats.passk": ("pass_at_k",),
}
"""The module that defines each public name."""

__all__ = [
    "LLM",
    "AgentFailed",
    "AgentLike",
    "AgentLoadError",
    "BenchEvalSummary",
    "BenchResult",
    "BenchRowResult",
    "BenchRunResult",
    "BenchRunner",
    "CompletionsResult",
    "DatasetParseError",
    "DatasetReader",
    "DatasetRow",
    "DatasetValidationError",
    "EvalEvalSummary",
    "EvalFnError",
    "EvalFnWrapper",
    "EvalModelSummary",
    "EvalPaired",
    "EvalResult",
    "EvalRowResult",
    "EvalRunResult",
    "EvalRunner",
    "ExternalLLMClient",
    "HarnessError",
    "LoadedAgent",
    "LocalExecutionError",
    "LocalTestBatchResult",
    "LocalTestRunResult",
    "LocalTestRunner",
    "MCPAgentLoop",
    "MCPLoadError",
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolSchema",
    "ProviderError",
    "RolloutAgentLoop",
    "RolloutContext",
    "RolloutMetrics",
    "RolloutRequest",
    "RolloutResult",
    "RolloutStatus",
    "StepEvent",
    "SystemicProviderError",
    "ToolArgumentError",
    "ToolExecutionError",
    "ToolValidationError",
    "count_messages_by_role",
    "create_tool_error_result",
    "create_tool_result",
    "execute_tool_calls",
    "get_message_content",
    "get_message_role",
    "get_tool_call_info",
    "is_assistant_message",
    "is_tool_message",
    "is_user_message",
    "load_agent",
    "load_eval_fns",
    "load_mcp",
    "normalize_stop",
    "osmosis_reward",
    "osmosis_rubric",
    "parse_tool_arguments",
    "parse_tool_calls",
    "pass_at_k",
    "serialize_tool_result",
    "validate_tools",
]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            from harness.envs import import_hooks

            import_hooks.answer_agents()
            value: object = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'harness.agents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
