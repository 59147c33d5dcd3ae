"""Resume, rescore and replay runs of an earlier revision, made as tests/data/runs-354fb0a/README.txt says."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Done, Workshop, lines, summary

EARLIER = Path(__file__).resolve().parents[1] / "data/runs-354fb0a"

TIMES = {"wall_s", "rollouts_per_s", "resumed", "status", "updated"}
"""Fields of a summary that depend on when and how fast the run was made."""

INTERVALS = {"ci95", "method", "methods", "pass_estimates"}
"""Fields of a summary that belong to confidence intervals: they have changed since, as the changelog says."""

ENVIRONMENTS = ["sums--reference--noisy", "Calculator-rows--reference--noisy", "tasks--reference--oracle"]


@pytest.fixture
def earlier(shop: Workshop) -> Workshop:
    """A working directory that holds a copy of the earlier runs and their sources."""
    shutil.copytree(EARLIER, shop.cwd, dirs_exist_ok=True)
    return shop


def bench(shop: Workshop, *args: str) -> Done:
    done = shop.bench(*args, env={"PYTHONPATH": str(shop.cwd)})
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return done


def run_in(shop: Workshop, folder: str, name: str) -> Path:
    [manifest] = (shop.cwd / folder / "evals" / name).glob("*/run.json")
    return manifest.parent


def results(run: Path) -> dict[str, Any]:
    return {name: value for name, value in summary(run).items() if name not in TIMES}


def figures(part: Any) -> Any:
    """A summary without its confidence intervals."""
    if not isinstance(part, dict):
        return part
    return {name: figures(value) for name, value in part.items() if name not in INTERVALS}


def check_resumed(run: Path, before: bytes, planned: int) -> None:
    """The run is complete, what it held is kept, and no rollout was made or scored twice."""
    assert (run / "journal.jsonl").read_bytes().startswith(before)
    made = lines(run)
    for kind in ("generated", "scored"):
        keys = Counter(line["key"] for line in made if line["type"] == kind)
        assert (len(keys), set(keys.values())) == (planned, {1}), kind
    assert json.loads((run / "run.json").read_text())["status"] == "done"
    assert summary(run)["scored"] == planned


@pytest.mark.parametrize("name", ["sums--reference--oracle", "Calculator-rows--reference--noisy"])
def test_an_interrupted_run_is_resumed_from_where_it_was_killed(earlier: Workshop, name: str) -> None:
    run = run_in(earlier, "killed", name)
    before = (run / "journal.jsonl").read_bytes()
    done = bench(earlier, "resume", str(run.relative_to(earlier.cwd)), "--set", "model.rpm=6000", "--json", "-q")
    assert Path(done.run["path"]).name == run.name
    check_resumed(run, before, 8)


def test_the_command_of_an_agent_evaluation_finds_its_interrupted_run(earlier: Workshop) -> None:
    run = run_in(earlier, "killed", "Calculator-rows--reference--noisy")
    before = (run / "journal.jsonl").read_bytes()
    functions = ("--eval-fn", "rewards:exact_match", "--eval-fn", "rewards:mentions_answer")
    more = ("--n", "2", "--output-dir", "killed", "--set", "model.rpm=6000", "--resume", "-q")
    bench(
        earlier, "eval", "-m", "agent:Calculator", "-d", "rows.jsonl", *functions, "--model", "reference/noisy", *more
    )
    assert run_in(earlier, "killed", "Calculator-rows--reference--noisy") == run
    check_resumed(run, before, 8)


def test_the_command_of_an_evaluation_of_several_models_finds_its_interrupted_runs(earlier: Workshop) -> None:
    runs = [run_in(earlier, "killed", f"tasks--reference--{player}") for player in ("oracle", "echo")]
    before = [(run / "journal.jsonl").read_bytes() for run in runs]
    bench(earlier, "multi", "tasks.json", "models.toml", "-o", "killed", "--resume", "-q")
    for run, journal in zip(runs, before, strict=True):
        assert run_in(earlier, "killed", run.parent.name) == run
        check_resumed(run, journal, 8)
        whole = run_in(earlier, "whole", run.parent.name)
        assert figures(summary(run)["reward"]) == figures(summary(whole)["reward"])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_finished_run_has_nothing_left_to_do(earlier: Workshop, name: str) -> None:
    run = run_in(earlier, "whole", name)
    before, was = (run / "journal.jsonl").read_bytes(), results(run)
    bench(earlier, "resume", str(run.relative_to(earlier.cwd)), "-q")
    assert (run / "journal.jsonl").read_bytes() == before
    assert figures(results(run)) == figures(was)


@pytest.mark.parametrize("command", ["rescore", "replay"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_run_scored_anew_or_replayed_has_the_same_results(earlier: Workshop, name: str, command: str) -> None:
    run = run_in(earlier, "whole", name)
    bench(earlier, "resume", str(run.relative_to(earlier.cwd)), "-q")  # its summary is of today's statistics then
    done = bench(earlier, command, str(run.relative_to(earlier.cwd)), "--json", "-q")
    child = earlier.cwd / done.run["path"]
    assert child != run
    assert json.loads((child / "run.json").read_text())["derived"]["how"] == command
    assert results(child) == results(run)
    changes = json.loads(done.out)["changes"]
    assert (changes["same"], changes["unscored"]) == (8, 0)
