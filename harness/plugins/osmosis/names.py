"""Table of the modules of osmosis_ai, with their names and the replacement of each in bench, and error messages for
names without a replacement. Replacements are strings (`module:attribute`), so that they are imported only on use."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

NAME = "osmosis_ai"

VERSION = "0.2.17"
"""The newest release of osmosis_ai with the agent API that bench implements."""


def _from(module: str, *names: str, **renamed: str) -> dict[str, str]:
    """Map names of osmosis_ai to names in a module of `harness`. Keyword arguments map names that differ."""
    targets = {name: f"{module}:{name}" for name in names}
    return targets | {name: f"{module}:{attribute}" for name, attribute in renamed.items()}


_DECORATORS = _from("harness.agents.reward", "osmosis_reward", "osmosis_rubric")
_RUBRIC_ERRORS = _from(
    "harness.plugins.osmosis.rubric_types", "MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError"
)
_RUBRIC_TYPES = _RUBRIC_ERRORS | _from(
    "harness.plugins.osmosis.rubric_types", "ModelInfo", "RewardRubricRunResult", "RubricResult"
)
_RUBRIC = _from("harness.plugins.osmosis.rubric", "evaluate_rubric")
_RUBRIC_EVAL = _RUBRIC | _RUBRIC_TYPES | _from(
    "harness.plugins.osmosis.rubric", "DEFAULT_API_KEY_ENV", "DEFAULT_REQUEST_TIMEOUT_SECONDS",
    "ensure_api_key_available",
)  # fmt: skip
_BASE = _from("harness.agents.loop", "RolloutAgentLoop", "RolloutContext", "RolloutResult")
_COMPLETION = _from("harness.agents.loop", "CompletionsResult")
_PROTOCOL = _from("harness.agents.loop", LLMClientProtocol="LLM")
_SCHEMAS = _from(
    "harness.agents.schemas", "MessageDict", "OpenAIFunctionParametersSchema", "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema", "OpenAIFunctionToolSchema", "RolloutMetrics", "RolloutRequest", "RolloutStatus",
    "SamplingParamsDict", DEFAULT_MAX_METADATA_SIZE_BYTES="MAX_METADATA_BYTES",
)  # fmt: skip
_TOOL_SCHEMAS = _from(
    "harness.plugins.osmosis.tool_schemas", "OpenAIFunctionCallSchema", "OpenAIFunctionParsedSchema",
    "OpenAIFunctionToolCall", "ToolResponse",
)  # fmt: skip
_EXCEPTIONS = _from(
    "harness.plugins.osmosis.exceptions", "AgentLoopNotFoundError", "OsmosisRolloutError", "OsmosisServerError",
    "OsmosisTimeoutError", "OsmosisTransportError", "OsmosisValidationError",
) | _from("harness.agents.tool_calls", "ToolArgumentError", "ToolExecutionError")  # fmt: skip
_TOOLS = _from(
    "harness.agents.tool_calls", "create_tool_error_result", "create_tool_result", "execute_tool_calls",
    "get_tool_call_info", "parse_tool_arguments", "serialize_tool_result",
)  # fmt: skip
_MESSAGES = _from(
    "harness.agents.messages", "count_messages_by_role", "get_message_content", "get_message_role",
    "is_assistant_message", "is_tool_message", "is_user_message", "normalize_stop", "parse_tool_calls",
)  # fmt: skip
_REGISTRY = _from(
    "harness.plugins.osmosis.registry", "AgentLoopNotFoundError", "AgentLoopRegistry", "get_agent_loop",
    "list_agent_loops", "register_agent_loop", "unregister_agent_loop",
)  # fmt: skip
_CLIENT = _from("harness.plugins.osmosis.hosted", "OsmosisLLMClient")
_APP = _from("harness.plugins.osmosis.hosted", "create_app")
_SERVE = _from(
    "harness.plugins.osmosis.hosted", "DEFAULT_HOST", "DEFAULT_PORT", "serve_agent_loop", "validate_and_report"
)
_VALIDATOR = _from("harness.plugins.osmosis.hosted", "validate_agent_loop")

_CORE = _BASE | _PROTOCOL | _SCHEMAS | _TOOL_SCHEMAS | _EXCEPTIONS
_ROLLOUT = (
    _CORE | _COMPLETION | _TOOLS | _MESSAGES | _REGISTRY | _CLIENT | _APP | _SERVE | _VALIDATOR
)  # fmt: skip

_ERRORS = _from(
    "harness.core.errors", "DatasetParseError", "DatasetValidationError", "LocalExecutionError", "ProviderError",
    "SystemicProviderError", "ToolValidationError",
)  # fmt: skip
_DATASET = _from("harness.agents.dataset", "DatasetReader", "DatasetRow", REQUIRED_COLUMNS="REQUIRED") | _from(
    "harness.plugins.osmosis.requests", "dataset_row_to_request"
)
_LLM_CLIENT = _from("harness.agents.client", "ExternalLLMClient")
_VALIDATE = _from("harness.agents.validation", "validate_tools")
_EVAL_FNS = _from("harness.core.errors", "EvalFnError") | _from(
    "harness.agents.eval_functions", "EvalFnWrapper", "load_eval_fns"
)
_PASS_AT_K = _from("harness.stats.passk", "pass_at_k")
_EVAL_RUNNER = _from("harness.agents.runner", "EvalRunner") | _from(
    "harness.agents.results", "EvalEvalSummary", "EvalModelSummary", "EvalResult", "EvalRowResult", "EvalRunResult"
)
_BENCH_RUNNER = _from("harness.agents.runner", "BenchRunner") | _from(
    "harness.agents.results", "BenchEvalSummary", "BenchResult", "BenchRowResult", "BenchRunResult"
)
_TEST_RUNNER = _from(
    "harness.agents.local_test_runner", "LocalTestBatchResult", "LocalTestRunner", "LocalTestRunResult"
)  # fmt: skip

_EVAL: dict[str, Mapping[str, str]] = {
    "": {},
    ".common": _DATASET | _ERRORS | _LLM_CLIENT | _VALIDATE,
    ".common.dataset": _DATASET,
    ".common.errors": _ERRORS,
    ".common.llm_client": _LLM_CLIENT,
    ".common.runner": _VALIDATE,
    ".evaluation": _EVAL_FNS | _EVAL_RUNNER | _PASS_AT_K,
    ".evaluation.eval_fn": _EVAL_FNS,
    ".evaluation.report": _PASS_AT_K,
    ".evaluation.runner": _EVAL_RUNNER,
    ".bench": _EVAL_FNS | _BENCH_RUNNER | _PASS_AT_K,
    ".bench.eval_fn": _EVAL_FNS,
    ".bench.report": _PASS_AT_K,
    ".bench.runner": _BENCH_RUNNER,
    ".test_mode": _TEST_RUNNER | _LLM_CLIENT | _from("harness.core.errors", "ProviderError"),
    ".test_mode.runner": _TEST_RUNNER,
}

_MCP_LOOP = _from("harness.agents.mcp_agent", "MCPAgentLoop")
_MCP_LOADER = _from("harness.core.errors", "MCPLoadError") | _from(
    "harness.plugins.osmosis.requests", "load_mcp_server"
)

MODULES: dict[str, Mapping[str, str]] = {
    NAME: _DECORATORS | _RUBRIC | _RUBRIC_ERRORS | _BASE | _COMPLETION | _CLIENT | _APP | {
        name: _ROLLOUT[name]
        for name in (
            "OpenAIFunctionToolSchema", "OsmosisRolloutError", "OsmosisServerError", "OsmosisTimeoutError",
            "OsmosisTransportError", "OsmosisValidationError", "RolloutMetrics", "RolloutRequest", "get_agent_loop",
            "list_agent_loops", "register_agent_loop",
        )
    }
    | _from("harness.plugins.osmosis.names", __version__="VERSION"),
    f"{NAME}.consts": _from("harness.plugins.osmosis.names", PACKAGE_VERSION="VERSION"),
    f"{NAME}.utils": _DECORATORS,
    f"{NAME}.rubric": _RUBRIC | _RUBRIC_ERRORS,
    f"{NAME}.rubric.eval": _RUBRIC_EVAL,
    f"{NAME}.rubric.types": _RUBRIC_TYPES,
    f"{NAME}.rubric_eval": _RUBRIC_EVAL,
    f"{NAME}.rubric_types": _RUBRIC_TYPES,
    f"{NAME}.rollout": _ROLLOUT,
    f"{NAME}.rollout.client": _COMPLETION | _CLIENT,
    f"{NAME}.rollout.core": _CORE,
    f"{NAME}.rollout.core.base": _BASE | _PROTOCOL,
    f"{NAME}.rollout.core.exceptions": _EXCEPTIONS,
    f"{NAME}.rollout.core.llm_client": _PROTOCOL,
    f"{NAME}.rollout.core.schemas": _SCHEMAS | _TOOL_SCHEMAS,
    f"{NAME}.rollout.mcp": _MCP_LOOP | _MCP_LOADER,
    f"{NAME}.rollout.mcp.agent_loop": _MCP_LOOP,
    f"{NAME}.rollout.mcp.loader": _MCP_LOADER,
    f"{NAME}.rollout.registry": _REGISTRY,
    f"{NAME}.rollout.server": _APP | _SERVE,
    f"{NAME}.rollout.server.app": _APP,
    f"{NAME}.rollout.server.serve": _SERVE,
    f"{NAME}.rollout.tools": _TOOLS,
    f"{NAME}.rollout.utils": _MESSAGES,
    f"{NAME}.rollout.validator": _VALIDATOR,
} | {
    f"{NAME}.{parent}{rest}": names for parent in ("rollout.eval", "eval") for rest, names in _EVAL.items()
}  # fmt: skip
"""Names and their replacements, for each module of osmosis_ai. Evaluation was first in a module below `rollout`, later
in one of its own."""

_HOSTING = "is part of the hosted training service; bench runs agents itself: `bench eval -m module:attribute …`"
_COMMANDS = "is part of that SDK's own commands: use `bench eval` or `bench test`"
_NEWER = (
    f"belongs to releases after {VERSION}; bench runs agents of the earlier API: a RolloutAgentLoop, or any object "
    f"with name, get_tools and run"
)

LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        (
            "AgentLoopValidationError", "CompletionUsage", "CompletionsChoice", "CompletionsRequest",
            "CompletionsResponse", "InitResponse", "PublicIPDetectionError", "RolloutClientSettings",
            "RolloutResponse", "RolloutServerSettings", "RolloutSettings", "ServeError", "ValidationError",
            "ValidationResult", "auth", "config", "configure", "detect_public_ip", "get_max_metadata_size_bytes",
            "get_settings", "network", "observability", "reset_settings", "set_max_metadata_size_bytes",
        ),
        _HOSTING,
    ),
    **dict.fromkeys(
        (
            "InteractiveLLMClient", "InteractiveRunner", "InteractiveStep", "LocalBatchResult",
            "LocalLLMClientProtocol", "LocalRolloutRunner", "LocalRunResult", "build_completion_params", "cli",
            "cli_services", "create_llm_client", "format_bench_report",
            "format_eval_report", "interactive", "load_agent", "load_dataset_rows",
        ),
        _COMMANDS,
    ),
    "load_eval_fn": "is `load_eval_fns([path])[0]`",
    **dict.fromkeys(
        ("AgentWorkflow", "AgentWorkflowContext", "Grader", "GraderContext", "agent_workflow", "backend", "grader"),
        _NEWER,
    ),
}  # fmt: skip
"""Names of osmosis_ai without a replacement in bench, each with an explanation for the error message."""


def why_missing(module: str, name: str) -> str:
    """Return the error message for a name that a module of osmosis_ai does not have here.

    Args:
        module: One of `MODULES`.
        name: The missing name.
    """
    if name in LEFT_OUT:
        return f"{module}.{name} {LEFT_OUT[name]}"
    below = [path.rpartition(".")[2] for path in MODULES if path.rpartition(".")[0] == module]
    near = difflib.get_close_matches(name, [*MODULES[module], *below], n=1)
    elsewhere = sorted(path for path, names in MODULES.items() if name in names)
    hint = f"; did you mean {near[0]}?" if near else f"; it is in {elsewhere[0]}" if elsewhere else ""
    return f"bench implements {NAME} {VERSION}, which has no {module}.{name}{hint}"
