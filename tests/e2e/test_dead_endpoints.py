"""Endpoints that are none, that die and that recover: one message each, no score, an end within seconds; whoever else
runs is not touched, what is done is kept, and a resume completes it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from bench_runs import lines
from curt_server import CurtServer
from dead_ports import free_port, listening, unvouched
from fault_server import FaultServer

from harness.cli.execute import execute
from harness.cli.main import main
from harness.cli.options import RunOptions
from harness.engine.evaluation import Evaluation
from harness.models.health import HealthPolicy
from harness.models.pool import ClientPool
from harness.plugins.faults.rules import Fault
from harness.reference.fault_sources import ObservedRequest
from harness.settings.resolver import resolve

SUMS = """
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] != "")

def load_environment(size=12):
    return SingleTurnEnv(dataset=[{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)],
                         rubric=Rubric([correct]))
"""

JUDGED = """
from harness import JudgeRubric, SingleTurnEnv

def load_environment(judge=""):
    rubric = JudgeRubric(judge_model="judge", judge_base_url=judge, judge_api_key_var=None)
    return SingleTurnEnv(dataset=[{"question": f"{n}", "answer": "x"} for n in range(12)], rubric=rubric)
"""

Bench = Callable[..., "Done"]

"""Seconds that the worst of them may take: 10 until a probe counts as not answered, after a `request_timeout` of 3; and
as long again on a busy machine, where everybody is slow."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """What `--json` printed, by name."""
        return {run["name"]: run for run in json.loads(self.out)["runs"]}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Bench:
    """`bench` in this process, in a folder with two environments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    Path("sums.py").write_text(SUMS)
    Path("judged.py").write_text(JUDGED)

    def bench(*arguments: str) -> Done:
        code = main(list(arguments))
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return bench


class Switch:
    """Faults of a server that can be repaired.

    Args:
        fault: What every request meets, until `repaired` is set.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.repaired = False

    def next(self, asked: ObservedRequest) -> Fault:
        return Fault() if self.repaired else self.fault


HTML = Fault("body", body=b"<!doctype html><html></html>", content_type="text/html")
STATUSES = {name: Fault("status", status=int(name)) for name in ("401", "403", "404")}

SAID = {
    # refused; on a busy machine too late to be told
    "refused": ", and it has never answered; is the server running",
    "swallowed": "no connection in time, and it has never answered",
    "silent": "no reply within 3 s (request_timeout), and it has never answered any request",
    "no-host": "the host name no-such-host.invalid cannot be resolved, and it has never answered",
    "no-tls": "and it has never answered",
    "unvouched": "CERTIFICATE_VERIFY_FAILED",
    "401": "HTTP 401",
    "403": "HTTP 403",
    "404": "HTTP 404",
    "page": "the body is a web page",
    "judge": "the judge judge cannot be used",
}
"""Words that each kind of dead endpoint is told in."""


@pytest.mark.slow
def test_every_kind_of_dead_endpoint_is_told_once_and_soon_while_others_finish_and_a_resume_completes(
    bench: Bench, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        switches = {name: Switch(fault) for name, fault in {**STATUSES, "page": HTML}.items()}
        urls = {name: stack.enter_context(FaultServer(source=each)).url for name, each in switches.items()}
        well = stack.enter_context(FaultServer())
        judge = free_port()
        dead = stack.enter_context(ExitStack())
        ports = {
            "refused": free_port(),
            "swallowed": dead.enter_context(listening(full=True)),
            "silent": dead.enter_context(listening()),
        }
        urls |= {name: f"http://127.0.0.1:{port}/v1" for name, port in ports.items()}
        urls["no-host"] = "http://no-such-host.invalid/v1"
        urls["no-tls"] = well.url.replace("http:", "https:")
        urls["unvouched"] = stack.enter_context(CurtServer(tls=unvouched(tmp_path))).url
        runs = [("well", "./sums.py", well.url)] + [(name, "./sums.py", url) for name, url in urls.items()]
        Path("suite.toml").write_text(
            "".join(
                f'[[eval]]\nenv.env_id = "{env}"\nenv.name = "{name}"\nmodel.model = "m-{name}"\n'
                f'model.api_base_url = "{url}"\n'
                for name, env, url in [*runs, ("judge", "./judged.py", well.url)]
            )
            + f'env.env_args = {{ judge = "http://127.0.0.1:{judge}/v1" }}\n'
        )
        asked = ("-n", "12", "-r", "2", "--request-timeout", "3", "--json")
        done = bench("run", "suite.toml", *asked)
        _check_dead(done)
        dead.close()
        for port in ports.values():
            stack.enter_context(FaultServer(port=port))
        for switch in switches.values():
            switch.repaired = True
        for name in (*ports, *switches):
            again = bench("resume", done.runs[name]["path"], "--json")
            [run] = again.runs.values()
            assert (again.code, run["summary"]["scored"], run["summary"]["unscored"]) == (0, 24, {}), (name, again.err)


def _check_dead(done: Done) -> None:
    assert done.code == 1
    assert "Traceback" not in done.err
    assert set(done.runs) == {"well", *SAID}
    well = done.runs["well"]
    assert (well["state"], well["summary"]["scored"], well["summary"]["reward"]["mean"]) == ("done", 24, 1.0), well[
        "note"
    ]
    for name, words in SAID.items():
        run = done.runs[name]
        assert words in run["note"], (name, run["note"])
        assert (run["state"], run["summary"]["scored"], run["summary"]["reward"]["mean"]) == ("stopped", 0, None), name
        assert run["summary"]["unscored"] == {} or name == "judge", (name, run["summary"])
        kinds = Counter(line["type"] for line in lines(Path(run["path"])))
        assert set(kinds) <= ({"example", "generated"} if name == "judge" else {"example"}), (name, kinds)
        # Once when it happens, and once in the table at the end.
        assert done.err.count(run["note"]) <= 2, (name, done.err)


class Mortal:
    """A server's life: it answers so many requests, leaves the next ones hanging, and then dies.

    Args:
        left: Requests that are answered.
        then: What is in its place: `nothing`, a port that nobody reads (`silence`), or after a while it itself
            (`itself`).
    """

    def __init__(self, left: int, then: str) -> None:
        self._left, self._then = left, then
        self._over, self._end = threading.Event(), threading.Event()
        self._server = FaultServer(source=self)
        self._mourner = threading.Thread(target=self._die)
        self.url = ""

    def next(self, asked: ObservedRequest) -> Fault:
        self._left -= 1
        if self._left >= 0:
            return Fault(latency=0.01)
        self._over.set()
        return Fault("hang")

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    def __enter__(self) -> Self:
        self._server.__enter__()
        self.url = self._server.url
        self._mourner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._mourner.join(30)
        assert not self._mourner.is_alive()

    def _die(self) -> None:
        assert self._over.wait(60)
        self._server.__exit__(None, None, None)
        with ExitStack() as stack:
            if self._then == "silence":
                stack.enter_context(listening(port=self.port))
            if self._then == "itself":
                time.sleep(0.5)  # however long: it is waited for
                stack.enter_context(FaultServer(port=self.port))
            assert self._end.wait(60)


def run_sums(url: str, grace: float) -> int:
    """`bench run`, waiting so many seconds for an endpoint that is gone instead of a minute."""
    clients = ClientPool(health=HealthPolicy(grace=grace, connect_deadline=0.3, probe_gap=0.05, probe_gap_cap=0.1))
    settings = {
        "env.num_examples": 12, "env.rollouts_per_example": 2, "model.max_concurrent": 4, "model.request_timeout": 1,
        "model.model": '"m"', "model.api_base_url": f'"{url}"',
    }  # fmt: skip
    sets = [f"{path}={value}" for path, value in settings.items()]
    resolution = resolve("./sums.py", {}, sets)
    return execute(resolution, RunOptions(json=True), evaluation=Evaluation(resolution.runs, clients=clients))


@pytest.mark.slow
@pytest.mark.parametrize("then", ["nothing", "silence", "itself"])
def test_an_endpoint_that_dies_in_the_middle_costs_no_rollout(
    bench: Bench, capfd: pytest.CaptureFixture[str], then: str
) -> None:
    with Mortal(8, then) as server:
        code = run_sums(server.url, 30.0 if then == "itself" else 1.0)
    out, err = capfd.readouterr()
    [run] = json.loads(out)["runs"]
    path, numbers = Path(run["path"]), run["summary"]
    assert [line for line in lines(path) if line["type"] == "failed"] == [], (
        "what met nobody is not failed, but not run"
    )
    if then == "itself":
        assert (code, run["state"], numbers["scored"], numbers["unscored"]) == (0, "done", 24, {})
    else:
        assert (code, run["state"], numbers["scored"], numbers["unscored"]) == (1, "stopped", 8, {})
        assert (numbers["not_run"], numbers["reward"]["mean"]) == (16, 1.0)
        assert run["note"].endswith("; it answered before, but not for the last 1 s")
        assert err.count(run["note"]) <= 2
        with FaultServer(port=server.port):
            again = bench("resume", str(path), "--json")
        assert again.code == 0, again.err
        [run] = again.runs.values()
        assert (run["summary"]["scored"], run["summary"]["unscored"]) == (24, {})
    made = Counter(line["key"] for line in lines(path) if line["type"] == "generated")
    assert set(made.values()) == {1} and len(made) == 24, "nothing twice"


class Storm:
    """A server that answers at its own pace, refuses everything for a while, and answers again.

    Args:
        calm: Requests that are answered before.
        refused: Requests that are refused.
    """

    def __init__(self, calm: int, refused: int) -> None:
        self._calm, self._refused = calm, refused
        self.seen: list[tuple[bool, int]] = []
        """Of each request whether it was answered, and how many were in flight with it."""
        self.in_flight: Callable[[], int] = lambda: 0

    def peaks(self, first: int, count: int) -> list[int]:
        """Most in flight among each 32 of so many requests. They come in bursts, so their mean says little."""
        first %= len(self.seen)
        return [max(number for _, number in self.seen[at : at + 32]) for at in range(first, first + count, 32)]

    def next(self, asked: ObservedRequest) -> Fault:
        stormy = self._calm <= len(self.seen) < self._calm + self._refused
        self.seen.append((not stormy, self.in_flight()))
        if stormy:
            return Fault("status", status=429, headers=(("retry-after-ms", "20"),))
        return Fault(latency=0.15)  # long enough for a busy machine to send what it may


@pytest.mark.slow
def test_after_a_storm_of_429_requests_flow_as_before(bench: Bench) -> None:
    """All answers take the same time, so what flows is what is in flight: that does not depend on a busy machine."""
    storm = Storm(calm=64, refused=40)
    with FaultServer(source=storm) as server:
        storm.in_flight = lambda: server.server.stats.in_flight
        size = ("-n", "-1", "-r", "1", "-a", json.dumps({"size": 340}), "-c", "16")
        done = bench("run", "./sums.py", *size, "-m", "m", "-b", server.url, "--json", "-q")
    [run] = done.runs.values()
    assert (done.code, run["summary"]["scored"], run["summary"]["unscored"]) == (0, 340, {})
    before, within, after = storm.peaks(0, 64), storm.peaks(110, 32), storm.peaks(-80, 64)
    assert max(before) == 16, "its bound"
    assert max(within) < 16, "a 429 cuts what is in flight"
    assert sum(after) >= 0.9 * sum(before)
    assert max(number for _, number in storm.seen) == 16
