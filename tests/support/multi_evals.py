"""Multi-model evaluations as their users have them: tasks, models and a scoring function in a folder, and models
that can add behind a loopback endpoint; `bench` runs in this process. A `conftest.py` takes the fixture over by
importing it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Done
from sums_model import SumsModel

from harness.cli.main import main

SCORING = """
print("printed by the scoring module")

def words(task, output):
    return {"score": len(output.split()), "valid": True}

async def strict(call):
    if call["modelId"] == "weak" and call["task"]["id"] == "sum-1":
        raise KeyError("colour")
    return call["output"] == call["task"]["expected"]
"""

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LITELLM_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")


@dataclass
class Multi:
    """A working directory, and `bench` in it."""

    cwd: Path
    model: SumsModel
    capture: pytest.CaptureFixture[str]

    def tasks(self, *questions: str, name: str = "sums.json", **more: object) -> None:
        """Write the tasks: a sum each, or anything else; a sum's result is expected."""
        (self.cwd / name).write_text(json.dumps([task_of(question, n, more) for n, question in enumerate(questions)]))

    def models(self, *names: str, name: str = "models.toml", **more: object) -> None:
        """Write the models, each at the endpoint."""
        tables = [{"id": each, "modelId": each, "baseUrl": self.model.url, **more} for each in names]
        lines = [f"[[model]]\n{''.join(f'{key} = {_toml(value)}' for key, value in table.items())}" for table in tables]
        (self.cwd / name).write_text("\n".join(lines))

    def bench(self, *args: str) -> Done:
        """Run a command in this process, from the console script's own function."""
        self.capture.readouterr()
        code = main(list(args))
        captured = self.capture.readouterr()
        return Done(code, captured.out, captured.err)

    def multi(self, *args: str) -> Done:
        """`bench multi` of the tasks by the models."""
        return self.bench("multi", "sums.json", "models.toml", *args)

    def json(self, *args: str) -> dict[str, Any]:
        """What `--json` prints, of an evaluation that ended well."""
        done = self.multi("--json", *args)
        assert done.code == 0, done.err
        return json.loads(done.out)

    def runs(self) -> list[Path]:
        """Every run folder, by model and age."""
        return sorted(path.parent for path in (self.cwd / "outputs" / "evals").glob("*/*/run.json"))

    def asked(self) -> list[tuple[str, str]]:
        """(model, question) of every request, in the order of arrival."""
        return [(body["model"], body["messages"][-1]["content"]) for body in self.model.requests]


def task_of(question: str, number: int, more: dict[str, object]) -> dict[str, object]:
    """A task; what it expects is the sum, if it is one."""
    parts = question.split("+")
    is_sum = all(part.strip().isdecimal() for part in parts)
    expected = {"expected": str(sum(map(int, parts))), "matchMode": "exact"} if is_sum else {}
    task = {"id": f"sum-{number}", "prompt": question, **expected, **more}
    return {name: value for name, value in task.items() if value is not None}


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items()) + "}\n"
    return json.dumps(value) + "\n"


@pytest.fixture
def multi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Multi]:
    """Six sums for two models, one of which is wrong about every second of them; no key in the environment."""
    for name in _KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "scoring", raising=False)
    (tmp_path / "scoring.py").write_text(SCORING)
    with SumsModel() as model:
        made = Multi(tmp_path, model, capsys)
        made.tasks(*(f"{n}2 + {n}2" if n % 2 else f"{n}3 + {n}3" for n in range(6)))
        made.models("strong", "weak")
        yield made
    sys.modules.pop("scoring", None)
