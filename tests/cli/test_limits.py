"""Limits of a rollout and a spent budget, through the commands. Requests are counted at the server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Evals
from multi_evals import Multi
from paid_model import PaidModel, registry
from run_samples import Bench

Write = Callable[[str, str], Path]

LOOPER = """
import asyncio
from harness import MultiTurnEnv, Rubric

class Looper(MultiTurnEnv):
    def __init__(self, mode, **options):
        super().__init__(**options)
        self.mode = mode

    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "and?"}]

    async def play(self, state):
        if self.mode == "turns":
            return await super().play(state)
        await self._start(state)
        if self.mode == "parallel":
            asked = (self.get_model_response(state, state.transcript) for _ in range(50))
            await asyncio.gather(*asked, return_exceptions=True)
        while self.mode == "stubborn":
            try:
                await self.get_model_response(state, state.transcript)
            except Exception:
                pass

def length(completion):
    return float(len(completion))

def rank(completions):
    return [0.0 for _ in completions]

def load_environment(mode="turns", functions=1):
    rows = [{"question": f"question {n}", "answer": "yes"} for n in range(20)]
    return Looper(mode, dataset=rows, rubric=Rubric([length, rank][:functions]))
"""

AGENT = """
from harness.agents.loop import RolloutAgentLoop

class Stubborn(RolloutAgentLoop):
    name = "stubborn"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        while True:
            try:
                await ctx.chat(list(ctx.request.messages))
            except Exception:
                pass
"""

RUN = ("run", "./looper.py", "-m", "paid", "-n", "4", "-r", "1", "-q", "--json")


@pytest.fixture
def looper(write: Write) -> Write:
    write("looper.py", LOOPER)
    return write


def lines(kind: str) -> list[dict[str, Any]]:
    [journal] = Path("outputs", "evals").glob("*/*/journal.jsonl")
    read = map(json.loads, journal.read_text().splitlines())
    return [line for line in read if line["type"] == kind]


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--workers", "1")])
@pytest.mark.parametrize("mode", ["turns", "parallel", "stubborn"])
def test_a_rollout_makes_no_call_beyond_its_limit_and_is_scored(
    bench: Bench, looper: Write, mode: str, where: tuple[str, ...]
) -> None:
    with PaidModel() as model:
        looper("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-a", f"mode={mode}", "--message-limit", "6", *where)
        assert (done.code, model.requests) == (0, 24), done.err
        [run] = json.loads(done.out)["runs"]
        assert (run["state"], run["summary"]["scored"], run["summary"]["truncated"]) == ("done", 4, 4)
        assert "4 of 4 answers were cut short by a limit" in done.err
        assert {(line["stop_condition"], line["usage"]["requests"]) for line in lines("generated")} == {
            ("message_limit", 6)
        }
        for again in (("rescore",), ("replay",), ("replay",)):  # the last replays a replay
            derived = bench(*again, "latest", "-q", "--json")
            assert derived.code == 0, derived.err
            [copy] = json.loads(derived.out)["runs"]
            assert copy["summary"]["reward"]["mean"] == run["summary"]["reward"]["mean"]
        assert model.requests == 24


def test_a_limit_that_is_set_belongs_to_the_identity(bench: Bench, looper: Write) -> None:
    with PaidModel() as model:
        looper("configs/endpoints.toml", registry(model.url))
        assert bench(*RUN, "--message-limit", "2").code == 0
        folder = str(next(Path("outputs", "evals").glob("*/*/run.json")).parent)
        other = bench(*RUN, "--message-limit", "3", "--resume-from", folder)
        assert other.code == 2 and "limits.message_limit" in other.err, other.err
        assert bench(*RUN, "--message-limit", "2", "--resume-from", folder).code == 0
        assert model.requests == 8
        idle = bench("replay", "latest", "--set", "env.message_limit=5")
        assert idle.code == 2 and "no model is called" in idle.err


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--isolate",)])
@pytest.mark.parametrize("functions", [1, 2])
def test_what_a_spent_budget_left_is_made_with_a_larger_one(
    bench: Bench, looper: Write, functions: int, where: tuple[str, ...]
) -> None:
    with PaidModel() as model:
        looper("configs/endpoints.toml", registry(model.url))
        usual = (*RUN, "-c", "1", "-a", f"functions={functions}", "--message-limit", "4", *where)
        done = bench(*usual, "--max-cost", "1.0")
        assert (done.code, model.requests) == (1, 10), "between the two last calls of the third rollout"
        [run] = json.loads(done.out)["runs"]
        assert (run["state"], run["summary"]["scored"]) == ("stopped", 2)
        assert (run["summary"]["unscored"], run["summary"]["not_run"]) == ({"budget": 1}, 1)
        assert "--max-cost 2" in done.err
        replayed = bench("replay", "latest", "-q", "--json")
        assert replayed.code == 0, replayed.err
        [replay] = json.loads(replayed.out)["runs"]
        assert (replay["state"], replay["summary"]["unscored"]) == ("done", {"budget": 1})
        shutil.rmtree(replay["path"])
        same = bench("resume", "latest", "-q", "--json")
        assert (same.code, model.requests) == (0, 18), same.err
        assert json.loads(same.out)["runs"][0]["summary"]["scored"] == 4
    assert [line["reason"] for line in lines("failed")] == ["budget"]
    counted = [line["usage"]["requests"] for kind in ("generated", "failed") for line in lines(kind)]
    assert sum(counted) == 18, "every request is counted, and none twice"


def test_requests_that_wait_for_their_slot_are_refused_too(bench: Bench, looper: Write) -> None:
    with PaidModel() as model:
        looper("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-c", "1", "-a", "mode=parallel", "--max-cost", "0.5")
        assert (done.code, model.requests) == (1, 5), "of fifty that were asked in parallel"
        assert json.loads(done.out)["runs"][0]["summary"]["unscored"] == {"budget": 1}
        [failed] = lines("failed")
        assert failed["usage"]["requests"] == 5


@pytest.mark.plugins
def test_a_looping_agent_of_a_silent_server_ends(evals: Evals) -> None:
    (evals.cwd / "stubborn.py").write_text(AGENT)
    usual = ("-d", "data.jsonl", "--eval-fn", "rewards:exact_match", "--model", "some", "--fresh", "-o", "results.json")
    with PaidModel(silent=frozenset(range(10_000))) as model:
        (evals.cwd / "configs").mkdir()
        (evals.cwd / "configs" / "endpoints.toml").write_text(registry(model.url, None, "some"))
        begun = ("eval", "-m", "stubborn:Stubborn", *usual)
        spent = evals.bench(*begun, "--max-turns", "3", "--max-tokens-total", "3000")
        assert spent.code == 1 and model.by_model["some-model"] <= 2, "a reply, and the connection check"
        assert "did not report the tokens" in spent.out and "budget: 1 of 1" in spent.out
        before = model.requests
        done = evals.bench(*begun, "--message-limit", "5")
        assert done.code == 0 and model.requests - before in (15, 16), done.err
        assert "Ended by a limit: 3 by message_limit of 3 runs" in done.out and "Total tokens: unknown" in done.out
        done = evals.bench(*begun, "--token-limit", "100", "--limit", "1")
        assert done.code == 0 and model.requests - before < 40
        assert "Ended by a limit: 1 by token_limit of 1 runs" in done.out
        tested = evals.bench("test", "-m", "stubborn:Stubborn", *usual[:2], *usual[4:6], "--message-limit", "2")
        assert tested.code == 0 and "[message_limit]" in tested.out, tested.err


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--workers", "1")])
@pytest.mark.parametrize("mode", ["turns", "stubborn"])
def test_a_rollout_costs_no_more_than_its_limit_and_is_scored(
    bench: Bench, looper: Write, mode: str, where: tuple[str, ...]
) -> None:
    with PaidModel() as model:
        looper("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-a", f"mode={mode}", "--cost-limit", "0.3", *where)
        assert (done.code, model.requests) == (0, 12), done.err
        [run] = json.loads(done.out)["runs"]
        assert (run["state"], run["summary"]["scored"], run["summary"]["truncated"]) == ("done", 4, 4)
        assert {(line["stop_condition"], line["usage"]["requests"]) for line in lines("generated")} == {
            ("cost_limit", 3)
        }
        folder = run["path"]
        for again in ("rescore", "replay"):
            assert bench(again, "latest", "--cost-limit", "0.2").code == 2, "no model is called"
        for again in ("rescore", "replay"):
            derived = bench(again, folder, "-q", "--json")
            assert derived.code == 0, derived.err
            [copy] = json.loads(derived.out)["runs"]
            assert copy["summary"]["reward"]["mean"] == run["summary"]["reward"]["mean"]
        same = (*RUN, "-a", f"mode={mode}", *where, "--resume-from", folder)
        assert "limits.cost_limit" in bench(*same, "--cost-limit", "0.2").err, "another limit is another run"
        assert bench(*same, "--cost-limit", "0.3").code == 0
        assert bench("resume", folder, "--cost-limit", "0.3", "-q").code == 0
        assert model.requests == 12
        other = bench("replay", folder, "-m", "paid", "--cost-limit", "0.2", "-q", "--json")
        assert (other.code, model.requests) == (0, 20), other.err


def test_a_cost_limit_needs_a_price_and_a_cost_of_each_reply(bench: Bench, looper: Write) -> None:
    with PaidModel() as model:
        looper("configs/endpoints.toml", registry(model.url, None))
        refused = bench(*RUN, "--cost-limit", "0.3")
        assert (refused.code, model.requests) == (2, 0)
        assert "--cost-limit 0.3: the price of paid-model (looper) is unknown, so this limit cannot be enforced" in (
            refused.err
        )
        assert "or limit the tokens: --token-limit" in refused.err
        bad = bench(*RUN, "--cost-limit", "0")
        assert bad.code == 2 and "cost_limit must be greater than 0" in bad.err
        free = bench(*RUN, "-m", "reference/null", "--cost-limit", "0.01", "--message-limit", "3")
        assert free.code == 0, free.err
        assert {line["stop_condition"] for line in lines("generated")} == {"message_limit"}
        shutil.rmtree("outputs")
    with PaidModel(silent=frozenset({2})) as model:
        looper("configs/endpoints.toml", registry(model.url))
        done = bench(*RUN, "-n", "1", "--cost-limit", "10")
        assert (done.code, model.requests) == (0, 2), done.err
        assert [line["stop_condition"] for line in lines("generated")] == ["cost_limit"]


@pytest.mark.plugins
def test_an_agent_costs_no_more_than_its_limit(evals: Evals) -> None:
    (evals.cwd / "stubborn.py").write_text(AGENT)
    usual = ("-m", "stubborn:Stubborn", "-d", "data.jsonl", "--model", "some", "--limit", "1")
    with PaidModel() as model:
        (evals.cwd / "configs").mkdir()
        (evals.cwd / "configs" / "endpoints.toml").write_text(registry(model.url, name="some"))
        done = evals.bench("eval", *usual, "--eval-fn", "rewards:exact_match", "--fresh", "--cost-limit", "0.2")
        assert done.code == 0 and model.requests in (2, 3), done.err
        assert "Ended by a limit: 1 by cost_limit of 1 runs" in done.out
        tested = evals.bench("test", *usual, "--cost-limit", "0.1")
        assert tested.code == 0 and "[cost_limit]" in tested.out, tested.err


def test_multi_refuses_a_cost_limit_without_a_price(multi: Multi) -> None:
    multi.models("strong")
    done = multi.multi("--json", "--cost-limit", "0.1")
    assert done.code == 2 and "--cost-limit 0.1: the price of" in done.err, done.err
    assert not multi.model.requests


def test_multi_cuts_max_tokens(multi: Multi) -> None:
    multi.models("strong")
    done = multi.multi("--json", "--token-limit", "7", "--max-tokens", "50")
    assert done.code == 0, done.err
    assert {body["max_tokens"] for body in multi.model.requests if "max_tokens" in body} == {7}


def test_a_suite_sets_limits_for_all_runs_and_for_one(bench: Bench, looper: Write) -> None:
    with PaidModel() as model:
        run = '[[eval]]\nenv_id = "./looper.py"\nmodel = "paid"\n'
        one = f'{run}name = "one"\nmessage_limit = 1\n'
        looper("s.toml", f"[env]\nmessage_limit = 2\n{run}{one}{registry(model.url)}")
        assert bench("run", "s.toml", "-n", "2", "-r", "1", "-q").code == 0
        assert model.requests == 6
        bad = bench("run", "s.toml", "--set", "env.token_limit=0")
        assert bad.code == 2 and "token_limit" in bad.err and "Traceback" not in bad.err


FAILING = """
from harness import Rubric, SingleTurnEnv

class Failing(SingleTurnEnv):
    async def setup_state(self, state, **kwargs):
        if state["answer"] == "fail":
            raise ValueError("no")
        return await super().setup_state(state, **kwargs)

    def reference_reply(self, example, messages):
        return "yes"

async def fine():
    return 1.0

def load_environment():
    rows = [{"question": f"{n}", "answer": answer} for n, answer in enumerate(["fail", "a", "fail", "b"])]
    return Failing(dataset=rows, rubric=Rubric([fine]))
"""


def test_a_run_stops_beyond_its_limit_of_failures_and_can_be_resumed(bench: Bench, write: Write) -> None:
    write("failing.py", FAILING)
    args = ("run", "./failing.py", "-m", "reference/oracle", "-n", "-1", "-r", "1", "-c", "1", "-q", "--json")
    first = bench(*args, "--max-failures", "0", "--no-save")
    [run] = json.loads(first.out)["runs"]
    assert (first.code, run["summary"]["unscored"]) == (1, {"environment_error": 1}), first.err
    stopped = bench(*args, "--max-failures", "1")
    [run] = json.loads(stopped.out)["runs"]
    assert (stopped.code, run["state"], run["summary"]["scored"]) == (1, "stopped", 1)
    assert run["note"].startswith("more than 1 rollouts have no score, the limit set by max_failures; the last error: ")
    again = bench("resume", "latest", "--json", "-q")
    [run] = json.loads(again.out)["runs"]
    assert (run["state"], run["summary"]["scored"]) == ("done", 2)
    replayed = bench("replay", "latest", "--json", "-q")
    assert json.loads(replayed.out)["runs"][0]["state"] == "done", "recorded failures are not new ones"
    for typed in (("--set", "env.max_failures=1"), ("--max-failures", "1")):
        idle = bench("replay", "latest", *typed)
        assert idle.code == 2 and "no model is called" in idle.err
    assert bench("rescore", "latest", "--max-failures", "1").code == 2
    other = bench("replay", "latest", "-m", "reference/oracle", "--max-failures", "0", "--json", "-q")
    [run] = json.loads(other.out)["runs"]
    assert (other.code, run["state"], run["summary"]["unscored"]) == (1, "stopped", {"environment_error": 1})
    again = bench("resume", "latest", "--max-failures", "1", "--json", "-q")
    [run] = json.loads(again.out)["runs"]
    assert (run["state"], run["summary"]["unscored"]) == ("done", {"environment_error": 2}), (
        "0, as recorded, would stop it"
    )


def test_multi_stops_beyond_its_limit_of_failures(multi: Multi) -> None:
    multi.models("strong")
    (multi.cwd / "hopeless.py").write_text('def fails(task, output):\n    raise ValueError("no")\n')
    done = multi.multi("--no-save", "--json", "--score-output", "hopeless:fails", "--max-failures", "0")
    [model] = json.loads(done.out)["models"]
    assert done.code == 1 and "more than 0 rollouts have no score" in model["summary"]["stopReason"], done.err


@pytest.mark.plugins
def test_an_agent_stops_beyond_its_limit_of_failures(evals: Evals) -> None:
    (evals.cwd / "hopeless.py").write_text(AGENT.replace("while True:", 'raise ValueError("no")\n        while True:'))
    usual = ("-m", "hopeless:Stubborn", "-d", "data.jsonl", "--model", "some", "--max-failures", "0")
    with PaidModel() as model:
        (evals.cwd / "configs").mkdir()
        (evals.cwd / "configs" / "endpoints.toml").write_text(registry(model.url, None, "some"))
        for command in (("eval", "--eval-fn", "rewards:exact_match", "--fresh"), ("test",)):
            done = evals.bench(*command, *usual)
            assert done.code == 1 and "more than 0 rollouts have no score" in done.out, done.err
