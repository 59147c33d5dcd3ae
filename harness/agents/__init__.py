"""Public API of agent evaluation: runners, results, and the types and helpers for agents, tools and eval functions.
Each public name is imported when it is first used, so that `import harness.eval` is fast. The first use also loads the
plugins of the group `bench.import_hooks`, such as the one for the module paths of the Osmosis SDK."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.agents.client import ExternalLLMClient as ExternalLLMClient
    from harness.agents.dataset import DatasetReader as DatasetReader
    from harness.agents.dataset import DatasetRow as DatasetRow
    from harness.agents.eval_functions import EvalFnWrapper as EvalFnWrapper
    from harness.agents.eval_functions import load_eval_fns as load_eval_fns
    from harness.agents.llm import StepEvent as StepEvent
    from harness.agents.loading import LoadedAgent as LoadedAgent
    from harness.agents.loading import load_agent as load_agent
    from harness.agents.local_test_runner import LocalTestBatchResult as LocalTestBatchResult
    from harness.agents.local_test_runner import LocalTestRunner as LocalTestRunner
    from harness.agents.local_test_runner import LocalTestRunResult as LocalTestRunResult
    from harness.agents.loop import LLM as LLM
    from harness.agents.loop import AgentLike as AgentLike
    from harness.agents.loop import CompletionsResult as CompletionsResult
    from harness.agents.loop import RolloutAgentLoop as RolloutAgentLoop
    from harness.agents.loop import RolloutContext as RolloutContext
    from harness.agents.loop import RolloutResult as RolloutResult
    from harness.agents.mcp_agent import MCPAgentLoop as MCPAgentLoop
    from harness.agents.mcp_folder import load_mcp as load_mcp
    from harness.agents.messages import count_messages_by_role as count_messages_by_role
    from harness.agents.messages import get_message_content as get_message_content
    from harness.agents.messages import get_message_role as get_message_role
    from harness.agents.messages import is_assistant_message as is_assistant_message
    from harness.agents.messages import is_tool_message as is_tool_message
    from harness.agents.messages import is_user_message as is_user_message
    from harness.agents.messages import normalize_stop as normalize_stop
    from harness.agents.messages import parse_tool_calls as parse_tool_calls
    from harness.agents.results import BenchEvalSummary as BenchEvalSummary
    from harness.agents.results import BenchResult as BenchResult
    from harness.agents.results import BenchRowResult as BenchRowResult
    from harness.agents.results import BenchRunResult as BenchRunResult
    from harness.agents.results import EvalEvalSummary as EvalEvalSummary
    from harness.agents.results import EvalModelSummary as EvalModelSummary
    from harness.agents.results import EvalPaired as EvalPaired
    from harness.agents.results import EvalResult as EvalResult
    from harness.agents.results import EvalRowResult as EvalRowResult
    from harness.agents.results import EvalRunResult as EvalRunResult
    from harness.agents.reward import osmosis_reward as osmosis_reward
    from harness.agents.reward import osmosis_rubric as osmosis_rubric
    from harness.agents.runner import BenchRunner as BenchRunner
    from harness.agents.runner import EvalRunner as EvalRunner
    from harness.agents.schemas import OpenAIFunctionParametersSchema as OpenAIFunctionParametersSchema
    from harness.agents.schemas import OpenAIFunctionPropertySchema as OpenAIFunctionPropertySchema
    from harness.agents.schemas import OpenAIFunctionSchema as OpenAIFunctionSchema
    from harness.agents.schemas import OpenAIFunctionToolSchema as OpenAIFunctionToolSchema
    from harness.agents.schemas import RolloutMetrics as RolloutMetrics
    from harness.agents.schemas import RolloutRequest as RolloutRequest
    from harness.agents.schemas import RolloutStatus as RolloutStatus
    from harness.agents.tool_calls import ToolArgumentError as ToolArgumentError
    from harness.agents.tool_calls import ToolExecutionError as ToolExecutionError
    from harness.agents.tool_calls import create_tool_error_result as create_tool_error_result
    from harness.agents.tool_calls import create_tool_result as create_tool_result
    from harness.agents.tool_calls import execute_tool_calls as execute_tool_calls
    from harness.agents.tool_calls import get_tool_call_info as get_tool_call_info
    from harness.agents.tool_calls import parse_tool_arguments as parse_tool_arguments
    from harness.agents.tool_calls import serialize_tool_result as serialize_tool_result
    from harness.agents.validation import validate_tools as validate_tools
    from harness.core.errors import AgentFailed as AgentFailed
    from harness.core.errors import AgentLoadError as AgentLoadError
    from harness.core.errors import DatasetParseError as DatasetParseError
    from harness.core.errors import DatasetValidationError as DatasetValidationError
    from harness.core.errors import EvalFnError as EvalFnError
    from harness.core.errors import HarnessError as HarnessError
    from harness.core.errors import LocalExecutionError as LocalExecutionError
    from harness.core.errors import MCPLoadError as MCPLoadError
    from harness.core.errors import ProviderError as ProviderError
    from harness.core.errors import SystemicProviderError as SystemicProviderError
    from harness.core.errors import ToolValidationError as ToolValidationError
    from harness.stats.passk import pass_at_k as pass_at_k

_HOMES: dict[str, tuple[str, ...]] = {
    "harness.agents.dataset": ("DatasetReader", "DatasetRow"),
    "harness.agents.eval_functions": ("EvalFnWrapper", "load_eval_fns"),
    "harness.agents.llm": ("StepEvent",),
    "harness.agents.loading": ("LoadedAgent", "load_agent"),
    "harness.agents.loop": (
        "AgentLike", "CompletionsResult", "LLM", "RolloutAgentLoop", "RolloutContext", "RolloutResult",
    ),
    "harness.agents.mcp_agent": ("MCPAgentLoop",),
    "harness.agents.mcp_folder": ("load_mcp",),
    "harness.agents.messages": (
        "count_messages_by_role", "get_message_content", "get_message_role", "is_assistant_message", "is_tool_message",
        "is_user_message", "normalize_stop", "parse_tool_calls",
    ),
    "harness.agents.reward": ("osmosis_reward", "osmosis_rubric"),
    "harness.agents.schemas": (
        "OpenAIFunctionParametersSchema", "OpenAIFunctionPropertySchema", "OpenAIFunctionSchema",
        "OpenAIFunctionToolSchema", "RolloutMetrics", "RolloutRequest", "RolloutStatus",
    ),
    "harness.agents.tool_calls": (
        "ToolArgumentError", "ToolExecutionError", "create_tool_error_result", "create_tool_result",
        "execute_tool_calls", "get_tool_call_info", "parse_tool_arguments", "serialize_tool_result",
    ),
    "harness.agents.validation": ("validate_tools",),
    "harness.core.errors": (
        "AgentFailed", "AgentLoadError", "DatasetParseError", "DatasetValidationError", "EvalFnError", "HarnessError",
        "LocalExecutionError", "MCPLoadError", "ProviderError", "SystemicProviderError", "ToolValidationError",
    ),
    "harness.agents.client": ("ExternalLLMClient",),
    "harness.agents.results": (
        "BenchEvalSummary", "BenchResult", "BenchRowResult", "BenchRunResult", "EvalEvalSummary", "EvalModelSummary",
        "EvalPaired", "EvalResult", "EvalRowResult", "EvalRunResult",
    ),
    "harness.agents.runner": ("BenchRunner", "EvalRunner"),
    "harness.agents.local_test_runner": ("LocalTestBatchResult", "LocalTestRunResult", "LocalTestRunner"),
    "harness.stats.passk": ("pass_at_k",),
}  # fmt: skip
"""The public names that this package imports on first use, by their module."""

__all__ = sorted(name for names in _HOMES.values() for name in names)  # pyright: ignore[reportUnsupportedDunderAll]


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
