"""`bench push` as a process of its own: what it prints, how it exits, and that nothing is lost when it fails."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nursery
import pytest
from hub_runs import TOKEN, contents, hub_env, make_run
from hub_server import HubServer

from harness.store.rundir import RunDir

FIRST, SECOND = "20260101T000000Z-aaaa", "20260102T000000Z-bbbb"
REPO = "alice/gsm8k_my-model"


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as standing:
        standing.hub.account(TOKEN, "alice", orgs=("acme",))
        yield standing


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [make_run(tmp_path / "outputs", run_id) for run_id in (FIRST, SECOND)]


def bench(server: HubServer, cwd: Path, *args: str, token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
    env = {**hub_env(server, cwd / "home", token), "NO_COLOR": "1", "COLUMNS": "200"}
    return nursery.run(["bench", "push", *args], cwd=cwd, environ=env)


def test_latest_run_is_pushed_and_loads_back(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    done = bench(server, tmp_path, "latest")
    assert (done.returncode, done.stdout) == (
        0,
        f"{server.url}/datasets/{REPO} (private, commit {server.hub.repos[REPO].head.oid[:8]})\n",
    )
    assert f'load_dataset("{REPO}", "{SECOND}", split="train")' in done.stderr


def test_json_is_all_that_stdout_holds(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    done = bench(server, tmp_path, str(runs[0]), "--repo", "acme/shared", "--public", "--json")
    assert done.returncode == 0, done.stderr
    head = server.hub.repos["acme/shared"].head.oid
    assert json.loads(done.stdout) == {
        "url": f"{server.url}/datasets/acme/shared",
        "repo": "acme/shared",
        "commit": head,
        "config": FIRST,
        "private": False,
    }


@pytest.mark.parametrize("name", [FIRST, FIRST[:12], f"outputs/evals/gsm8k--my-model/{FIRST}"])
def test_a_run_is_named_by_id_prefix_or_path(server: HubServer, tmp_path: Path, runs: list[Path], name: str) -> None:
    assert bench(server, tmp_path, name).returncode == 0
    assert f"config_name: {FIRST}" in server.hub.repos[REPO].text("README.md")


def test_another_output_folder(server: HubServer, tmp_path: Path) -> None:
    make_run(tmp_path / "elsewhere", FIRST)
    assert bench(server, tmp_path, FIRST, "-o", "elsewhere").returncode == 0
    assert bench(server, tmp_path, FIRST).returncode == 2


def test_a_failed_push_exits_1_and_says_how_to_try_again(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    (runs[0] / ".lock").touch()
    before = contents(runs[0].parent)
    server.fail("commit", 403, message="no write access")
    done = bench(server, tmp_path, FIRST, "--repo", "acme/shared")
    assert (done.returncode, done.stdout) == (1, "")
    said = " ".join(done.stderr.split())
    assert "acme/shared" in said
    assert "HTTP 403: no write access" in said
    again = f"bench push outputs/evals/gsm8k--my-model/{FIRST} --repo acme/shared"
    assert again in said
    assert "Traceback" not in done.stderr
    assert {**contents(runs[0].parent), f"{FIRST}/.lock": b""} == before
    assert bench(server, tmp_path, *again.split()[2:]).returncode == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [(("20270101",), "20270101"), (("2026",), "means 2 runs"), ((FIRST, "--repo", "a--b"), "a--b")],
)
def test_wrong_words_exit_2_before_anything_is_sent(
    server: HubServer, tmp_path: Path, runs: list[Path], args: tuple[str, ...], said: str
) -> None:
    done = bench(server, tmp_path, *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert server.requests == []


def test_login_and_endpoint_may_stand_in_dotenv(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    (tmp_path / ".env").write_text(f"HF_TOKEN={TOKEN}\n")
    assert bench(server, tmp_path, FIRST, token=None).returncode == 0


def test_a_run_that_is_being_written_is_left_alone(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    with RunDir(runs[0]).lock():
        done = bench(server, tmp_path, FIRST)
    assert done.returncode == 1
    assert "is being written by another process" in done.stderr
    assert server.requests == []
    assert bench(server, tmp_path, FIRST).returncode == 0


def test_a_run_in_a_folder_that_cannot_be_written_is_pushed(
    server: HubServer, tmp_path: Path, runs: list[Path]
) -> None:
    (runs[0] / ".lock").mkdir()  # stands for a read-only folder, which root could write to all the same
    assert bench(server, tmp_path, FIRST).returncode == 0


def test_no_login_exits_1(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    done = bench(server, tmp_path, FIRST, token=None)
    assert done.returncode == 1
    assert "hf auth login" in done.stderr
