"""The judges of a run: which model is asked where and as whom, and how the requests of a run reach it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ConfigError, EnvironmentFault, EnvironmentLoadError
from harness.core.state import State
from harness.core.types import ROLLOUT_HEADER, ModelCall, ModelResponse
from harness.engine.environment_loader import load_environment
from harness.engine.evaluation import Evaluation
from harness.engine.judges import JudgeBinding, RunPanel, embedded_judge_note, identity_with, judges_of
from harness.engine.prepare import LiveRun, StartOptions, prepare, progress_of
from harness.engine.spending import SpendTracker
from harness.envs.environment import Environment
from harness.models.delays import Delay, note_of
from harness.models.pool import CallSettings, ClientPool
from harness.reference.fault_sources import FaultSource
from harness.reference.header import parse_header
from harness.reference.player import EnvironmentPlayer
from harness.reference.script import fault_script
from harness.reference.server import ReferenceServer
from harness.rubrics.judge_port import JudgeSpec
from harness.settings.endpoints import Endpoint
from harness.settings.layers import Origin
from harness.settings.resolver import ResolvedRun, resolve
from harness.store.journal import read

UNCOUNTED = SpendTracker(lambda *_: None)

JUDGED = """
from harness import JudgeRubric, RubricGroup, SingleTurnEnv
from harness.rubrics.judge import quoted_response

class Judged(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

class Known(Judged):
    def reference_verdict(self, example, messages):
        return "CORRECT" if quoted_response(messages) == example.answer else "INCORRECT"

async def second(judge, prompt, completion, answer, state):
    return (await judge.verdict(prompt, completion, answer, state)).value

def load_environment(size=6, grader="far/judge", known=True, judge_base_url=None, key_var=None, bound=None, more=0,
                     sampling=None, judge_model=None):
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    rubric = JudgeRubric(judge_model=judge_model or grader, judge_base_url=judge_base_url, judge_api_key_var=key_var,
                         max_concurrent=bound, judge_sampling_args=sampling)
    if more:
        rubric = RubricGroup([rubric, JudgeRubric([second], judge_model="other/judge")])
    return (Known if known else Judged)(dataset=rows, rubric=rubric)
"""

REGISTRY = """
[[endpoint]]
endpoint_id = "strict"
model = "strict-1"
url = "https://judge.example/v1"
key = "JUDGE_KEY"
price = { input = 2.0, output = 10.0 }

[[endpoint]]
endpoint_id = "twins"
url = "http://localhost:1001/v1"

[[endpoint]]
endpoint_id = "twins"
url = "http://localhost:1002/v1"
"""

Make = Callable[..., ResolvedRun]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable environment that exists for this test alone."""
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modules").mkdir()
    (tmp_path / "registry.toml").write_text(REGISTRY)
    name = f"judged_{abs(hash(tmp_path)) % 10**12}"
    (tmp_path / "modules" / f"{name}.py").write_text(JUDGED)
    return name


def resolved(
    module: str, model: str = "reference/oracle", registry: str | None = "registry.toml", **args: object
) -> Any:
    flags = {"model": model, "env_args": args, "num_examples": -1, "rollouts_per_example": 1}
    [run] = resolve(module, flags, endpoints_path=registry).runs
    return run


def loaded(run: ResolvedRun) -> Environment:
    return load_environment(run.settings.env.env_id, **run.settings.env.env_args)


def seat(run: ResolvedRun, **environ: str) -> JudgeBinding:
    [only] = judges_of(run, loaded(run), environ)
    return only


# Which judge


def test_a_reference_model_is_judged_by_the_reference_judge_and_it_is_said(module: str) -> None:
    found = seat(resolved(module))
    assert (found.model, found.is_embedded, found.stands_in) == ("reference/judge", True, True)
    assert embedded_judge_note([found]).startswith("reference/judge judges in place of far/judge, ")
    assert found.identity()["model"] == ["reference/judge"] and found.identity()["urls"] == []


@pytest.mark.parametrize(
    "args",
    [
        {"grader": "local/judge"},  # an argument of any name whose value is the judge
        {"grader": "far/judge"},  # also if that is the default
        {"judge_base_url": "http://localhost:9/v1"},
    ],
)
def test_a_judge_that_the_caller_names_is_asked_even_for_a_reference_model(module: str, args: dict[str, str]) -> None:
    found = seat(resolved(module, **args), PRIME_API_KEY="k")
    assert (found.is_embedded, found.stands_in) == (False, False)
    assert found.model == args.get("grader", "far/judge")
    assert embedded_judge_note([found]) == ""


def test_a_judge_that_the_packages_own_defaults_name_is_not_the_callers(module: str) -> None:
    run = resolved(module, grader="local/judge")
    origins = {path: Origin("package", "pyproject.toml") for path in run.origins if path.startswith("env.env_args")}
    assert seat(replace(run, origins={**run.origins, **origins})).stands_in


def test_a_real_model_is_not_judged_by_the_reference_judge_unless_asked(module: str) -> None:
    real = seat(resolved(module, "some-model"), PRIME_API_KEY="k")
    assert (real.model, real.is_embedded) == ("far/judge", False)
    asked = seat(resolved(module, "some-model", grader="reference/judge"))
    assert (asked.model, asked.is_embedded, asked.stands_in) == ("reference/judge", True, False)


@pytest.mark.parametrize(
    ("model", "args", "words"),
    [
        (
            "reference/oracle",
            {"known": False},
            "has no reference judge .* name it explicitly: env_args judge_model=far/judge",
        ),
        ("some-model", {"known": False, "grader": "reference/judge"}, "no reference judge, so reference/judge cannot"),
        ("some-model", {"grader": "reference/juge"}, "did you mean reference/judge"),
        (
            "some-model",
            {"grader": "reference/oracle"},
            "judge_model is reference/oracle, .* set judge_model to reference/judge or to a real",
        ),
        ("reference/oracle", {"grader": "reference/noisy?seed=2"}, "noisy cannot judge"),
        (
            "some-model",
            {"grader": "reference/null", "judge_base_url": "http://localhost:9/v1"},
            "null cannot judge",
        ),
        ("some-model", {"sampling": {"n": 4}, "grader": "twins"}, "sampling_args.n is 4"),
    ],
)
def test_a_judge_that_cannot_be_is_refused(module: str, model: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        seat(resolved(module, model, **args))


# Where, and as whom


def test_an_alias_of_the_registry_gives_model_url_key_and_price(module: str) -> None:
    found = seat(resolved(module, "m", grader="strict"), JUDGE_KEY="k")
    [endpoint] = found.endpoints
    assert (found.alias, endpoint.model, endpoint.url) == ("strict", "strict-1", "https://judge.example/v1")
    assert (endpoint.key_var, endpoint.price) == ("JUDGE_KEY", {"input": 2.0, "output": 10.0})
    assert found.identity()["model"] == ["strict-1"]
    twins = seat(resolved(module, "m", grader="twins"))
    assert [each.url for each in twins.endpoints] == ["http://localhost:1001/v1", "http://localhost:1002/v1"]


def test_a_key_variable_of_the_rubrics_own_wins_over_the_alias(module: str) -> None:
    found = seat(resolved(module, "m", grader="strict", key_var="MINE"), MINE="k")
    assert (found.endpoints[0].key_var, found.endpoints[0].url) == ("MINE", "https://judge.example/v1")


def test_a_url_of_the_rubrics_own_takes_nothing_from_the_registry(module: str) -> None:
    """Least of all the key, which would go to another host."""
    [endpoint] = seat(resolved(module, "m", grader="strict", judge_base_url="https://elsewhere.example/v1")).endpoints
    assert (endpoint.url, endpoint.model, endpoint.key_var, endpoint.price) == (
        "https://elsewhere.example/v1", "strict", None, None,
    )  # fmt: skip


def test_a_judge_in_no_registry_is_asked_where_any_model_is(module: str) -> None:
    [endpoint] = seat(resolved(module, "m", registry=None), PRIME_API_KEY="k").endpoints
    assert (endpoint.url, endpoint.key_var) == ("https://api.pinference.ai/api/v1", "PRIME_API_KEY")


LOCAL = "model = 'm'\napi_base_url = 'http://localhost:1/v1'"
DEFAULT = "model = 'm'\napi_base_url = 'https://api.pinference.ai/api/v1'"
PLAYED = "model = 'strict'\n[[eval]]\nmodel = 'reference/oracle'"


@pytest.mark.parametrize(
    ("model", "args", "refused"),
    [
        (LOCAL, "", "suite.toml: model.api_base_url sets another host, localhost:1"),
        ("model = 'strict'", "", "suite.toml: model.model sets another host, judge.example"),
        (PLAYED, "judge_model = 'far/judge'", "suite.toml: model.model sets another host, judge.example"),
        ("model = 'm'", "key_var = 'OPENAI_API_KEY'", r"with OPENAI_API_KEY \("),
        ("model = 'm'", "", ""),
        (DEFAULT, "", ""),
        (PLAYED, "", ""),
        (LOCAL, "grader = 'reference/judge'", ""),
        (LOCAL, "grader = 'strict'", ""),
        (LOCAL, "judge_base_url = 'https://x.example/v1'", ""),
    ],
)
def test_no_judge_is_asked_at_the_default_host_where_a_layer_names_another(
    module: str, model: str, args: str, refused: str
) -> None:
    head, _, rest = model.partition("[[eval]]")
    suite = f"endpoints_path = 'registry.toml'\n[model]\n{head}\n[[eval]]{rest}\nenv_id = '{module}'\n"
    Path("suite.toml").write_text(f"{suite}env_args = {{{args}}}\n")
    [run] = resolve("suite.toml", {}).runs
    environ = dict.fromkeys(["PRIME_API_KEY", "JUDGE_KEY", "OPENAI_API_KEY"], "k")
    if not refused:
        assert judges_of(run, loaded(run), environ)
        return
    with pytest.raises(ConfigError, match=refused) as caught:
        judges_of(run, loaded(run), environ)
    assert "set the judge's URL (judge_base_url" in str(caught.value)


@pytest.mark.parametrize("value", ["", " \n"])
def test_a_missing_key_is_found_before_the_first_call(module: str, value: str) -> None:
    words = r"JUDGE_KEY is not set, and strict, the judge of judged_\d+, needs it at https://judge.example/v1"
    with pytest.raises(ConfigError, match=words):
        seat(resolved(module, "m", grader="strict"), JUDGE_KEY=value)
    assert seat(resolved(module, "m", grader="twins", key_var="JUDGE_KEY"))  # loopback needs none


def test_a_literal_key_needs_no_variable_and_is_nowhere_but_in_the_endpoint(module: str) -> None:
    environment = loaded(resolved(module, "m"))
    spec = JudgeSpec("m", "https://judge.example/v1", key="literal-key-9137")
    environment.rubric.judge.spec = spec  # type: ignore[attr-defined]
    [found] = judges_of(resolved(module, "m"), environment, {})
    assert found.endpoints[0].key == "literal-key-9137"
    assert "literal-key-9137" not in f"{found} {found.endpoints} {found.identity()} {found.endpoints[0].key_var}"
    client: Any = ClientPool(environ={}).get(found.endpoints)
    assert client.target.key == "literal-key-9137"


def test_the_identity_changes_with_what_changes_scores_and_with_nothing_else(module: str) -> None:
    def identity(**args: Any) -> object:
        return identity_with({}, [seat(resolved(module, "m", grader="twins", **args))])["judges"]["judge"]

    assert identity() == identity(bound=3) == identity(key_var="K")
    assert identity() != identity(sampling={"seed": 1})
    assert identity() != identity(judge_base_url="http://localhost:7/v1")
    assert identity_with({"env": 1}, []) == {"env": 1}
    both = judges_of(run := resolved(module, more=1), loaded(run), {})
    assert list(identity_with({}, both)["judges"]) == ["judge", "judge_2"]


# The panel


@dataclass
class Recording:
    """A pool and a client in one: keeps the calls."""

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    asked: list[CallSettings] = field(default_factory=list[CallSettings])
    held: tuple[Delay, ...] = ()

    def get(self, endpoints: Sequence[Endpoint], settings: CallSettings) -> Recording:
        self.asked.append(settings)
        return self

    async def request(self, call: ModelCall) -> ModelResponse:
        self.calls.append(call)
        return ModelResponse({"role": "assistant", "content": "CORRECT"}, "stop")

    def delays(self) -> list[Delay]:
        return [*self.held]


def prepared(run: ResolvedRun, **options: Any) -> LiveRun:
    [only] = prepare([run], [progress_of(run)], StartOptions(**options))
    assert isinstance(only, LiveRun), only.error
    only.release()
    return only


def first_state(run: LiveRun) -> State:
    return State.begin(next(iter(run.plan.rollouts.examples())), 0, "m", {})


def test_requests_are_urgent_and_name_their_rollout_on_loopback_only(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        for grader, told in (("twins", True), ("strict", False)):
            run = prepared(resolved(module, "m", grader=grader, sampling={"seed": 7}))
            pool = Recording()
            panel = RunPanel("lane", run.plan, pool, None, UNCOUNTED)  # type: ignore[arg-type]
            state = first_state(run)
            await panel.chat(run.plan.environment.rubric.judges[0], state)([{"role": "user", "content": "?"}])
            [call] = pool.calls
            assert (call.urgent, call.model, call.sampling_args) == (True, run.plan.judges[0].model, {"seed": 7})
            rollout = parse_header(call.headers.get(ROLLOUT_HEADER))
            example = next(iter(run.plan.rollouts.examples()))
            wanted = ("lane:judge", example.key, run.plan.rollouts.items(example)[0].key) if told else None
            assert rollout == wanted
            pool.held = (Delay("3 backing off (429), the next", 12.0), Delay("3 backing off (429), the next", 12.1))
            assert note_of(panel.delays()) == "judge: 3 backing off (429), the next for 12 s more"

    monkeypatch.setenv("JUDGE_KEY", "k")
    asyncio.run(main())


def test_the_limiter_is_asked_for_the_judges_bound_or_else_the_runs(module: str) -> None:
    for bound, wanted in ((None, 32), (3, 3)):
        pool = Recording()
        RunPanel("lane", prepared(resolved(module, "m", grader="twins", bound=bound)).plan, pool, None, UNCOUNTED)  # type: ignore[arg-type]
        assert [settings.max_in_flight for settings in pool.asked] == [wanted]


def test_a_judge_that_was_not_named_is_refused(module: str) -> None:
    run = prepared(resolved(module, "m", grader="twins"))
    panel = RunPanel("lane", run.plan, Recording(), None, UNCOUNTED)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault, match="'late' was not among the rubric's judges"):
        panel.chat(JudgeSpec("late"), first_state(run))


def test_the_reference_judge_must_know_the_rollout(module: str) -> None:
    run = prepared(resolved(module))
    panel = RunPanel("lane", run.plan, Recording(), ReferenceServer(), UNCOUNTED)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault, match="pass state to judge"):
        panel.chat(run.plan.environment.rubric.judges[0], None)


# Whole runs over loopback


def play(make: Callable[[str], ResolvedRun], *, faults: FaultSource | None = None) -> tuple[LiveRun, ReferenceServer]:
    """A run whose judge is a server of its own in this process."""

    async def main() -> tuple[LiveRun, ReferenceServer]:
        server = ReferenceServer(faults=faults, count_rollouts=True)
        url = await server.start()
        try:
            run = prepared(make(url))
            run.lock = run.folder.lock()
            player = EnvironmentPlayer(run.plan.environment)
            player.learn_all()
            server.add("far away", player)
            await Evaluation([]).play([run])
        finally:
            await server.stop()
        return run, server

    return asyncio.run(main())


def test_no_more_requests_than_the_judges_own_gate_allows_are_in_flight(module: str) -> None:
    run, server = play(
        lambda url: resolved(module, judge_base_url=url, grader="reference/judge", bound=2, size=30),
        faults=fault_script(latency=0.01),
    )
    assert run.summary is not None and run.summary.reward.estimate.mean == 1.0
    assert (server.stats.requests, server.stats.peak_in_flight) == (30, 2)
    assert sorted(server.stats.rollouts.values()) == [1] * 30


def test_waiting_for_the_judges_gate_is_not_the_rollouts_time(module: str) -> None:
    def make(url: str) -> ResolvedRun:
        run = resolved(module, judge_base_url=url, grader="reference/judge", bound=1, size=20)
        env = run.settings.env.model_copy(update={"scoring_timeout": 0.6})
        return replace(run, settings=run.settings.model_copy(update={"env": env}))

    run, _ = play(make, faults=fault_script(latency=0.08))  # 1.6 s in all, most of it spent waiting
    assert run.summary is not None
    assert (run.summary.scored, run.summary.unscored) == (20, {})


def test_what_a_judge_costs_is_kept_apart_and_priced_by_the_registry(module: str, tmp_path: Path) -> None:
    def make(url: str) -> ResolvedRun:
        entry = f'[[endpoint]]\nendpoint_id = "paid"\nmodel = "reference/judge"\nurl = "{url}"\n'
        (tmp_path / "paid.toml").write_text(entry + "price = { input = 2.0, output = 10.0 }\n")
        return resolved(module, registry="paid.toml", grader="paid", size=5)

    run, server = play(make)
    assert run.summary is not None and run.summary.judge_usage is not None
    usage = run.summary.judge_usage
    kept = [record for _, record in read(run.folder.journal_path) if record.kind == "scored"]
    each = [record.extra["judgements"] for record in kept]  # type: ignore[union-attr]
    assert [len(entries) for entries in each] == [1] * 5
    assert usage.requests == 5 == server.stats.requests
    assert usage.input_tokens == sum(entries[0]["usage"]["input_tokens"] for entries in each) > 500
    assert usage.cost == pytest.approx((2 * usage.input_tokens + 10 * usage.output_tokens) / 1e6)
    assert run.summary.usage.cost is None and run.summary.usage.requests == 5
    written = json.loads((run.folder.path / "summary.json").read_text())
    assert written["judge_usage"]["cost"] == pytest.approx(usage.cost)


def test_a_run_without_a_judge_says_so(module: str, tmp_path: Path) -> None:
    source = "from harness import Rubric, SingleTurnEnv\n\n\ndef fine():\n    return 1.0\n\n\ndef load_environment():\n"
    (tmp_path / "modules" / f"plain_{module}.py").write_text(
        source + '    return SingleTurnEnv(dataset=[{"question": "a"}], rubric=Rubric([fine]))\n'
    )
    run = prepared(resolved(f"plain_{module}", "reference/null"))
    run.lock = run.folder.lock()
    asyncio.run(Evaluation([]).play([run]))
    assert run.plan.judges == () and "judges" not in run.manifest.identity
    assert run.summary is not None and run.summary.judge_usage is None
    assert json.loads((run.folder.path / "summary.json").read_text())["judge_usage"] is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            {"key_var": "sk-live-0123456789"},
            "judge_api_key_var must be the name of an environment variable, never the key",
        ),
        ({"judge_base_url": "judge.example/v1"}, "judge_base_url must be an http or https URL"),
        ({"judge_base_url": "ftp://judge.example"}, "judge_base_url must be an http or https URL"),
    ],
)
def test_what_names_no_key_and_no_place_is_refused_before_anything_is_written(
    module: str, tmp_path: Path, args: dict[str, str], words: str
) -> None:
    before = sorted(tmp_path.rglob("*.json")) + sorted(tmp_path.rglob("*.toml"))
    run = resolved(module, "m", grader="twins", **args)
    with pytest.raises(EnvironmentLoadError, match=words) as caught:
        prepare([run], [progress_of(run)], StartOptions())
    assert caught.value.exit_code == 2
    assert isinstance(caught.value.__cause__, ConfigError)
    assert "0123456789" not in str(caught.value)
    assert sorted(tmp_path.rglob("*.json")) + sorted(tmp_path.rglob("*.toml")) == before
    assert not (tmp_path / "outputs").exists()
