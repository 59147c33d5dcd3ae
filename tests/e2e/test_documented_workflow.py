"""The GitHub workflow of docs/guides/comparing.md, step by step as it stands there: it passes a model that is as good,
and stops one that is worse in any environment of the suite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented import ROOT, blocks
from documented_session import Session
from hub_server import HubServer

GUIDE = ROOT / "docs" / "guides" / "comparing.md"

GIVEN = {
    "actions/checkout@v4": "puts the repository, here a folder with the suite, its environments and the baseline",
    "actions/setup-python@v5": "installs Python",
    "pip install bench-harness": "needs the package index",
    "actions/upload-artifact@v4": "sends gate.xml to GitHub; here it must be there",
}
"""Steps that only GitHub's machines can take, and what they do."""

ENVIRONMENT = """from harness import Rubric, SingleTurnEnv

class Numbers(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return example.answer if {null_is_right} else "?"

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

def load_environment():
    rows = [{{"question": f"{name}: the number after {{n}}?", "answer": str(n + 1)}} for n in range(360)]
    return Numbers(dataset=rows, rubric=Rubric([right]))
"""

SUITE = """num_examples = {examples}
rollouts_per_example = 1
[[eval]]
id = "./first.py"
[[eval]]
id = "./second.py"
"""


def the_job() -> dict[str, Any]:
    [text] = [block.text for block in blocks(GUIDE) if block.language == "yaml"]
    [job] = yaml.safe_load(text)["jobs"].values()
    return job


def how_the_baseline_was_made() -> str:
    [command] = re.findall(r"`(bench run [^`]* -o baselines/current)`", GUIDE.read_text(encoding="utf-8"))
    return command


def take(job: dict[str, Any], reader: Session) -> list[str]:
    """Take the steps as a runner does: after one that failed, only those with `if: always()`; returns what failed."""
    failed = list[str]()
    for step in job["steps"]:
        if failed and step.get("if") != "always()":
            continue
        if step.get("run") and step["run"] not in GIVEN:
            done = reader.type(f"set -e\n{step['run']}")
            if done.returncode:
                failed.append(f"{step['run'].split()[1]}: {done.returncode}")
        else:
            assert step.get("uses", step.get("run")) in GIVEN
            file = step.get("with", {}).get("path")
            assert file is None or (reader.cwd / file).exists(), step
    return failed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "right_in", "examples", "failed"),
    [
        ("oracle", "", 360, []),
        ("null", "first second", 360, []),
        ("null", "first", 360, ["gate: 1"]),
        ("null", "second", 360, ["gate: 1"]),
        ("oracle", "", 340, ["gate: 3"]),
    ],
)
def test_the_workflow_stops_a_model_that_is_worse_in_any_environment(
    candidate: str, right_in: str, examples: int, failed: list[str], tmp_path: Path
) -> None:
    job = the_job()
    assert {"CANDIDATE", "OPENAI_API_KEY"} == {*job["env"]}
    with HubServer() as hub, Session(tmp_path, hub, "http://127.0.0.1:9/v1") as reader:
        for name in ("first", "second"):
            source = ENVIRONMENT.format(name=name, null_is_right=name in right_in)
            (reader.cwd / f"{name}.py").write_text(source)
        (reader.cwd / "suite.toml").write_text(SUITE.format(examples=examples))
        made = reader.type(f"BASELINE=reference/oracle; {how_the_baseline_was_made()}")
        assert made.returncode == 0, made.stderr
        reader.type(f"CANDIDATE=reference/{candidate}; GITHUB_STEP_SUMMARY=summary.md")

        assert take(job, reader) == failed
        said = (reader.cwd / "summary.md").read_text()
        worse = [name for name in ("first", "second") if f"| {name} | fail" in said or f"| {name} | **fail" in said]
        assert worse == ([] if failed != ["gate: 1"] else [{"first": "second", "second": "first"}[right_in]]), said
