"""`bench runs` beside runs that are really under way, killed, gone on with and removed."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop, count

pytestmark = pytest.mark.slow


def listed(shop: Workshop, *filters: str) -> list[dict[str, Any]]:
    done = shop.bench("runs", "--json", *filters)
    assert done.code == 0, done.err
    return json.loads(done.out)["runs"]


def test_a_run_from_its_first_rollout_to_its_removal(shop: Workshop) -> None:
    with shop.serving(args={"size": 24}, latency=0.05) as server:
        running = shop.start("run", "sums", "-n", "24", "-r", "1", "-c", "2", "-m", "m", "-b", server.url, "-q")
        running.until(lambda: [r for r in shop.run_dirs() if count(r.parent, "scored") > 3], "it has made some")
        run = shop.run_dir()
        running.send(signal.SIGSTOP)  # it stays as it is while it is looked at, however long that takes

        [entry] = listed(shop)
        assert (entry["id"], entry["state"], entry["planned"], entry["summary"]) == (run.name, "running", 24, None)
        page = shop.bench("runs", "show", run.name)
        assert page.out.startswith("sums · m · running\n") and "  running" in page.out
        refused = shop.bench("runs", "rm", "--yes", "latest")
        assert (refused.code, refused.out) == (1, "") and "is being written by a process" in refused.err

        running.send(signal.SIGKILL)
        running.wait()
        made = count(run, "scored")
        [entry] = listed(shop, "--state", "died")
        assert entry["state"] == "died"
        [go_on] = [line for line in shop.bench("runs").out.splitlines() if line.startswith("  go on: ")]
        page = shop.bench("runs", "show").out
        assert f" {made} of 24 " in page and "its process ended without a reason" in page

        resumed = shop.bench(*shlex.split(go_on.removeprefix("  go on: bench ")), "-q")
        assert resumed.code == 0, resumed.err
    [entry] = listed(shop, "--state", "done")
    assert entry["summary"]["scored"] == 24
    assert entry["summary"] == json.loads((run / "summary.json").read_text())

    removed = shop.bench("runs", "rm", "--yes", run.name[:16])
    assert removed.code == 0 and removed.err.startswith(f"{run.name}  sums · m, done: 24 rollouts, ")
    assert listed(shop) == []
    assert [path.name for path in Path(shop.cwd, "outputs", "evals").iterdir()] == []
