"""From a run to the Hub and back, with a stand-in that speaks the Hub's own protocol."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator

import pytest
from bench_runs import Workshop, rows, summary
from hub_runs import TOKEN, load_back
from hub_server import HubServer


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as standing:
        standing.hub.account(TOKEN, "alice", orgs=("acme",))
        yield standing


def login(hub: HubServer, token: str = TOKEN) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_TOKEN": token}


def test_a_suite_is_published_and_loads_back(shop: Workshop, hub: HubServer) -> None:
    done = shop.bench(
        "run", "sums,reverse-text", "-n", "4", "-r", "2", "-m", "reference/noisy?accuracy=0.5", "-H", "--json",
        env=login(hub),
    )  # fmt: skip
    assert done.code == 0, done.err
    assert len(hub.hub.repos) == 2
    for run in done.runs:
        folder = shop.cwd / run["path"]
        [name] = [name for name in hub.hub.repos if run["env_id"] in name]
        repo = hub.hub.repos[name]
        assert repo.private
        assert len(repo.commits) == 2, "one commit beside the first"
        assert f"pushed {run['name']} to {hub.url}/datasets/{name}" in done.err
        default, by_id = load_back(hub, shop.cwd / "home", name, "", folder.name)
        assert default == by_id
        assert by_id["rows"] == rows(folder)
        card = repo.text("README.md")
        assert f"config_name: {folder.name}" in card
        assert "bench run sums,reverse-text -n 4 -r 2" in card, "how to reproduce"
        assert not any("journal" in path for path in repo.files)


@pytest.mark.slow
def test_a_failed_push_keeps_the_result_and_can_be_repeated(shop: Workshop, hub: HubServer) -> None:
    hub.fail("commit", 403, times=None, message="no write access")
    args = ["run", "sums", "-n", "4", "-r", "2", "-m", "reference/oracle", "-H", "-D", "acme/sums"]
    done = shop.bench(*args, env=login(hub))
    assert done.code == 1, "a push failed"
    said = " ".join((done.out + done.err).split())
    assert "no write access" in said and "The local result is intact" in said
    assert "Traceback" not in done.err
    run = shop.run_dir()
    assert (summary(run)["scored"], len(rows(run))) == (8, 8)
    assert json.loads((run / "run.json").read_text())["status"] == "done"
    again = f"bench push {run.relative_to(shop.cwd)} --repo acme/sums"
    ended, pushing, failed_to = done.err.splitlines()[-3:]
    assert ended.startswith("sums: done, 8/8") and pushing == "pushing sums to the Hub"
    assert failed_to.endswith(again), "whole, on one line"
    assert [line.strip() for line in done.out.splitlines() if "publish:" in line] == [f"publish: {again}"]
    failed = shop.bench(*shlex.split(again)[1:], env=login(hub))
    assert failed.code == 1, "it is still refused"
    hub._troubles.clear()
    pushed = shop.bench(*shlex.split(again)[1:], env=login(hub))
    assert pushed.code == 0, pushed.err
    [loaded] = load_back(hub, shop.cwd / "home", "acme/sums", run.name)
    assert loaded["rows"] == rows(run)
    resumed = shop.bench(*args, "-n", "6", "--resume", "--json", env=login(hub))
    assert resumed.code == 0, resumed.err
    [grown] = load_back(hub, shop.cwd / "home2", "acme/sums", run.name)
    assert len(grown["rows"]) == 12, "a run that has grown replaces what was there"


def test_the_way_to_publish_later_is_to_where_the_settings_say(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-n", "2", "-m", "reference/oracle", "--set", "save.hf_hub_dataset_name=acme/sums")
    [publish] = [line.partition("publish: ")[2] for line in done.out.splitlines() if "publish: " in line]
    assert shlex.split(publish)[3:] == ["--repo", "acme/sums"]


def test_a_push_that_cannot_work_is_said_before_anything_is_paid_for(shop: Workshop, hub: HubServer) -> None:
    args = ["run", "sums", "-n", "4", "-m", "reference/oracle", "-H"]
    done = shop.bench(*args, env=login(hub, ""))
    assert done.code == 2
    assert "you are not logged in" in done.said
    named = shop.bench(*args, "-D", "a--b", env=login(hub))
    assert named.code == 2
    assert not (shop.cwd / "outputs").exists()
    assert hub.requests == []


def test_a_run_that_stopped_early_is_not_published(shop: Workshop, hub: HubServer) -> None:
    done = shop.bench("run", "sums", "-n", "4", "-m", "some-model", "-b", "http://127.0.0.1:9/v1", "-H", env=login(hub))
    assert done.code == 1
    assert hub.hub.repos == {}
    assert "bench push" not in done.out, "there is nothing to publish"


@pytest.mark.slow
def test_a_run_that_ends_while_it_is_interrupted_says_how_to_publish_it(shop: Workshop, hub: HubServer) -> None:
    with shop.bench_serve("--env", "sums", "--latency", "1500") as server:
        args = ["run", "sums", "-n", "2", "-r", "1", "-m", "reference/oracle", "-b", server.url, "-H", "-D", "acme/two"]
        running = shop.start(*args, env=login(hub))
        running.until(lambda: server.stats()["in_flight"] == 2, "everything is in flight")
        running.send(signal.SIGINT)
        done = running.wait()
    assert done.code == 130, done.err
    run = shop.run_dir()
    assert (summary(run)["scored"], json.loads((run / "run.json").read_text())["status"]) == (2, "done")
    assert hub.requests == []
    assert "not published, because it was interrupted" in done.out
    assert f"publish: bench push {run.relative_to(shop.cwd)} --repo acme/two" in done.out
    assert "--resume" not in done.out, "nothing is left to do"
