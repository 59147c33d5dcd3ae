"""Run one rollout with scripted replies in place of a model, for tests of an environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from harness.authoring.findings import count
from harness.core.errors import EnvironmentFault
from harness.core.keys import ExampleKeys
from harness.core.state import State
from harness.core.types import Message, ModelResponse, Prompt, Sampling, Tools
from harness.envs.dataset import Style, Table
from harness.envs.environment import Environment
from harness.reference.panel import ReferencePanel
from harness.rubrics.judge_port import judged_by


class Script:
    """A model client that returns the given replies in order.

    Args:
        replies: Replies as strings, or as whole assistant messages.
    """

    model = "script"

    def __init__(self, replies: Sequence[Message | str]) -> None:
        self._replies = list(replies)
        self._next = 0

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Return the next reply.

        Raises:
            EnvironmentFault: all replies have been used.
        """
        if self._next == len(self._replies):
            given = count(self._next, "reply", "replies")
            raise EnvironmentFault(f"the environment requests another reply after the {given} passed to play()")
        reply = self._replies[self._next]
        self._next += 1
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        return ModelResponse(message, "tool_calls" if message.get("tool_calls") else "stop")


def play(
    environment: Environment,
    *replies: Message | str,
    index: int = 0,
    row: Mapping[str, Any] | None = None,
) -> State:
    """Run one rollout with the given replies in place of a model, and score it. For tests.

    If the rubric has a judge, the environment's reference judge answers.

    Args:
        environment: The environment; can be used for several rollouts.
        *replies: Replies of the model, one per turn: strings, or whole messages (with tool calls, for example).
        index: Index of the dataset row to use.
        row: A row to use instead, with the columns of the dataset.

    Returns:
        The state: `completion`, `reward`, `metrics`, `stop_condition` and all keys that the environment added.

    Raises:
        EnvironmentFault: the rollout needs more replies than given, or cannot be scored; the message has the reason.
        Exception: any other error of the environment's code.
    """
    style = Style(environment.message_type, environment.system_prompt, environment.few_shot)
    chosen = environment.row(index) if row is None else Table([row], "row").row(0, style)
    state = State.begin(ExampleKeys().example(chosen, index), 0, Script.model, environment.sampling_args)

    async def main() -> None:
        with judged_by(ReferencePanel(environment)):  # the environment's reference judge, if the rubric needs one
            await environment.rollout(state, Script(replies))
            [score] = await environment.rubric.score([state])
        if score.reward is None:
            reasons = "; ".join(f"{name} {words}" for name, words in score.reasons.items())
            raise EnvironmentFault(f"the rollout has no score: {reasons}")

    asyncio.run(main())
    return state
