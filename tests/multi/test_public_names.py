"""What `harness.multi` offers: a closed list, complete, and free to import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tables import for_each_row

import harness.multi

PUBLIC = [
    "ConfigError", "EvaluationResult", "HarnessError", "Model", "ModelResult", "ModelSummary", "Options", "Persist",
    "PersistStatus", "RunEntry", "RunRecord", "StateError", "Task", "TaskResult", "TaskScore", "TaskUsage", "Totals",
    "ValidationError", "evaluate", "list_runs", "load_models", "load_run", "load_tasks", "replay_run",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert sorted(harness.multi.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(harness.multi))


@for_each_row("name", PUBLIC)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(harness.multi, name) is getattr(harness.multi, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="evalute"):
        _ = harness.multi.evalute  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


def test_what_type_checkers_see_is_what_there_is() -> None:
    source = ast.parse(Path(str(harness.multi.__file__)).read_text(encoding="utf-8"))
    [block] = [node for node in source.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    homes = harness.multi._HOMES  # pyright: ignore[reportPrivateUsage]
    assert seen == {name: home for home, names in homes.items() for name in names}


def test_importing_it_costs_nothing_and_using_it_no_heavy_package() -> None:
    program = """
import json, sys
before = set(sys.modules)
import harness.multi
new = sorted(name for name in set(sys.modules) - before if name.startswith("harness"))
from harness.multi import evaluate, list_runs, load_run, replay_run, Task, Model
heavy = {"aiohttp", "datasets", "openai", "litellm", "numpy", "pyarrow", "pandas", "scipy", "rich", "jsonschema"}
print(json.dumps([new, sorted(heavy & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    new, heavy = json.loads(done.stdout)
    assert (new, heavy) == (["harness", "harness.multi"], [])
