"""A rubric that runs only one function and takes the other functions' values from the record.

The function sees the rollout as it was generated, without the state added by other functions. That state is restored
afterwards, so that it is recorded again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from harness.core.errors import UsageError
from harness.core.records import JUDGEMENTS, Score, Scored
from harness.core.state import State
from harness.rubrics.functions import Value
from harness.rubrics.judge_port import JudgeSpec
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric
from harness.settings.wording import listed

NOT_RECORDED = "no recorded value"


class OneFunction(Rubric):
    """Rubric that runs one function and combines its value with recorded values of the others.

    Args:
        rubric: The whole rubric, which computes the reward.
        name: The function to run.
        recorded: Returns the recorded score of a state's rollout; None if there is none.

    Raises:
        UsageError: see `Rubric.only`.
    """

    def __init__(self, rubric: Rubric, name: str, recorded: Callable[[State], Scored | None]) -> None:
        super().__init__()
        self._whole = rubric
        self._part = rubric.only(name)
        self.name = name
        self.recorded = recorded

    @property
    def parser(self) -> Parser:
        """The parser of the whole rubric."""
        return self._whole.parser

    def adopt_parser(self, parser: Parser) -> None:
        """Do nothing: the whole rubric has its parser."""

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

    @property
    def is_group(self) -> bool:
        """Whether the function needs all rollouts of an example together."""
        return self._part.is_group

    @property
    def needs_live_state(self) -> bool:
        """Whether the function can score only in the process that generated the rollouts."""
        return self._part.needs_live_state

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judges that the function may ask."""
        return self._part.judges

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Run the function and compute the reward from its value and the recorded values."""
        recorded = [self.recorded(state) for state in states]
        parts = await self._part.score(states)
        scores: list[Score] = []
        for state, part, known in zip(states, parts, recorded, strict=True):
            score = self._whole.add_up(self._values(part, known))
            self._put_back(state, known)
            state["reward"], state["metrics"] = score.reward, score.metrics
            scores.append(score)
        return scores

    def _values(self, part: Score, known: Scored | None) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for name in self.metric_names:
            score = part if name == self.name else known
            value = None if score is None else score.metrics.get(name)
            reasons = {} if score is None else score.reasons
            reason = reasons.get(name) or reasons.get("*") or NOT_RECORDED
            values[name] = (value, "") if value is not None else (None, reason)
        return values

    def _put_back(self, state: State, known: Scored | None) -> None:
        """Restore the state that scoring had added, unless it is new. If the function asks a judge, its replies replace
        all recorded ones, since the record does not say which of them belong to this function."""
        for name, value in ({} if known is None else known.extra).items():
            if name == JUDGEMENTS:
                if not self._part.judges:
                    state[name] = value  # starts with the judgements from before scoring
            elif name not in state:
                state[name] = value


def require_recorded(rubric: Rubric, name: str, recorded: Collection[str]) -> None:
    """Check that all functions that the reward needs have recorded values.

    Args:
        rubric: The whole rubric.
        name: The function to run.
        recorded: Names of the functions with recorded values.

    Raises:
        UsageError: some have none; names them.
    """
    missing = [each for each, weight in rubric.weights.items() if weight and each != name and each not in recorded]
    if missing:
        raise UsageError(
            f"{name!r}: the reward also needs {listed(missing)}, of which the run has no recorded value; "
            "score with the whole rubric"
        )
