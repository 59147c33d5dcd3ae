"""`LocalTestRunner`: runs an agent on dataset rows without scoring it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from harness.agents.call_arguments import EvaluatedModel, Work
from harness.agents.collect import to_run
from harness.agents.engine import evaluate
from harness.agents.loading import LoadedAgent
from harness.agents.loop import LLM, AgentLike, RolloutResult
from harness.agents.run import AgentOptions
from harness.agents.runner import client_of, folder_of, listed, loaded, only, reporter, stop_reason
from harness.agents.schemas import RolloutMetrics
from harness.agents.scoring import AGENT_REWARD, WHOLE
from harness.core.records import Example, Failed, Generated
from harness.core.types import JsonDict, Messages
from harness.settings.command_line import shared_options
from harness.store.journal_index import Recorded
from harness.store.outcomes import outcomes

DEBUG_DIR = "./test_debug"
"""Default folder of traces, used with `debug=True`."""


@dataclass(slots=True)
class LocalTestRunResult:
    """Result of a run of the agent on one row."""

    row_index: int
    success: bool
    """Whether the agent completed the run."""
    result: RolloutResult | None = None
    """The agent's result; None if the run failed."""
    error: str | None = None
    """The error of a failed run."""
    duration_ms: float = 0.0
    """Duration in ms, without time spent waiting for a slot, a retry or a rate limit."""
    token_usage: dict[str, int] = field(default_factory=dict[str, int])
    """The counts `prompt_tokens`, `completion_tokens`, `total_tokens` and `num_llm_calls`, also for a failed run."""
    messages: Messages = field(default_factory=list[JsonDict])
    """The conversation up to the end of the run."""

    @property
    def reward(self) -> float | None:
        """The reward that the agent reported."""
        return None if self.result is None else self.result.reward

    @property
    def finish_reason(self) -> str | None:
        """The finish reason that the agent reported; None for a failed run."""
        return None if self.result is None else self.result.finish_reason


@dataclass(slots=True)
class LocalTestBatchResult:
    """Results of runs on several rows."""

    results: list[LocalTestRunResult]
    total: int
    """Number of runs."""
    passed: int
    """Number of completed runs."""
    failed: int
    total_duration_ms: float
    total_tokens: int
    stopped_early: bool = False
    """Whether an unusable endpoint stopped the runs before the last row."""
    stop_reason: str | None = None


OnTested = Callable[[int, int, LocalTestRunResult], object]
"""Callback that is called after every run with the number of finished runs, the number of all runs, and the result."""


class LocalTestRunner:
    """Runner that executes an agent on dataset rows, one after another.

    Args:
        agent_loop: The agent, or the return value of `load_agent` or `load_mcp`.
        llm_client: The model: any object with `chat_completions`.
        debug: Write a trace of each run.
        debug_dir: Folder of the traces, by default `./test_debug`. Passing it turns traces on.

    Raises:
        TypeError: an argument has the wrong type.
    """

    def __init__(
        self,
        agent_loop: AgentLike | LoadedAgent,
        llm_client: LLM,
        debug: bool = False,
        debug_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._loaded = loaded(agent_loop)
        self.agent_loop = self._loaded.agent
        self.llm_client = client_of("llm_client", llm_client)
        self.debug_dir = folder_of("debug_dir", debug_dir) or (DEBUG_DIR if debug else None)

    async def run_single(
        self,
        row: Mapping[str, Any],
        row_index: int,
        max_turns: int = 10,
        completion_params: Mapping[str, Any] | None = None,
    ) -> LocalTestRunResult:
        """Run the agent on one row, without scoring.

        Args:
            row: A row with the columns of `DatasetRow`.
            row_index: The row's number in the dataset, from 0.
            max_turns: Maximum number of model calls, passed to the agent in its request.
            completion_params: Default sampling arguments of every model call, also passed to the agent in its request.

        Raises:
            SystemicProviderError: the endpoint is unusable.
            DatasetValidationError: a column of the row is missing or invalid.
            ValueError: a number is out of range.
        """
        options = AgentOptions(row_index, max_turns, "test", debug_dir=self.debug_dir)
        work = Work(self._loaded, [row], options, completion_params=completion_params)
        [ended] = await evaluate(work, [EvaluatedModel(self.llm_client)], _read)
        return only(ended)

    async def run_batch(
        self,
        rows: Iterable[Mapping[str, Any]],
        max_turns: int = 10,
        completion_params: Mapping[str, Any] | None = None,
        on_progress: OnTested | None = None,
        start_index: int = 0,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> LocalTestBatchResult:
        """Run the agent on every row, without scoring.

        Args:
            rows: Rows with the columns of `DatasetRow`.
            max_turns: Maximum number of model calls, passed to the agent in its request.
            completion_params: Default sampling arguments of every model call, also passed to the agent in its request.
            on_progress: Function that is called after every run. An exception from it is only logged.
            start_index: Number of the first row in the dataset, from 0.
            settings: Limits by their TOML names, such as `{"message_limit": 20, "max_cost": 5}`.

        Returns:
            The results. If the endpoint becomes unusable, the results until then, with `stopped_early` set.

        Raises:
            DatasetValidationError: a row is invalid; no request was sent.
            ValueError: a number is out of range.
            ConfigError: a setting is unknown or invalid.
        """
        options = AgentOptions(start_index, max_turns, "test", debug_dir=self.debug_dir)
        shared = shared_options(settings, "settings")
        work = Work(self._loaded, listed(rows), options, completion_params=completion_params, settings=shared)
        listener = (
            None
            if on_progress is None
            else reporter(on_progress, work.rollouts, lambda outcome: to_test(outcome.example, outcome.record))
        )
        [ended] = await evaluate(work, [EvaluatedModel(self.llm_client)], _read, listener)
        results = list(ended.results)
        passed = sum(result.success for result in results)
        reason = stop_reason([ended])
        return LocalTestBatchResult(
            results,
            len(results),
            passed,
            len(results) - passed,
            ended.wall_ms,
            sum(result.token_usage["total_tokens"] for result in results),
            reason is not None,
            reason,
        )


def _read(_side: EvaluatedModel, recorded: Recorded) -> list[LocalTestRunResult]:
    results = [to_test(outcome.example, outcome.base) for outcome in outcomes(recorded)]
    return sorted(results, key=lambda result: result.row_index)


def to_test(example: Example, record: Generated | Failed) -> LocalTestRunResult:
    """Convert the outcome of a rollout to the result of a test run.

    Args:
        example: The row as an example.
        record: The outcome of the rollout.
    """
    run, usage = to_run(record, None, (), None), record.usage
    messages = cast(Messages, record.completion or [])
    if isinstance(record, Failed) or not record.state.get(WHOLE):
        messages = [*cast(Messages, example.prompt), *messages]
    result = None
    if isinstance(record, Generated):
        metrics = RolloutMetrics(
            total_latency_ms=record.timing.generation * 1000,
            llm_latency_ms=record.timing.model * 1000,
            tool_latency_ms=record.state.get("tool_latency_ms", 0.0),
            num_llm_calls=usage.requests,
            num_tool_calls=record.state.get("num_tool_calls", 0),
            prompt_tokens=usage.input_tokens,
            response_tokens=usage.output_tokens,
        )
        reason, reward = record.stop_condition or "stop", record.state.get(AGENT_REWARD)
        result = RolloutResult("COMPLETED", messages, reason, metrics=metrics, reward=reward)
    return LocalTestRunResult(
        row_index=cast(int, example.example_id),
        success=run.success,
        result=result,
        error=run.error,
        duration_ms=run.duration_ms,
        token_usage={
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "num_llm_calls": usage.requests,
        },
        messages=messages,
    )
