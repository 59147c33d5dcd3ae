"""The rollout loop of classic environments, based on `harness.MultiTurnEnv`. Hooks get messages in the form of the API
generation that they were written for, as lists that they may change."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import JsonDict, Messages, Prompt
from harness.envs.hooks import stop
from harness.envs.multi_turn import MultiTurnEnv as NativeMultiTurnEnv
from harness.plugins.classic.environment import Environment
from harness.plugins.classic.faults import OverlongPromptError
from harness.plugins.classic.messages import concat, messages_of
from harness.plugins.classic.own_rollouts import call_author
from harness.plugins.classic.responses import as_response
from harness.plugins.classic.rubric import Rubric
from harness.plugins.classic.state import RolloutTiming, TimeSpan, count_env_response


class MultiTurnMonitorRubric(Rubric):
    """Rubric with the metric `num_turns`, the number of model replies."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.num_turns)

    async def num_turns(self, state: State) -> int:
        """Metric: number of model replies."""
        return len(state["trajectory"])


class MultiTurnEnv(Environment, NativeMultiTurnEnv):  # pyright: ignore[reportIncompatibleMethodOverride]  # theirs
    """`vf.MultiTurnEnv`: an environment that responds to the model in several turns.

    Args:
        max_turns: Maximum number of model replies; 0 or less for no limit.
        timeout_seconds: Seconds after which a rollout ends in its current state (newer API, generation C, only).
        **kwargs: See `Environment`.
    """

    def __init__(self, max_turns: int = -1, timeout_seconds: float | None = None, **kwargs: Any) -> None:
        self.timeout_seconds = timeout_seconds
        self.max_total_completion_tokens = -1
        super().__init__(**kwargs)
        self.max_turns = max_turns
        self.add_rubric(MultiTurnMonitorRubric())

    def set_max_turns(self, max_turns: int) -> None:
        """Set the maximum number of model replies in a rollout."""
        self.max_turns = max_turns

    def set_max_total_completion_tokens(self, max_total_completion_tokens: int) -> None:
        """Set the limit on completion tokens of a rollout."""
        self.max_total_completion_tokens = max_total_completion_tokens

    # Hooks

    async def setup_state(self, state: State) -> State:
        """Hook before the first turn; may store values in the state."""
        return state

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Return the environment's response to the model's reply."""
        raise NotImplementedError(f"{type(self).__name__} must define env_response")

    async def get_prompt_messages(self, state: State) -> Prompt:
        """Return the messages of the next model call: the prompt, the conversation so far and the environment's
        response."""
        if not state["trajectory"]:
            return state["prompt"]
        last = state["trajectory"][-1]
        said = concat([last["prompt"], last["completion"]])
        started = time.time()
        answer: Any = await call_author(self.env_response, said, state)
        if isinstance(answer, tuple):
            raise EnvironmentFault(
                f"{type(self).__name__}.env_response returned a tuple, as before release 0.1.8; it must return messages"
            )
        if answer is None and state.get("final_env_response") is not None:
            answer = "" if isinstance(said, str) else []
        count_env_response(state, started)
        # The hook may have added messages to the conversation `said`, or removed some; these changes persist.
        return concat([messages_of(said, self.generation), messages_of(answer, self.generation)])

    async def add_trajectory_step(self, state: State, trajectory_step: JsonDict) -> None:  # type: ignore[override]
        """Append one turn, a prompt and the model's reply, to the trajectory in the state."""
        state["trajectory"].append(trajectory_step)

    async def add_model_response(self, state: State, prompt_messages: Any, response: Any) -> None:  # type: ignore[override]
        """Append a turn with the model's reply to the trajectory."""
        reply = as_response(response)
        asked = messages_of(prompt_messages, self.generation)
        step: JsonDict = {
            "prompt": list(asked) if isinstance(asked, list) else asked,
            "completion": reply.said,
            "response": response,
            "tokens": None,
            "reward": None,
            "advantage": None,
            "is_truncated": reply.is_truncated,
            "trajectory_id": state["trajectory_id"],
            "extras": {},
        }
        state.transcript = concat([step["prompt"], step["completion"]])
        await self.add_trajectory_step(state, step)

    # Stop conditions

    @stop
    async def max_total_completion_tokens_reached(self, state: State) -> bool:
        """Stop condition: the replies have reached the limit of completion tokens."""
        usage = self.get_state_usage(state) or {}
        return 0 < self.max_total_completion_tokens <= usage.get("output_tokens", 0)

    # The loop

    async def _loop(self, state: State) -> None:
        bound = asyncio.timeout(self.timeout_seconds)
        try:
            async with bound:
                await NativeMultiTurnEnv.play(self, state)
        except OverlongPromptError:
            state["prompt_too_long"] = state["is_truncated"] = True
            await self._end(state, "prompt_too_long")
        except TimeoutError:
            if not bound.expired():
                raise
            state["timed_out"], state["is_completed"], state["stop_condition"] = True, True, "timeout_reached"
        state["is_truncated"] = bool(state.get("is_truncated")) or any(
            step.get("is_truncated") for step in state["trajectory"]
        )

    async def _start(self, state: State) -> None:
        timing = state["timing"]
        started = time.time()
        await super()._start(state)
        state["prompt"] = messages_of(state["prompt"], self.generation)
        state.transcript = state["prompt"]
        if isinstance(timing, RolloutTiming):
            timing["setup"] = TimeSpan(start=started, end=time.time())

    def _add_monitor(self) -> None:
        """Do nothing: the constructor adds the classic monitor rubric."""


class SingleTurnEnv(MultiTurnEnv):
    """`vf.SingleTurnEnv`: one question, one answer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_turns": 1, **kwargs})

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Raise an error: the rollout ends with the model's first reply, so this is never called."""
        raise NotImplementedError("env_response is not implemented for SingleTurnEnv")
