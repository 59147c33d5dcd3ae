"""The documented agent contract: the agent loop, the context of a run, and its result. `RolloutContext.chat` calls any
implementation of the `LLM` protocol."""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from harness.agents.schemas import MessageDict, OpenAIFunctionToolSchema, RolloutMetrics, RolloutRequest
from harness.agents.trace import Trace
from harness.core.types import JsonDict

if TYPE_CHECKING:
    from harness.sandbox.machine import Machine


@dataclass(frozen=True)
class CompletionsResult:
    """Reply of the model to a call of `ctx.chat`."""

    message: MessageDict
    """The assistant message, ready to be appended to the conversation."""
    token_ids: list[int]
    logprobs: list[float]
    usage: dict[str, int]
    """`prompt_tokens`, `completion_tokens`, `total_tokens`."""
    finish_reason: str

    @property
    def has_tool_calls(self) -> bool:
        """Whether the reply contains tool calls."""
        return bool(self.message.get("tool_calls"))

    @property
    def tool_calls(self) -> list[JsonDict]:
        """The tool calls of the reply; empty if it has none."""
        return self.message.get("tool_calls") or []

    @property
    def content(self) -> str | None:
        """The text of the reply; None if it has only tool calls."""
        return self.message.get("content")


class LLM(Protocol):
    """Interface of the model that an agent calls. If the model has a method `get_metrics() -> RolloutMetrics`, the
    run's metrics include the numbers that it returns."""

    async def chat_completions(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Request the model's reply to a conversation. Keyword arguments override the run's own request arguments."""
        ...


@dataclass
class RolloutResult:
    """Result of an agent's run."""

    status: str
    """`COMPLETED` or `ERROR`."""
    final_messages: list[MessageDict]
    finish_reason: str
    error_message: str | None = None
    metrics: RolloutMetrics | None = None
    reward: float | None = None
    """The agent's own reward for the run, which is the run's score only if there are no eval functions."""


@dataclass
class RolloutContext:
    """Context of one run of an agent, passed to its method `run`: the request, the tools and the model."""

    request: RolloutRequest
    tools: Sequence[OpenAIFunctionToolSchema | JsonDict]
    """The return value of `get_tools`. By default, requests offer these tools to the model."""
    llm: LLM
    machine: Machine | None = None
    """The machine on which the agent works, if the environment has one for each rollout; else None."""
    _start_time: float = field(default=0.0, repr=False)
    """Value of `time.monotonic()` at the start of the run; 0.0 if unknown."""
    _tool_latency_ms: float = field(default=0.0, repr=False)
    _num_tool_calls: int = field(default=0, repr=False)
    _debug_dir: str | None = field(default=None, repr=False)
    _trace: Trace | None = field(default=None, repr=False)
    """The trace of the run; None for a context outside a run, which opens the file for each event."""

    async def chat(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Request a reply from the model.

        Args:
            messages: The whole conversation.
            **kwargs: Arguments of the request (`temperature`, `stop`, …); they replace the run's own.
        """
        return await self.llm.chat_completions(messages, **kwargs)

    def complete(
        self, final_messages: list[MessageDict], finish_reason: str = "stop", reward: float | None = None
    ) -> RolloutResult:
        """Return the result of a completed run, with its metrics."""
        return RolloutResult("COMPLETED", final_messages, finish_reason, metrics=self._metrics(), reward=reward)

    def error(self, error_message: str, final_messages: list[MessageDict] | None = None) -> RolloutResult:
        """Return the result of a failed run, with its metrics. The message is shown in reports."""
        return RolloutResult("ERROR", final_messages or [], "error", error_message, self._metrics())

    def record_tool_call(self, latency_ms: float = 0.0) -> None:
        """Add one tool call and its duration in ms to the run's metrics."""
        self._num_tool_calls += 1
        self._tool_latency_ms += latency_ms

    @property
    def debug_enabled(self) -> bool:
        """Whether a debug trace of this run is written."""
        return self._debug_dir is not None

    def log_event(self, event_type: str, **data: Any) -> None:
        """Append an event to the run's trace, `{debug_dir}/{rollout_id}.jsonl`. Does nothing if no trace is written.

        Args:
            event_type: The kind of event.
            **data: Any values. Values that are not JSON are converted with `str`.
        """
        trace = self._trace or Trace(self._debug_dir, self.request.rollout_id)
        trace.write(event_type, data)
        if trace is not self._trace:
            trace.close()

    def _metrics(self) -> RolloutMetrics:
        get_metrics = getattr(self.llm, "get_metrics", None)
        metrics = RolloutMetrics()
        if callable(get_metrics):
            own: object = get_metrics()
            metrics.llm_latency_ms = float(getattr(own, "llm_latency_ms", 0.0))
            for name in ("num_llm_calls", "prompt_tokens", "response_tokens", "max_context_tokens"):
                setattr(metrics, name, int(getattr(own, name, 0)))
        if self._start_time:
            metrics.total_latency_ms = (time.monotonic() - self._start_time) * 1000
        metrics.tool_latency_ms = self._tool_latency_ms
        metrics.num_tool_calls = self._num_tool_calls
        return metrics


class AgentLike(Protocol):
    """Interface of an agent: a `RolloutAgentLoop`, or any object with the same three members."""

    @property
    def name(self) -> str:
        """The agent's name in reports."""
        ...

    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """Return the tools that the run offers to the model. The list may be empty."""
        ...

    def run(self, ctx: RolloutContext) -> Awaitable[RolloutResult]:
        """Execute one run of the agent."""
        ...


class RolloutAgentLoop(ABC):
    """Base class of agents. A subclass has a `name`, and implements `get_tools` and `run`.

    Raises:
        TypeError: (at class creation) a subclass that is not abstract has no name.
    """

    name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls) and not getattr(cls, "name", None):
            raise TypeError(f"Agent loop class {cls.__name__} must define a 'name' class attribute")

    @abstractmethod
    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """Return the tools offered to the model, possibly none. They may depend on `request.metadata`."""

    @abstractmethod
    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Execute one run, and return `ctx.complete(…)` or `ctx.error(…)`."""

    def get_default_tools(self) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """Return the agent's tools for an empty request, to inspect them outside a run."""
        request = RolloutRequest(
            rollout_id="discovery", server_url="http://localhost", messages=[], completion_params={}
        )
        return self.get_tools(request)
