"""`bench push` as a process of its own: what it prints, how it exits, and that nothing is lost when it fails."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nursery
import pytest
import yaml
from hub_repos import card_data
from hub_runs import BENCHMARK, MODEL, TOKEN, contents, hub_env, load_back, make_result, make_run, stock_benchmark
from hub_server import HubServer

from harness.cli.main import main
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
    [(("20270101",), "20270101"), (("2026",), "matches 2 runs"), ((FIRST, "--repo", "a--b"), "a--b")],
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


RESULT = ("--eval-results", MODEL, "--benchmark", BENCHMARK)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return make_result(tmp_path / "outputs", FIRST)


@pytest.mark.plugins
def test_a_result_is_proposed_with_the_pushed_dataset_as_its_source(
    server: HubServer, tmp_path: Path, result: Path
) -> None:
    model = stock_benchmark(server)
    done = bench(server, tmp_path, FIRST, "--public", *RESULT, "--notes", "no-tools")
    assert done.returncode == 0, done.stderr
    repo = server.hub.repos[REPO]
    assert done.stdout == (
        f"{server.url}/datasets/{REPO} (public, commit {repo.head.oid[:8]})\n"
        f"{server.url}/{MODEL}/discussions/1 (pull request opened)\n"
    )
    [request] = model.requests
    path = f".eval_results/sums_bench_sums_{FIRST}.yaml"
    [entry] = yaml.safe_load(request.head.files[path].data)
    assert entry["source"]["url"] == f"{server.url}/datasets/{REPO}"
    assert entry["notes"].startswith("no-tools; mean reward in percent over all 1,319 examples")
    again = bench(server, tmp_path, FIRST, "--public", *RESULT, "--notes", "no-tools", "--json")
    assert json.loads(again.stdout)["eval_results"] == {
        "pull_request": f"{server.url}/{MODEL}/discussions/1",
        "file": path,
        "how": "unchanged",
    }
    assert (len(repo.commits), len(model.requests), len(model.commits)) == (2, 1, 1)


@pytest.mark.plugins
def test_print_shows_what_would_be_proposed_and_sends_nothing(server: HubServer, tmp_path: Path, result: Path) -> None:
    model = stock_benchmark(server)
    shown = bench(server, tmp_path, FIRST, "--public", *RESULT, "--print")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"# .eval_results/sums_bench_sums_{FIRST}.yaml in {MODEL}\n- dataset:\n")
    assert "nothing was sent" in shown.stderr
    assert {seen.method for seen in server.requests} == {"GET"}
    assert (list(server.hub.repos), model.requests) == ([BENCHMARK], [])
    as_json = bench(server, tmp_path, FIRST, "--public", *RESULT, "--print", "--json")
    assert bench(server, tmp_path, FIRST, "--public", *RESULT).returncode == 0
    [text] = [entry.data.decode() for path, entry in model.requests[0].head.files.items() if path.endswith(".yaml")]
    assert shown.stdout.partition("\n")[2] == text
    assert json.loads(as_json.stdout) == {
        "model": MODEL, "file": f".eval_results/sums_bench_sums_{FIRST}.yaml", "text": text
    }  # fmt: skip


@pytest.mark.plugins
def test_a_request_that_cannot_be_opened_says_what_is_pushed_and_how_to_go_on(
    server: HubServer, tmp_path: Path, result: Path
) -> None:
    model = stock_benchmark(server)
    model.takes_requests = False
    words = ("--public", *RESULT, "--notes", "two words")
    done = bench(server, tmp_path, FIRST, *words)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert f"could not open a pull request in {MODEL}: HTTP 403: Pull requests are disabled" in said
    assert f"The dataset has been pushed: {server.url}/datasets/{REPO}." in said
    again = f"bench push outputs/evals/gsm8k--my-model/{FIRST} --repo {REPO} --public --eval-results {MODEL}"
    assert said.endswith(f"Try again with: {again} --benchmark {BENCHMARK} --notes 'two words'")
    model.takes_requests = True
    assert bench(server, tmp_path, *again.split()[2:], *RESULT[2:]).returncode == 0


@pytest.mark.plugins
def test_a_push_that_fails_proposes_nothing(server: HubServer, tmp_path: Path, result: Path) -> None:
    model = stock_benchmark(server)
    server.fail("create", 403, message="no write access")
    done = bench(server, tmp_path, FIRST, "--public", *RESULT)
    assert done.returncode == 1
    again = f"bench push outputs/evals/gsm8k--my-model/{FIRST} --public --eval-results {MODEL} --benchmark {BENCHMARK}"
    assert " ".join(done.stderr.split()).endswith(again)
    assert model.requests == []


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a command says that is refused before anything is asked."""
    assert main(["push", *args]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.plugins
def test_results_that_cannot_be_are_refused_before_anything_is_asked(
    tmp_path: Path, result: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "outputs", SECOND)
    assert "name the benchmark by its dataset on the Hub" in refused(capsys, FIRST, "--eval-results", MODEL)
    assert "--task requires --eval-results" in refused(capsys, FIRST, "--task", "sums")
    assert "--print requires --eval-results" in refused(capsys, FIRST, "--print")
    assert "publishes the result of a single run, but 2 runs are given" in refused(capsys, FIRST, SECOND, *RESULT)
    assert "--eval-results my-model: give NAMESPACE/NAME" in refused(
        capsys, FIRST, "--eval-results", "my-model", "--benchmark", BENCHMARK
    )
    closed = make_result(tmp_path / "outputs", "20260103T000000Z-cccc", settings={"save.private": True})
    assert "--allow-private" in refused(capsys, str(closed), *RESULT)
    stand_in = make_result(tmp_path / "outputs", "20260104T000000Z-dddd", model="reference/oracle")
    assert "reference/oracle is a reference model" in refused(capsys, str(stand_in), *RESULT)
    cut = make_result(tmp_path / "outputs", "20260105T000000Z-eeee", status="stopped")
    assert "is stopped, so it cannot be published as a result" in refused(capsys, str(cut), *RESULT)


@pytest.mark.plugins
def test_a_public_result_of_a_private_dataset_is_refused_before_it_is_pushed(
    server: HubServer, tmp_path: Path, result: Path
) -> None:
    stock_benchmark(server)
    done = bench(server, tmp_path, FIRST, *RESULT)
    assert done.returncode == 2
    assert "add --public" in " ".join(done.stderr.split())
    assert list(server.hub.repos) == [BENCHMARK]


@pytest.mark.plugins
def test_a_dataset_that_stays_private_is_no_source_of_a_public_result(
    server: HubServer, tmp_path: Path, result: Path
) -> None:
    model = stock_benchmark(server)
    assert bench(server, tmp_path, FIRST).returncode == 0
    done = bench(server, tmp_path, FIRST, "--public", *RESULT)
    assert done.returncode == 2
    assert "must be made public in its settings" in " ".join(done.stderr.split())
    server.hub.repos[REPO].private = False
    assert bench(server, tmp_path, FIRST, "--public", *RESULT).returncode == 0
    assert len(model.requests) == 1


def suite_file(folder: Path, runs: list[Path]) -> Path:
    """The file that an invocation leaves, of these runs."""
    path = folder / "outputs" / "suites" / "20260103T000000Z-zzzz.json"
    path.parent.mkdir()
    listed = [{"path": str(run.relative_to(folder / "outputs"))} for run in runs]
    path.write_text(json.dumps({"id": path.stem, "runs": listed}))
    return path


def test_a_suite_goes_to_one_repository_with_one_config_a_run(
    server: HubServer, tmp_path: Path, runs: list[Path]
) -> None:
    other = make_run(tmp_path / "outputs", "20260103T000000Z-cccc", rows=5, model="other")
    suite = suite_file(tmp_path, [*runs, other])
    done = bench(server, tmp_path, suite.stem, "--repo", "acme/suite", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    ids = [FIRST, SECOND, other.name]
    assert [(each["repo"], each["config"]) for each in told] == [("acme/suite", run_id) for run_id in ids]
    repo = server.hub.repos["acme/suite"]
    configs = card_data(repo.text("README.md"))["configs"]
    assert [(each["config_name"], each.get("default")) for each in configs] == [
        (other.name, True), (SECOND, None), (FIRST, None)
    ]  # fmt: skip
    loaded = load_back(server, tmp_path / "hf", "acme/suite", *ids)
    assert [len(each["rows"]) for each in loaded] == [3, 3, 5]
    before = dict(repo.files)
    again = bench(server, tmp_path, str(suite), "--repo", "acme/suite")
    assert again.returncode == 0
    assert dict(repo.files) == before


def test_a_run_that_cannot_be_pushed_keeps_no_other_from_it(
    server: HubServer, tmp_path: Path, runs: list[Path]
) -> None:
    for file in (runs[0] / "data").iterdir():
        file.unlink()
    done = bench(server, tmp_path, FIRST, SECOND)
    assert done.returncode == 1
    assert "no data to push" in " ".join(done.stderr.split())
    assert "1 of 2 runs are on the Hub" in done.stderr
    assert done.stdout.startswith(f"{server.url}/datasets/{REPO} (private, commit ")
    assert f"config_name: {SECOND}" in server.hub.repos[REPO].text("README.md")


def test_a_summary_that_is_none_is_one_message(server: HubServer, tmp_path: Path, runs: list[Path]) -> None:
    RunDir(runs[0]).summary_path.write_text("[]")

    done = bench(server, tmp_path, FIRST)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"{FIRST}/summary.json: not a JSON object" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
