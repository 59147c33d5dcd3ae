"""Budgets of `bench run`, `eval`, `multi` and `resume`. Requests are counted at the server, each with its price."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_evals import Evals
from multi_evals import Multi
from paid_model import ECHO, TENTH, PaidModel, registry
from run_samples import Bench

from harness.cli.main import main

Write = Callable[[str, str], Path]

RUN = ("run", "./echo.py", "-m", "paid", "-n", "20", "-r", "1", "-q", "--json")


@pytest.fixture
def echo(write: Write) -> Write:
    write("echo.py", ECHO)
    return write


def the_run(here: Path) -> Path:
    [only] = (here / "outputs" / "evals").glob("*/*/run.json")
    return only.parent


def kinds(run: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (run / "journal.jsonl").read_text().splitlines():
        kind = json.loads(line)["type"]
        found[kind] = found.get(kind, 0) + 1
    return found


def test_one_at_a_time_stops_at_the_reply_that_meets_the_bound(bench: Bench, echo: Write, here: Path) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "1", "--max-cost", "0.5")
        assert (done.code, model.requests) == (1, 5)
        result = json.loads(done.out)
    [run] = result["runs"]
    assert run["state"] == "stopped"
    assert run["note"] == (
        "the budget is reached (--max-cost 0.5): $0.500 spent; resume the run with a larger max_cost: "
        "it includes the amount already spent"
    )
    assert (run["summary"]["scored"], run["summary"]["not_run"]) == (5, 15)
    assert result["budget"].pop("spent") | {"seconds": 0} == {
        "cost": pytest.approx(0.5), "unpriced": 0, "tokens": 75, "unreported": 0, "seconds": 0,
    }  # fmt: skip
    assert result["budget"] == {
        "max_cost": 0.5, "max_tokens_total": None, "max_time": None, "before": {}, "reached": "max_cost",
    }  # fmt: skip
    manifest = json.loads((the_run(here) / "run.json").read_text())
    assert (manifest["status"], manifest["budget"]["reached"]) == ("stopped", "max_cost")
    assert "budget" not in json.dumps(manifest["identity"])
    assert "--max-cost 1\n" in done.err, "the way on has a larger one"


@pytest.mark.parametrize(("bound", "requests"), [("0.05", 4), ("0.45", 8), ("0.85", 12)])
def test_what_is_in_flight_when_the_bound_is_met_comes_on_top(
    bench: Bench, echo: Write, bound: str, requests: int
) -> None:
    # The server answers four at a time, and the bound is met by the first of four: the three others are in flight.
    with PaidModel(together=4) as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "4", "--max-cost", bound)
        assert (done.code, model.requests) == (1, requests)
    spent = json.loads(done.out)["budget"]["spent"]["cost"]
    assert spent == pytest.approx(requests / 10)


@pytest.mark.parametrize("concurrent", [1, 2, 5])
def test_no_more_than_that_comes_on_top(bench: Bench, echo: Write, concurrent: int) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", str(concurrent), "--max-cost", "0.6")
        assert done.code == 1 and 6 <= model.requests <= 6 + concurrent - 1


def test_a_resume_with_a_larger_budget_asks_nothing_twice(bench: Bench, echo: Write, here: Path) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        assert bench(*RUN, "-c", "1", "--max-cost", "0.5").code == 1
        same = bench(*RUN, "-c", "1", "--resume", "--max-cost", "0.5")
        assert (same.code, model.requests) == (1, 5), "what earlier attempts spent counts"
        more = bench("resume", "latest", "--max-cost", "0.8", "-c", "1", "-q", "--json")
        assert (more.code, model.requests) == (1, 8), more.err
        assert json.loads(more.out)["budget"]["before"] == {"cost": pytest.approx(0.5), "tokens": 75}
        rest = bench("resume", "latest", "-q", "--json")
        assert (rest.code, model.requests) == (0, 20), rest.err
        assert set(model.asked.values()) == {1}, "nothing was asked twice"
    assert "budget" not in json.loads(rest.out)
    assert kinds(the_run(here)) == {"example": 20, "generated": 20, "scored": 20}
    assert json.loads((the_run(here) / "run.json").read_text())["budget"] == {}


def test_the_command_that_it_shows_goes_on(bench: Bench, echo: Write, capsys: pytest.CaptureFixture[str]) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "1", "--max-cost", "1.2")
        shown = next(line for line in done.err.splitlines() if "go on: bench " in line)
        assert shown.endswith(" --max-cost 2.4")
        assert main([*shown.partition("go on: bench ")[2].split(), "-q"]) == 0
        assert model.requests == 20 and set(model.asked.values()) == {1}


def test_a_suite_shares_one_budget(bench: Bench, echo: Write, here: Path) -> None:
    with PaidModel() as model:
        runs = "".join(f'[[eval]]\nenv_id = "./echo.py"\nname = "{name}"\nmodel = "paid"\n' for name in "abc")
        echo("s.toml", f"[budget]\nmax_cost = 0.7\n{runs}{registry(model.url)}")
        flags = ("-n", "20", "-r", "1", "-c", "1", "-q", "--json")
        done = bench("run", "s.toml", *flags)
        assert done.code == 1 and 7 <= model.requests <= 9, "one in flight of each of three runs"
        result = json.loads(done.out)
        assert result["budget"]["spent"]["cost"] == pytest.approx(model.requests / 10)
        assert [run["state"] for run in result["runs"]] == ["stopped"] * 3
        assert sum(run["summary"]["scored"] for run in result["runs"]) == model.requests
        assert all("(s.toml: budget.max_cost = 0.7)" in run["note"] for run in result["runs"])
        [shown] = [line.partition("go on: ")[2] for line in done.err.splitlines() if "go on: " in line]
        assert shown == "bench run s.toml -n 20 -r 1 -c 1 -q --json --set budget.max_cost=1.4 --resume", "one for all"
        before = model.requests
        assert bench(*shlex.split(shown)[1:]).code == 1 and before < model.requests <= before + 9
        before = model.requests
        again = bench("run", "s.toml", *flags, "--resume", "--set", "budget.max_cost=100")
        assert (again.code, model.requests) == (0, 60), again.err
        assert json.loads(again.out)["budget"]["before"]["cost"] == pytest.approx(before / 10)


def test_a_run_that_lacks_nothing_is_done_however_little_money_is_left(bench: Bench, echo: Write, here: Path) -> None:
    with PaidModel() as model:
        runs = "".join(
            f'[[eval]]\nenv_id = "./echo.py"\nname = "{name}"\nmodel = "paid"\nnum_examples = {size}\n'
            for name, size in (("whole", 3), ("part", 20))
        )
        echo("s.toml", f"{runs}{registry(model.url)}")
        flags = ("-r", "1", "-c", "1", "-q", "--json", "--max-cost", "1")
        assert bench("run", "s.toml", *flags).code == 1
        before = model.requests
        again = bench("run", "s.toml", *flags, "--resume")
        assert (again.code, model.requests) == (1, before)
        assert [(run["state"], run["summary"]["num_rollouts"]) for run in json.loads(again.out)["runs"]] == [
            ("done", 3), ("stopped", before - 3),
        ]  # fmt: skip
        assert f"part: stopped, {before - 3}/20" in again.err


def test_tokens_have_a_bound_of_their_own_and_need_no_price(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url, price=None))
        done = bench(*RUN, "-c", "1", "--max-tokens-total", "40")
        assert (done.code, model.requests) == (1, 3)
        spent = json.loads(done.out)["budget"]["spent"]
        assert (spent["tokens"], spent["cost"], spent["unpriced"]) == (45, None, 3), "unknown, and never 0"


@pytest.mark.parametrize(("concurrent", "is_told"), [("-1", True), ("20", True), ("19", False)])
def test_a_bound_that_can_stop_nothing_is_told(bench: Bench, echo: Write, concurrent: str, is_told: bool) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", concurrent, "--max-cost", "100")
        assert done.code == 0
        assert ("note: echo: all rollouts may be in flight at once" in done.err) is is_told
        assert "all rollouts may be in flight" not in bench(*RUN, "-c", concurrent, "--max-time", "1h").err


def test_what_is_never_reached_changes_nothing(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "--max-cost", "2.0", "--max-time", "1h", "--max-tokens-total", "10000000")
        assert (done.code, model.requests) == (0, 20), "met by the last reply, when nothing is left to begin"
        assert json.loads(done.out)["runs"][0]["state"] == "done"


def test_judges_cost_money_too(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        tables = registry(model.url) + registry(model.url, name="judge")
        echo("configs/endpoints.toml", tables)
        done = bench(*RUN, "-c", "1", "-a", "grader=judge", "--max-cost", "0.6")
        assert done.code == 1, done.err
        assert model.requests == sum(model.by_model.values())
        assert 6 <= model.requests <= 7, "a request of the model and one of the judge may be in flight together"
        result = json.loads(done.out)
        assert result["budget"]["spent"]["cost"] == pytest.approx(model.requests / 10)
        [run] = result["runs"]
        assert model.by_model["judge-model"] <= model.by_model["paid-model"]
        begun = run["summary"]["num_rollouts"]  # one may have begun and been refused its request
        assert model.by_model["paid-model"] <= begun <= model.by_model["paid-model"] + 1
        assert run["summary"]["scored"] == model.by_model["judge-model"], "a judge is asked no more either"
        before = model.requests
        more = bench("resume", "latest", "--max-cost", "100", "-q", "--json")
        assert (more.code, dict(model.by_model)) == (0, {"paid-model": 20, "judge-model": 20}), more.err
        assert json.loads(more.out)["budget"]["before"]["cost"] == pytest.approx(before / 10)


def test_a_judge_of_unknown_price_is_refused(bench: Bench, echo: Write, here: Path) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-a", "grader=other", "-a", f"url={model.url}", "--max-cost", "5")
        assert (done.code, model.requests) == (2, 0)
        assert "the price of other (a judge of echo) is unknown" in done.err


@pytest.mark.parametrize("deferred", [(), ("-N",)])
def test_what_is_generated_is_scored_where_that_is_free(bench: Bench, echo: Write, deferred: tuple[str, ...]) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "1", *deferred, "--max-cost", "0.5")
        assert (done.code, model.requests) == (1, 5)
        [run] = json.loads(done.out)["runs"]
        assert (run["state"], run["summary"]["scored"], run["summary"]["unscored"]) == ("stopped", 5, {})


def test_what_is_generated_waits_for_a_judge_that_the_budget_has_no_money_for(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        tables = registry(model.url) + registry(model.url, name="judge")
        echo("configs/endpoints.toml", tables)
        done = bench(*RUN, "-c", "1", "-N", "-a", "grader=judge", "--max-cost", "0.5")
        assert (done.code, dict(model.by_model)) == (1, {"paid-model": 5}), "scoring comes later, and it costs money"
        [run] = json.loads(done.out)["runs"]
        assert (run["state"], run["summary"]["unscored"]) == ("stopped", {"not scored": 5})
        assert bench("resume", "latest", "-q", "--max-cost", "100").code == 0
        assert dict(model.by_model) == {"paid-model": 20, "judge-model": 20}


def test_a_reply_that_cannot_be_used_is_paid_for_all_the_same(bench: Bench, echo: Write, here: Path) -> None:
    with PaidModel(empty=frozenset({1})) as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "1", "--max-cost", "0.5")
        assert (done.code, model.requests) == (1, 5), "the first question was asked twice"
        [run] = json.loads(done.out)["runs"]
        assert (run["summary"]["scored"], run["summary"]["usage"]["cost"]) == (4, pytest.approx(0.5))


def test_an_endpoint_that_only_ever_sends_what_cannot_be_used_meets_the_bound(bench: Bench, echo: Write) -> None:
    with PaidModel(empty=frozenset(range(100))) as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "1", "--max-cost", "0.5", "--set", "model.request_retries=0")
        assert (done.code, model.requests) == (1, 5)
        result = json.loads(done.out)
        assert result["budget"]["spent"]["cost"] == pytest.approx(0.5)
        assert result["runs"][0]["summary"]["unscored"] == {"bad_response": 5}
        same = bench(*RUN, "-c", "1", "--resume", "--max-cost", "0.5")
        assert (same.code, model.requests) == (1, 5), "and so it does on the way on"


def test_an_unusable_reply_of_a_judge_is_counted_on_the_way_on(bench: Bench, echo: Write) -> None:
    with PaidModel(empty=frozenset({2})) as model:
        echo("configs/endpoints.toml", registry(model.url) + registry(model.url, name="judge"))
        usual = ("run", "./echo.py", "-m", "paid", "-n", "1", "-r", "1", "-q", "--json", "-a", "grader=judge")
        assert bench(*usual).code == 0 and model.requests == 3
        more = bench(*usual[:5], "2", *usual[6:], "--resume", "--max-cost", "5")
        assert (more.code, model.requests) == (0, 5), more.err
        assert json.loads(more.out)["budget"]["before"]["cost"] == pytest.approx(0.3)


# What is unknown


def test_an_unknown_price_is_refused_before_the_first_request_and_before_a_folder(
    bench: Bench, echo: Write, here: Path
) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url, price=None))
        done = bench(*RUN, "--max-cost", "5")
        assert (done.code, done.out, model.requests) == (2, "", 0)
        assert done.err.startswith("error: --max-cost 5: the price of paid-model (echo) is unknown")
    assert not (here / "outputs").exists()


def test_an_endpoint_that_says_its_cost_needs_no_price(bench: Bench, echo: Write) -> None:
    with PaidModel({"cost": 0.25}) as model:
        echo("configs/endpoints.toml", registry(model.url, price='"reported"'))
        done = bench(*RUN, "-c", "1", "--max-cost", "1")
        assert (done.code, model.requests) == (1, 4)
        assert json.loads(done.out)["budget"]["spent"]["cost"] == 1.0


def test_what_the_endpoint_says_beats_the_price(bench: Bench, echo: Write) -> None:
    with PaidModel({"cost": 0.25}) as model:
        echo("configs/endpoints.toml", registry(model.url, price=TENTH))
        assert bench(*RUN, "-c", "1", "--max-cost", "1").code == 1
        assert model.requests == 4


def test_an_endpoint_that_breaks_its_word_stops_it(bench: Bench, echo: Write) -> None:
    with PaidModel({"cost": 0.01}, silent=frozenset({3})) as model:
        echo("configs/endpoints.toml", registry(model.url, price='"reported"'))
        done = bench(*RUN, "-c", "1", "--max-cost", "1")
        assert (done.code, model.requests) == (1, 3)
        result = json.loads(done.out)
        assert "the cost of a reply of paid-model is unknown" in result["runs"][0]["note"]
        assert result["budget"]["spent"]["unpriced"] == 1
        # It was told of that one; the next attempt may go on, with a lower bound for what was spent before.
        more = bench("resume", "latest", "-c", "1", "-q", "--max-cost", "1")
        assert (more.code, model.requests) == (0, 20), more.err


@pytest.mark.plugins
@pytest.mark.parametrize(
    "wrong", [("--max-cost", "0"), ("--max-cost", "-1"), ("--max-tokens-total", "0"), ("--max-time", "0")]
)
def test_nothing_and_less_are_no_budgets(bench: Bench, echo: Write, evals: Evals, wrong: tuple[str, str]) -> None:
    for command in (
        ("run", "toy-env", "-m", "reference/null"),
        ("eval", "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match", "--model", "x",
         "--base-url", evals.model.url),
    ):  # fmt: skip
        done = evals.bench(*command, *wrong)
        assert done.code == 2 and f"{' '.join(wrong)}: must be" in done.err, done
    assert evals.model.requests == []


# Time


def test_time_that_is_up_before_anything_begins_asks_for_nothing(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "--max-time", "0.0001")
        assert (done.code, model.requests) == (1, 0)
        [run] = json.loads(done.out)["runs"]
        assert (run["state"], run["summary"]["not_run"]) == ("stopped", 20)
        assert "(--max-time 0.0001)" in run["note"] and "the time limit then starts again" in run["note"]
        assert json.loads(done.out)["budget"]["reached"] == "max_time"
        more = bench("resume", "latest", "--max-time", "1h", "-q")
        assert (more.code, model.requests) == (0, 20), more.err


# Other doors


@pytest.mark.plugins
def test_eval_has_a_budget_for_both_models(evals: Evals) -> None:
    tables = [registry(evals.model.url, name=name) for name in ("mine", "theirs")]
    (evals.cwd / "configs").mkdir()
    (evals.cwd / "configs" / "endpoints.toml").write_text("\n".join(tables))
    evals.rows(*(f"{n} + {n}" for n in range(2, 12)))
    usual = ("eval", "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match",
             "--model", "mine", "--baseline-model", "theirs")  # fmt: skip
    done = evals.bench(*usual, "--max-tokens-total", "100", "-o", "results.json")
    assert done.code == 1, done.err
    stopped = evals.results()
    assert stopped["summary"]["stopped_early"] and "--max-tokens-total 100" in stopped["summary"]["stop_reason"]
    budget = stopped["meta"]["budget"]
    assert budget["reached"] == "max_tokens_total" and budget["spent"]["tokens"] >= 100
    assert "--max-tokens-total 200" in done.out and "--resume" in done.out
    first = len(evals.model.requests)
    assert evals.bench(*usual, "--resume", "--max-tokens-total", "100").code == 1
    assert len(evals.model.requests) == first, "not even whether the model is there"
    more = evals.bench(*usual, "--resume", "-o", "results.json")
    assert more.code == 0, more.err
    assert "budget" not in evals.results()["meta"]
    # Each run asks twice, and has a connection check of its model before it. Of the answered rows one is asked again:
    # the budget was spent between its two calls.
    rows = [(body["model"], body["messages"][1]["content"]) for body in evals.model.requests
            if len(body["messages"]) == 2]  # fmt: skip
    assert (len(rows), len(set(rows))) == (21, 20) and first < len(evals.model.requests)


def test_multi_shares_a_budget_between_models(multi: Multi) -> None:
    multi.models("strong", "weak", price={"input": 1e6, "output": 1e6})
    done = multi.multi("--json", "--max-cost", "50", "--model-concurrency", "1")
    assert done.code == 1, done.err
    result = json.loads(done.out)
    budget = result["meta"]["budget"]
    spent = sum(model["summary"]["cost"] or 0 for model in result["models"])
    assert budget["reached"] == "max_cost" and budget["spent"]["cost"] == pytest.approx(spent) and spent >= 50
    last = result["summary"][-1]
    assert last["notRun"] > 0 and "the budget is reached (--max-cost 50)" in last["stopReason"]
    asked = multi.asked()
    assert f"--max-cost {2 ** (int(spent // 50).bit_length()) * 50}" in done.err
    more = multi.multi("--json", "--resume")
    assert more.code == 0, more.err
    assert len(multi.asked()) == len(set(multi.asked())) == 12 and multi.asked()[: len(asked)] == asked


def test_multi_refuses_a_model_of_unknown_price(multi: Multi) -> None:
    done = multi.multi("--max-cost", "5")
    assert (done.code, multi.asked()) == (2, [])
    assert "the price of strong (strong), weak (weak) is unknown" in done.err


def test_a_dry_run_shows_it(bench: Bench, echo: Write) -> None:
    usual = ("run", "./echo.py", "-m", "reference/null", "--dry-run", "--max-cost", "5", "--max-time", "1h")
    assert "budget of the whole invocation: --max-cost 5, --max-time 1h\n" in bench(*usual).out
    assert json.loads(bench(*usual, "--json").out)["budget"] == {
        "max_cost": {"value": 5.0, "source": "--max-cost 5"}, "max_time": {"value": 3600.0, "source": "--max-time 1h"},
    }  # fmt: skip


def test_a_replay_counts_what_it_asks_itself(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        assert bench(*RUN).code == 0
        recorded = bench("replay", "latest", "--set", "budget.max_cost=0.1", "-q", "--json")
        assert (recorded.code, model.requests) == (0, 20), recorded.err
        assert json.loads(recorded.out)["budget"]["spent"]["cost"] == 0.0, "nobody was asked"
        bounds = ("--set", "budget.max_cost=0.3", "-c", "1", "-q", "--json")
        anew = bench("replay", "latest", "--model", "paid", *bounds)
        assert (anew.code, model.requests) == (1, 23), anew.err
        assert " --max-cost 0.6\n" in anew.err
        assert bench("resume", "latest", "-q", "--max-cost", "10").code == 0 and model.requests == 40


@pytest.mark.parametrize("command", ["rescore", "replay"])
def test_going_on_with_a_derived_run_counts_what_its_judges_have_cost(bench: Bench, echo: Write, command: str) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url) + registry(model.url, name="judge"))
        assert bench(*RUN, "-a", "grader=judge").code == 0
        model.asked.clear()
        first = bench(command, "latest", "--set", "budget.max_cost=0.5", "-c", "1", "-q", "--json")
        spent = model.requests
        assert first.code == 1 and 5 <= spent <= 7, first.err
        same = bench("resume", "latest", "-c", "1", "--max-cost", "0.5", "-q", "--json")
        assert (same.code, model.requests) == (1, spent), "nothing is left of the same amount"
        assert json.loads(same.out)["budget"]["before"]["cost"] == pytest.approx(spent / 10)


def test_the_page_of_a_run_shows_a_way_on_that_keeps_a_bound(bench: Bench, echo: Write) -> None:
    with PaidModel() as model:
        echo("configs/endpoints.toml", registry(model.url))
        assert bench(*RUN, "-c", "1", "--max-cost", "0.5").code == 1
        assert "--max-cost 1\n" in bench("runs", "show", "latest").out
        [step] = [each for each in json.loads(bench("runs", "show", "latest", "--json").out)["next"] if "go on" in each]
        assert step.endswith(" --max-cost 1")
