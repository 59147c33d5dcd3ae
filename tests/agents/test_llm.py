"""The model as an agent sees it: what goes into a request, what comes out of a reply, and who may look on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agent_parts import ADD, PROMPT, ROW, Agent, answer, attempt, played, tool_call
from scripted_chat import ScriptedChat
from tables import for_each_row

from harness.agents.environment import AgentEnv
from harness.agents.llm import StepEvent
from harness.agents.loop import CompletionsResult, RolloutContext
from harness.agents.run import AgentOptions
from harness.agents.schemas import OpenAIFunctionSchema, OpenAIFunctionToolSchema, RolloutMetrics
from harness.core.errors import EnvironmentFault, ModelError, ProviderError
from harness.core.records import Failed, Generated
from harness.core.types import ModelResponse, Usage
from harness.usercode.exceptions import forget_interrupt, on_interrupt

MULTIPLY: dict[str, Any] = {"type": "function", "function": {"name": "multiply", "description": "Multiply."}}

Use = Callable[[RolloutContext], Awaitable[object]]


def used(use: Use, chat: ScriptedChat | None = None, **how: Any) -> ScriptedChat:
    """What was asked by an agent that does `use` and then completes."""

    async def play(ctx: RolloutContext) -> object:
        await use(ctx)
        return ctx.complete([])

    chat = chat or ScriptedChat(["4"])
    record = played(play, chat, **how).record
    assert isinstance(record, Generated), record
    return chat


# Requests


def test_tools_are_offered_unless_the_agent_passes_its_own() -> None:
    multiply = OpenAIFunctionToolSchema(
        type="function", function=OpenAIFunctionSchema(name="multiply", description="Multiply.")
    )

    async def use(ctx: RolloutContext) -> None:
        await ctx.chat(PROMPT)
        for tools in ([MULTIPLY], [multiply], [], None):
            await ctx.chat(PROMPT, tools=tools)
        await ctx.chat(PROMPT)

    asked = used(use, tools=[ADD]).asked
    schema = {"type": "object", "properties": {}, "required": []}
    wire = {**MULTIPLY, "function": {**MULTIPLY["function"], "parameters": schema, "strict": False}}
    assert [each.tools for each in asked] == [[ADD], [MULTIPLY], [wire], None, None, [ADD]]


def test_a_wrong_tool_of_a_call_fails_the_run() -> None:
    async def use(ctx: RolloutContext) -> object:
        return await ctx.chat(PROMPT, tools=[{"type": "function"}])

    chat = ScriptedChat(["4"])
    record = played(use, chat).record
    assert isinstance(record, Failed)
    assert record.error.startswith("Tool validation error: Tool 0: 'function' must be an object")
    assert chat.asked == []


def test_keywords_lie_over_the_runs_own_sampling_arguments() -> None:
    async def use(ctx: RolloutContext) -> None:
        await ctx.chat(PROMPT)
        await ctx.chat(PROMPT, temperature=0.0, stop=["x"], anything={"a": 1})
        await ctx.chat(PROMPT, **ctx.request.completion_params)

    asked = used(use, sampling_args={"temperature": 0.5, "max_tokens": 9}).asked
    assert [each.sampling_args for each in asked] == [
        {"temperature": 0.5, "max_tokens": 9},
        {"temperature": 0.0, "max_tokens": 9, "stop": ["x"], "anything": {"a": 1}},
        {"temperature": 0.5, "max_tokens": 9},
    ]


def test_another_model_of_the_endpoint_may_be_asked() -> None:
    async def use(ctx: RolloutContext) -> None:
        await ctx.chat(PROMPT, model="small")
        await ctx.chat(PROMPT, model="scripted")
        await ctx.chat(PROMPT, model=None)

    assert [each.sampling_args for each in used(use).asked] == [{"model": "small"}, {}, {}]


@for_each_row("name", ["api_key", "api_base", "base_url"])
def test_another_endpoint_may_not(name: str) -> None:
    async def use(ctx: RolloutContext) -> None:
        await ctx.chat(PROMPT, **{name: "sk-1234567890"})

    chat = ScriptedChat(["4"])
    record = played(use, chat).record
    assert isinstance(record, Failed)
    assert record.error.startswith(f"TypeError: ctx.chat: remove {name}; all requests of a run ")
    assert chat.asked == []


@for_each_row(
    ("messages", "words"),
    [
        ("hello", "TypeError: messages must be a list of messages, not str"),
        ({"role": "user"}, "TypeError: messages must be a list of messages, not dict"),
        (["hello"], "TypeError: message 0 must be a dict with 'role' and 'content', not str"),
        (
            [{"role": "user", "content": "a"}, object()],
            "TypeError: message 1: a value of type object cannot be converted to JSON",
        ),
    ],
)
def test_a_conversation_that_is_none(messages: Any, words: str) -> None:
    async def use(ctx: RolloutContext) -> None:
        await ctx.chat(messages)

    record = played(use).record
    assert isinstance(record, Failed)
    assert record.error.startswith(words)


def test_a_tuple_of_messages_will_do() -> None:
    async def use(ctx: RolloutContext) -> None:
        await ctx.chat(tuple(PROMPT))  # type: ignore[arg-type]  # what agents do

    assert used(use).asked[0].prompt == PROMPT


# Replies


def test_a_reply() -> None:
    results: list[CompletionsResult] = []

    async def use(ctx: RolloutContext) -> None:
        results.extend([await ctx.chat(PROMPT) for _ in range(3)])

    text = {"role": "assistant", "content": "4", "refusal": None}
    replies = [
        ModelResponse(text, None, Usage(10, 2, requests=1)),
        ModelResponse(tool_call(), "tool_calls", Usage(7, 3, requests=1)),
        ModelResponse({"role": "assistant", "content": ""}, "length", Usage(requests=1, unreported=1)),
    ]
    used(use, ScriptedChat(replies))
    first, second, third = results
    assert first.message == {"role": "assistant", "content": "4"}
    assert (first.finish_reason, first.token_ids, first.logprobs) == ("stop", [], [])
    assert first.usage == {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    assert (first.content, first.has_tool_calls, first.tool_calls) == ("4", False, [])
    assert "content" not in second.message
    assert (second.content, second.has_tool_calls, second.finish_reason) == (None, True, "tool_calls")
    assert second.tool_calls == tool_call()["tool_calls"]
    assert third.usage == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert (third.content, third.finish_reason) == ("", "length")
    assert text["refusal"] is None  # the reply itself is as it was


def test_metrics() -> None:
    seen: list[RolloutMetrics | None] = []

    async def use(ctx: RolloutContext) -> object:
        for _ in range(2):
            await ctx.chat(PROMPT)
        with pytest.raises(ProviderError):
            await ctx.chat(PROMPT)
        ctx.record_tool_call(4.0)
        result = ctx.complete([])
        seen.append(result.metrics)
        return result

    replies = [
        ModelResponse({"role": "assistant", "content": "4"}, "stop", Usage(tokens, 2, requests=1), seconds=0.25)
        for tokens in (10, 7)
    ]
    played(use, ScriptedChat([*replies, ModelError("no")]))
    [metrics] = seen
    assert metrics is not None
    assert metrics.total_latency_ms > 0.0
    assert metrics.model_dump(exclude={"total_latency_ms"}) == {
        "llm_latency_ms": 500.0, "tool_latency_ms": 4.0, "num_llm_calls": 2, "num_tool_calls": 1,
        "prompt_tokens": 17, "response_tokens": 4, "max_context_tokens": 10,
    }  # fmt: skip


def test_calls_at_the_same_time() -> None:
    async def use(ctx: RolloutContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(ctx.chat([{"role": "user", "content": str(n)}])) for n in range(3)]
        assert [call.result().content for call in calls] == ["0", "1", "2"]

    def repeat(prompt: Any) -> str:
        return prompt[-1]["content"]

    record = played(use, ScriptedChat([repeat])).record
    assert isinstance(record, Failed)  # `use` returns no result
    assert record.error.startswith("the agent's run() returned NoneType")


# Looking on


def test_steps_are_told_of_every_call() -> None:
    events: list[tuple[object, ...]] = []

    async def step(event: StepEvent) -> None:
        events.append((event.kind, event.turn, len(event.messages), event.tools, event.response, event.rollout_id))

    async def twice(ctx: RolloutContext) -> object:
        messages = list(ctx.request.messages)
        messages.append((await ctx.chat(messages)).message)
        messages.append((await ctx.chat(messages, tools=None)).message)
        return ctx.complete(messages)

    played(twice, ScriptedChat(["a", "b"]), tools=[ADD], options=AgentOptions(mode="test", step=step))
    said = [{"role": "assistant", "content": text} for text in "ab"]
    assert events == [
        ("request", 1, 2, [ADD], None, "test-0"),
        ("reply", 1, 2, [ADD], said[0], "test-0"),
        ("request", 2, 3, [], None, "test-0"),
        ("reply", 2, 3, [], said[1], "test-0"),
    ]


class Quit(Exception):
    """The end of a session."""


@for_each_row("kind", ["request", "reply"])
@for_each_row("error", [Quit("enough"), KeyboardInterrupt()])
def test_a_session_ends_whatever_the_agent_makes_of_it(kind: str, error: BaseException) -> None:
    async def step(event: StepEvent) -> None:
        if event.kind == kind and isinstance(error, KeyboardInterrupt):
            on_interrupt(signal.SIGINT, None)  # what a real Ctrl-C comes to
        elif event.kind == kind:
            raise error

    async def stubborn(ctx: RolloutContext) -> object:
        try:
            return await answer(ctx)
        except BaseException:
            return ctx.complete([])

    env = AgentEnv([ROW], Agent(stubborn), options=AgentOptions(step=step))
    chat = ScriptedChat(["4"])
    if isinstance(error, KeyboardInterrupt):
        try:
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(attempt(env, chat))
        finally:
            forget_interrupt()
    else:
        record = asyncio.run(attempt(env, chat)).record
        assert isinstance(record, Failed)
        assert record.error.startswith("Quit: enough")
    assert len(chat.asked) == (1 if kind == "reply" else 0)


def test_the_time_of_a_session_is_not_the_agents() -> None:
    async def step(event: StepEvent) -> None:
        await asyncio.sleep(0.6)

    record = played(options=AgentOptions(step=step), timeout=1.0).record
    assert isinstance(record, Generated)
    assert record.timing.waiting >= 1.1


def test_a_chat_outside_a_run_is_refused() -> None:
    left: list[RolloutContext] = []

    async def leaves(ctx: RolloutContext) -> object:
        left.append(ctx)
        return await answer(ctx)

    async def main() -> None:
        await attempt(AgentEnv([ROW], Agent(leaves)), ScriptedChat(["4"]))
        with pytest.raises(EnvironmentFault, match="the model was called after the rollout had ended"):
            await left[0].chat(PROMPT)

    asyncio.run(main())
