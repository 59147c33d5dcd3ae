"""`--executor ray` on a cluster of three nodes on this computer: the same rewards as without, and clear errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from bench_runs import Workshop, lines
from ray_cluster import ENVIRON, NODES, RayCluster, ray_cluster

pytestmark = [pytest.mark.slow, pytest.mark.plugins]

ARGS = {**dict.fromkeys(("gsm8k", "humaneval", "math-python", "simple-qa"), "split"), "multiple-choice": "benchmark"}
"""Environments with a sample that needs no network, and the argument that selects it."""

CATALOGUE = [*ARGS, "alphabet-sort", "mcp-demo", "reverse-text", "tool-test", "wordle"]

SOURCE = """
import asyncio
import time
from pathlib import Path

from harness import Rubric, SingleTurnEnv


async def right(completion, answer, info):
    while int(answer) > 8 and info["gate"] and not Path(info["gate"]).exists():
        await asyncio.sleep(0.01)
    return float(completion[-1]["content"] == answer)


class Twins(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer


def load_environment(gate="", load_gate=""):
    if load_gate:
        with open(f"{load_gate}.starts", "a") as starts:
            starts.write("one\\n")
        while not Path(load_gate).exists():
            time.sleep(0.01)
    rows = [{"question": f"{n}?", "answer": str(n), "info": {"gate": gate}} for n in range(400)]
    return Twins(dataset=rows, rubric=Rubric([right]))
"""
"""An environment whose later examples, or whose loading, wait for a file."""

TROUBLED = """
from harness import Rubric, SingleTurnEnv


class Troubled(SingleTurnEnv):
    def setup_state(self, state):
        raise ValueError("the simulator is missing")

    def reference_reply(self, example, messages):
        return "yes"


def load_environment():
    return Troubled(dataset=[{"question": f"{n}?"} for n in range(6)], rubric=Rubric([]))
"""


ONE = ("run", "wordle", "-n", "1", "-r", "1", "-m", "reference/oracle", "--executor", "ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'bench-harness[ray]'")
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def rewards(run: Path) -> dict[str, float | None]:
    return {line["key"]: line["reward"] for line in lines(run) if line["type"] == "scored"}


def nodes_of(run: Path) -> set[str]:
    return {line["node"] for line in lines(run) if line["type"] == "generated"}


def test_rewards_are_those_of_a_run_without(shop: Workshop, cluster: RayCluster) -> None:
    args = {name: f'args = {{ {ARGS[name]} = "sample" }}' if name in ARGS else "" for name in CATALOGUE}
    shop.write("suite.toml", "\n".join(f'[[eval]]\nid = "{name}"\n{more}' for name, more in args.items()))
    command = ["run", "suite.toml", "-n", "2", "-r", "2", "-m", "reference/noisy?accuracy=0.6&seed=3", "-q"]
    local = shop.bench(*command, "-o", "local", env=ENVIRON)
    assert local.code == 0, local.err
    on_ray = ("-o", "ray", "--executor", "ray", "--ray-address", cluster.address)
    ray = shop.start(*command, *on_ray, env=ENVIRON).wait(400)
    assert ray.code == 0, ray.err
    both = [
        {json.loads((run / "run.json").read_text())["env_id"]: run for run in (shop.cwd / name / "evals").glob("*/2*")}
        for name in ("local", "ray")
    ]
    assert len(both[0]) == len(CATALOGUE)
    nodes = set[str]()
    for name, run in both[0].items():
        assert rewards(run)
        assert rewards(both[1][name]) == rewards(run)
        nodes |= nodes_of(both[1][name])
    assert nodes == set(NODES)
    assert cluster.processes() == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"adress": "x"}, "has no setting 'adress'; did you mean 'address'?"),
        ({"worker_cpus": "2"}, "executor_args.worker_cpus: must be a number"),
        ({"worker_cpus": 0}, "must be from 0.01 to 1000000, not 0"),
        ({"runtime_env": "nothing.json"}, "nothing.json cannot be read"),
        ({"address": "127.0.0.1:1"}, "executor_args.address: the Ray cluster at '127.0.0.1:1' cannot be used"),
    ],
)
def test_wrong_settings(shop: Workshop, cluster: RayCluster, args: dict[str, object], words: str) -> None:
    done = shop.bench(
        "run", "wordle", "-n", "1", "-r", "1", "-m", "reference/oracle", "--executor", "ray",
        "--executor-args", json.dumps(args), env=ENVIRON,
    )  # fmt: skip
    assert done.code == 2
    assert words in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_an_invalid_runtime_environment_is_named(shop: Workshop, cluster: RayCluster) -> None:
    runtime = shop.write("runtime.json", '{"env_vars": {"A": 1}}')
    done = shop.bench(*ONE, "--ray-address", cluster.address, "--ray-runtime-env", str(runtime), env=ENVIRON)
    assert done.code == 2
    assert f"executor_args.runtime_env: {runtime} cannot be used" in " ".join(done.err.split())


def test_another_service_is_no_cluster(shop: Workshop, cluster: RayCluster) -> None:
    with ThreadingHTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler) as server:  # Ray asks at the computer's address
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        done = shop.bench(*ONE, "--ray-address", f"127.0.0.1:{server.server_port}", env=ENVIRON)
        server.shutdown()
    assert done.code == 2
    assert "cannot be used: what listens there is no Ray cluster" in " ".join(done.err.split())


def test_a_token_is_sent_where_it_is_demanded(shop: Workshop, cluster: RayCluster) -> None:
    token = shop.write("home/.ray/auth_token", "0123456789abcdef" * 4)
    home = {**ENVIRON, "HOME": str(shop.cwd / "home")}
    done = shop.bench(*ONE, "--ray-address", "auto", env={**home, "RAY_ADDRESS": cluster.address})
    assert done.code == 0, done.err  # this cluster demands none
    with ray_cluster(variables={**home, "RAY_AUTH_MODE": "token"}) as guarded:
        done = shop.bench(*ONE, "--ray-address", guarded.address, env=home)
        assert done.code == 0, done.err
        token.unlink()
        done = shop.bench(*ONE, "--ray-address", guarded.address, env=home)
        assert done.code == 2
        assert "it demands a token that this computer lacks" in " ".join(done.err.split())


def test_a_cluster_of_its_own_leaves_no_token(shop: Workshop, cluster: RayCluster) -> None:
    done = shop.bench(*ONE, env={**ENVIRON, "HOME": str(shop.cwd)})
    assert done.code == 0, done.err
    assert not (shop.cwd / ".ray").exists()


def test_settings_of_an_executor_need_one(shop: Workshop) -> None:
    done = shop.bench("run", "wordle", "-n", "1", "-r", "1", "-m", "reference/oracle", "--ray-address", "auto")
    assert done.code == 2
    assert "--ray-address auto: is a setting of an executor, and the run has none" in " ".join(done.err.split())


def test_more_cpus_than_any_node_has(shop: Workshop, cluster: RayCluster) -> None:
    done = shop.bench(
        "run", "wordle", "-n", "1", "-r", "1", "-m", "reference/oracle", "--executor", "ray",
        "--ray-address", cluster.address, "--worker-cpus", "64", env=ENVIRON,
    )  # fmt: skip
    assert done.code == 2
    assert "no node of the cluster has 64 CPUs" in " ".join(done.err.split())


def test_an_environment_with_another_source_is_refused(shop: Workshop, cluster: RayCluster) -> None:
    other = shop.cwd / "other"
    other.mkdir()
    shop.environment("twins", SOURCE)
    (other / "twins.py").write_text(f"{SOURCE}# another version\n")
    runtime = shop.write("runtime.toml", f'[env_vars]\nPYTHONPATH = "{other}"\n')
    done = shop.bench(
        "run", "twins", "-n", "1", "-r", "1", "-m", "reference/oracle", "--executor", "ray",
        "--ray-address", cluster.address, "--ray-runtime-env", str(runtime), env=ENVIRON,
    )  # fmt: skip
    assert done.code == 1
    assert "environment 'twins': the source on" in " ".join(done.err.split())
    assert "differs from that of the computer which started the run" in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_node_that_joins_is_used(shop: Workshop, cluster: RayCluster) -> None:
    for name in NODES[1:]:
        cluster.kill(name)
    shop.environment("twins", SOURCE)
    runtime = shop.write("runtime.json", json.dumps({"env_vars": {"PYTHONPATH": str(shop.modules)}}))
    gate = shop.cwd / "gate"
    args = json.dumps({"gate": str(gate)})
    going = shop.start(
        "run", "twins", "-a", args, "-n", "-1", "-r", "1", "-c", "2", "-m", "reference/oracle", "-q",
        "--executor", "ray", "--ray-address", cluster.address, "--ray-runtime-env", str(runtime), env=ENVIRON,
    )  # fmt: skip
    going.until(lambda: any(shop.run_dirs()) and nodes_of(shop.run_dir()), "the first rollout is recorded")
    assert nodes_of(shop.run_dir()) == {NODES[0]}
    for name in NODES[1:]:
        cluster.add(name)
    gate.touch()
    done = going.wait(300)
    assert done.code == 0, done.err
    assert len(nodes_of(shop.run_dir())) > 1


def test_a_node_that_dies_while_an_environment_loads_there(shop: Workshop, cluster: RayCluster) -> None:
    for name in NODES:
        cluster.add(name)
    shop.environment("twins", SOURCE)
    runtime = shop.write("runtime.json", json.dumps({"env_vars": {"PYTHONPATH": str(shop.modules)}}))
    gate, starts = shop.cwd / "gate", shop.cwd / "gate.starts"
    going = shop.start(
        "run", "twins", "-a", json.dumps({"load_gate": str(gate)}), "-n", "2", "-r", "1", "-m", "reference/oracle",
        "-q", "--executor", "ray", "--ray-address", cluster.address, "--ray-runtime-env", str(runtime), env=ENVIRON,
    )  # fmt: skip
    going.until(starts.exists, "an environment is being loaded")
    for name in NODES:
        cluster.kill(name)
    going.until(lambda: "it is started on another computer" in " ".join(going.err.split()), "its end is noticed")
    cluster.add(NODES[0])  # while there is none, or only some that have died
    going.until(lambda: starts.read_text().count("one") > 1, "it is loaded again")
    gate.touch()
    done = going.wait(300)
    assert done.code == 0, done.err
    assert nodes_of(shop.run_dir()) == {NODES[0]}
    assert "(raylet)" not in done.out + done.err


def test_failures_say_on_which_nodes(shop: Workshop, cluster: RayCluster) -> None:
    shop.environment("troubled", TROUBLED)
    runtime = shop.write("runtime.json", json.dumps({"env_vars": {"PYTHONPATH": str(shop.modules)}}))
    done = shop.bench(
        "run", "troubled", "-n", "-1", "-r", "1", "-m", "reference/oracle", "-q", "--workers", "2", "--executor", "ray",
        "--ray-address", cluster.address, "--ray-runtime-env", str(runtime), env=ENVIRON,
    )  # fmt: skip
    assert done.code == 1
    shown = json.loads(shop.bench("runs", "show", "latest", "--json").out)
    [failure] = shown["troubles"]
    assert sum(failure["nodes"].values()) == 6
    assert set(failure["nodes"]) <= set(NODES)
    first = next(iter(failure["nodes"]))
    assert f"{first} ({failure['nodes'][first]})" in shop.bench("runs", "show", "latest").out
    [example] = json.loads(shop.bench("runs", "show", "latest", "--example", "0", "--json").out)["examples"]
    node = example["rollouts"][0]["node"]
    assert f" node {node} " in " ".join(shop.bench("runs", "show", "latest", "--example", "0").out.split())
