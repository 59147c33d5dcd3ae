"""Endpoints that refuse, lie down or stumble: said once and soon, and never a score."""

from __future__ import annotations

import pytest
from bench_runs import Workshop, count, lines
from dead_ports import free_port


@pytest.mark.parametrize(
    ("server_args", "model", "words"),
    [
        (None, "reference/oracle", "connection refused, and it has never answered; is the server running"),
        (("--fail-rate", "1", "--fail-status", "401"), "reference/oracle", "HTTP 401"),
        ((), "reference/orcle", "did you mean reference/oracle?"),
    ],
    ids=["dead", "401", "404"],
)
def test_an_endpoint_that_cannot_be_used_stops_the_run_with_one_message(
    shop: Workshop, server_args: tuple[str, ...] | None, model: str, words: str
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    args = ["run", "sums", "-n", "-1", "-r", "2", "-m", model, "-b", url]
    if server_args is None:
        done = shop.bench(*args)
    else:
        with shop.bench_serve("--env", "sums", "--port", str(port), *server_args):
            done = shop.bench(*args)
    assert done.code == 1, done.err
    assert done.err.count(words) == 1, done.err
    assert words in " ".join(done.out.split())
    assert "Traceback" not in done.err
    assert "48 of 48 not run" in done.out
    run = shop.run_dir()
    assert {line["type"] for line in lines(run)} <= {"example"}, "nothing is failed, nothing is 0"
    if model == "reference/oracle":
        with shop.bench_serve("--env", "sums", "--port", str(port)):
            again = shop.bench(*args, "--resume", "--json")
        assert again.code == 0, again.err
        assert again.run["path"] == str(run.relative_to(shop.cwd))
        assert (again.run["summary"]["scored"], again.run["summary"]["reward"]["mean"]) == (48, 1.0)


def test_a_key_that_stops_working_keeps_what_is_done(shop: Workshop) -> None:
    shop.environment(
        "expiring",
        (shop.modules / "sums.py").read_text()
        + """
class Expiring(Sums):
    def reference_reply(self, example, messages):
        if int(example.answer) >= 20:
            raise NotImplementedError("no such model any more")
        return example.answer

Sums = Expiring
""",
    )
    with shop.bench_serve("--env", "expiring") as server:
        done = shop.bench(
            "run", "expiring", "-n", "-1", "-r", "1", "-c", "2", "-m", "reference/oracle", "-b", server.url, "--json"
        )
    assert done.code == 1, done.err
    assert done.run["state"] == "stopped"
    numbers = done.run["summary"]
    assert numbers["scored"] >= 10
    assert (numbers["reward"]["mean"], numbers["unscored"].keys() - {"not_found"}) == (1.0, set())
    assert numbers["not_run"] == 24 - numbers["num_rollouts"] > 0


@pytest.mark.slow
def test_a_server_that_comes_back_is_waited_for(shop: Workshop) -> None:
    port = str(free_port())
    args = [
        "run",
        "sums",
        "-n",
        "-1",
        "-r",
        "4",
        "-c",
        "4",
        "-m",
        "reference/oracle",
        "-b",
        f"http://127.0.0.1:{port}/v1",
    ]
    with shop.bench_serve("--env", "sums", "--port", port, "--latency", "60") as first:
        running = shop.start(*args, "--json")
        running.until(lambda: any(count(path.parent, "scored") >= 10 for path in shop.run_dirs()), "it is under way")
        first.process.kill()
        first.process.wait()
    seen = count(shop.run_dir(), "generated")
    assert seen < 96
    with shop.bench_serve("--env", "sums", "--port", port):
        done = running.wait()
    assert done.code == 0, done.err
    assert (done.run["summary"]["scored"], done.run["summary"]["unscored"]) == (96, {})


def test_one_dead_endpoint_does_not_touch_the_other_runs(shop: Workshop) -> None:
    shop.write(
        "suite.toml",
        f"""
        [[eval]]
        env.env_id = "sums"
        env.name = "dead"
        model.model = "some-model"
        model.api_base_url = "http://127.0.0.1:{free_port()}/v1"
        [[eval]]
        env.env_id = "sums"
        env.name = "alive"
        model.model = "reference/oracle"
        """,
    )
    done = shop.bench("run", "suite.toml", "-n", "-1", "--json")
    assert done.code == 1, "a run that stopped early"
    assert [(run["name"], run["state"]) for run in done.runs] == [("dead", "stopped"), ("alive", "done")]
    assert (done.runs[0]["summary"]["scored"], done.runs[1]["summary"]["scored"]) == (0, 72)


def test_stumbles_are_retried_and_hurt_no_number(shop: Workshop) -> None:
    with shop.bench_serve(
        "--env", "sums", "--fail-rate", "0.15", "--fail-status", "429,500,503", "--retry-after", "0.05",
        "--reset-rate", "0.05", "--malformed-rate", "0.05", "--seed", "3",
    ) as server:  # fmt: skip
        done = shop.bench("run", "sums", "-n", "-1", "-m", "reference/oracle", "-b", server.url, "-q", "--json")
        asked = server.stats()["requests"]
    assert done.code == 0, done.err
    numbers = done.run["summary"]
    assert (numbers["scored"], numbers["unscored"], numbers["reward"]["mean"]) == (72, {}, 1.0)
    assert asked > 72


def test_calls_that_fail_for_good_are_unscored_and_the_others_are_not(shop: Workshop) -> None:
    with shop.bench_serve("--env", "sums", "--fail-rate", "0.4", "--fail-status", "500", "--seed", "1") as server:
        args = ["run", "sums", "-n", "-1", "-m", "reference/oracle", "-b", server.url, "-q", "--request-retries", "0"]
        done = shop.bench(*args, "--json")
        assert done.code == 0, done.err
        numbers = done.run["summary"]
        assert set(numbers["unscored"]) == {"server_error"}
        assert 0 < numbers["unscored"]["server_error"] == 72 - numbers["scored"]
        assert numbers["reward"]["mean"] == 1.0
        low, high = numbers["bounds"]
        assert low < high == 1.0
        retried = shop.bench(*args, "-r", "3", "--max-retries", "40", "-o", "patient", "--json")
    assert retried.run["summary"]["scored"] == 72
    attempts = [line["attempts"] for line in lines(shop.run_dir("patient")) if line["type"] == "generated"]
    assert max(attempts) > 1
