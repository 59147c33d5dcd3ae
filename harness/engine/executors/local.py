"""The executor of this process: environment, rubric and model calls share the engine's event loop. Owns the live states
between a rollout's last message and its score."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.core.records import JUDGEMENTS, STATE_LOST, Failed, Generated, Item, Scored
from harness.core.state import State
from harness.core.types import JsonDict
from harness.engine import rollout
from harness.engine.executors import Finished
from harness.engine.rollout_limits import RolloutLimits
from harness.envs.environment import Environment

if TYPE_CHECKING:
    from harness.engine.lanes import ModelSource  # which leads to all settings: an isolated process needs none of them


class LocalExecutor:
    """Runs one environment here.

    Args:
        environment: Loaded; runs may share it.
        lane: The run's way to its model, or to a recording.
        timeout: Seconds for one attempt at a rollout; None for no bound.
        max_retries: Further attempts at a rollout after a failure that may heal.
        scoring_timeout: Seconds for scoring one rollout or group; None for no bound.
        limits: Of the calls and tokens of each attempt at a rollout; None for none.
    """

    def __init__(
        self,
        environment: Environment,
        lane: ModelSource,
        *,
        timeout: float | None = None,
        max_retries: int = 0,
        scoring_timeout: float | None = None,
        limits: RolloutLimits | None = None,
    ) -> None:
        self._environment = environment
        self._lane = lane
        self._timeout = timeout
        self._max_retries = max_retries
        self._scoring_timeout = scoring_timeout
        self._limits = limits
        self._live: dict[str, State] = {}

    async def generate(self, item: Item) -> Generated | Failed:
        """Make one rollout and keep its state until it is scored."""
        try:
            attempt = await rollout.generate(
                self._environment,
                item,
                self._lane.chat(item),
                sampling_args=self._lane.sampling_args,
                timeout=self._timeout,
                max_retries=self._max_retries,
                limits=self._limits,
            )
        finally:
            self._lane.close(item)
        if isinstance(attempt.record, Generated):
            self._live[item.key] = attempt.state
        return attempt.record

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        """Score from the live states, or from what the journal holds of rollouts made by an earlier process."""
        if self._environment.rubric.needs_live_state and any(f.record.key not in self._live for f in rollouts):
            return [Scored(f.record.key, "unscored", None, {}, {"*": STATE_LOST}) for f in rollouts]
        states = [self._state(finished) for finished in rollouts]
        known = [set(state) for state in states]
        started = time.monotonic()
        scores = await rollout.score(self._environment.rubric, states, self._scoring_timeout)
        seconds = (time.monotonic() - started) / len(rollouts)
        return [
            Scored(
                finished.record.key,
                "unscored" if score.reward is None else "scored",
                score.reward,
                score.metrics,
                score.reasons,
                seconds,
                _added(state, names),
            )
            for finished, score, state, names in zip(rollouts, scores, states, known, strict=True)
        ]

    def forget(self, key: str) -> None:
        """Drop a live state."""
        self._live.pop(key, None)

    def _state(self, finished: Finished) -> State:
        live = self._live.pop(finished.record.key, None)
        if live is not None:
            return live
        return State.restore(finished.example, finished.record, self._lane.model, self._lane.sampling_args)


def _added(state: State, known: set[str]) -> JsonDict:
    """What scoring put into the state (a judge's verdict), as far as it is JSON."""
    # A judge that was asked during generation, too, has its replies in one list with those of scoring.
    known.discard(JUDGEMENTS)
    if state.keys() <= known:
        return {}
    exported, _ = state.export()
    return {name: value for name, value in exported.items() if name not in known}
