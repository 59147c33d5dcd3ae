"""One rollout inside this process: run the environment against the model, then its rubric. Owns the boundary at which
whatever goes wrong in a rollout becomes a record; owns no schedule, no disk and no retry of single requests.

Two errors pass through, because they are not about this rollout: `SystemicError` (the endpoint is unusable) and
`ThreadsHung` (the environment's blocking code never returns)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.boundary import AUTHORS, describe, passes
from harness.deadline import Deadline
from harness.envs.environment import Environment
from harness.errors import EnvironmentFault, ModelError, SystemicError, ThreadsHung
from harness.guarded import end_copy
from harness.records import Failed, Generated, Item, Score, Timing
from harness.redact import redactor
from harness.replies import Dictation, to_record
from harness.rubrics.functions import read
from harness.rubrics.rubric import Rubric
from harness.state import State
from harness.stats.scores import LARGEST_SCORE, UNUSABLE
from harness.types import Chat, JsonDict, ModelResponse, Prompt, Usage


@dataclass(slots=True)
class MeteredChat:
    """A `Chat` that adds up what one rollout costs, so that a failed rollout keeps its bill too."""

    inner: Chat
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    dictation: Dictation = field(default_factory=Dictation)
    """What the requests of the attempt that is being made came to."""

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self.inner.model

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """Ask the model and count its reply."""
        end_copy()
        dictation = self.dictation
        number = dictation.begin(prompt)
        try:
            response = await self.inner(prompt, tools=tools, sampling_args=sampling_args)
        except BaseException as error:
            dictation.end(number, error)
            if isinstance(error, ModelError) and error.wasted is not None:
                self.usage += error.wasted
            raise
        dictation.end(number, response)
        self.usage += response.usage
        if response.wasted is not None:
            self.usage += response.wasted
        self.seconds += response.seconds
        return response


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt at an item came to."""

    state: State
    record: Generated | Failed


async def generate(
    environment: Environment,
    item: Item,
    chat: Chat,
    *,
    sampling_args: JsonDict,
    timeout: float | None,
    max_retries: int,
) -> Attempt:
    """Make one rollout of `item`, starting again up to `max_retries` times after a failure that may heal.

    Args:
        environment: Whose `rollout` is run.
        item: The example and the rollout's index.
        chat: The model, bound to this rollout.
        sampling_args: What the model is asked with, for the environment's state.
        timeout: Seconds for one attempt; None for no bound.
        max_retries: Further attempts after the first.

    Raises:
        SystemicError: the endpoint is unusable; nothing is recorded for this item.
        ThreadsHung: see `harness.offload`; nothing is recorded either.
    """
    meter = MeteredChat(chat)
    for number in range(1, max_retries + 2):
        attempt = await _attempt(environment, item, meter, sampling_args, timeout, number)
        record = attempt.record
        if isinstance(record, Generated) or not record.retryable or number > max_retries:
            return attempt
    raise AssertionError("unreachable: the last attempt always returns")


async def _attempt(
    environment: Environment,
    item: Item,
    meter: MeteredChat,
    sampling_args: JsonDict,
    timeout: float | None,
    number: int,
) -> Attempt:
    state = State.begin(item.example, item.rollout_index, meter.model, sampling_args)
    started_at, started = time.time(), time.monotonic()
    deadline = Deadline(timeout)
    meter.dictation = Dictation()

    def timing() -> Timing:
        return Timing(started_at, time.monotonic() - started, meter.seconds, deadline.waited)

    def failed(reason: str, error: str, *, retryable: bool) -> Attempt:
        completion, error = state.get("completion") or "", redactor.text(error)
        replies = to_record(meter.dictation.taken, completion, is_truncated=False, error=error)
        return Attempt(
            state,
            Failed(
                item.key, item.example.key, item.rollout_index, "generation", reason, error, retryable,
                number, completion, meter.usage, timing(), replies,
            ),
        )  # fmt: skip

    try:
        async with deadline:
            try:
                await environment.rollout(state, meter)
            finally:
                end_copy()
    except (SystemicError, ThreadsHung):
        raise
    except ModelError as error:
        return failed(error.reason, str(error), retryable=error.retryable)
    except TimeoutError as error:
        if deadline.expired():
            return failed("timeout", f"the rollout took longer than {timeout:g} s", retryable=True)
        return failed("environment_error", describe(error), retryable=False)
    except AUTHORS as error:
        # The boundary around environment code: its bug, or its sys.exit(), costs its rollout and not every run.
        if passes(error):
            raise
        told = error if isinstance(error, EnvironmentFault) else EnvironmentFault()
        return failed(told.reason, describe(error), retryable=told.retryable)
    return Attempt(state, _generated(item, state, meter, timing(), number))


def _generated(item: Item, state: State, meter: MeteredChat, timing: Timing, number: int) -> Generated:
    exported, lost = state.export()
    completion, is_truncated = state["completion"], bool(state.get("is_truncated"))
    replies = to_record(meter.dictation.taken, completion, is_truncated=is_truncated)
    return Generated(
        item.key, item.example.key, item.rollout_index, completion, state.get("stop_condition"), is_truncated,
        meter.usage, timing, number, exported, lost, replies,
    )  # fmt: skip


async def score(rubric: Rubric, states: Sequence[State], timeout: float | None) -> list[Score]:
    """Score rollouts of one example; a rubric that fails, or takes over `timeout` seconds, leaves them unscored.

    Raises:
        SystemicError: a judge's endpoint is unusable; nothing is said of these rollouts.
        ThreadsHung: see `harness.offload`; nothing is said either.
    """
    # Only a judge's requests wait in our queues, and a clock that can stand still costs a little more.
    bound = Deadline(timeout) if rubric.judges else asyncio.timeout(timeout)
    try:
        async with bound:
            try:
                scores = await rubric.score(states)
            finally:
                end_copy()
        if len(scores) != len(states):
            raise EnvironmentFault(f"the rubric returned {len(scores)} scores for {len(states)} rollouts")
        return [_usable(each) for each in scores]
    except TimeoutError as error:
        reason = f"scoring timeout: longer than {timeout:g} s" if bound.expired() else describe(error)
    except (SystemicError, ThreadsHung):
        raise
    except AUTHORS as error:  # the boundary around rubric code, as above
        if passes(error):
            raise
        reason = describe(error)
    return [Score(None, {}, {"*": redactor.text(reason)}) for _ in states]


def _usable(score: Score) -> Score:
    """A score whose reward statistics can use, or none and why: whatever counts rewards counts the same ones."""
    reward: object = score.reward
    if reward is None or (type(reward) is float and abs(reward) <= LARGEST_SCORE):
        return score
    number, why = read(reward)
    if number is None or abs(number) > LARGEST_SCORE:
        why = (why or f"it is {number}").replace("returned", "it is", 1)
        return replace(score, reward=None, reasons={"*": f"{UNUSABLE}: {why}", **score.reasons})
    return replace(score, reward=number)
