"""Environments of the real `verifiers` releases that still have the classic API, run by `bench run`: their own rollout
and rubric give, under our engine, what they gave under their own (`packages/expected`), less the faults that plays
name.

Each release is installed into a virtual environment of its own, which sees what is installed in this one: for
0.1.9.post3 a handful of packages, in seconds; for 0.1.14 a hundred, so only where there is uv. What cannot be had from
the package index is skipped; with BENCH_REQUIRE_RELEASES=1 it fails instead."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from bench_runs import Done, lines
from classic_runs import Played, differences, environ, results, run_command
from classic_server import Play, ScriptedModel
from nursery import Nursery

pytestmark = pytest.mark.slow

PATIENCE = 300.0

PLAYS = {
    "0.1.9.post3": (
        "capital_quiz",
        "desk_tools",
        "mixed_bag",
        "number_hunt",
        "row_tools_b",
        "sour_scores",
        "story_end",
    ),
    "0.1.14": ("bank_clerk", "lock_picker", "parcel_tools", "river_facts", "second_opinion", "twin_desks"),
}
"""One and many turns, tools, tools of a row, stateful tools, groups, group rewards, judges, completions, faults."""


NEEDS: dict[str, list[list[str]]] = {
    "0.1.9.post3": [["--no-deps", "verifiers==0.1.9.post3", "openai-agents", "tenacity", "nest-asyncio"], ["httpx"]],
    # It asks for datasets below 4.7 and runs with the one that bench asks for: installed second, that one stays.
    "0.1.14": [["verifiers==0.1.14", "math-verify"], ["datasets>=5"]],
}
"""What is installed, in turn; the rest is there already."""

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@dataclass(frozen=True)
class Release:
    """A real release, installed."""

    version: str
    nursery: Nursery
    """Of its interpreter."""


def _run(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, **more)


def _install(folder: Path, version: str) -> Path:
    """The interpreter of a virtual environment with the release, and behind it all that this one has."""
    uv, program = shutil.which("uv"), str(folder / "bin" / "python")
    venv.create(folder, with_pip=False, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    here = sysconfig.get_paths()["purelib"]
    for wanted in NEEDS[version]:
        if uv is None and "--no-deps" not in wanted and len(wanted) > 1:
            _give_up("it needs a hundred packages, which take minutes without uv")
        install = [uv, "pip", "install", "--python", program] if uv else [*PIP, "--python", program, "install"]
        done = _run([*install, "-q", *wanted])
        if done.returncode != 0:
            _give_up(f"{wanted} cannot be installed from the package index: {done.stderr[-300:]}")
    (Path(paths["purelib"]) / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return Path(program)


def _give_up(reason: str) -> NoReturn:
    if "BENCH_REQUIRE_RELEASES" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module", params=sorted(PLAYS))
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Release]:
    folder = tmp_path_factory.mktemp("release")
    with Nursery(_install(folder, request.param)) as nursery:
        yield Release(request.param, nursery)
    shutil.rmtree(folder)


def bench(release: Release, cwd: Path, *words: str, **env: str) -> Done:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHONWARN", "VF_"))}
    whole = {
        **keep,
        "NO_COLOR": "1",
        "COLUMNS": "180",
        "HF_HOME": str(cwd / "hf"),
        **env,
        "OPENAI_API_KEY": "sk-nobody",
    }
    done = release.nursery.run(["bench", *words], cwd=cwd, environ=whole, timeout=PATIENCE)
    return Done(done.returncode, done.stdout, done.stderr)


def run_folder(cwd: Path) -> Path:
    [journal] = cwd.rglob("journal.jsonl")
    return journal.parent


def test_plays_end_as_under_the_release_itself(release: Release, tmp_path: Path) -> None:
    found: list[str] = []
    for name in PLAYS[release.version]:
        script, cwd = Play(name), tmp_path / name
        cwd.mkdir()
        log = cwd / "log"
        with ScriptedModel(name) as server:
            command = run_command(script.package, server.url, "-r", str(script.rollouts))
            command += ["-a", json.dumps(script.args(server.url, log))]
            done = bench(release, cwd, *command, **environ(script, server.url, log))
        assert done.code in (0, 1, 3), f"{name}: {done.err}"
        run = run_folder(cwd)
        noted = sorted(log.read_text().splitlines()) if log.exists() else []
        found += [
            f"{name}: {words}" for words in differences(script.expected, Played(done, run, results(run), [], {}, []))
        ]
        if noted != script.expected["log"]:
            found.append(f"{name}: cleanup and teardown: {noted}")
    assert found == []


HOUSE = """
import asyncio, os, signal, threading
from pathlib import Path
import verifiers as vf
from datasets import Dataset

LOG = Path(os.environ["HOUSE_LOG"])

def note(words):
    with LOG.open("a") as file:
        file.write(words + "\\n")

class House(vf.MultiTurnEnv):
    async def setup_state(self, state, **kwargs):
        state["steps_seen"] = []
        return state

    async def env_response(self, messages, state, **kwargs):
        kind = state["info"]["kind"]
        state["trajectory"][-1]["reward"] = 0.25
        state["trajectory"][-1]["extras"]["seen"] = len(state["trajectory"])
        if kind == "bug":
            raise KeyError("the house has no such room")
        if kind == "other model":
            try:
                client = getattr(state["client"], "client", state["client"])
                await client.chat.completions.create(model="another", messages=[{"role": "user", "content": "hi"}])
            except Exception:
                pass
        return [{"role": "user", "content": "go on"}]

    @vf.cleanup
    async def sweep(self, state):
        note("swept " + state["info"]["kind"])

    @vf.teardown
    async def lock_up(self):
        note("locked up")

def in_a_thread(completion) -> float:
    return float(threading.current_thread() is not threading.main_thread())

def with_a_signal(completion) -> float:
    before = signal.signal(signal.SIGALRM, lambda *args: None)
    signal.signal(signal.SIGALRM, before)
    return 1.0

async def of_steps(state) -> float:
    return sum(step["reward"] or 0.0 for step in state["trajectory"])

def load_environment():
    kinds = ["fine", "bug", "other model"]
    rows = [{"question": "enter", "answer": kind, "info": {"kind": kind}} for kind in kinds]
    rubric = vf.Rubric(funcs=[in_a_thread, with_a_signal, of_steps], weights=[1.0, 1.0, 1.0])
    return House(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=2, sampling_args={"temperature": 0.5})
"""


def test_what_only_hosting_has_to_see_to(release: Release, tmp_path: Path) -> None:
    """A bug cleans up and fails one rollout; another model is refused past any except; rewards of single steps are in
    the journal; functions run where they can; the sampling arguments are sent once."""
    (tmp_path / "house.py").write_text(HOUSE)
    log = tmp_path / "house.log"
    env = {"PYTHONPATH": str(tmp_path), "HOUSE_LOG": str(log)}
    with ScriptedModel("sour_scores") as server:  # says "ok" to what it does not know
        sampling = json.dumps({"max_tokens": 7, "top_k": 3})
        command = ["run", "house", "-m", "scripted", "-b", server.url, "-n", "-1", "-r", "1", "-S", sampling, "-q"]
        done = bench(release, tmp_path, *command, "--no-interleave-scoring", **env)
        bodies = [dict(body) for body in server.requests]
        assert done.code in (0, 1, 3), done.err
        run = run_folder(tmp_path)
        first = {result["example_id"]: result for result in results(run)}
        assert [first[index]["outcome"] for index in range(3)] == ["scored", "failed", "failed"]
        assert (first[0]["reward"], first[0]["stop_condition"]) == (2.25, "max_turns_reached")
        assert first[0]["metrics"] == {"in_a_thread": 1.0, "num_turns": 2.0, "of_steps": 0.25, "with_a_signal": 1.0}
        assert "the house has no such room" in first[1]["message"]
        assert first[1]["completion"] == [{"role": "assistant", "content": "ok"}], "what was said is kept"
        assert "asks for the model 'another'" in first[2]["message"]
        assert sorted(log.read_text().splitlines()) == ["locked up", "swept bug", "swept fine", "swept other model"]
        assert {tuple(sorted(body)) for body in bodies} == {("max_tokens", "messages", "model", "temperature", "top_k")}
        forget_scores(run)
        server.requests.clear()
        done = bench(release, tmp_path, *command, "--no-interleave-scoring", "--resume", **env)
        assert done.code in (0, 1, 3), done.err
        assert server.requests == []
    again = {result["example_id"]: result for result in results(run)}
    assert again[0] == first[0]


def forget_scores(run: Path) -> None:
    """Leave a run as a crash between the last reply and the first score does."""
    journal = run / "journal.jsonl"
    whole = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in whole if json.loads(line)["type"] != "scored"))
    (run / "summary.json").unlink(missing_ok=True)
    state = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**state, "status": "running"}))
    assert not [line for line in lines(run) if line["type"] == "scored"]
