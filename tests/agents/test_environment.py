"""An agent evaluation as an environment: rows and requests, how a run ends, and what of it is recorded."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest
from agent_parts import ADD, PROMPT, ROW, Agent, answer, attempt, item_of, played, tool_call
from pydantic import BaseModel
from scripted_chat import ScriptedChat
from tables import for_each_row

from harness.agents.environment import AgentEnv
from harness.agents.loop import RolloutContext, RolloutResult
from harness.agents.run import AgentOptions, Mode
from harness.agents.tool_calls import create_tool_result
from harness.core.errors import (
    ConfigError,
    ContextLengthError,
    DatasetValidationError,
    EnvironmentFault,
    ModelError,
    ProviderError,
    SystemicError,
    SystemicProviderError,
    ToolServerError,
)
from harness.core.records import Failed, Generated, Row
from harness.core.types import ModelResponse, Usage

DEAD = SystemicError("the key is refused", status=401, reason="auth")
BUSY = ModelError("429 after 7 attempts", status=429, retryable=True, reason="rate_limit")
WRONG = ModelError("400: no such parameter", status=400, reason="bad_request")


def reply(text: str = "4", *, tokens: tuple[int, int] = (10, 2), finish: str = "stop") -> ModelResponse:
    return ModelResponse({"role": "assistant", "content": text}, finish, Usage(*tokens, requests=1), seconds=0.5)


def generated(**how: Any) -> Generated:
    record = played(**how).record
    assert isinstance(record, Generated), record
    return record


def failed(play: Any = answer, *replies: object, **how: Any) -> Failed:
    record = played(play, ScriptedChat(replies or ("4",)), **how).record
    assert isinstance(record, Failed), record
    return record


# Rows


def test_a_row_becomes_an_example() -> None:
    env = AgentEnv(
        [ROW, {**ROW, "Ground_Truth": "5"} | {"ground_truth": "5"}], Agent(), options=AgentOptions(first_row=7)
    )
    assert env.row_count == 2
    assert env.row(0) == Row(7, PROMPT, "4", "", {"topic": "sums"})
    with pytest.raises(IndexError):
        env.row(2)
    with pytest.raises(DatasetValidationError, match=r"^Row 8: columns 'ground_truth' and 'Ground_Truth' both"):
        env.row(1)


def test_a_row_is_checked_when_it_is_read_and_named_with_its_file() -> None:
    env = AgentEnv([ROW, {"ground_truth": "4"}], Agent(), options=AgentOptions(dataset="rows.jsonl"))
    assert env.row(0).answer == "4"
    with pytest.raises(DatasetValidationError, match=r"^Row 1: Missing required columns: .* \(in rows\.jsonl\)$"):
        env.row(1)


def test_a_column_that_is_called_like_tools_is_data() -> None:
    chat = ScriptedChat(["4"])
    row = {**ROW, "tool_defs": "not tools", "oai_tools": [1]}
    asyncio.run(attempt(AgentEnv([row], Agent()), chat))
    assert chat.asked[0].tools is None


def test_what_of_it_can_be_set() -> None:
    env = AgentEnv([ROW], Agent(), options=AgentOptions(max_turns=3))
    env.set_kwargs(max_turns=4)
    assert env.max_turns == 4
    with pytest.raises(ConfigError, match="max_turns must be an integer of at least 1, not 0"):
        env.set_kwargs(max_turns=0)
    with pytest.raises(ConfigError, match="system_prompt"):
        env.set_kwargs(system_prompt="s")
    with pytest.raises(ConfigError, match="max_turns must be an integer"):
        AgentEnv([ROW], Agent(), options=AgentOptions(max_turns=True))


# Requests


@for_each_row(
    ("options", "run", "rollout_id", "more"),
    [
        (AgentOptions(), 2, "eval-0-run-2", {"execution_mode": "eval", "run_index": 2}),
        (AgentOptions(first_row=5, mode="bench", first_run=3), 1, "bench-5-run-4",
         {"execution_mode": "bench", "run_index": 4, "row_index": 5}),
        (AgentOptions(mode="test"), 0, "test-0", {"execution_mode": "test", "run_index": 0, "test_mode": True}),
        (AgentOptions(mode="test"), 1, "test-0-run-1", {"execution_mode": "test", "run_index": 1, "test_mode": True}),
        (AgentOptions(model_tag="primary"), 0, "eval-0-run-0-primary", {"execution_mode": "eval", "run_index": 0}),
        (AgentOptions(model_tag="baseline"), 0, "eval-0-run-0-baseline",
         {"execution_mode": "eval", "run_index": 0, "model_tag": "baseline"}),
    ],
)  # fmt: skip
def test_what_an_agent_is_asked(options: AgentOptions, run: int, rollout_id: str, more: dict[str, Any]) -> None:
    agent = Agent()
    env = AgentEnv([ROW], agent, options=dataclasses.replace(options, max_turns=6))
    asyncio.run(attempt(env, ScriptedChat(["4"]), run=run, sampling_args={"temperature": 0.5, "max_tokens": 9}))
    [request] = agent.requests
    assert request.model_dump() == {
        "rollout_id": rollout_id,
        "server_url": "http://local-rollout.local",
        "messages": PROMPT,
        "completion_params": {"temperature": 0.5, "max_tokens": 9},
        "tool_server_url": None,
        "max_turns": 6,
        "max_tokens_total": 4096,
        "metadata": {"ground_truth": "4", "row_index": 0, "topic": "sums", **more},
        "api_key": None,
        "idempotency_key": None,
    }


def test_metadata_is_laid_together_in_the_documented_order() -> None:
    agent = Agent()
    row = {**ROW, "row_index": "mine", "execution_mode": "mine", "run_index": "mine"}
    asyncio.run(attempt(AgentEnv([row], agent), ScriptedChat(["4"])))
    metadata = agent.requests[0].metadata
    assert metadata["row_index"] == "mine"
    assert (metadata["execution_mode"], metadata["run_index"]) == ("eval", 0)


def test_a_row_that_does_not_fit_into_a_request_fails_its_runs() -> None:
    record = failed(rows=[{**ROW, "log": "x" * (1 << 20)}])
    assert record.reason == "agent_error"
    assert record.error.startswith("ValidationError of RolloutRequest: metadata: ")
    assert "metadata size exceeds maximum allowed size of 1MB" in record.error


def test_what_one_run_does_to_its_request_no_other_run_sees() -> None:
    async def spoil(ctx: RolloutContext) -> object:
        seen.append(json.dumps([ctx.request.messages, ctx.request.metadata, ctx.request.completion_params]))
        ctx.request.messages[0]["content"] = "changed"
        ctx.request.metadata["tags"].append("b")
        ctx.request.completion_params["stop"].append("b")
        return await answer(ctx)

    seen: list[str] = []
    env = AgentEnv([{**ROW, "tags": ["a"]}], Agent(spoil))
    sampling_args = {"stop": ["a"]}
    chat = ScriptedChat(["4"])

    async def main() -> None:
        item = item_of(env)
        for _ in range(2):
            made = await attempt(env, chat, sampling_args=sampling_args)
            assert made.state["prompt"] == PROMPT
            assert made.state["info"] == {"topic": "sums", "tags": ["a"]}
            # The prompt is not what the agent has made of it, so the conversation is kept whole.
            said = cast("list[dict[str, Any]]", made.state["completion"])
            assert [message["content"] for message in said] == ["changed", "2 + 2?", "4"]
        assert item.example.prompt == PROMPT

    asyncio.run(main())
    assert seen[0] == seen[1]
    assert sampling_args == {"stop": ["a"]}
    assert [asked.sampling_args for asked in chat.asked] == [{"stop": ["a"]}] * 2


# A run that ends well


async def calculate(ctx: RolloutContext) -> RolloutResult:
    messages = list(ctx.request.messages)
    for _ in range(ctx.request.max_turns):
        result = await ctx.chat(messages, **ctx.request.completion_params)
        messages.append(result.message)
        if not result.has_tool_calls:
            return ctx.complete(messages, reward=0.75)
        for call in result.tool_calls:
            arguments = json.loads(call["function"]["arguments"])
            messages.append(create_tool_result(call["id"], str(arguments["a"] + arguments["b"])))
            ctx.record_tool_call(12.5)
    return ctx.complete(messages, finish_reason="max_turns")


def test_a_run_with_tools() -> None:
    chat = ScriptedChat([tool_call(1), tool_call(2), reply()])
    record = generated(play=calculate, chat=chat, tools=[ADD], sampling_args={"temperature": 0.5})
    called = [{name: value for name, value in tool_call(n).items() if name != "content"} for n in (1, 2)]
    answers = [{"role": "tool", "content": "4", "tool_call_id": f"call_{n}"} for n in (1, 2)]
    last = {"role": "assistant", "content": "4"}
    assert record.completion == [called[0], answers[0], called[1], answers[1], last]
    assert (record.stop_condition, record.is_truncated, record.lost) == ("stop", False, ())
    assert record.state == {"num_llm_calls": 3, "num_tool_calls": 2, "tool_latency_ms": 25.0, "agent_reward": 0.75}
    assert (record.usage.input_tokens, record.usage.output_tokens) == (10, 2)
    assert [asked.tools for asked in chat.asked] == [[ADD]] * 3
    assert [asked.sampling_args for asked in chat.asked] == [{"temperature": 0.5}] * 3
    assert [len(asked.prompt) for asked in chat.asked] == [2, 4, 6]


def test_running_out_of_turns_is_no_failure() -> None:
    record = generated(play=calculate, chat=ScriptedChat([tool_call()]), tools=[ADD], options=AgentOptions(max_turns=2))
    assert (record.stop_condition, len(record.completion)) == ("max_turns", 4)
    assert record.state["num_llm_calls"] == 2
    assert "agent_reward" not in record.state


def test_a_reply_that_was_cut_short_is_noted() -> None:
    assert generated(chat=ScriptedChat([reply(finish="length")])).is_truncated


def test_a_conversation_that_does_not_begin_with_the_prompt_is_kept_whole() -> None:
    async def shortened(ctx: RolloutContext) -> object:
        summary = [{"role": "user", "content": "In short: 2 + 2?"}]
        summary.append((await ctx.chat(summary)).message)
        return ctx.complete(summary)

    record = generated(play=shortened)
    assert record.completion == [
        {"role": "user", "content": "In short: 2 + 2?"}, {"role": "assistant", "content": "4"},
    ]  # fmt: skip
    assert record.state["whole_conversation"] is True


class Reply(BaseModel):
    role: str = "assistant"
    content: str = "4"
    refusal: str | None = None


def test_messages_of_pydantic_become_plain_ones() -> None:
    async def typed(ctx: RolloutContext) -> object:
        await ctx.chat([Reply(role="user", content="2 + 2?")])  # type: ignore[list-item]  # what agents do
        return ctx.complete([*ctx.request.messages, Reply()])  # type: ignore[list-item]

    chat = ScriptedChat(["4"])
    assert generated(play=typed, chat=chat).completion == [{"role": "assistant", "content": "4"}]
    assert chat.asked[0].prompt == [{"role": "user", "content": "2 + 2?"}]


def test_values_in_messages_become_json() -> None:
    async def odd(ctx: RolloutContext) -> object:
        last = {"role": "assistant", "content": "4", "at": Path("a/b"), "pair": (1, 2)}
        return ctx.complete([*ctx.request.messages, last])

    [message] = generated(play=odd).completion
    assert message == {"role": "assistant", "content": "4", "at": "a/b", "pair": [1, 2]}


def test_a_run_without_messages_and_a_result_of_another_make() -> None:
    @dataclasses.dataclass
    class Result:
        status: str = "COMPLETED"
        final_messages: Any = None
        finish_reason: str = "stop"

    def plain(ctx: RolloutContext) -> object:
        return Result()

    record = generated(play=plain)
    assert (record.completion, record.stop_condition) == ([], "stop")


def test_no_tools_may_be_said_in_several_ways() -> None:
    for tools in ((), [], None):
        chat = ScriptedChat(["4"])
        generated(chat=chat, tools=tools)
        assert chat.asked[0].tools is None


# A run that fails


def test_an_agent_that_says_that_it_failed() -> None:
    async def gives_up(ctx: RolloutContext) -> object:
        messages = list(ctx.request.messages)
        messages.append((await ctx.chat(messages)).message)
        return ctx.error("no idea", messages)

    record = failed(gives_up, reply("hm"))
    assert (record.reason, record.error, record.retryable, record.stage) == (
        "agent_error",
        "no idea",
        False,
        "generation",
    )
    assert record.completion == [{"role": "assistant", "content": "hm"}]
    assert (record.usage.input_tokens, record.usage.output_tokens) == (10, 2)


def test_what_had_been_said_is_kept_without_the_agents_help() -> None:
    async def gives_up(ctx: RolloutContext) -> object:
        messages = list(ctx.request.messages)
        messages.append((await ctx.chat(messages)).message)
        messages.append({"role": "user", "content": "go on"})
        return ctx.error("no idea")

    said = [{"role": "assistant", "content": "hm"}, {"role": "user", "content": "go on"}]
    assert failed(gives_up, "hm").completion == said

    async def raises(ctx: RolloutContext) -> object:
        messages = list(ctx.request.messages)
        await ctx.chat(messages)
        raise ValueError("bad")

    assert failed(raises, "hm").completion == said[:1]

    async def odd(ctx: RolloutContext) -> object:
        messages: list[Any] = list(ctx.request.messages)
        messages.append((await ctx.chat(messages)).message)
        messages.append(object())
        return ctx.error("no idea")

    assert failed(odd, "hm").completion == said[:1]


def test_an_exception_is_told_with_its_line() -> None:
    async def raises(ctx: RolloutContext) -> object:
        raise ValueError("bad")

    record = failed(raises)
    line = raises.__code__.co_firstlineno + 1
    assert record.error == f"ValueError: bad (in raises, test_environment.py:{line})"
    assert (record.reason, record.retryable, record.completion) == ("agent_error", False, "")


def test_an_exception_in_get_tools_is_told_with_its_line() -> None:
    def tools(request: object) -> object:
        raise KeyError("topic")

    assert failed(tools=tools).error == (
        f"KeyError: 'topic' (in tools, test_environment.py:{tools.__code__.co_firstlineno + 1})"
    )


def test_an_exception_of_a_task_of_the_agents_own() -> None:
    async def fails(number: int) -> None:
        await asyncio.sleep(0)
        raise ValueError(f"bad {number}")

    async def together(ctx: RolloutContext) -> object:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails(1))
            tasks.create_task(fails(2))
        return ctx.complete([])

    record = failed(together)
    line = fails.__code__.co_firstlineno + 2
    assert record.error == (
        f"ValueError: bad 1, and 1 more in other tasks of the agent (in fails, test_environment.py:{line})"
    )


@for_each_row(
    ("error", "words"), [(SystemExit(3), "SystemExit: 3"), (asyncio.CancelledError(), "CancelledError"),
                         (TimeoutError(), "TimeoutError")],
)  # fmt: skip
def test_an_agent_ends_its_own_run_at_most(error: BaseException, words: str) -> None:
    async def ends(ctx: RolloutContext) -> object:
        raise error

    record = failed(ends)
    assert record.error.startswith(f"{words} (in ends, ")
    assert record.reason == "agent_error"


@for_each_row(
    ("returned", "words"),
    [
        (None, "the agent's run() returned NoneType, not a RolloutResult; end it with `return ctx.complete(messages)`"),
        ("done", "the agent's run() returned str, not a RolloutResult"),
        (RolloutResult("COMPLETED", "done", "stop"), "final_messages must be a list of messages, not str"),  # type: ignore[arg-type]
        (RolloutResult("COMPLETED", ["done"], "stop"), "final_messages: message 0 must be a dict with 'role'"),  # type: ignore[list-item]
        (RolloutResult("COMPLETED", [{"role": "user", "content": object()}], "stop"),
         "final_messages: message 0: a value of type object cannot be converted to JSON"),
        (RolloutResult("ERROR", [], "error"), "the agent ended its run with status 'ERROR'"),
        (RolloutResult("LOST", [], "error"), "the agent ended its run with status 'LOST'"),
    ],
)  # fmt: skip
def test_a_result_that_is_none(returned: object, words: str) -> None:
    async def run(ctx: RolloutContext) -> object:
        return returned

    record = failed(run)
    assert record.error.startswith(words)
    assert record.reason == "agent_error"


def test_a_tool_that_no_endpoint_would_take() -> None:
    tool = {"type": "function", "function": {"name": "1st", "parameters": {"type": "object"}}}
    chat = ScriptedChat(["4"])
    record = played(chat=chat, tools=[tool]).record
    assert isinstance(record, Failed)
    assert record.error.startswith("Tool validation error: Tool '1st': name must start with letter/underscore")
    assert (record.reason, chat.asked) == ("agent_error", [])


def test_a_fault_that_is_ours_stays_what_it_is() -> None:
    async def server_died(ctx: RolloutContext) -> object:
        raise ToolServerError("the server died")

    record = failed(server_died)
    assert (record.reason, record.retryable) == ("environment_error", True)
    assert record.error.startswith("the server died")


# Model errors


@for_each_row("error", [BUSY, WRONG, ContextLengthError("too long", reason="context_length")])
def test_a_model_error_that_an_agent_lets_through(error: ModelError) -> None:
    record = failed(answer, error)
    assert (record.reason, record.error, record.retryable) == (error.reason, str(error), error.retryable)
    assert record.completion == ""


def test_a_model_error_out_of_a_task_group_and_wrapped() -> None:
    async def grouped(ctx: RolloutContext) -> object:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.chat(ctx.request.messages))
        return ctx.complete([])

    async def wrapped(ctx: RolloutContext) -> object:
        try:
            return await answer(ctx)
        except ProviderError as error:
            raise RuntimeError("no luck") from error

    assert failed(grouped, BUSY).reason == "rate_limit"
    record = failed(wrapped, BUSY)
    assert (record.reason, record.retryable) == ("agent_error", True)
    assert record.error.startswith("RuntimeError: no luck (in wrapped, ")
    assert not failed(wrapped, WRONG).retryable


def test_a_model_error_that_an_agent_reports() -> None:
    async def reports(ctx: RolloutContext) -> object:
        try:
            return await answer(ctx)
        except ProviderError as error:
            return ctx.error(f"sorry: {error}")

    record = failed(reports, BUSY)
    assert (record.reason, record.error, record.retryable) == ("agent_error", f"sorry: {BUSY}", True)
    assert not failed(reports, WRONG).retryable
    # Made again, as any failure that may heal.
    healed = played(reports, ScriptedChat([BUSY, "4"]), retries=1).record
    assert isinstance(healed, Generated)
    assert healed.attempts == 2


def test_a_model_error_that_an_agent_gets_over() -> None:
    async def tries_again(ctx: RolloutContext) -> object:
        try:
            await ctx.chat(ctx.request.messages)
        except ProviderError as error:
            caught.append(error)
        return await answer(ctx)

    caught: list[ProviderError] = []
    record = generated(play=tries_again, chat=ScriptedChat([BUSY, "4"]))
    assert record.completion == [{"role": "assistant", "content": "4"}]
    assert (type(caught[0]), str(caught[0]), caught[0].__cause__) == (ProviderError, str(BUSY), BUSY)

    async def then_gives_up(ctx: RolloutContext) -> object:
        await tries_again(ctx)
        return ctx.error("no idea")

    assert not failed(then_gives_up, BUSY, "4").retryable


def test_a_systemic_error_that_an_agent_raises_itself_stops_the_run() -> None:
    async def gone(ctx: RolloutContext) -> object:
        await ctx.chat(ctx.request.messages)
        async with asyncio.TaskGroup() as group:
            group.create_task(vault())
        return ctx.complete([])

    async def vault() -> None:
        raise SystemicProviderError("the vault is gone")

    with pytest.raises(SystemicError, match=r"^the vault is gone$") as raised:
        played(gone, ScriptedChat(["4"]))
    assert raised.value.reason == "provider_error"


@for_each_row("ending", ["complete", "error", "raise"])
def test_an_unusable_endpoint_ends_the_run_whatever_the_agent_makes_of_it(ending: str) -> None:
    async def swallows(ctx: RolloutContext) -> object:
        await ctx.chat(ctx.request.messages)
        for _ in range(2):
            try:
                await ctx.chat(ctx.request.messages)
            except SystemicProviderError as error:
                caught.append(error)
        if ending == "raise":
            raise ValueError
        return ctx.complete([]) if ending == "complete" else ctx.error("x")

    caught: list[SystemicProviderError] = []
    chat = ScriptedChat([reply(), DEAD])
    with pytest.raises(SystemicError) as raised:
        played(swallows, chat)
    assert raised.value is DEAD
    # The last call is refused here: nothing is sent to an endpoint that is known to be dead.
    assert len(chat.asked) == 2
    assert [(str(error), error.duration_ms, error.tokens) for error in caught] == [(str(DEAD), 500.0, 12)] * 2
    assert all(error.__cause__ is DEAD for error in caught)


# Time


async def forever(ctx: RolloutContext) -> object:
    await ctx.chat(ctx.request.messages)
    await asyncio.Event().wait()
    return None


async def stubborn(ctx: RolloutContext) -> object:
    try:
        return await forever(ctx)
    except BaseException:
        return ctx.complete(ctx.request.messages)


@for_each_row("play", [forever, stubborn])
def test_a_run_that_takes_too_long(play: Any) -> None:
    record = failed(play, "hm", timeout=0.05)
    assert (record.reason, record.error) == ("timeout", "the rollout took longer than 0.05 s")
    assert record.completion == [{"role": "assistant", "content": "hm"}]


@pytest.mark.parametrize("play", [forever, stubborn])
def test_a_run_that_is_stopped(play: Any) -> None:
    async def main() -> None:
        chat = ScriptedChat(["4"])
        task = asyncio.get_running_loop().create_task(attempt(AgentEnv([ROW], Agent(play)), chat))
        while not chat.asked:  # noqa: ASYNC110 - the agent's own progress
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


# What it is


def test_names_and_reference_policies() -> None:
    env = AgentEnv([ROW], Agent())
    assert env.has_reference
    assert env.reference_reply(item_of(env).example, []) == "4"
    assert env.neutral_args == {"debug_dir", "has_baseline"}
    assert (env.fingerprint, env.source_files) == ({}, ())
    assert env.agent.name == "agent"


def test_modes() -> None:
    mode: Mode
    for mode in ("eval", "bench", "test"):
        assert AgentEnv([ROW], Agent(), options=AgentOptions(mode=mode)).options.mode == mode


def test_two_functions_of_one_name_are_refused() -> None:
    from harness.agents.eval_functions import EvalFnWrapper

    twice = [EvalFnWrapper(lambda solution_str, **rest: 1.0, "same")] * 2
    with pytest.raises(EnvironmentFault, match="two reward functions are called 'same'"):
        AgentEnv([ROW], Agent(), twice)
