"""Execute one rollout in this process: run the environment with the model, and score the result with the rubric. An
error of a rollout is converted to a record. Only two errors are raised, because they affect other rollouts as well:
`SystemicError` (the endpoint is unusable) and `ThreadsHung` (the environment's blocking code does not return)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.core.errors import (
    BudgetSpent,
    EnvironmentFault,
    LimitReached,
    ModelError,
    SandboxError,
    SystemicError,
    ThreadsHung,
)
from harness.core.records import BUDGET_SPENT, Failed, Generated, Item, Score, Timing
from harness.core.redact import redactor
from harness.core.replies import ReplyRecorder, to_record
from harness.core.state import State
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Sampling, Tools, Usage, value_class
from harness.engine.rollout_limits import CallGate, RolloutLimits
from harness.envs.environment import Environment
from harness.rubrics.functions import read
from harness.rubrics.rubric import Rubric
from harness.settings.schema import ROLLOUT_LIMITS
from harness.stats.scores import LARGEST_SCORE, UNUSABLE
from harness.usercode.deadline import Deadline
from harness.usercode.event_loop import in_loop
from harness.usercode.exceptions import describe, should_propagate
from harness.usercode.separate_task import GRACE_SECONDS, OwnTask


@dataclass(slots=True)
class MeteredChat:
    """A `Chat` that sums the usage of one rollout, so that the usage of a failed rollout is known as well."""

    inner: Chat
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    dictation: ReplyRecorder = field(default_factory=ReplyRecorder)
    """Recorder of the replies and errors of the current attempt."""
    gate: CallGate | None = None
    """Refuses calls that would exceed the rollout's limits; None without limits."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """The event loop of the run, in which the model is called."""

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self.inner.model

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Call the model and count its reply. May be called in another event loop in another thread."""
        if asyncio.get_running_loop() is not self.loop:
            return await in_loop(self.loop, self(prompt, tools=tools, sampling_args=sampling_args))
        gate, ticket = self.gate, None
        if gate is not None:
            ticket = await gate.enter(sampling_args)
        dictation = self.dictation
        number = dictation.begin(prompt)
        try:
            if ticket is None:
                response = await self.inner(prompt, tools=tools, sampling_args=sampling_args)
            else:
                response = await ticket.send(self.inner, prompt, tools)
        except (BudgetSpent, LimitReached) as error:
            dictation.withdraw(number)
            if error.wasted is not None:
                self.usage += error.wasted
            if gate is None:
                raise
            await gate.refuse(error)
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


@value_class
class Attempt:
    """State and record of one attempt at a rollout."""

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
    limits: RolloutLimits | None = None,
) -> Attempt:
    """Generate one rollout of `item`, with up to `max_retries` retries after a retryable failure.

    Args:
        environment: The environment, whose method `rollout` is called.
        item: The example and the rollout's index.
        chat: The model, bound to this rollout.
        sampling_args: Sampling arguments of the model, for the environment's state.
        timeout: Seconds for one attempt; None for no limit.
        max_retries: Maximum number of attempts after the first.
        limits: Limits of each attempt; None for no limits.

    Raises:
        SystemicError: the endpoint is unusable; nothing is recorded for this rollout.
        ThreadsHung: too many calls of blocking environment code do not return; nothing is recorded for this rollout.
    """
    meter, limits = MeteredChat(chat), limits or RolloutLimits()
    for number in range(1, max_retries + 2):
        play = _Play(environment, item, meter, sampling_args, timeout, number)
        attempt = await play.run(limits)
        record = attempt.record
        if isinstance(record, Generated) or not record.retryable or number > max_retries:
            return attempt
        if record.reason == BUDGET_SPENT:
            return attempt
    raise AssertionError("unreachable: the last attempt always returns")


class _Play:
    """One attempt at a rollout."""

    def __init__(
        self,
        environment: Environment,
        item: Item,
        meter: MeteredChat,
        sampling_args: JsonDict,
        timeout: float | None,
        number: int,
    ) -> None:
        self._environment = environment
        self._item = item
        self._meter = meter
        self._timeout = timeout
        self._number = number
        self._state = State.begin(item.example, item.rollout_index, meter.model, sampling_args)
        self._sampling_args = sampling_args
        self._started_at, self._started = time.time(), time.monotonic()
        self._deadline = Deadline(timeout)
        if number > 1:
            meter.dictation = ReplyRecorder()

    async def run(self, limits: RolloutLimits) -> Attempt:
        """Run the environment, and return the attempt with its record."""
        meter, state = self._meter, self._state
        work = self._environment.rollout(state, meter)
        if limits.may_refuse:
            own = OwnTask[None](f"a rollout of {type(self._environment).__name__}", 2 * GRACE_SECONDS)
            meter.gate = CallGate(limits, self._sampling_args, own.stop)
            work = own.run(work)
        try:
            with self._deadline:
                await work
        except BaseException as error:
            # Boundary around environment code: its bug, or its sys.exit(), fails only its own rollout.
            if not isinstance(error, BudgetSpent) and (
                isinstance(error, SystemicError | ThreadsHung) or should_propagate(error)
            ):
                raise
            return self._ended(error)
        return self._ended(None)

    def _ended(self, error: BaseException | None) -> Attempt:
        """Return the attempt with its record. `error` is the error that the environment raised, or None."""
        gate = self._meter.gate
        # A refused call decides the outcome, even if the environment's code catches the refusal.
        # But an error afterwards, in tests of the result or of a sandbox, would make it look wrong.
        refusal = gate.refusal if gate is not None else None
        fails_later = error is not None and (self._state.is_verifying or isinstance(error, SandboxError))
        if refusal is None or (fails_later and isinstance(refusal, LimitReached)):
            refusal = error
        if isinstance(refusal, BudgetSpent):
            return self._failed(BUDGET_SPENT, str(refusal), retryable=True)
        if isinstance(refusal, LimitReached):
            # Mark the rollout as truncated by a limit, so that it is scored on the messages so far.
            state = self._state
            state["error"], state["is_completed"], state["is_truncated"] = None, True, True
            state["stop_condition"] = refusal.reason
            if not state["completion"]:  # the environment was cancelled before it rendered one
                state["completion"] = state.transcript[state.start :]
        elif error is not None:
            return self._failed(*self._reason_of(error))
        return Attempt(self._state, self._generated())

    def _reason_of(self, error: BaseException) -> tuple[str, str, bool]:
        """Return the reason and the message of an error, and whether another attempt may succeed."""
        if isinstance(error, ModelError):
            return error.reason, str(error), error.retryable
        if isinstance(error, TimeoutError) and self._deadline.expired():
            return "timeout", f"the rollout took longer than {self._timeout:g} s", True
        fault = error if isinstance(error, EnvironmentFault) else EnvironmentFault()
        return fault.reason, describe(error), fault.retryable

    def _timing(self) -> Timing:
        return Timing(self._started_at, time.monotonic() - self._started, self._meter.seconds, self._deadline.waited)

    def _failed(self, reason: str, error: str, retryable: bool) -> Attempt:
        state, item, meter = self._state, self._item, self._meter
        completion, error = state.get("completion") or "", redactor.text(error)
        replies = to_record(meter.dictation.taken, completion, is_truncated=False, error=error)
        return Attempt(
            state,
            Failed(
                item.key, item.example.key, item.rollout_index, "generation", reason, error, retryable,
                self._number, completion, meter.usage, self._timing(), replies, meter.dictation.calls(meter.usage),
            ),
        )  # fmt: skip

    def _generated(self) -> Generated:
        state, item, meter = self._state, self._item, self._meter
        exported, lost = state.export()
        completion, is_truncated = state["completion"], bool(state.get("is_truncated"))
        stop_condition = state.get("stop_condition")
        is_cut = is_truncated and stop_condition not in ROLLOUT_LIMITS
        replies = to_record(meter.dictation.taken, completion, is_truncated=is_cut)
        return Generated(
            item.key, item.example.key, item.rollout_index, completion, stop_condition, is_truncated,
            meter.usage, self._timing(), self._number, exported, lost, replies, meter.dictation.calls(meter.usage),
        )  # fmt: skip


async def score(rubric: Rubric, states: Sequence[State], timeout: float | None) -> list[Score]:
    """Score rollouts of one example. If the rubric fails or takes longer than `timeout` seconds, they get no score.

    Raises:
        SystemicError: a judge's endpoint is unusable; the rollouts stay without a result.
        ThreadsHung: too many calls of blocking environment code do not return; the rollouts stay without a result.
    """
    bound = Deadline(timeout)
    try:
        with bound:
            scores = await rubric.score(states)
        if len(scores) != len(states):
            raise EnvironmentFault(f"the rubric returned {len(scores)} scores for {len(states)} rollouts")
        return [_usable(each) for each in scores]
    except TimeoutError as error:
        reason = f"scoring timeout: scoring took longer than {timeout:g} s" if bound.expired() else describe(error)
    except (SystemicError, ThreadsHung):
        raise
    except BaseException as error:  # the boundary around rubric code, as above
        if should_propagate(error):
            raise
        reason = describe(error)
    return [Score(None, {}, {"*": redactor.text(reason)}) for _ in states]


def _usable(score: Score) -> Score:
    """Return the score with its reward as a number. If the reward cannot be used in statistics, return the score
    without a reward and with the reason."""
    reward: object = score.reward
    if reward is None or (type(reward) is float and abs(reward) <= LARGEST_SCORE):
        return score
    number, why = read(reward)
    if number is None or abs(number) > LARGEST_SCORE:
        why = (why or f"it is {number}").replace("returned", "it is", 1)
        return replace(score, reward=None, reasons={"*": f"{UNUSABLE}: {why}", **score.reasons})
    return replace(score, reward=number)
