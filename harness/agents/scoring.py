"""Eval functions as the rubric of a run: they get the conversation and the row, and the reward is their mean. A rollout
with a failed function is unscored, as in every rubric."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence

from harness.agents.eval_functions import EvalFnWrapper
from harness.core.records import Score
from harness.core.state import State, own
from harness.core.types import JsonDict, Messages
from harness.rubrics.functions import Value
from harness.rubrics.rubric import Rubric
from harness.usercode.separate_task import OwnTask

AGENT_REWARD = "agent_reward"
"""State key: the reward that the agent reported, if any."""

WHOLE = "whole_conversation"
"""State key, true if the completion is the whole conversation, because the agent changed or dropped the prompt."""

UNSCORED = "no eval functions: nothing says what the answer is worth"


class EvalRubric(Rubric):
    """The unweighted mean of eval functions, each a metric under its own name.

    Without any, the reward is the one that the agent reported; a run without that is unscored.

    Args:
        functions: In the order in which they run.

    Raises:
        EnvironmentFault: two functions share a name, or one has the name of a fixed column.
    """

    def __init__(self, functions: Sequence[EvalFnWrapper]) -> None:
        scorers = [_OnLoop(function) if function.is_async else _InThread(function) for function in functions]
        super().__init__(scorers, [1.0 / len(scorers)] * len(scorers) if scorers else None, reward_range=(0.0, 1.0))

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts, as in `Rubric`."""
        return await super().score(states) if self.metric_names else [_own_reward(state) for state in states]

    def add_up(self, values: Mapping[str, Value]) -> Score:
        metrics = {name: value for name, (value, _) in values.items()}
        reasons = {name: reason for name, (value, reason) in values.items() if value is None}
        numbers = [value for value in metrics.values() if value is not None]
        if reasons:
            return Score(None, metrics, reasons)
        try:
            # Not a sum of weighted parts: ten times 0.1 is less than 1.0, a common threshold.
            return Score(math.fsum(numbers) / len(numbers), metrics)
        except OverflowError:
            return Score(None, metrics, {"*": "the mean is beyond all numbers"})


def conversation_of(state: State) -> Messages:
    """The whole conversation of a finished rollout, as the agent left it."""
    said: Messages = state["completion"]
    return said if state.get(WHOLE) else [*state["prompt"], *said]


def row_of(state: State) -> JsonDict:
    """All columns of the rollout's row."""
    system, user = state["prompt"]
    return {
        "system_prompt": system["content"],
        "user_prompt": user["content"],
        "ground_truth": state["answer"],
        **own(state["info"]),
    }


class _Scorer:
    """An eval function as a reward function, which is identified by its `__name__`."""

    def __init__(self, function: EvalFnWrapper) -> None:
        self.function = function
        self.__name__ = function.name

    def _begin(self, state: State) -> object:
        return self.function.call(conversation_of(state), state["answer"], row_of(state))


class _InThread(_Scorer):
    def __call__(self, state: State) -> object:
        return self._begin(state)


class _OnLoop(_Scorer):
    async def __call__(self, state: State) -> object:
        return await OwnTask[object](f"eval function {self.__name__!r}").run(self._value(state))

    async def _value(self, state: State) -> object:
        value = self._begin(state)
        return await value if inspect.isawaitable(value) else value


def _own_reward(state: State) -> Score:
    reward = state.get(AGENT_REWARD)
    score = Score(None, {}, {"*": UNSCORED}) if reward is None else Score(float(reward))
    state["reward"], state["metrics"] = score.reward, score.metrics
    return score
