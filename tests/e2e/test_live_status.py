"""`status.json` of runs in progress: for every command that makes runs, through `bench view`, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from agent_evals import write_files
from bench_runs import Running, Workshop
from sums_model import SumsModel
from view_server import own_cache, viewing


def statuses(shop: Workshop) -> list[dict[str, Any]]:
    """The states of all runs in progress."""
    return [json.loads(path.read_bytes()) for path in sorted((shop.cwd / "outputs").rglob("status.json"))]


def test_it_says_until_when_a_run_backs_off_and_is_not_believed_after_a_kill(shop: Workshop, tmp_path: Path) -> None:
    with shop.bench_serve("--env", "sums", "--fault", "429@at=2,retry_after=60") as server, own_cache(tmp_path / "c"):
        began = time.time()
        running = shop.start("run", "sums", "-n", "4", "-r", "1", "-c", "2", "-m", "reference/oracle", "-b", server.url)
        seen: list[dict[str, Any]] = []

        def is_held_up() -> bool:
            seen.extend(each for each in statuses(shop) if each not in seen)
            return bool(seen) and seen[-1]["done"] == 3 and bool(seen[-1]["delays"])

        running.until(is_held_up, "three of four rollouts have ended")
        assert [each["done"] for each in seen] == sorted(each["done"] for each in seen)
        status = seen[-1]
        assert (status["state"], status["planned"], status["scored"]) == ("running", 4, 3)
        assert (status["generating"], status["scoring"]) == (1, 0)
        reason = {each["reason"]: each["until"] for each in status["delays"]}
        until = reason["1 backing off (rate_limit), the next"]
        assert began + 59 <= until <= time.time() + 80, "Retry-After, and up to a quarter more"

        folder = shop.run_dir()
        with viewing(shop.cwd / "outputs") as client:
            [run] = client.get("/api/runs")["runs"]
            assert (run["state"], run["status"]["done"]) == ("running", 3)
            assert run["status"]["delays"] == status["delays"]
            running.send(signal.SIGKILL)
            running.wait()
            assert (folder / "status.json").exists()
            [run] = client.get("/api/runs")["runs"]
            assert (run["state"], run["status"]) == ("died", None)
        done = shop.bench("resume", str(folder))
        assert done.code == 0, done.err
    assert [name for name in os.listdir(folder) if "status" in name] == []


def test_a_killed_status_is_not_taken_for_that_of_another_process_with_the_lock(shop: Workshop) -> None:
    assert shop.bench("run", "sums", "-n", "2", "-r", "1", "-m", "reference/oracle").code == 0
    from harness.plugins.view.run_status import read_status
    from harness.store.rundir import RunDir

    run = RunDir(shop.run_dir())
    (run.path / "status.json").write_text('{"done": 1}')
    os.utime(run.path / "status.json", ns=(1, run.path.joinpath(".lock").stat().st_mtime_ns - 1))
    with run.lock():
        assert read_status(run) is None
        (run.path / "status.json").write_text('{"done": 1}')
        found = read_status(run)
        assert found is not None and found["done"] == 1


def until_seen(shop: Workshop, running: Running, number: int) -> None:
    """Wait until so many runs have a status, and that all are removed at the end."""
    running.until(lambda: len(statuses(shop)) == number, "every run has a status")
    done = running.wait()
    assert done.code == 0, done.err
    assert statuses(shop) == []


@pytest.mark.slow
def test_runs_of_bench_multi_and_bench_eval_have_one(shop: Workshop) -> None:
    shop.write(
        "sums.json", json.dumps([{"id": f"{n}", "prompt": f"{n} + {n}", "expected": str(2 * n)} for n in (1, 2)])
    )
    write_files(shop.cwd)
    row = {"system_prompt": "Add.", "user_prompt": "1 + 1", "ground_truth": "2"}
    shop.write("data.jsonl", json.dumps(row) + "\n")
    with SumsModel(latency=0.7) as model:
        tables = [f'[[model]]\nid = "{name}"\nbaseUrl = "{model.url}"\napiKey = "k"\n' for name in ("my-model", "weak")]
        shop.write("models.toml", "\n".join(tables))
        until_seen(shop, shop.start("multi", "sums.json", "models.toml"), 2)
        until_seen(shop, shop.start(
            "eval", "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match", "--model",
            "my-model", "--base-url", model.url, "--api-key", "k", "-o", "results.json",
        ), 1)  # fmt: skip
