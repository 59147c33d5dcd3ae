"""A budget from end to end: `bench` in a process, the reference server in another, which counts requests by rollout."""

from __future__ import annotations

import json
import signal

import pytest
from bench_runs import Workshop, count, summary


def test_a_suite_stops_at_its_budget_and_goes_on_without_asking_twice(shop: Workshop) -> None:
    with shop.serving() as server:
        endpoint = f'[[endpoint]]\nendpoint_id = "paid"\nmodel = "reference/oracle"\nurl = "{server.url}"\n'
        runs = "".join(
            f'[[eval]]\nenv_id = "sums"\nname = "{name}"\nmodel = "paid"\nmax_concurrent = 2\n'
            f'num_examples = 24\nrollouts_per_example = 1\nargs = {{ tag = "" }}\nsampling = {{ seed = {seed} }}\n'
            for seed, name in enumerate("ab")
        )
        (shop.cwd / "paid.toml").write_text(f"{endpoint}price = {{ input = 0, output = 1e6 }}\n{runs}")
        first = shop.bench("run", "paid.toml", "--max-cost", "20", "--json")
        result = json.loads(first.out)
        asked = server.stats()["requests"]
        assert first.code == 1, first.err
        assert {run["state"] for run in result["runs"]} == {"stopped"} and asked < 48
        spent = result["budget"]["spent"]["cost"]
        assert spent == sum(run["summary"]["usage"]["cost"] for run in result["runs"])
        assert spent == sum(run["summary"]["usage"]["output_tokens"] for run in result["runs"])
        dearest = 2  # an answer has two digits at most
        assert 20 <= spent <= 19 + dearest + 3 * dearest, "four in flight at most, of which one met the bound"
        assert "stopping: " in first.err and " of $20.00" in first.err
        second = shop.bench("run", "paid.toml", "--max-cost", "1000000", "--resume", "--json")
        assert second.code == 0, second.err
        assert json.loads(second.out)["budget"]["before"]["cost"] == spent
        assert server.stats()["requests"] == 48
    for path in shop.run_dirs():
        assert count(path.parent, "generated") == count(path.parent, "scored") == 24
        assert summary(path.parent)["scored"] == 24


@pytest.mark.slow
def test_what_was_given_up_half_way_counts_on_a_resume(shop: Workshop) -> None:
    wordle = ("run", "wordle", "-n", "2", "-r", "1", "-m", "reference/null", "-q", "--json")
    with shop.bench_serve("--env", "wordle", "--fault", "hang@at=2-,per=rollout") as server:
        running = shop.start(*wordle, "-b", server.url)
        running.until(lambda: server.stats()["in_flight"] == 2 and server.stats()["requests"] == 4, "second turns hang")
        running.send(signal.SIGINT)
        running.says("for rollouts in flight")
        running.send(signal.SIGINT)
        assert running.wait().code == 130
        manifest = json.loads((shop.run_dir() / "run.json").read_text())
        gone = manifest["given_up"]
        assert gone["requests"] == 2 and gone["input_tokens"] > 0 and gone["cost"] is None
        bound = str(gone["input_tokens"] + gone["output_tokens"])
        refused = shop.bench("resume", "latest", "--json", "--max-tokens-total", bound)
        assert server.stats()["requests"] == 4, "they have spent it all"
    assert refused.code == 1
    budget = json.loads(refused.out)["budget"]
    assert budget["before"]["tokens"] == int(bound) and budget["reached"] == "max_tokens_total"
    assert json.loads(refused.out)["runs"][0]["unfinished"] == gone
    assert "not counted here: 2 replies to rollouts that were cancelled" in shop.bench("runs", "show", "latest").out
    assert json.loads((shop.run_dir() / "run.json").read_text())["given_up"] == gone, "and it counts the next time, too"
