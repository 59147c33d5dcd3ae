"""Recorded replies in the place of a model: each request gets what it got then, however the environment asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from engine_parts import items_of
from scripted_chat import ScriptedChat

from harness import MultiTurnEnv, Rubric, State
from harness.core.errors import ContextLengthError, ModelError
from harness.core.records import Failed, Generated
from harness.core.types import Chat, JsonDict, Messages, ModelResponse, Prompt, Usage
from harness.engine import rollout
from harness.engine.replay import ReplayChat
from harness.envs import Environment
from harness.store.codec import decode, encode

ROWS = [{"question": "q", "answer": "yes"}]
ITEM = items_of(0)[0]


class Two(MultiTurnEnv):
    """Two turns, with something on the side before each."""

    def __init__(self) -> None:
        super().__init__(max_turns=2, dataset=ROWS, rubric=Rubric())

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        return [{"role": "user", "content": "and?"}]

    async def ask(self, state: State, question: str) -> str:
        reply = await self.get_model_response(state, [{"role": "user", "content": question}])
        return str(reply.message["content"])


class Forgiving(Two):
    """Goes on where a request fails, and notes what of."""

    async def setup_state(self, state: State) -> None:
        try:
            await self.ask(state, "aside")
        except ModelError as error:
            state["failure"] = [type(error).__name__, str(error), error.status, error.reason, error.retryable]


class Crowd(Two):
    """Asks several at once, some of them twice."""

    async def setup_state(self, state: State) -> None:
        async def member(number: int) -> str:
            first = await self.ask(state, f"member {number}")
            return f"{first} {await self.ask(state, f'{first} again')}"

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(member(number)) for number in range(3)]
        state["said"] = [task.result() for task in tasks]


class Hasty(Two):
    """Takes the first answer of two and gives the other request up."""

    async def setup_state(self, state: State) -> None:
        tasks = [asyncio.ensure_future(self.ask(state, question)) for question in ("slow", "fast")]
        done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        state["said"] = [task.result() for task in done]


class Backwards(ScriptedChat):
    """Answers later requests sooner, and `slow` never."""

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        content = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
        if content == "slow":
            await asyncio.Event().wait()
        for _ in range(0 if "again" in content else 30 - 10 * int(content[-1]) if content[-1].isdigit() else 1):
            await asyncio.sleep(0)
        return ModelResponse({"role": "assistant", "content": f"on {content}"}, "stop", Usage(5, 1, requests=1))


def play(environment: Environment, chat: Chat) -> Generated | Failed:
    """A rollout, as a journal has it."""

    async def main() -> Generated | Failed:
        attempt = await rollout.generate(environment, ITEM, chat, sampling_args={}, timeout=None, max_retries=0)
        return attempt.record

    record = decode(encode(asyncio.run(main())))
    assert isinstance(record, Generated | Failed)
    return record


def told(record: Generated | Failed) -> tuple[object, ...]:
    """All of a record but its times, and the order of its replies."""
    if isinstance(record, Failed):
        return record.reason, record.error, record.retryable, record.completion, record.usage
    return record.completion, record.state, record.stop_condition, record.is_truncated, record.usage


@pytest.mark.parametrize(
    ("environment", "chat"),
    [
        (Two(), ScriptedChat(["a", "b"])),
        (Two(), ScriptedChat(["a", ContextLengthError("too long", status=400, reason="bad_request")])),
        (Two(), ScriptedChat(["a", ModelError("gone", reason="connection", retryable=True)])),
        (Forgiving(), ScriptedChat([ModelError("no", status=400, reason="bad_request"), "a", "b"])),
        (Forgiving(), ScriptedChat([ModelError("no", status=400), "a", ModelError("gone", reason="connection")])),
        (Crowd(), Backwards()),
        (Hasty(), Backwards()),
    ],
    ids=["plain", "too long", "failed", "forgiven", "forgiven once", "at once", "given up"],
)
def test_a_rollout_goes_as_it_went(environment: Environment, chat: Chat) -> None:
    record = play(environment, chat)
    again = play(environment, ReplayChat("scripted", record))
    assert told(again) == told(record)


def test_the_order_of_answers_is_not_that_of_requests() -> None:
    """What makes the case above one that could go wrong."""
    record = play(Crowd(), Backwards())
    assert isinstance(record, Generated)
    assert record.state["said"] == [f"on member {number} on on member {number} again" for number in range(3)]
    assert record.replies is not None
    asked = [reply["message"]["content"] for reply in record.replies]
    assert asked[:4] == ["on member 0", "on member 1", "on member 2", "on on member 2 again"]


def test_what_was_never_answered_is_a_failure_and_no_guess() -> None:
    record = play(Crowd(), Backwards())
    chat = ReplayChat("scripted", record)
    with pytest.raises(
        ModelError, match="makes more requests than the recorded rollout, which has 8 replies"
    ) as refused:
        asyncio.run(chat([{"role": "user", "content": "of something else"}]))
    assert (refused.value.reason, refused.value.retryable) == ("replay_ended", False)
