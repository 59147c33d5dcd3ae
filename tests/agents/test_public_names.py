"""What `harness.agents` offers: a closed list, complete, free to import, and enough for an agent and its files."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from eval_samples import blocks
from tables import for_each_row

import harness.agents

PUBLIC = [
    "LLM", "AgentFailed", "AgentLike", "AgentLoadError", "BenchEvalSummary", "BenchResult", "BenchRowResult",
    "BenchRunResult", "BenchRunner", "CompletionsResult", "DatasetParseError", "DatasetReader", "DatasetRow",
    "DatasetValidationError", "EvalEvalSummary", "EvalFnError", "EvalFnWrapper", "EvalModelSummary", "EvalPaired",
    "EvalResult", "EvalRowResult", "EvalRunResult", "EvalRunner", "ExternalLLMClient", "HarnessError", "LoadedAgent",
    "LocalExecutionError", "LocalTestBatchResult", "LocalTestRunResult", "LocalTestRunner", "MCPAgentLoop",
    "MCPLoadError", "OpenAIFunctionParametersSchema", "OpenAIFunctionPropertySchema", "OpenAIFunctionSchema",
    "OpenAIFunctionToolSchema", "ProviderError", "RolloutAgentLoop", "RolloutContext", "RolloutMetrics",
    "RolloutRequest", "RolloutResult", "RolloutStatus", "StepEvent", "SystemicProviderError", "ToolArgumentError",
    "ToolExecutionError", "ToolValidationError", "count_messages_by_role", "create_tool_error_result",
    "create_tool_result", "execute_tool_calls", "get_message_content", "get_message_role", "get_tool_call_info",
    "is_assistant_message", "is_tool_message", "is_user_message", "load_agent", "load_eval_fns", "load_mcp",
    "normalize_stop", "osmosis_reward", "osmosis_rubric", "parse_tool_arguments", "parse_tool_calls", "pass_at_k",
    "serialize_tool_result", "validate_tools",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert sorted(harness.agents.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(harness.agents))


@for_each_row("name", PUBLIC)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(harness.agents, name) is getattr(harness.agents, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="EvalRuner"):
        _ = harness.agents.EvalRuner  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


def test_what_type_checkers_see_is_what_there_is() -> None:
    source = ast.parse(Path(str(harness.agents.__file__)).read_text(encoding="utf-8"))
    [block] = [node for node in source.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    homes = harness.agents._HOMES  # pyright: ignore[reportPrivateUsage]
    assert seen == {name: home for home, names in homes.items() for name in names}


@for_each_row(("page", "number"), [("eval-mode.md", 11), ("eval-mode-short.md", 2), ("bench-mode.md", 10)])
def test_every_name_that_the_documents_import_is_there(page: str, number: int) -> None:
    nodes = [node for block in blocks(page, "python") for node in ast.walk(ast.parse(block))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and str(node.module).startswith("osmosis_ai")]
    names = {alias.name for node in imports for alias in node.names}
    assert names <= set(PUBLIC)
    assert len(names) == number


@pytest.mark.plugins
def test_importing_it_does_nothing_and_using_it_answers_for_the_sdk() -> None:
    program = """
import json, sys
before = (list(sys.meta_path), list(sys.path), set(sys.modules))
import harness.agents
new = sorted(name for name in set(sys.modules) - before[2] if name.startswith("harness"))
untouched = (sys.meta_path, sys.path) == (before[0], before[1])
from harness.agents import RolloutAgentLoop, DatasetReader, EvalFnWrapper
heavy = {"aiohttp", "datasets", "openai", "litellm", "fastmcp", "numpy", "pyarrow", "pandas", "scipy", "rich"}
from osmosis_ai.rollout import RolloutAgentLoop as Theirs
print(json.dumps([new, untouched, sorted(heavy & set(sys.modules)), Theirs is RolloutAgentLoop]))
from harness.agents import EvalRunner, ExternalLLMClient, LocalTestRunner
print(json.dumps(sorted(heavy & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == [["harness", "harness.agents"], True, [], True]
    assert second == []
