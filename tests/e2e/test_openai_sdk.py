"""Environments, agents and judges that call their model through the openai SDK, over the client of the run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from agent_parts import ADD, PROMPT, played, tool_call
from late import Late
from scripted_chat import ScriptedChat, state_of
from sums_model import SumsModel

from harness import JudgeRubric, Rubric, SingleTurnEnv, evaluate
from harness.agents import ExternalLLMClient
from harness.agents.loop import RolloutContext
from harness.core.errors import EnvironmentFault, ModelError
from harness.core.records import Failed, Generated, Score
from harness.core.state import State
from harness.core.types import ModelCall, ModelResponse, Usage
from harness.rubrics.judge import Judge
from harness.rubrics.judge_port import judged_by

openai = Late("openai")


class Endpoint:
    """A client of the caller's own: adds 1, or fails."""

    def __init__(self, error: ModelError | None = None) -> None:
        self.calls: list[ModelCall] = []
        self.error = error

    async def request(self, call: ModelCall) -> ModelResponse:
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        number = int(str(cast("list[Any]", call.prompt)[-1]["content"]).split()[0]) + 1
        return ModelResponse({"role": "assistant", "content": str(number)}, "stop", Usage(3, 1, requests=1))


class Sums(SingleTurnEnv):
    """Asks twice through the SDK."""

    asks: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        def right(completion: list[dict[str, str]], answer: str) -> float:
            return float(completion[-1]["content"] == answer)

        rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(3)]
        super().__init__(dataset=rows, rubric=Rubric([right]))

    async def play(self, state: State) -> None:
        client = state.openai
        asks = {"max_completion_tokens": 7, **self.asks}
        await client.chat.completions.create(model=state["model"], messages=state["prompt"], **asks)
        reply = await client.chat.completions.create(model=state["model"], messages=state["prompt"], **asks)
        assert isinstance(state.transcript, list)
        state.transcript.append(reply.choices[0].message.model_dump(exclude_none=True))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(endpoint: Endpoint, env: Sums | None = None, **settings: Any) -> Any:
    [run] = evaluate(
        env or Sums(),
        client=endpoint,
        num_examples=-1,
        rollouts_per_example=1,
        max_retries=0,
        progress=False,
        **settings,
    )
    return run


def test_an_environments_calls_are_those_of_the_run() -> None:
    endpoint = Endpoint()
    run = ran(endpoint, sampling_args={"temperature": 0.5, "max_tokens": 9})
    assert run.summary.reward.estimate.mean == 1.0 and len(endpoint.calls) == 6
    kept = {name: value for name, value in endpoint.calls[0].sampling_args.items() if value is not None}
    assert kept == {"temperature": 0.5, "max_completion_tokens": 7}
    assert run.summary.usage.requests == 6 and run.summary.usage.input_tokens == 18


def test_a_budget_stops_an_environments_calls() -> None:
    endpoint = Endpoint()
    run = ran(endpoint, max_tokens_total=8, max_concurrent=1)
    assert run.state == "stopped" and len(endpoint.calls) == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelError("slow down", status=429, reason="rate_limit"), "rate_limit"),
        (ModelError("no answer", reason="timeout"), "timeout"),
        (ModelError("gone", reason="connection"), "connection"),
    ],
)
def test_an_uncaught_error_of_the_sdk_is_the_error_of_the_call(error: ModelError, reason: str) -> None:
    run = ran(Endpoint(error))
    lines = [json.loads(line) for line in (run.path / "journal.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in lines if line["type"] == "failed"] == [reason] * 3


@pytest.mark.parametrize(
    ("asks", "words"),
    [({"stream": True}, "remove stream=True"), ({"model": "other"}, "the model 'other' was requested")],
)
def test_what_is_not_supported_is_a_fault_of_the_environment(asks: dict[str, Any], words: str) -> None:
    env = Sums()
    env.asks = asks
    if "model" in asks:
        endpoint = Endpoint()

        async def play(state: State) -> None:
            await state.openai.chat.completions.create(model="other", messages=state["prompt"])

        env.play = play
    else:
        endpoint = Endpoint()
    run = ran(endpoint, env)
    assert endpoint.calls == []
    assert words in (run.path / "journal.jsonl").read_text()


def test_it_ends_with_the_rollout() -> None:
    with pytest.raises(EnvironmentFault, match="only while the rollout runs"):
        _ = state_of().openai


# Agents


def test_an_agents_calls_offer_only_their_own_tools_and_are_counted() -> None:
    seen: list[Any] = []

    async def play(ctx: RolloutContext) -> object:
        client = cast(Any, ctx.llm).openai
        reply = await client.chat.completions.create(model="scripted", messages=PROMPT, tools=[ADD])
        seen.append(reply.choices[0].message.tool_calls[0].function.name)
        reply = await client.chat.completions.create(model="larger", messages=PROMPT, temperature=0.5)
        return ctx.complete([*PROMPT, reply.choices[0].message.model_dump(exclude_none=True)])

    chat = ScriptedChat([tool_call(a=2, b=2), "4"])
    record = played(play, chat, tools=[ADD]).record
    assert isinstance(record, Generated), record
    assert seen == ["add"]
    assert [len(each.tools or ()) for each in chat.asked] == [1, 0]
    assert chat.asked[1].sampling_args == {"temperature": 0.5, "model": "larger"}


def test_an_agents_failed_call_fails_the_run_as_a_call() -> None:
    async def play(ctx: RolloutContext) -> object:
        return await cast(Any, ctx.llm).openai.chat.completions.create(model="scripted", messages=PROMPT)

    record = played(play, ScriptedChat([ModelError("slow down", status=429, reason="rate_limit")])).record
    assert isinstance(record, Failed) and record.reason == "rate_limit"


def test_an_agent_may_handle_the_sdks_exception() -> None:
    async def play(ctx: RolloutContext) -> object:
        try:
            await cast(Any, ctx.llm).openai.chat.completions.create(model="scripted", messages=PROMPT)
        except openai.RateLimitError:
            return ctx.complete([*PROMPT, {"role": "assistant", "content": "later"}])

    record = played(play, ScriptedChat([ModelError("slow down", status=429, reason="rate_limit")])).record
    assert isinstance(record, Generated)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda client: client.completions.create(model="scripted", prompt="2"), "only with chat.completions.create"),
        (lambda client: client.models.list(), "GET /models was requested"),
        (
            lambda client: client.chat.completions.create(
                model="scripted", messages=PROMPT, tools=[{"type": "function"}]
            ),
            "'function' must be an object",
        ),
    ],
)
def test_an_agent_hears_what_its_client_cannot_do(ask: Any, words: str) -> None:
    async def play(ctx: RolloutContext) -> object:
        return await ask(cast(Any, ctx.llm).openai)

    record = played(play, ScriptedChat(["4"])).record
    assert isinstance(record, Failed) and words in record.error, record


def test_a_client_alone_counts_the_calls_of_its_sdk() -> None:
    async def main(client: ExternalLLMClient) -> str | None:
        async with client:
            reply = await client.openai.chat.completions.create(
                model="my-org/adds", messages=[{"role": "user", "content": "2 + 3"}]
            )
            return reply.choices[0].message.content

    with SumsModel() as model:
        client = ExternalLLMClient("my-org/adds", api_base=model.url)
        assert asyncio.run(main(client)) == "5"
    assert client.get_metrics().num_llm_calls == 1 and len(model.requests) == 1


# Judges


class Panel:
    def __init__(self, *replies: object) -> None:
        self.judge = ScriptedChat(replies, model="served-judge")

    def chat(self, spec: object, state: object) -> ScriptedChat:
        return self.judge


def scored(function: Any, panel: Panel, state: State) -> Score:
    async def main() -> list[Score]:
        with judged_by(panel):
            return await JudgeRubric([function], judge_model="judge").score([state])

    return asyncio.run(main())[0]


async def graded(judge: Judge, state: State) -> float:
    client = judge.openai(state)
    replies = [
        await client.chat.completions.create(
            model="judge", messages=[{"role": "user", "content": "good?"}], temperature=0.0
        )
        for _ in range(2)
    ]
    return float(all(reply.choices[0].message.content == "yes" for reply in replies))


def test_a_judges_equal_questions_are_sent_once_and_recorded() -> None:
    panel, state = Panel("yes"), state_of()
    assert scored(graded, panel, state).reward == 1.0
    assert [each.sampling_args for each in panel.judge.asked] == [{"temperature": 0.0}]
    assert [each["text"] for each in state["judgements"]] == ["yes"]
    assert scored(graded, panel, state).reward == 1.0 and len(panel.judge.asked) == 1


def test_a_judges_failed_call_leaves_the_rollout_unscored() -> None:
    score = scored(graded, Panel(ModelError("slow down", status=429, reason="rate_limit")), state_of())
    assert score.reward is None
    assert score.reasons == {"graded": "judge rate_limit: slow down"}
