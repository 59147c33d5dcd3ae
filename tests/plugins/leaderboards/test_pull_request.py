"""Proposing a run's result to a model with the real `huggingface_hub` and a stand-in Hub: what is there afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hub_repos import Entry
from hub_runs import BENCHMARK, MODEL, READER, TOKEN, make_result, stock_benchmark
from hub_server import HubServer

from harness.core.errors import PublishError, UsageError
from harness.plugins.leaderboards.document import Claim
from harness.plugins.leaderboards.options import Opened, Proposal, check_readable, open_request, propose
from harness.store.hub_session import HubFailureKind, Patience
from harness.store.rundir import RunDir

RUN, OTHER = "20260101T000000Z-aaaa", "20260102T000000Z-bbbb"
DATASET = "alice/gsm8k_my-model"
PATH = f".eval_results/sums_bench_sums_{RUN}.yaml"
CLAIM = Claim(MODEL, BENCHMARK)
QUICK = Patience(total=30, silence=10, longest_wait=0.02, first_wait=0.01)

# huggingface_hub passes uploads to its HTTP library in a way that the latter deprecates; it is theirs to change.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as standing:
        standing.hub.account(TOKEN, "alice")
        standing.hub.account(READER, "alice", role="read")
        yield standing


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(make_result(tmp_path, RUN))


def look(server: HubServer, run: RunDir, claim: Claim = CLAIM, token: str = TOKEN) -> Proposal:
    return propose(run, claim, token=token, endpoint=server.url, patience=QUICK)


def propose_and_open(server: HubServer, run: RunDir, claim: Claim = CLAIM, token: str = TOKEN) -> Opened:
    return open_request(look(server, run, claim, token), DATASET, token=token)


def test_a_result_is_a_pull_request_and_nothing_else(server: HubServer, run: RunDir) -> None:
    model = stock_benchmark(server)
    opened = propose_and_open(server, run)
    [request] = model.requests
    assert opened == Opened(f"{server.url}/{MODEL}/discussions/1", PATH, opened.text, "opened")
    assert (request.title, request.author) == (f"Add a result of {BENCHMARK} (sums): bench run {RUN}", "alice")
    assert [commit.touched for commit in request.commits[1:]] == [(PATH,)]
    assert request.head.files[PATH].data.decode() == opened.text
    assert "requested as `my-model`" in request.description
    [entry] = yaml.safe_load(opened.text)
    assert entry["dataset"] == {"id": BENCHMARK, "task_id": "sums"}
    assert entry["value"] == 73.46
    assert entry["source"] == {
        "url": f"{server.url}/datasets/{DATASET}", "name": "Rollouts by bench", "user": "alice"
    }  # fmt: skip
    assert len(model.commits) == 1, "the model's own branch is as it was"


def test_looking_writes_nothing(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server)
    assert yaml.safe_load(look(server, run).text("bob/else"))[0]["source"]["user"] == "bob"
    assert {seen.method for seen in server.requests} == {"GET"}


def test_asking_again_opens_no_second_one(server: HubServer, run: RunDir) -> None:
    model = stock_benchmark(server)
    first = propose_and_open(server, run)
    again = propose_and_open(server, run)
    assert (again.url, again.how) == (first.url, "unchanged")
    changed = propose_and_open(server, run, Claim(MODEL, BENCHMARK, notes="no-tools"))
    assert (changed.url, changed.how) == (first.url, "updated")
    [request] = model.requests
    assert [commit.touched for commit in request.commits[1:]] == [(PATH,), (PATH,)]
    assert "notes: 'no-tools; " in request.head.files[PATH].data.decode()
    assert len(model.commits) == 1


def test_another_run_is_another_request(server: HubServer, run: RunDir, tmp_path: Path) -> None:
    model = stock_benchmark(server)
    other = RunDir(make_result(tmp_path, OTHER))
    for each in (run, other):
        for _ in range(2):
            propose_and_open(server, each)
    assert [request.title.rpartition(" ")[2] for request in model.requests] == [RUN, OTHER]


def test_it_is_found_among_many(server: HubServer, run: RunDir, tmp_path: Path) -> None:
    model = stock_benchmark(server)
    propose_and_open(server, run)
    for day in range(2, 7):
        propose_and_open(server, RunDir(make_result(tmp_path, f"2026010{day}T000000Z-bbbb")))
    assert propose_and_open(server, run).how == "unchanged"
    assert len(model.requests) == 6


def test_a_merged_result_is_there_already(server: HubServer, run: RunDir) -> None:
    model = stock_benchmark(server)
    propose_and_open(server, run)
    model.merge(1)
    again = propose_and_open(server, run)
    assert (again.url, again.how) == (f"{server.url}/{MODEL}/blob/main/{PATH}", "merged")
    assert len(model.requests) == 1
    assert propose_and_open(server, run, Claim(MODEL, BENCHMARK, notes="fixed")).how == "opened"


def test_the_results_of_others_stay(server: HubServer, run: RunDir) -> None:
    model = stock_benchmark(server)
    model.add("theirs", {".eval_results/sums_bench.yaml": Entry(b"- theirs\n")})
    propose_and_open(server, run)
    assert model.merge(1).files[".eval_results/sums_bench.yaml"].data == b"- theirs\n"


def test_a_lost_answer_opens_no_second_one(server: HubServer, run: RunDir) -> None:
    model = stock_benchmark(server)
    server.fail("commit", 502, late=True)
    opened = propose_and_open(server, run)
    assert (opened.how, opened.url) == ("unchanged", f"{server.url}/{MODEL}/discussions/1")
    assert len(model.requests) == 1


@pytest.mark.parametrize("route", ["info", "resolve", "whoami", "discussions", "preupload", "commit"])
def test_an_unwell_hub_is_tried_again(server: HubServer, run: RunDir, route: str) -> None:
    model = stock_benchmark(server)
    server.fail(route, 503)
    propose_and_open(server, run)
    assert server.count(route, 503) == 1
    assert len(model.requests) == 1


def test_a_rate_limit_without_end_ends_it(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server)
    server.fail("commit", 429, times=None, headers={"Retry-After": "0"})
    with pytest.raises(PublishError, match=r"could not open a pull request in labs/my-model: HTTP 429.*rate limit"):
        propose_and_open(server, run)
    assert server.count("commit", 429) == HubFailureKind.BUSY.value


def test_the_task_is_the_only_one_or_the_one_that_is_named(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server, "easy", "hard")
    with pytest.raises(UsageError, match=r"has 2 tasks; choose one with task: easy, hard"):
        look(server, run)
    with pytest.raises(UsageError, match='did you mean "hard"'):
        look(server, run, Claim(MODEL, BENCHMARK, "hrd"))
    assert look(server, run, Claim(MODEL, BENCHMARK, "hard")).task == "hard"


def test_a_dataset_that_is_no_benchmark_is_refused(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server)
    server.hub.repos[BENCHMARK].add("no more", {"eval.yaml": None})
    with pytest.raises(PublishError, match=r"is not a benchmark: it has no eval\.yaml.*Nothing was sent"):
        look(server, run)


@pytest.mark.parametrize(
    ("claim", "name"),
    [(Claim("labs/other", BENCHMARK), "labs/other"), (Claim(MODEL, "acme/other"), "acme/other")],
)
def test_what_is_not_there_is_named(server: HubServer, run: RunDir, claim: Claim, name: str) -> None:
    stock_benchmark(server)
    with pytest.raises(PublishError, match=f"could not read {name} on the Hub: HTTP 404.*repository does not exist"):
        look(server, run, claim)


def test_somebody_elses_private_model_is_not_there(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server).private = True
    with pytest.raises(PublishError, match=r"labs/my-model on the Hub: HTTP 404"):
        look(server, run)


def test_a_token_without_the_scope_says_which(server: HubServer, run: RunDir) -> None:
    model = stock_benchmark(server)
    proposal = look(server, run, token=READER)
    with pytest.raises(PublishError, match=r"HTTP 403.*`discussion\.write`"):
        open_request(proposal, DATASET, token=READER)
    model.takes_requests = False
    with pytest.raises(PublishError, match=r"HTTP 403: Pull requests are disabled.*disabled pull requests"):
        propose_and_open(server, run)
    assert model.requests == []


def test_an_unknown_token_is_final(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server)
    with pytest.raises(PublishError, match=r"HTTP 401.*hf auth login"):
        look(server, run, token="hf_nobody0123456789")
    assert len(server.requests) == 1


def test_a_run_that_is_no_result_asks_nothing(server: HubServer, tmp_path: Path) -> None:
    stock_benchmark(server)
    run = RunDir(make_result(tmp_path, OTHER, model="reference/oracle"))
    with pytest.raises(UsageError, match="is a reference model"):
        look(server, run)
    assert server.requests == []


def test_a_public_result_rests_on_what_all_can_read(server: HubServer, run: RunDir) -> None:
    stock_benchmark(server)
    proposal = look(server, run)
    check_readable(proposal, private=False)
    with pytest.raises(UsageError, match=r"labs/my-model is public.*add public"):
        check_readable(proposal, private=True)
    server.hub.model("alice/own", private=True)
    check_readable(look(server, run, Claim("alice/own", BENCHMARK)), private=True)
