"""The agent contract: an agent loop, the context of one run, and what a run results in. Owns the documented names and
signatures and the metrics of a run; what answers `ctx.chat` is behind the `LLM` protocol."""

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
    """One reply of the model."""

    message: MessageDict
    """The assistant message, as it goes into the conversation."""
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
        """The model's tool calls; empty if there are none."""
        return self.message.get("tool_calls") or []

    @property
    def content(self) -> str | None:
        """The model's text; None where it only calls tools."""
        return self.message.get("content")


class LLM(Protocol):
    """The model as an agent sees it. A method `get_metrics() -> RolloutMetrics`, where there is one, is asked for the
    model's share of a run's metrics."""

    async def chat_completions(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """The model's reply to a conversation; keywords go to the endpoint, over the run's own."""
        ...


@dataclass
class RolloutResult:
    """How a run ended."""

    status: str
    """`COMPLETED` or `ERROR`."""
    final_messages: list[MessageDict]
    finish_reason: str
    error_message: str | None = None
    metrics: RolloutMetrics | None = None
    reward: float | None = None
    """The agent's own idea of its success; shown, but not what an evaluation counts."""


@dataclass
class RolloutContext:
    """What an agent has in one run."""

    request: RolloutRequest
    tools: Sequence[OpenAIFunctionToolSchema | JsonDict]
    """What `get_tools` returned; the model is offered them without the agent's doing."""
    llm: LLM
    _start_time: float = field(default=0.0, repr=False)
    """`time.monotonic()` at the start of the run; 0.0 if nobody took it."""
    _tool_latency_ms: float = field(default=0.0, repr=False)
    _num_tool_calls: int = field(default=0, repr=False)
    _debug_dir: str | None = field(default=None, repr=False)

    async def chat(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Ask the model.

        Args:
            messages: The whole conversation.
            **kwargs: Arguments of the request (`temperature`, `stop`, …), over the run's own.
        """
        return await self.llm.chat_completions(messages, **kwargs)

    def complete(
        self, final_messages: list[MessageDict], finish_reason: str = "stop", reward: float | None = None
    ) -> RolloutResult:
        """The result of a run that came to its end."""
        return RolloutResult("COMPLETED", final_messages, finish_reason, metrics=self._metrics(), reward=reward)

    def error(self, error_message: str, final_messages: list[MessageDict] | None = None) -> RolloutResult:
        """The result of a run that failed; the message is reported and the run counts as failed."""
        return RolloutResult("ERROR", final_messages or [], "error", error_message, self._metrics())

    def record_tool_call(self, latency_ms: float = 0.0) -> None:
        """Count a tool call, and how long it took."""
        self._num_tool_calls += 1
        self._tool_latency_ms += latency_ms

    @property
    def debug_enabled(self) -> bool:
        """Whether events of this run are written anywhere."""
        return self._debug_dir is not None

    def log_event(self, event_type: str, **data: Any) -> None:
        """Append an event to the run's trace, `{debug_dir}/{rollout_id}.jsonl`. Does nothing unless in debug mode.

        Args:
            event_type: What happened.
            **data: Anything; what is no JSON is written as `str` makes of it.
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
    """What can be evaluated: a `RolloutAgentLoop`, or anything that has the same three members."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """The tools that the model is offered in a run; empty for none."""
        ...

    def run(self, ctx: RolloutContext) -> Awaitable[RolloutResult]:
        """Play one run."""
        ...


class RolloutAgentLoop(ABC):
    """An agent. A subclass has a `name`, says which tools the model is offered, and plays a run.

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
        """The tools that the model is offered in a run; empty for none. They may depend on `request.metadata`."""

    @abstractmethod
    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Play one run, and end it with `ctx.complete(…)` or `ctx.error(…)`."""

    def get_default_tools(self) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """The tools of a request about nothing: for whoever wants to know them outside a run."""
        request = RolloutRequest(
            rollout_id="discovery", server_url="http://localhost", messages=[], completion_params={}
        )
        return self.get_tools(request)
