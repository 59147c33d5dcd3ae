"""Tasks as the engine runs them: from a file to a recorded run, against the embedded server and a real endpoint."""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from bench_runs import lines, rows
from loopback_model import LoopbackModel
from workplace import here

from harness.cli.main import main
from harness.settings.built_in import MULTI_EVAL

__all__ = ["here"]

PATIENCE = 60.0
"""Seconds after which what has not happened is a failure."""

OK = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}

TASKS: list[dict[str, Any]] = [
    {"id": "schema-task", "prompt": 'Return JSON: {"ok": true}', "schema": OK},
    {"id": "expected-task", "prompt": "Say hello to Reploid", "expected": "hello"},
    {"prompt": "Say anything."},
    {"prompt": "How many?", "schema": {"type": "object"}, "expected": 7},
]

HOOK = """
def score(task, output):
    if task.get("expected") == "hello":
        raise ValueError("no idea")
    return {"score": len(output), "valid": False, "errors": ["as always"]}
"""


@pytest.fixture
def files(here: Path) -> Path:
    """A working directory with a file of tasks and a hook."""
    (here / "suite.json").write_text(json.dumps(TASKS))
    (here / "my_scoring.py").write_text(HOOK)
    return here


def bench(*arguments: str, model: str = "reference/oracle", **env_args: object) -> int:
    args = {"tasks": "suite.json", **env_args}
    return main(["run", MULTI_EVAL, "-a", json.dumps(args), "-m", model, *arguments])


def run_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("outputs/evals/*/*/run.json"))


def only_run(folder: Path) -> Path:
    [run] = run_dirs(folder)
    return run


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def test_tasks_are_a_run_like_any_other(files: Path) -> None:
    assert bench() == 0
    run = only_run(files)
    assert run.parent.name.startswith("suite--")
    made = rows(run)
    assert [row["example_id"] for row in made] == ["schema-task", "expected-task", "task-2", "task-3"]
    assert [row["answer"] for row in made] == ["", "hello", "", "7"]
    assert {row["task"] for row in made} == {"multi-eval"}
    assert [row["reward"] for row in made] == pytest.approx([0.9, 0.9, 0.7, 1.0])
    assert [row["valid"] for row in made] == [1.0] * 4
    assert [row["schema_valid"] for row in made] == [1.0, None, None, 1.0]
    assert [row["matched"] for row in made] == [None, 1.0, None, 1.0]
    assert {row["outcome"] for row in made} == {"scored"}
    assert {row["error"] for row in made} == {None}
    assert json.loads(made[1]["info"]) == {"task": TASKS[1]}
    scored = {line["key"]: line for line in lines(run) if line["type"] == "scored"}
    assert [line["extra"] for line in scored.values()] == [{"errors": []}] * 4
    numbers = summary(run)
    assert (numbers["scored"], numbers["unscored"]) == (4, {})
    assert {name: spread["count"] for name, spread in numbers["metrics"].items()} == {
        "valid": 4,
        "schema_valid": 2,
        "matched": 2,
        "tokens_estimate": 4,
    }
    assert numbers["metrics"]["matched"]["mean"] == 1.0
    assert list(numbers["metrics"]) == ["valid", "schema_valid", "matched", "tokens_estimate"]


def test_the_reference_models_differ(files: Path) -> None:
    assert bench(model="reference/null") == 0
    made = rows(only_run(files))
    assert [row["valid"] for row in made] == [0.0, 0.0, 1.0, 0.0]
    assert [row["reward"] for row in made] == pytest.approx([0.107, 0.307, 0.507, 0.007])
    null = [row["completion"] for row in made]
    assert bench(model="reference/noisy?accuracy=0") == 0
    assert bench(model="reference/noisy?accuracy=1") == 0
    by_model = {json.loads((run / "run.json").read_text())["model"]: rows(run) for run in run_dirs(files)}
    assert [row["completion"] for row in by_model["reference/noisy?accuracy=0"]] == null
    assert [row["valid"] for row in by_model["reference/noisy?accuracy=1"]] == [1.0] * 4


def test_a_run_that_was_broken_off_is_scored_from_its_journal(files: Path) -> None:
    assert bench(model="reference/null") == 0
    run = only_run(files)
    before, whole = rows(run), summary(run)
    kept = [line for line in lines(run) if line["type"] != "scored"]
    (run / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert bench("--resume", model="reference/null") == 0
    assert only_run(files) == run
    after = rows(run)
    for row in (*before, *after):
        row.pop("timing")
    assert after == before
    assert sum(line["type"] == "generated" for line in lines(run)) == 4
    again = summary(run)
    assert (again["reward"], again["metrics"]) == (whole["reward"], whole["metrics"])


def test_a_resumed_run_is_about_the_same_tasks_and_code(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(score_output="my_scoring:score") == 0
    for name, text, setting in [
        ("suite.json", json.dumps([*TASKS[:-1], {**TASKS[-1], "expected": 8}]), "env.tasks_content"),
        ("my_scoring.py", HOOK + "\n", "env.score_output_source.my_scoring.py"),
    ]:
        before = (files / name).read_text()
        (files / name).write_text(text)
        capsys.readouterr()
        assert bench("--resume", score_output="my_scoring:score") == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "cannot be resumed: " in said
        assert f"{setting} has changed" in said
        (files / name).write_text(before)
    (files / "suite.json").write_text(json.dumps(TASKS, indent=4))
    assert bench("--resume", score_output="my_scoring:score") == 0
    assert len(run_dirs(files)) == 1


def test_a_hook_that_raises_leaves_its_task_unscored(files: Path) -> None:
    assert bench(score_output="my_scoring:score") == 0
    run = only_run(files)
    made = rows(run)
    assert [row["outcome"] for row in made] == ["scored", "unscored", "scored", "scored"]
    assert made[1]["error"] == "my_scoring:score: raised ValueError: no idea"
    assert made[1]["reward"] is made[1]["valid"] is None
    assert [row["reward"] for row in made if row["reward"] is not None] == [400.0, 400.0, 400.0]
    assert summary(run)["unscored"] == {"my_scoring:score raised ValueError": 1}
    assert summary(run)["bounds"] is None
    assert json.loads((run / "run.json").read_text())["metric_names"] == ["valid", "tokens_estimate"]


class Held(LoopbackModel):
    """A model that never answers `Wait.`, and answers anything else when whoever asked that has hung up."""

    def __init__(self) -> None:
        super().__init__()
        self.hung_up = threading.Event()
        self.asked: list[dict[str, Any]] = []

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        assert self.hung_up.wait(PATIENCE)
        message = {"role": "assistant", "content": "<think>well</think> hello there"}
        return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self
        base: Any = super()._handler()

        class Handler(base):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                model.asked.append(json.loads(body))
                if model.asked[-1]["messages"][-1]["content"] == "Wait.":
                    self.close_connection = True
                    if self.connection.recv(1) == b"":
                        model.hung_up.set()
                    return
                self.rfile = io.BytesIO(body)
                super().do_POST()

        return Handler


def test_a_task_that_takes_too_long_is_hung_up_on_and_fails_alone(files: Path) -> None:
    tasks = [{"id": "slow", "prompt": "Wait.", "timeoutMs": 200}, {"id": "quick", "prompt": "Say anything."}]
    (files / "suite.json").write_text(json.dumps(tasks))
    with Held() as model:
        code = bench("-b", model.url, model="m", timeout_ms=60_000, chat_options={"maxTokens": 3})
    assert code == 0
    run = only_run(files)
    slow, quick = rows(run)
    assert (slow["outcome"], slow["error"]) == ("unscored", "timeout: MultiModelEvaluator timeout after 200ms")
    assert quick["reward"] == pytest.approx(0.5 + 11 / 400 * 0.2)
    assert quick["completion"][0]["content"] == "<think>well</think> hello there"
    [line] = [line for line in lines(run) if line["type"] == "failed"]
    assert (line["reason"], line["retryable"]) == ("timeout", True)
    assert sorted(body["messages"][-1]["content"] for body in model.asked) == ["Say anything.", "Wait."]
    assert {body["max_tokens"] for body in model.asked} == {3}


def test_a_task_file_that_is_wrong_stops_before_anything_is_made(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "suite.json").write_text('[{"id": "a", "prompt": "p", "expceted": "x"}]')
    assert bench() == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "suite.json: task 0: unknown key 'expceted'; did you mean \"expected\"?" in said
    assert "Traceback" not in said
    assert run_dirs(files) == []
