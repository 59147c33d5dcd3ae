"""`AgentLLM`, the model object that an agent calls as `ctx.llm`. It sends requests through the engine, which applies
retries and limits; converts replies and errors to the types of the agent API; and collects metrics of a run's model
calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

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
from harness.core.openai_client import async_openai
from harness.core.types import JsonDict, Message, Messages, ModelResponse, Prompt, Sampling, Tools, Usage
from harness.usercode.deadline import waiting, was_cancelled

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_OF_A_CLIENT = frozenset({"api_key", "api_base", "base_url"})
"""Arguments of `ctx.chat` that are rejected because they select an endpoint. In a request body, they would only
disclose a key."""

_REFUSALS = 100
"""Number of rejected model calls after which a run is cancelled. Otherwise, an agent that ignores the errors might
never stop."""


class Ask(Protocol):
    """Type of the function with which an agent's model sends a request."""

    async def __call__(self, prompt: Messages, *, tools: Sequence[JsonDict], sampling_args: JsonDict) -> ModelResponse:
        """Send a request and return the reply; see `Environment.get_model_response`."""
        ...


@dataclass(frozen=True, slots=True)
class StepEvent:
    """Event of an interactive session: a model call is about to start, or its reply has arrived."""

    kind: Literal["request", "reply"]
    """`request` before a model call, `reply` after the reply to it."""
    messages: Messages
    """The messages of the request. This may be the agent's own list; do not change it."""
    tools: list[JsonDict]
    """The tools that the request offers to the model."""
    response: Message | None = None
    """The model's reply; None before the call."""
    rollout_id: str = ""
    turn: int = 1
    """Number of the model call in its rollout, from 1."""


Step = Callable[[StepEvent], Awaitable[None]]
"""Callback of an interactive session, awaited before every model call and after every reply. An exception from it ends
the rollout, even if the agent catches it. The time it takes does not count towards the rollout's timeout."""


class AgentLLM:
    """The model that an agent calls during one run.

    Args:
        ask: Function that sends a request through the engine's chat.
        model: The model's name, used if the agent passes none.
        tools: The tools that requests offer to the model, unless the agent passes others.
        rollout_id: The rollout's id, passed to `step`.
        trace: The trace in which calls are recorded; None for no trace.
        step: Callback of an interactive session.
        stop: Function that cancels the run of an agent that continues to call the model after the run has ended.
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
        self._trace = trace or Trace(None, rollout_id)
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
        """Whether any reply was cut off at the token limit."""
        self.error: ModelError | None = None
        """The error of the latest model call; None if it succeeded."""
        self.failed_calls = 0
        """Number of failed model calls, including those whose error the agent handled."""
        self.fatal: BaseException | None = None
        """An error that must end the rollout even if the agent catches it: the endpoint is unusable, or the interactive
        session has ended."""
        self.is_over = False
        """Whether the run has ended or is being cancelled. Later replies are not recorded."""

    async def chat_completions(self, messages: list[Message], **kwargs: Any) -> CompletionsResult:
        """Request the model's reply to a conversation.

        Args:
            messages: The whole conversation, as dicts or pydantic models.
            **kwargs: Arguments of the request; they replace the run's own sampling arguments. `tools` replaces the
                agent's tools for this call (None for no tools), and `model` selects another model of the same endpoint.

        Raises:
            ProviderError: the call failed after all retries.
            RolloutLimitError: the rollout has reached a limit such as `message_limit`.
            SystemicProviderError: the endpoint is unusable; every call would fail.
            TypeError: an argument is not valid in a request.
            EnvironmentFault: the run has ended.
        """
        response, message = await self.respond(messages, kwargs)
        usage = response.usage
        counts = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }
        return CompletionsResult(message, [], [], counts, response.finish_reason or "stop")

    async def respond(self, messages: list[Message], kwargs: JsonDict) -> tuple[ModelResponse, Message]:
        """Request a reply as `chat_completions` does; return it, and its message without fields that are None."""
        try:
            return await self._chat(messages, kwargs)
        except Exception:
            # Yield to the event loop: an agent that retries immediate failures endlessly would block it.
            await asyncio.sleep(0)
            raise

    @property
    def openai(self) -> AsyncOpenAI:
        """A new `openai.AsyncOpenAI` client for the run's model, for agents written for that SDK. Its requests have the
        limits, retries, budget and trace of `chat_completions`. Only the tools that a call passes are offered."""
        return async_openai(SdkChat(self._model, self.respond), names=None)

    async def _chat(self, messages: list[Message], kwargs: JsonDict) -> tuple[ModelResponse, Message]:
        if self.is_over or self.fatal is not None:
            await self._refuse()
        asked = _messages(messages)
        tools = self._tools if "tools" not in kwargs else validate_tools(kwargs.pop("tools") or [])
        if wrong := sorted(_OF_A_CLIENT.intersection(kwargs)):
            raise TypeError(f"ctx.chat: remove {wrong[0]}; all requests of a run are sent to the endpoint of the run")
        if kwargs.get("model", self._model) in (None, self._model):
            kwargs.pop("model", None)
        self._calls += 1
        before, self._last = self._last, (asked, len(asked), None)
        await self._notify("request", asked, tools)
        # In a growing conversation, each message is written once.
        first = self._traced if self._traced <= len(asked) else 0
        self._traced = len(asked) + 1
        data: JsonDict = {"turn": self._calls, "messages": len(asked), "new_messages": asked[first:]}
        self._trace.write("model_request", {**data, **({"arguments": kwargs} if kwargs else {})})
        try:
            response = await self._ask(asked, tools=tools, sampling_args=kwargs)
        except (ModelError, asyncio.CancelledError) as error:
            is_refused = isinstance(error, LimitReached | BudgetSpent | asyncio.CancelledError)
            if is_refused and len(asked) <= before[1]:
                self._last = before  # refused without new messages: keep the latest reply
            if isinstance(error, ModelError):
                raise self._failed(error) from error
            raise
        message = {name: value for name, value in response.message.items() if value is not None}
        self._last = (asked, self._last[1], message)
        usage = response.usage
        self.error = None
        self.is_truncated = self.is_truncated or response.is_truncated
        self._seconds += response.seconds
        self._usage += usage if usage.requests else Usage(usage.input_tokens, usage.output_tokens, requests=1)
        self._largest = max(self._largest, usage.input_tokens)
        self._trace_reply(response, message)
        await self._notify("reply", asked, tools, message)
        return response, message

    def get_metrics(self) -> RolloutMetrics:
        """Return the number, token usage and duration of the run's model calls so far."""
        return RolloutMetrics(
            llm_latency_ms=self._seconds * 1000,
            num_llm_calls=self._usage.requests,
            prompt_tokens=self._usage.input_tokens,
            response_tokens=self._usage.output_tokens,
            max_context_tokens=self._largest,
        )

    def so_far(self, *, with_tail: bool = True) -> Messages:
        """Return the agent's conversation so far, for the record of a run without a result.

        Args:
            with_tail: Whether to include messages that the agent has appended to its list after the latest reply.
        """
        asked, count, reply = self._last
        request = asked[:count]
        if reply is None:
            return request
        # If the agent passed a list of plain dicts, `asked` is that same list and may have grown since.
        return list(asked) if with_tail and asked[count : count + 1] == [reply] else [*request, reply]

    async def _refuse(self) -> None:
        """Raise the error for a model call that is no longer allowed."""
        self._refused += 1
        if self._refused > _REFUSALS:
            if self._stop is not None:
                self._stop()
            await asyncio.get_running_loop().create_future()  # waits until this task is cancelled
        if isinstance(self.fatal, SystemicError):
            raise self._translated(self.fatal)
        if self.fatal is not None:
            raise self.fatal
        if was_cancelled():
            raise asyncio.CancelledError
        raise EnvironmentFault("the model was called after the rollout had ended; call it only while run() is running")

    def _failed(self, error: ModelError) -> ProviderError:
        self.error = error
        self.failed_calls += not isinstance(error, LimitReached)  # a limit prevented the request
        if isinstance(error, SystemicError):
            self.fatal = self.fatal or error
        details = {"error": str(error), "reason": error.reason, "retryable": error.retryable}
        self._trace.write("model_error", {"turn": self._calls, **details})
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

    async def _notify(
        self, kind: Literal["request", "reply"], messages: Messages, tools: list[JsonDict], reply: Message | None = None
    ) -> None:
        """Await the callback of an interactive session, if there is one."""
        if self._step is None:
            return
        try:
            with waiting():
                await self._step(StepEvent(kind, messages, tools, reply, self._rollout_id, self._calls))
        except BaseException as error:  # stored: an agent that catches everything must not continue a closed session
            self.fatal = error
            raise

    def _trace_reply(self, response: ModelResponse, message: Message) -> None:
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


@dataclass(frozen=True, slots=True)
class SdkChat:
    """An agent's model as a `Chat`, for a client of the openai SDK."""

    model: str
    respond: Callable[[Messages, JsonDict], Awaitable[tuple[ModelResponse, Message]]]
    """Sends a request; see `AgentLLM.respond`."""

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Call the model.

        Raises:
            ModelError: the call failed after all retries.
            EnvironmentFault: the request is invalid, or is a text completion.
        """
        if isinstance(prompt, str):
            raise EnvironmentFault("an agent can call its model only with chat.completions.create")
        try:
            response, message = await self.respond(prompt, {**(sampling_args or {}), "tools": list(tools or ())})
        except TypeError as error:
            raise EnvironmentFault(str(error)) from error
        except ProviderError as error:
            if isinstance(error.__cause__, ModelError):
                raise error.__cause__ from None
            raise
        return replace(response, message=message)


def _messages(given: object) -> Messages:
    """Convert messages to plain dicts; a list of plain dicts is returned unchanged.

    Raises:
        TypeError: the value is not a list of messages.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise TypeError(f"messages must be a list of messages, not {type(given).__name__}")
    messages = cast("Sequence[object]", given)
    if isinstance(given, list) and all(type(message) is dict for message in messages):
        return cast(Messages, given)
    return [message_of(message, number) for number, message in enumerate(messages)]


def message_of(given: object, number: int) -> Message:
    """Convert a message, given as a mapping, a pydantic model or a dataclass, to a plain dict.

    Raises:
        TypeError: the message is of another type, or contains a value that has no JSON form.
    """
    try:
        message: object = json_value(given)
    except TypeError as error:
        raise TypeError(f"message {number}: {error}") from error
    if not isinstance(message, dict):
        raise TypeError(f"message {number} must be a dict with 'role' and 'content', not {type(given).__name__}")
    return cast(Message, message)
