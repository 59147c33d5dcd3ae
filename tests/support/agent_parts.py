"""Agents and rollouts for tests of agent evaluations: an agent made of one function, and a rollout through the engine's
own boundary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.agents.environment import AgentEnv
from harness.agents.loop import RolloutContext
from harness.agents.run import AgentOptions
from harness.agents.schemas import RolloutRequest
from harness.core.keys import ExampleKeys
from harness.core.records import Item
from harness.core.types import Chat, JsonDict
from harness.engine.rollout import Attempt, generate

ROW: JsonDict = {"system_prompt": "Add.", "user_prompt": "2 + 2?", "ground_truth": "4", "topic": "sums"}

PROMPT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2?"}]

ADD: JsonDict = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}


async def answer(ctx: RolloutContext) -> object:
    """The shortest agent: one question, one reply."""
    messages = list(ctx.request.messages)
    messages.append((await ctx.chat(messages)).message)
    return ctx.complete(messages)


@dataclass
class Agent:
    """An agent whose `run` is a function; by default it asks once."""

    play: Callable[[RolloutContext], Any] = answer
    tools: Any = ()
    name: str = "agent"
    requests: list[RolloutRequest] = field(default_factory=list[RolloutRequest])

    def get_tools(self, request: RolloutRequest) -> Any:
        self.requests.append(request)
        return self.tools(request) if callable(self.tools) else self.tools

    def run(self, ctx: RolloutContext) -> Any:
        return self.play(ctx)


def tool_call(number: int = 1, **arguments: float) -> JsonDict:
    """An assistant message that calls `add`."""
    import json

    function = {"name": "add", "arguments": json.dumps(arguments or {"a": 2, "b": 2})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def item_of(env: AgentEnv, index: int = 0, run: int = 0) -> Item:
    """One attempt at a row."""
    return Item(f"key-{index}-{run}", ExampleKeys().example(env.row(index), index), run)


async def attempt(
    env: AgentEnv,
    chat: Chat,
    *,
    index: int = 0,
    run: int = 0,
    sampling_args: JsonDict | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> Attempt:
    """One rollout as the engine makes it."""
    return await generate(
        env, item_of(env, index, run), chat, sampling_args=sampling_args or {}, timeout=timeout, max_retries=retries
    )


def played(
    play: Callable[[RolloutContext], Awaitable[object]] | Callable[[RolloutContext], object] = answer,
    chat: Chat | None = None,
    *,
    tools: Any = (),
    rows: Sequence[JsonDict] = (ROW,),
    options: AgentOptions | None = None,
    **how: Any,
) -> Attempt:
    """One rollout of an agent that is a function."""
    from scripted_chat import ScriptedChat

    env = AgentEnv(rows, Agent(play, tools), options=options)
    return asyncio.run(attempt(env, chat or ScriptedChat(["4"]), **how))
