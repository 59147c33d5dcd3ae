"""Agent evaluations as the engine runs them: from files to a recorded run, against the embedded server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import lines, rows
from workplace import here

from harness.agents.environment import load_environment, source_hashes
from harness.cli.main import main
from harness.core.errors import (
    AgentLoadError,
    ConfigError,
    DatasetParseError,
    DatasetValidationError,
    EvalFnError,
    HarnessError,
)
from harness.settings.built_in import AGENT_EVAL

__all__ = ["here"]

AGENT = """
import helpers

class Loop:
    name = "loop"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        messages = list(ctx.request.messages)
        messages.append((await ctx.chat(messages, **ctx.request.completion_params)).message)
        if ctx.request.metadata["topic"] == "hard":
            return ctx.error("too hard for me", messages)
        return ctx.complete(messages)
"""

BLOCKING = """async def run(self, ctx):
        import time
        time.sleep(1.2)"""

REWARDS = """
def exact(solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)

async def quality(messages, ground_truth, metadata):
    return 1.0 / metadata["weight"]
"""


@pytest.fixture
def files(here: Path) -> Path:
    """A working directory with an agent, eval functions and four rows."""
    (here / "looper.py").write_text(AGENT)
    (here / "helpers.py").write_text("")
    (here / "rewards.py").write_text(REWARDS)
    write_rows(here, ["easy"] * 4)
    return here


def write_rows(folder: Path, topics: list[str], **more: Any) -> None:
    made = [
        {"User_Prompt": f"{n} + {n}?", "system_prompt": "Add.", "ground_truth": str(2 * n), "topic": topic, "weight": 2}
        for n, topic in enumerate(topics)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps({**row, **more}) + "\n" for row in made))


def bench(*arguments: str, **env_args: object) -> int:
    args = {
        "dataset": "rows.jsonl",
        "agent": "looper:Loop",
        "eval_fns": ["rewards:exact", "rewards:quality"],
        **env_args,
    }
    return main(["run", AGENT_EVAL, "-a", json.dumps(args), "-m", "reference/oracle", *arguments])


def run_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("outputs/evals/*/*/run.json"))


def test_an_evaluation_is_a_run_like_any_other(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("-r", "2", offset=1) == 0
    [run] = run_dirs(files)
    made = rows(run)
    assert [(row["example_id"], row["rollout_index"]) for row in made] == [
        (str(n), r) for n in (1, 2, 3) for r in (0, 1)
    ]
    assert {(row["reward"], row["rewards:exact"], row["rewards:quality"], row["stop_condition"]) for row in made} == {
        (0.75, 1.0, 0.5, "stop")
    }
    assert [row["answer"] for row in made[::2]] == ["2", "4", "6"]
    assert json.loads(made[0]["info"]) == {"topic": "easy", "weight": 2}


def test_an_agent_that_fails_and_a_function_that_fails_are_told_apart(files: Path) -> None:
    write_rows(files, ["easy", "hard"], weight=0)
    assert bench() == 1
    [run] = run_dirs(files)
    easy, hard = rows(run)
    assert (easy["reward"], easy["rewards:exact"], easy["outcome"]) == (None, 1.0, "unscored")
    assert (
        easy["error"] == "rewards:quality: raised ZeroDivisionError: float division by zero (in quality, rewards.py:6)"
    )
    assert (hard["outcome"], hard["error"]) == ("unscored", "agent_error: too hard for me")
    assert [message["content"] for message in hard["completion"]] == ["2"]
    [line] = [line for line in lines(run) if line["type"] == "failed"]
    assert (line["reason"], line["usage"]["requests"]) == ("agent_error", 1)


def test_a_resumed_run_is_about_the_same_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("-n", "2") == 0
    assert bench("--resume", debug_dir="traces") == 0
    [run] = run_dirs(files)
    assert sum(line["type"] == "generated" for line in lines(run)) == 4
    assert len(list((files / "traces").iterdir())) == 2
    for name, setting in [
        ("rows.jsonl", "env.dataset_content"),
        ("helpers.py", "env.agent_source.helpers.py"),
        ("rewards.py", "env.eval_fns_source.rewards.py"),
    ]:
        before = (files / name).read_text()
        (files / name).write_text(before + "\n")
        capsys.readouterr()
        assert bench("--resume") == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "cannot be resumed: " in said
        assert f"{setting} has changed" in said
        (files / name).write_text(before)
    assert bench("--resume") == 0
    assert run_dirs(files) == [run]


def test_rows_are_checked_before_a_request_is_made_and_only_those_of_the_run(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (files / "rows.jsonl").open("a") as file:
        file.write('{"user_prompt": 5, "system_prompt": "s", "ground_truth": "g"}\n')
    assert bench("-n", "4") == 0
    capsys.readouterr()
    assert bench() == 2
    assert "Row 4: 'user_prompt' must be a string, got int (in rows.jsonl)" in capsys.readouterr().err
    assert len(run_dirs(files)) == 1


def test_a_folder_of_mcp_tools_is_evaluated_in_the_same_way(files: Path) -> None:
    pytest.importorskip("fastmcp")
    (files / "tools").mkdir()
    server = "from fastmcp import FastMCP\nmcp = FastMCP()\n@mcp.tool()\ndef add(a: int) -> int:\n    return a\n"
    (files / "tools" / "main.py").write_text(server)
    assert bench("-n", "1", agent=None, mcp="tools", eval_fns=["rewards:exact"]) == 0
    [run] = run_dirs(files)
    assert run.parent.name == "tools-rows--reference--oracle"
    [row] = rows(run)
    assert (row["reward"], row["stop_condition"]) == (1.0, "stop")
    identity = json.loads((run / "run.json").read_text())["identity"]["env"]
    assert list(identity["agent_source"]) == ["main.py"]


def test_an_agent_that_blocks_the_loop_is_named(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = (files / "looper.py").read_text().replace("async def run(self, ctx):", BLOCKING)
    (files / "looper.py").write_text(source)
    assert bench("-n", "1") == 0
    [warning] = [record.getMessage() for record in caplog.records if "blocks the event loop" in record.getMessage()]
    assert "run (looper.py:" in warning


# What is loaded


def test_what_an_evaluation_is_made_of(files: Path) -> None:
    env = load_environment("rows.jsonl", "looper:Loop", eval_fns="rewards:exact", offset=3, max_turns=4)
    assert (env.row_count, env.max_turns, env.agent.name) == (1, 4, "loop")
    assert env.row(0).example_id == 3
    assert [function.name for function in env.eval_fns] == ["rewards:exact"]
    assert sorted(path.name for path in env.source_files) == ["helpers.py", "looper.py", "rewards.py"]
    print_of = env.fingerprint
    assert sorted(print_of) == ["agent_source", "dataset_content", "eval_fns_source"]
    assert sorted(print_of["agent_source"]) == ["helpers.py", "looper.py"]
    other = load_environment("rows.jsonl", "looper:Loop", eval_fns=["rewards:exact"], model_tag="baseline")
    assert other.fingerprint == print_of


def test_an_agent_without_eval_functions(files: Path) -> None:
    env = load_environment("rows.jsonl", "looper:Loop", mode="test")
    assert (env.eval_fns, env.rubric.metric_names, env.fingerprint["eval_fns_source"]) == ((), (), {})


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"agent": None}, ConfigError, "agent and mcp are both missing; pass one of them"),
        ({"mcp": "."}, ConfigError, "agent and mcp are mutually exclusive"),
        ({"mode": "evil"}, ConfigError, "mode must be one of eval, bench, test, not 'evil'"),
        ({"offset": -1}, ConfigError, "offset must be an integer of at least 0, not -1"),
        ({"max_turns": 0}, ConfigError, "max_turns must be an integer of at least 1, not 0"),
        ({"offset": 4}, DatasetValidationError, "No rows to evaluate in rows.jsonl: the first 4 rows are skipped"),
        ({"dataset": "none.csv"}, DatasetParseError, "Dataset file not found: none.csv"),
        ({"dataset": "looper.py"}, DatasetParseError, "Unsupported file format: .py"),
        ({"agent": "looper:Lop"}, AgentLoadError, "Module 'looper' has no attribute 'Lop'. Did you mean 'Loop'?"),
        ({"eval_fns": ["rewards:exakt"]}, EvalFnError, "Module 'rewards' has no attribute 'exakt'."),
    ],
)
def test_what_cannot_be_loaded(files: Path, wrong: dict[str, Any], error: type[HarnessError], words: str) -> None:
    arguments: dict[str, Any] = {
        "dataset": "rows.jsonl",
        "agent": "looper:Loop",
        "eval_fns": ["rewards:exact"],
        **wrong,
    }
    with pytest.raises(error) as raised:
        load_environment(**arguments)
    assert str(raised.value).startswith(words)
    assert raised.value.exit_code == 2


def test_an_empty_dataset(files: Path) -> None:
    (files / "rows.jsonl").write_text("\n")
    with pytest.raises(DatasetValidationError, match=r"^No rows to evaluate in rows\.jsonl: the file is empty$"):
        load_environment("rows.jsonl", "looper:Loop")


def test_files_are_named_from_where_their_paths_part(tmp_path: Path) -> None:
    for name in ("a/b/one.py", "a/two.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    hashes = source_hashes([tmp_path / "a/two.py", tmp_path / "a/b/one.py"])
    assert isinstance(hashes, dict)
    assert list(hashes) == ["b/one.py", "two.py"]
    assert list(source_hashes([tmp_path / "a/two.py"])) == ["two.py"]
    assert source_hashes([]) == {}
    many = [tmp_path / f"{number:02}.py" for number in range(21)]
    for path in many:
        path.write_text(path.name)
    whole = source_hashes(many)
    assert isinstance(whole, str)
    many[3].write_text("changed")
    assert source_hashes(many) != whole
