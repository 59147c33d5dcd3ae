"""The public surface: a short list, complete, and free to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tables import for_each_row

import harness

PUBLIC = [
    "Chat", "EnvGroup", "Environment", "EnvironmentFault", "EvaluatedRun", "EvaluatedRuns", "Example",
    "HarnessError", "JsonDict", "JudgeRubric", "MCPEnv", "MachineEnv", "MathRubric", "MaybeThinkParser", "Message",
    "Messages", "ModelError", "ModelResponse", "MultiTurnEnv", "Parser", "Prompt", "RowSource", "Rubric",
    "RubricGroup", "Score", "SingleTurnEnv", "SourceRow", "State", "StateLost", "StatefulToolEnv", "ThinkParser",
    "ToolEnv", "XMLParser", "aevaluate", "cleanup", "evaluate", "extract_boxed_answer", "extract_hash_answer",
    "load_environment", "stop", "teardown", "verify_math",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert harness.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(harness))


@for_each_row("name", PUBLIC)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(harness, name) is getattr(harness, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="SingelTurnEnv"):
        _ = harness.SingelTurnEnv  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


def test_what_type_checkers_see_is_what_there_is() -> None:
    source = ast.parse(Path(harness.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harness.")
        for alias in node.names
    }
    assert sorted(seen) == PUBLIC
    homes = harness._HOMES  # pyright: ignore[reportPrivateUsage]
    assert seen == {name: home for home, names in homes.items() for name in names}


def test_importing_the_package_or_the_kit_loads_nothing_heavy() -> None:
    program = """
import sys, harness
assert not [m for m in sys.modules if m.startswith("harness.")], "import harness loads a submodule"
from harness import SingleTurnEnv, MultiTurnEnv, Rubric, XMLParser, load_environment, State
heavy = {"aiohttp", "datasets", "pydantic", "openai", "numpy", "pyarrow", "pandas", "huggingface_hub", "scipy", "rich"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
