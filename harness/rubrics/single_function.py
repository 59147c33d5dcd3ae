"""A rubric that runs only one function and uses the recorded values of the other functions.

The function gets the rollout as it was generated, without the state that other functions have added. That state is
restored afterwards, so that it is recorded again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from harness.core.errors import UsageError
from harness.core.records import JUDGEMENTS, Score, Scored
from harness.core.state import State
from harness.rubrics.functions import Value
from harness.rubrics.group import CombinedRubric
from harness.rubrics.rubric import Rubric
from harness.settings.wording import listed

NOT_RECORDED = "no recorded value"
"""Reason for the missing value of a function that was not run and was never recorded."""


class OneFunction(CombinedRubric):
    """Rubric that runs one function and combines its value with recorded values of the others.

    Args:
        rubric: The whole rubric, which computes the reward.
        name: The function to run.
        recorded: Returns the recorded score of the rollout of a state; None if it has not been scored.

    Raises:
        UsageError: the function cannot be run separately; see `Rubric.only`.
    """

    def __init__(self, rubric: Rubric, name: str, recorded: Callable[[State], Scored | None]) -> None:
        super().__init__()
        self._whole = rubric
        self._part = rubric.only(name)
        self.name = name
        self.recorded = recorded

    def _parts(self) -> Sequence[Rubric]:
        return (self._part,)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all functions of the whole rubric."""
        return self._whole.metric_names

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the whole rubric."""
        return self._whole.weights

    @property
    def reward_range(self) -> tuple[float, float]:
        """The reward range of the whole rubric."""
        return self._whole.reward_range

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Run the function and compute the reward from its value and the recorded values."""
        recorded = [self.recorded(state) for state in states]
        parts = await self._part.score(states)
        scores: list[Score] = []
        for state, part, known in zip(states, parts, recorded, strict=True):
            score = self._whole.add_up(self._values(part, known))
            # Restore the state that the recorded scoring had added, unless the function has set it again. If the
            # function calls a judge, the new replies replace all recorded ones, since there is no record of which
            # function caused which reply.
            for name, value in ({} if known is None else known.extra).items():
                if name == JUDGEMENTS:
                    if not self._part.judges:
                        state[name] = value  # includes judgements made before scoring
                elif name not in state:
                    state[name] = value
            state["reward"], state["metrics"] = score.reward, score.metrics
            scores.append(score)
        return scores

    def _values(self, part: Score, known: Scored | None) -> dict[str, Value]:
        """Return the values of all functions: the new one from `part`, the others from the recorded score."""
        values: dict[str, Value] = {}
        for name in self.metric_names:
            score = part if name == self.name else known
            value = None if score is None else score.metrics.get(name)
            reasons = {} if score is None else score.reasons
            reason = reasons.get(name) or reasons.get("*") or NOT_RECORDED
            values[name] = (value, "") if value is not None else (None, reason)
        return values


def require_recorded(rubric: Rubric, name: str, recorded: Collection[str]) -> None:
    """Check that all functions that the reward needs have recorded values.

    Args:
        rubric: The whole rubric.
        name: The function to run.
        recorded: Names of the functions with recorded values.

    Raises:
        UsageError: some functions have no recorded values; the message names them.
    """
    missing = [each for each, weight in rubric.weights.items() if weight and each != name and each not in recorded]
    if missing:
        raise UsageError(
            f"{name!r}: the reward also needs recorded values of {listed(missing)}, which the run does not have; "
            "score with the whole rubric"
        )
