"""The model as an agent sees it: `ctx.llm` on top of the engine's chat. Translates requests, replies and errors and
collects the metrics of a run's calls; the engine does sending, retries and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from harness.agents.json_values import json_value
from harness.agents.loop import CompletionsResult
from harness.agents.schemas import RolloutMetrics
from harness.agents.trace import Trace
from harness.agents.validation import validate_tools
from harness.core.errors import (
    BudgetSpent,
    EnvironmentFault,
    LimitReached,
    ModelError,
    ProviderError,
    RolloutLimitError,
    SystemicError,
    SystemicProviderError,
)
from harness.core.types import JsonDict, Message, Messages, ModelResponse, Usage
from harness.usercode.deadline import waiting, was_cancelled

_OF_A_CLIENT = frozenset({"api_key", "api_base", "base_url"})
"""Keywords that select an endpoint. They are refused: in a request body they would only disclose a key."""

_REFUSALS = 100
"""Refused calls after which a run is cancelled: an agent that ignores the refusals would never end."""


class Ask(Protocol):
    """A function that sends a request to the rollout's model."""

    async def __call__(self, prompt: Messages, *, tools: Sequence[JsonDict], sampling_args: JsonDict) -> ModelResponse:
        """Send a request, as `Environment.get_model_response` does without a state."""
        ...


@dataclass(frozen=True, slots=True)
class StepEvent:
    """An event for an interactive session."""

    kind: Literal["request", "reply"]
    """`request` before a model call, `reply` after its reply."""
    messages: Messages
    """The messages of the request; the agent's own list, so do not change it."""
    tools: list[JsonDict]
    """The tools that the model is offered."""
    response: Message | None = None
    """The model's reply."""
    rollout_id: str = ""
    turn: int = 1
    """Number of the model call in this rollout, from 1."""


Step = Callable[[StepEvent], Awaitable[None]]
"""An interactive session's callback, awaited before every model call and after every reply. An exception from it ends
the rollout, even if the agent catches it; the time it takes does not count against the rollout's timeout."""


class AgentLLM:
    """The model of one run.

    Args:
        ask: Sends requests through the engine's chat.
        model: The model's name, used if the agent passes none.
        tools: The tools that the model is offered unless the agent passes others.
        rollout_id: The rollout's id, for `step`.
        trace: Records the calls; None for no trace.
        step: Callback of an interactive session.
        stop: Cancels the run of an agent that keeps asking after the run has ended.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        model: str = "",
        tools: Sequence[JsonDict] = (),
        rollout_id: str = "",
        trace: Trace | None = None,
        step: Step | None = None,
        stop: Callable[[], object] | None = None,
    ) -> None:
        self._ask = ask
        self._model = model
        self._tools = list(tools)
        self._rollout_id = rollout_id
        self._trace = trace
        self._step = step
        self._stop = stop
        self._refused = 0
        self._seconds = 0.0
        self._usage = Usage()
        self._largest = 0
        self._calls = 0
        self._traced = 0
        self._last: tuple[Messages, int, Message | None] = ([], 0, None)
        self.is_truncated = False
        """Whether a reply was cut off at the token limit."""
        self.error: ModelError | None = None
        """The error of the latest call; None if it succeeded."""
        self.failed_calls = 0
        """Number of failed calls, including those that the agent handled."""
        self.fatal: BaseException | None = None
        """An error that must end the rollout even if the agent catches it: an unusable endpoint, or the end of a
        session."""
        self.is_over = False
        """Whether the run has ended or is being cancelled; later replies are not recorded."""

    async def chat_completions(self, messages: list[Message], **kwargs: Any) -> CompletionsResult:
        """Ask the model for a reply to a conversation.

        Args:
            messages: The whole conversation; dicts, or pydantic models.
            **kwargs: Arguments of the request; they replace the run's own sampling arguments. `tools` replaces the
                agent's tools for this call (None for none), `model` selects another model of the same endpoint.

        Raises:
            ProviderError: the call failed after all retries.
            RolloutLimitError: the rollout has reached its `message_limit` or `token_limit`.
            SystemicProviderError: the endpoint is unusable: every other call would fail too.
            TypeError: an argument is not valid in a request.
            EnvironmentFault: the run has ended.
        """
        try:
            return await self._chat(messages, kwargs)
        except Exception:
            # Yield to the event loop: an agent that retries immediate failures for ever would block it.
            await asyncio.sleep(0)
            raise

    async def _chat(self, messages: list[Message], kwargs: JsonDict) -> CompletionsResult:
        if self.is_over or self.fatal is not None:
            await self._refuse()
        asked = _messages(messages)
        tools = self._tools if "tools" not in kwargs else validate_tools(kwargs.pop("tools") or [])
        sampling_args = self._sampling_args(kwargs)
        self._calls += 1
        before, self._last = self._last, (asked, len(asked), None)
        await self._stop_at("request", asked, tools)
        self._note_request(asked, sampling_args)
        try:
            response = await self._ask(asked, tools=tools, sampling_args=sampling_args)
        except (ModelError, asyncio.CancelledError) as error:
            is_refused = isinstance(error, LimitReached | BudgetSpent | asyncio.CancelledError)
            if is_refused and len(asked) <= before[1]:
                self._last = before  # refused without new messages: keep the latest reply
            if isinstance(error, ModelError):
                raise self._failed(error) from error
            raise
        message = {name: value for name, value in response.message.items() if value is not None}
        self._last = (asked, self._last[1], message)
        self._count(response)
        self._note_reply(response, message)
        await self._stop_at("reply", asked, tools, message)
        usage = response.usage
        counts = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }
        return CompletionsResult(message, [], [], counts, response.finish_reason or "stop")

    def get_metrics(self) -> RolloutMetrics:
        """The model's share of the run's metrics so far."""
        return RolloutMetrics(
            llm_latency_ms=self._seconds * 1000,
            num_llm_calls=self._usage.requests,
            prompt_tokens=self._usage.input_tokens,
            response_tokens=self._usage.output_tokens,
            max_context_tokens=self._largest,
        )

    def so_far(self, *, with_tail: bool = True) -> Messages:
        """The conversation so far, for the record of a run without a result.

        Args:
            with_tail: Whether to include messages that the agent has appended to its list after the latest reply.
        """
        asked, count, reply = self._last
        said = asked[:count]
        if reply is None:
            return said
        # If the agent passed a list of plain dicts, `asked` is that same list and may have grown since.
        return list(asked) if with_tail and asked[count : count + 1] == [reply] else [*said, reply]

    async def _refuse(self) -> None:
        """Raise the error that explains why no more replies are given."""
        self._refused += 1
        if self._refused > _REFUSALS:
            if self._stop is not None:
                self._stop()
            await asyncio.get_running_loop().create_future()  # until this task is cancelled
        if isinstance(self.fatal, SystemicError):
            raise self._translated(self.fatal)
        if self.fatal is not None:
            raise self.fatal
        if was_cancelled():
            raise asyncio.CancelledError
        raise EnvironmentFault("the model can only be asked while the rollout runs")

    def _sampling_args(self, kwargs: JsonDict) -> JsonDict:
        wrong = sorted(_OF_A_CLIENT.intersection(kwargs))
        if wrong:
            raise TypeError(f"ctx.chat got {wrong[0]}, but an agent's calls go to the endpoint of its run; remove it")
        if kwargs.get("model", self._model) in (None, self._model):
            kwargs.pop("model", None)
        return kwargs

    def _count(self, response: ModelResponse) -> None:
        usage = response.usage
        self.error = None
        self.is_truncated = self.is_truncated or response.is_truncated
        self._seconds += response.seconds
        self._usage += usage if usage.requests else Usage(usage.input_tokens, usage.output_tokens, requests=1)
        self._largest = max(self._largest, usage.input_tokens)

    def _failed(self, error: ModelError) -> ProviderError:
        self.error = error
        self.failed_calls += not isinstance(error, LimitReached)  # that one was not sent
        if isinstance(error, SystemicError):
            self.fatal = self.fatal or error
        if self._trace is not None:
            words = {"error": str(error), "reason": error.reason, "retryable": error.retryable}
            self._trace.write("model_error", {"turn": self._calls, **words})
        return self._translated(error)

    def _translated(self, error: ModelError) -> ProviderError:
        if isinstance(error, LimitReached):
            return RolloutLimitError(str(error))
        if not isinstance(error, SystemicError):
            return ProviderError(str(error))
        tokens = self._usage.input_tokens + self._usage.output_tokens
        systemic = SystemicProviderError(str(error), self._seconds * 1000, tokens)
        systemic.__cause__ = error
        return systemic

    async def _stop_at(
        self, kind: Literal["request", "reply"], messages: Messages, tools: list[JsonDict], reply: Message | None = None
    ) -> None:
        if self._step is None:
            return
        try:
            with waiting():
                await self._step(StepEvent(kind, messages, tools, reply, self._rollout_id, self._calls))
        except BaseException as error:  # stored: even an agent that catches everything must not keep a session open
            self.fatal = error
            raise

    def _note_request(self, asked: Messages, sampling_args: JsonDict) -> None:
        if self._trace is None:
            return
        # In a growing conversation, each message is written once.
        first = self._traced if self._traced <= len(asked) else 0
        self._traced = len(asked) + 1
        data: JsonDict = {"turn": self._calls, "messages": len(asked), "new_messages": asked[first:]}
        self._trace.write("model_request", {**data, **({"arguments": sampling_args} if sampling_args else {})})

    def _note_reply(self, response: ModelResponse, message: Message) -> None:
        if self._trace is None:
            return
        usage = response.usage
        data = {
            "turn": self._calls,
            "message": message,
            "finish_reason": response.finish_reason,
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "seconds": round(response.seconds, 6),
        }
        self._trace.write("model_reply", data)


def _messages(given: object) -> Messages:
    """Messages as they are sent; a list of plain dicts is returned unchanged.

    Raises:
        TypeError: the value is not a list of messages.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise TypeError(f"a conversation is a list of messages, not {type(given).__name__}")
    messages = cast("Sequence[object]", given)
    if isinstance(given, list) and all(type(message) is dict for message in messages):
        return cast(Messages, given)
    return [message_of(message, number) for number, message in enumerate(messages)]


def message_of(given: object, number: int) -> Message:
    """Convert a message to a plain dict: a mapping, a pydantic model or a dataclass.

    Raises:
        TypeError: it is of another type, or holds a value that JSON cannot represent.
    """
    try:
        message: object = json_value(given)
    except TypeError as error:
        raise TypeError(f"message {number}: {error}") from error
    if not isinstance(message, dict):
        raise TypeError(f"message {number} must be a dict with 'role' and 'content', not {type(given).__name__}")
    return cast(Message, message)
