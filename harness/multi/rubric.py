"""The documented scoring as the rubric of a run, with its metrics. If the hook fails, the rollout has a reason instead
of a score."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from harness.core.errors import EnvironmentFault, EvalFnError, ThreadsHung
from harness.core.records import Score
from harness.core.state import State
from harness.multi.schemas import chat_options_of, registry_of
from harness.multi.scoring import TaskOptions, score_output
from harness.multi.scoring_hook import HookCall
from harness.multi.tasks import Task, TaskScore, read_task
from harness.multi.text import estimated_tokens, output_of
from harness.rubrics.functions import RewardFunc, raised
from harness.rubrics.rubric import Rubric
from harness.usercode.deadline import was_cancelled
from harness.usercode.threads import offload

VALID, SCHEMA_VALID, MATCHED, TOKENS = "valid", "schema_valid", "matched", "tokens_estimate"
"""Names of the metrics. `schema_valid` is None for a task without a schema, `matched` for one without an expected text;
neither affects the score."""

ERRORS = "errors"
"""State key of the errors that the scoring found in the output."""


class TaskRubric(Rubric):
    """Rubric that scores rollouts by the documented formula, or by the hook that replaces it.

    Args:
        tasks: All scored tasks; they determine the metrics.
        options: Options of the scoring.
    """

    def __init__(self, tasks: Sequence[Task], options: TaskOptions) -> None:
        super().__init__(reward_range=(0.0, 1.0))
        self._options = options
        by_formula = options.score_output is None
        self._names = (
            VALID,
            *([SCHEMA_VALID] if by_formula and any(task.schema is not None for task in tasks) else []),
            *([MATCHED] if by_formula and any(task.expected_text is not None for task in tasks) else []),
            TOKENS,
        )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics that apply to at least one task."""
        return self._names

    @property
    def weights(self) -> dict[str, float]:
        """Return no weights, since the reward is not a sum of the metrics."""
        return {}

    @property
    def reward_range(self) -> tuple[float, float]:
        """Range of the reward: 0 to 1 with the documented formula, unlimited with a scoring hook."""
        return super().reward_range if self._options.score_output is None else (-math.inf, math.inf)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Reject a reward function, since the score is that of the documented formula or of the scoring hook.

        Raises:
            EnvironmentFault: always.
        """
        raise EnvironmentFault(
            "reward functions cannot be added: tasks are scored by the documented formula or the hook score_output"
        )

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts by the formula or the scoring hook, one after the other.

        Adds `errors` to each state, in addition to `reward` and `metrics`.

        Raises:
            ThreadsHung: earlier calls of the hook hang.
        """
        return [await self._score_one(state) for state in states]

    async def _score_one(self, state: State) -> Score:
        task, output = task_of(state), output_of(state["completion"])
        hook = self._options.score_output
        try:
            said = await self._judge(task, output, state["model"])
        except ThreadsHung:
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # boundary around the user's hook
            if hook is None or (isinstance(error, asyncio.CancelledError) and was_cancelled()):
                raise
            score = Score(None, self._metrics(None, output), {hook.name: _reason(error)})
        else:
            state[ERRORS] = list(said.errors)
            score = Score(said.score, self._metrics(said, output))
        state["reward"], state["metrics"] = score.reward, score.metrics
        return score

    async def _judge(self, task: Task, output: str, model: str) -> TaskScore:
        """Score an output by the scoring hook, or by the documented formula."""
        options = self._options
        if options.score_output is not None:
            registry = registry_of(chat_options_of(task, options.chat_options), options.schema_mode)
            return await options.score_output(HookCall(task, output, options.model_id or model, registry))
        if task.schema is None or options.schema_mode == "subset":
            return score_output(task, output, options, model)
        # In a thread: a schema may contain a slow regular expression, and an output may be long.
        return await offload.run(score_output, task, output, options, model)

    def _metrics(self, said: TaskScore | None, output: str) -> dict[str, float | None]:
        values: dict[str, float | None] = {TOKENS: estimated_tokens(output)}
        if said is not None:
            values |= {VALID: said.valid, SCHEMA_VALID: said.schema_valid, MATCHED: said.matched}
        # Always include every name, also without a value, so that tables keep the order of the columns.
        return {name: None if (value := values.get(name)) is None else float(value) for name in self._names}


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, EvalFnError) else raised(error)


def task_of(state: State) -> Task:
    """Return the task of a rollout from the rollout's example."""
    return read_task(state["info"]["task"], 0)
