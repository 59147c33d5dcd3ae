"""What authors import is there, for each generation, under the paths that the real releases have: those of
`expected/names.json`, listed from them (trainers, servers and the command line are left out). What is not offered says
so, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop
from classic_server import PACKAGES

NAMES: dict[str, dict[str, list[str]]] = json.loads((PACKAGES / "expected" / "names.json").read_text(encoding="utf-8"))

RELEASES = {"B": "==0.1.9.post3", "C": "==0.1.14"}

ASKING = """
import importlib
import json
import sys

import verifiers as vf
from datasets import Dataset


def load_environment(wanted, refused):
    missing = {}
    for module, names in wanted.items():
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            missing[module] = str(error)
            continue
        for name in names:
            if not hasattr(found, name):
                missing[f"{module}.{name}"] = "no such name"
    said = {}
    for name in refused:
        try:
            made = getattr(vf, name)
            made(dataset=Dataset.from_list([{"question": "?", "answer": ""}]))
            said[name] = "built"
        except BaseException as error:
            said[name] = f"{type(error).__name__}: {error}"
    print(json.dumps({"missing": missing, "said": said, "version": vf.__version__}))
    return vf.SingleTurnEnv(dataset=Dataset.from_list([{"question": "?", "answer": ""}]), rubric=vf.Rubric())
"""

LOAD = "import json, sys, harness; harness.load_environment('asking', **json.loads(sys.argv[1]))"


@pytest.fixture(params=["B", "C"])
def answer(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What a package of one generation finds."""
    shop = Workshop(tmp_path)
    folder = tmp_path / "asking"
    folder.mkdir()
    (folder / "asking.py").write_text(ASKING)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "asking"\nversion = "1"\ndependencies = ["verifiers{RELEASES[request.param]}"]\n'
    )
    wanted = dict(NAMES[request.param])
    refused = wanted.pop("not offered")
    args = json.dumps({"wanted": wanted, "refused": refused})
    return {"generation": request.param, "refused": refused, **shop.python(LOAD, args, env={"PYTHONPATH": str(folder)})}


@pytest.mark.slow
def test_every_name_that_authors_import_is_there(answer: dict[str, Any]) -> None:
    assert answer["missing"] == {}
    assert answer["version"] == RELEASES[answer["generation"]].removeprefix("==")


@pytest.mark.slow
def test_what_is_not_offered_says_so(answer: dict[str, Any]) -> None:
    for name in answer["refused"]:
        assert name in answer["said"][name], answer["said"][name]
        assert answer["said"][name] != "built"
        assert "bench" in answer["said"][name], "a reason is wanted, not a shrug"
