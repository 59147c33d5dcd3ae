"""`EvalRubric`, which scores an agent's rollouts with eval functions. The functions get the conversation and the
dataset row; the reward is the mean of their scores. A rollout for which a function fails is unscored."""

from __future__ import annotations

import inspect
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from harness.agents.eval_functions import EvalFnWrapper
from harness.core.errors import JudgeError
from harness.core.records import Score
from harness.core.state import State, own
from harness.core.types import JsonDict, Messages
from harness.rubrics.functions import RewardFunc, Value
from harness.rubrics.judge_port import scored_rollout, scoring_pass
from harness.rubrics.rubric import Rubric
from harness.usercode.separate_task import OwnTask

AGENT_REWARD = "agent_reward"
"""State key of the reward that the agent reported; missing if it reported none."""

WHOLE = "whole_conversation"
"""State key that is true if the completion contains the prompt as well, because the agent changed or dropped the
prompt."""

UNSCORED = "there are no eval functions, and the agent reported no reward"


class EvalRubric(Rubric):
    """Rubric whose reward is the unweighted mean of eval functions, each of which is a metric under its own name.

    Without eval functions, the reward is the one that the agent reported; without one, the rollout is unscored.

    Args:
        functions: The eval functions, in the order in which they are called.

    Raises:
        EnvironmentFault: two functions share a name, or one has the name of a fixed column.
    """

    def __init__(self, functions: Sequence[EvalFnWrapper]) -> None:
        scorers = [_scorer(function) for function in functions]
        super().__init__(scorers, [1.0 / len(scorers)] * len(scorers) if scorers else None, reward_range=(0.0, 1.0))

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts with the eval functions or, if there are no functions, with the agent's own reward."""
        if not self.metric_names:
            return [_own_reward(state) for state in states]
        with scoring_pass():
            return await super().score(states)

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
            return Score(None, metrics, {"*": "the mean of the scores is too large for a float"})


def conversation_of(state: State) -> Messages:
    """Return the whole conversation of a finished rollout, including its prompt."""
    completion: Messages = state["completion"]
    return completion if state.get(WHOLE) else [*state["prompt"], *completion]


def row_of(state: State) -> JsonDict:
    """Return all columns of the dataset row that a rollout used."""
    system, user = state["prompt"]
    return {
        "system_prompt": system["content"],
        "user_prompt": user["content"],
        "ground_truth": state["answer"],
        **own(state["info"]),
    }


def _scorer(function: EvalFnWrapper) -> RewardFunc:
    """Wrap an eval function as a reward function, with the eval function's name as its `__name__`."""

    def call(state: State) -> object:
        with _judged(state):
            return function.call(conversation_of(state), state["answer"], row_of(state))

    async def awaited(state: State) -> object:
        with _judged(state):
            value = function.call(conversation_of(state), state["answer"], row_of(state))
            return await value if inspect.isawaitable(value) else value

    async def call_async(state: State) -> object:
        return await OwnTask[object](f"eval function {function.name!r}").run(awaited(state))

    scorer: RewardFunc = call_async if function.is_async else call
    scorer.__name__ = function.name
    return scorer


@contextmanager
def _judged(state: State) -> Generator[None]:
    """Score a rollout in the `with` block.

    Raises:
        JudgeError: a judge call in the block failed, even if the eval function caught the error: a score that the
            function returns nevertheless means nothing.
    """
    with scored_rollout(state) as failures:
        yield
    for error in failures:
        raise JudgeError(f"judge {error.reason}", str(error)) from error


def _own_reward(state: State) -> Score:
    reward = state.get(AGENT_REWARD)
    score = Score(None, {}, {"*": UNSCORED}) if reward is None else Score(float(reward))
    state["reward"], state["metrics"] = score.reward, score.metrics
    return score
