"""What the server sees of the gates: the bound that was asked for, reached and never exceeded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_runs import Workshop, lines

JUDGED = """
import asyncio
from harness import Rubric, SingleTurnEnv

class Load:
    now = peak = 0

async def judged(completion):
    Load.now += 1
    Load.peak = max(Load.peak, Load.now)
    await asyncio.sleep(0.05)
    Load.now -= 1
    return 1.0

async def peak(state):
    return float(Load.peak)

class Judged(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return "yes"

def load_environment():
    rows = [{"question": str(n), "answer": "yes"} for n in range(24)]
    return Judged(dataset=rows, rubric=Rubric([judged, peak], [1.0, 0.0]))
"""


@pytest.mark.parametrize("gate", [1, 16])
def test_requests_in_flight_reach_the_gate_and_never_exceed_it(shop: Workshop, gate: int) -> None:
    with shop.bench_serve("--env", "sums", "--latency", "150") as server:
        done = shop.bench(
            "run", "sums", "-n", "24", "-r", str(1 if gate == 1 else 3), "-c", str(gate), "-m", "reference/oracle",
            "-b", server.url, "--json", "-q",
        )  # fmt: skip
        stats = server.stats()
    assert done.code == 0, done.err
    assert done.run["summary"]["reward"]["mean"] == 1.0
    assert stats["peak_in_flight"] == gate
    assert stats["requests"] == done.run["summary"]["num_rollouts"]


@pytest.mark.slow
def test_a_suite_shares_its_endpoints_gate(shop: Workshop) -> None:
    suite = "[model]\nmax_concurrent = 64\n[env]\nnum_examples = -1\nrollouts_per_example = 2\n"
    for number, size in enumerate((64, 48, 48)):
        suite += f'[[eval]]\nenv.env_id = "sums"\nenv.name = "part-{number}"\n'
        suite += f"env.env_args = {{size = {size}, first = {number * 100}}}\n"
    shop.write("suite.toml", suite)
    with shop.bench_serve("--env", "sums", "-a", '{"size": 400}', "--latency", "500", "--sigma", "0.1") as server:
        done = shop.bench("run", "suite.toml", "-m", "reference/oracle", "-b", server.url, "--json", "-q")
        stats = server.stats()
    assert done.code == 0, done.err
    assert [run["name"] for run in done.runs] == ["part-0", "part-1", "part-2"]
    assert all(run["summary"]["reward"]["mean"] == 1.0 for run in done.runs)
    assert stats["requests"] == 320
    assert stats["peak_in_flight"] == 64, "64 at the server, whatever the number of environments"
    # Side by side, not one after the other: each run began before any had ended.
    times = [[line["timing"]["started_at"] for line in lines(shop.cwd / run["path"]) if line["type"] == "generated"]
             for run in done.runs]  # fmt: skip
    assert max(min(each) for each in times) < min(max(each) for each in times)


def test_different_bounds_at_one_endpoint_are_each_kept(shop: Workshop) -> None:
    shop.write(
        "suite.toml",
        """
        [[eval]]
        env.env_id = "sums"
        env.name = "narrow"
        env.num_examples = 12
        model.max_concurrent = 2
        [[eval]]
        env.env_id = "sums"
        env.name = "wide"
        env.num_examples = 24
        model.max_concurrent = 12
        """,
    )
    with shop.bench_serve("--env", "sums", "--latency", "40") as server:
        done = shop.bench("run", "suite.toml", "-r", "2", "-m", "reference/oracle", "-b", server.url, "--json", "-q")
        stats = server.stats()
    assert done.code == 0, done.err
    assert stats["peak_in_flight"] == 12, "the largest bound of those that share the endpoint"
    narrow = [line for line in lines(shop.cwd / done.runs[0]["path"]) if line["type"] == "generated"]
    spans = [
        (line["timing"]["started_at"], line["timing"]["started_at"] + line["timing"]["generation"]) for line in narrow
    ]
    overlaps = [sum(begin <= start < end for begin, end in spans) for start, _ in spans]
    assert max(overlaps) <= 2


def test_the_scoring_gate_holds_for_judges(shop: Workshop) -> None:
    shop.environment("judged", JUDGED)
    done = shop.bench(
        "run", "judged", "-n", "-1", "-r", "1", "-c", "24", "--max-concurrent-scoring", "5", "-m", "reference/oracle",
        "--json", "-q",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.run["summary"]["metrics"]["peak"]["max"] == 5.0


def test_a_gate_that_is_unlimited_is(shop: Workshop) -> None:
    with shop.bench_serve("--env", "sums", "--latency", "500") as server:
        done = shop.bench(
            "run", "sums", "-n", "24", "-r", "2", "-c", "-1", "-m", "reference/oracle", "-b", server.url, "-q"
        )
        stats = server.stats()
    assert done.code == 0, done.err
    assert stats["peak_in_flight"] == 48
    config = (Path(shop.run_dir()) / "run.json").read_text()
    assert json.loads(config)["settings"]["model.max_concurrent_generation"] == -1
