"""bench: a TOML-driven, multi-environment benchmark harness for language models and agents.

Defines the public names. Each is imported when it is first used, so that `import harness` is fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.cli.evaluate import EvaluatedRun, EvaluatedRuns, aevaluate, evaluate
    from harness.core.errors import EnvironmentFault, HarnessError, ModelError, StateLost
    from harness.core.records import Example, Score
    from harness.core.state import State
    from harness.core.types import Chat, JsonDict, Message, Messages, ModelResponse, Prompt
    from harness.engine.environment_loader import load_environment
    from harness.envs.env_group import EnvGroup
    from harness.envs.environment import Environment
    from harness.envs.hooks import cleanup, stop, teardown
    from harness.envs.machine_env import MachineEnv
    from harness.envs.mcp_env import MCPEnv
    from harness.envs.multi_turn import MultiTurnEnv
    from harness.envs.single_turn import SingleTurnEnv
    from harness.envs.sources import RowSource, SourceRow
    from harness.envs.stateful_tool_env import StatefulToolEnv
    from harness.envs.tool_env import ToolEnv
    from harness.rubrics.extract import extract_boxed_answer, extract_hash_answer
    from harness.rubrics.group import RubricGroup
    from harness.rubrics.judge import JudgeRubric
    from harness.rubrics.math import MathRubric, verify_math
    from harness.rubrics.parser import MaybeThinkParser, Parser, ThinkParser
    from harness.rubrics.rubric import Rubric
    from harness.rubrics.xml_parser import XMLParser

_HOMES: dict[str, tuple[str, ...]] = {
    "harness.cli.evaluate": ("EvaluatedRun", "EvaluatedRuns", "aevaluate", "evaluate"),
    "harness.envs.env_group": ("EnvGroup",),
    "harness.envs.environment": ("Environment",),
    "harness.envs.hooks": ("cleanup", "stop", "teardown"),
    "harness.engine.environment_loader": ("load_environment",),
    "harness.envs.multi_turn": ("MultiTurnEnv",),
    "harness.envs.single_turn": ("SingleTurnEnv",),
    "harness.envs.sources": ("RowSource", "SourceRow"),
    "harness.envs.machine_env": ("MachineEnv",),
    "harness.envs.mcp_env": ("MCPEnv",),
    "harness.envs.stateful_tool_env": ("StatefulToolEnv",),
    "harness.envs.tool_env": ("ToolEnv",),
    "harness.core.errors": ("EnvironmentFault", "HarnessError", "ModelError", "StateLost"),
    "harness.rubrics.extract": ("extract_boxed_answer", "extract_hash_answer"),
    "harness.rubrics.parser": ("MaybeThinkParser", "Parser", "ThinkParser"),
    "harness.rubrics.xml_parser": ("XMLParser",),
    "harness.core.records": ("Example", "Score"),
    "harness.rubrics.group": ("RubricGroup",),
    "harness.rubrics.judge": ("JudgeRubric",),
    "harness.rubrics.math": ("MathRubric", "verify_math"),
    "harness.rubrics.rubric": ("Rubric",),
    "harness.core.state": ("State",),
    "harness.core.types": ("Chat", "JsonDict", "Message", "Messages", "ModelResponse", "Prompt"),
}
"""Where each public name lives."""

__all__ = [
    "Chat",
    "EnvGroup",
    "Environment",
    "EnvironmentFault",
    "EvaluatedRun",
    "EvaluatedRuns",
    "Example",
    "HarnessError",
    "JsonDict",
    "JudgeRubric",
    "MCPEnv",
    "MachineEnv",
    "MathRubric",
    "MaybeThinkParser",
    "Message",
    "Messages",
    "ModelError",
    "ModelResponse",
    "MultiTurnEnv",
    "Parser",
    "Prompt",
    "RowSource",
    "Rubric",
    "RubricGroup",
    "Score",
    "SingleTurnEnv",
    "SourceRow",
    "State",
    "StateLost",
    "StatefulToolEnv",
    "ThinkParser",
    "ToolEnv",
    "XMLParser",
    "aevaluate",
    "cleanup",
    "evaluate",
    "extract_boxed_answer",
    "extract_hash_answer",
    "load_environment",
    "stop",
    "teardown",
    "verify_math",
]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'harness' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
