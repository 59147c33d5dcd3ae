"""The agent contract: the agent loop, the context of a run, its result and metrics, under the documented names and
signatures. `ctx.chat` calls any implementation of the `LLM` protocol."""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.agents.schemas import MessageDict, OpenAIFunctionToolSchema, RolloutMetrics, RolloutRequest
from harness.agents.trace import Trace
from harness.core.types import JsonDict


@dataclass(frozen=True)
class CompletionsResult:
    """A reply of the model."""

    message: MessageDict
    """The assistant message, ready to be appended to the conversation."""
    token_ids: list[int]
    logprobs: list[float]
    usage: dict[str, int]
    """`prompt_tokens`, `completion_tokens`, `total_tokens`."""
    finish_reason: str

    @property
    def has_tool_calls(self) -> bool:
        """Whether the model calls tools."""
        return bool(self.message.get("tool_calls"))

    @property
    def tool_calls(self) -> list[JsonDict]:
        """The tool calls of the reply; empty without tool calls."""
        return self.message.get("tool_calls") or []

    @property
    def content(self) -> str | None:
        """The model's text; None if the reply has only tool calls."""
        return self.message.get("content")


class LLM(Protocol):
    """The model as an agent sees it. If it has a method `get_metrics() -> RolloutMetrics`, the run's metrics include
    its figures."""

    async def chat_completions(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Ask the model for a reply to a conversation; keywords are request arguments that replace the run's own."""
        ...


@dataclass
class RolloutResult:
    """The result of a run."""

    status: str
    """`COMPLETED` or `ERROR`."""
    final_messages: list[MessageDict]
    finish_reason: str
    error_message: str | None = None
    metrics: RolloutMetrics | None = None
    reward: float | None = None
    """The agent's own assessment of its success; shown, but not counted by an evaluation."""


@dataclass
class RolloutContext:
    """The request, tools and model of an agent in one run."""

    request: RolloutRequest
    tools: Sequence[OpenAIFunctionToolSchema | JsonDict]
    """The return value of `get_tools`; the model is offered these tools by default."""
    llm: LLM
    _start_time: float = field(default=0.0, repr=False)
    """`time.monotonic()` at the start of the run; 0.0 if it was not measured."""
    _tool_latency_ms: float = field(default=0.0, repr=False)
    _num_tool_calls: int = field(default=0, repr=False)
    _debug_dir: str | None = field(default=None, repr=False)

    async def chat(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Ask the model for a reply.

        Args:
            messages: The whole conversation.
            **kwargs: Arguments of the request (`temperature`, `stop`, …), which replace the run's own.
        """
        return await self.llm.chat_completions(messages, **kwargs)

    def complete(
        self, final_messages: list[MessageDict], finish_reason: str = "stop", reward: float | None = None
    ) -> RolloutResult:
        """The result of a completed run."""
        return RolloutResult("COMPLETED", final_messages, finish_reason, metrics=self._metrics(), reward=reward)

    def error(self, error_message: str, final_messages: list[MessageDict] | None = None) -> RolloutResult:
        """The result of a failed run; the message is reported and the run counts as failed."""
        return RolloutResult("ERROR", final_messages or [], "error", error_message, self._metrics())

    def record_tool_call(self, latency_ms: float = 0.0) -> None:
        """Count a tool call and add its duration."""
        self._num_tool_calls += 1
        self._tool_latency_ms += latency_ms

    @property
    def debug_enabled(self) -> bool:
        """Whether a trace of this run is written."""
        return self._debug_dir is not None

    def log_event(self, event_type: str, **data: Any) -> None:
        """Append an event to the run's trace, `{debug_dir}/{rollout_id}.jsonl`. Does nothing unless in debug mode.

        Args:
            event_type: The kind of event.
            **data: Any values; those that are not JSON are written as `str` renders them.
        """
        if self._debug_dir is None:
            return
        trace = Trace(self._debug_dir, self.request.rollout_id)
        trace.write(event_type, data)
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
    """An agent: a `RolloutAgentLoop`, or any object with the same three members."""

    @property
    def name(self) -> str:
        """The agent's name in reports."""
        ...

    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """Tools of the model in this run; may be empty."""
        ...

    def run(self, ctx: RolloutContext) -> Awaitable[RolloutResult]:
        """Play one run."""
        ...


class RolloutAgentLoop(ABC):
    """Base class of agents. A subclass has a `name`, returns the tools that the model is offered, and plays a run.

    Raises:
        TypeError: (at class creation) a subclass without abstract methods has no name.
    """

    name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not inspect.isabstract(cls) and not getattr(cls, "name", None):
            raise TypeError(f"Agent loop class {cls.__name__} must define a 'name' class attribute")

    @abstractmethod
    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """Tools of the model in this run; may be empty. They may depend on `request.metadata`."""

    @abstractmethod
    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Play one run and return `ctx.complete(…)` or `ctx.error(…)`."""

    def get_default_tools(self) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """The agent's tools for an empty request, for inspection outside a run."""
        request = RolloutRequest(
            rollout_id="discovery", server_url="http://localhost", messages=[], completion_params={}
        )
        return self.get_tools(request)
