"""Executor that runs environment, rubric and model calls in the engine's process and event loop. It stores the live
state of each rollout from the end of its generation until it is scored."""

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
from harness.store.outcome_kinds import scored, unscored

if TYPE_CHECKING:
    from harness.engine.model_source import ModelSource  # imports all settings, which an isolated process does not need


class LocalExecutor:
    """Executor that runs one environment in this process.

    Args:
        environment: The loaded environment, which several runs may share.
        source: Source of the run's model replies, which is a model or a recording.
        timeout: Seconds for one attempt at a rollout; None for no limit.
        max_retries: Maximum number of attempts at a rollout after the first, if a failure is retryable.
        scoring_timeout: Seconds for scoring one rollout or group; None for no limit.
        limits: Call and token limits of each attempt at a rollout; None for no limits.
    """

    def __init__(
        self,
        environment: Environment,
        source: ModelSource,
        *,
        timeout: float | None = None,
        max_retries: int = 0,
        scoring_timeout: float | None = None,
        limits: RolloutLimits | None = None,
    ) -> None:
        self._environment = environment
        self._source = source
        self._timeout = timeout
        self._max_retries = max_retries
        self._scoring_timeout = scoring_timeout
        self._limits = limits
        self._live: dict[str, State] = {}

    async def generate(self, item: Item) -> Generated | Failed:
        """Generate one rollout, and store its state until it is scored."""
        try:
            attempt = await rollout.generate(
                self._environment,
                item,
                self._source.chat(item),
                sampling_args=self._source.sampling_args,
                timeout=self._timeout,
                max_retries=self._max_retries,
                limits=self._limits,
            )
        finally:
            self._source.close(item)
        if isinstance(attempt.record, Generated):
            self._live[item.key] = attempt.state
        return attempt.record

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        """Score rollouts from their live states, or from the journal if an earlier process generated them."""
        if self._environment.rubric.needs_live_state and any(f.record.key not in self._live for f in rollouts):
            return [unscored(f.record.key, STATE_LOST) for f in rollouts]
        states = [self._state(finished) for finished in rollouts]
        known = [set(state) for state in states]
        started = time.monotonic()
        scores = await rollout.score(self._environment.rubric, states, self._scoring_timeout)
        seconds = (time.monotonic() - started) / len(rollouts)
        return [
            scored(finished.record.key, score, seconds, _added(state, names))
            for finished, score, state, names in zip(rollouts, scores, states, known, strict=True)
        ]

    def forget(self, key: str) -> None:
        """Delete the live state of a rollout."""
        self._live.pop(key, None)

    def _state(self, finished: Finished) -> State:
        live = self._live.pop(finished.record.key, None)
        if live is not None:
            return live
        return State.restore(finished.example, finished.record, self._source.model, self._source.sampling_args)


def _added(state: State, known: set[str]) -> JsonDict:
    """Return the JSON values that scoring added to the state, such as a judge's verdict."""
    # Judge replies during generation and during scoring share one list, so this column is always exported.
    known.discard(JUDGEMENTS)
    if state.keys() <= known:
        return {}
    exported, _ = state.export()
    return {name: value for name, value in exported.items() if name not in known}
