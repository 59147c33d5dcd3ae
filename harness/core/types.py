"""Types that environments and model clients exchange: messages, usage, replies, and the protocols `Chat` and
`Client`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, dataclass_transform

JsonDict: TypeAlias = dict[str, Any]
"""A JSON object."""

Message: TypeAlias = dict[str, Any]
"""One chat message in the OpenAI wire format (`role`, `content`, `tool_calls`, …). A dict, so that extra fields of a
provider are kept."""

Messages: TypeAlias = list[Message]

Prompt: TypeAlias = "Messages | str"
"""Messages for chat models; a string for completion models."""

MessageType: TypeAlias = Literal["chat", "completion"]

Tools: TypeAlias = Sequence[JsonDict] | None
"""Definitions of the tools of one request, in the OpenAI wire format; None for those of the run."""

Sampling: TypeAlias = Mapping[str, Any] | None
"""Sampling arguments of one request, which override those of the run."""

ROLLOUT_HEADER = "X-Bench-Rollout"
"""HTTP header with the rollout's key, for the embedded reference server. It is sent to loopback endpoints only."""

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Make a dataclass that is frozen for type checkers only. An object is created in a third of the time that
    `dataclass(frozen=True)` takes, and each rollout creates twenty of them."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@value_class
class Usage:
    """Tokens, requests and cost of one call or of several calls together. Unknown values differ from zero."""

    input_tokens: int = 0
    """Number of prompt tokens, as reported by the endpoint."""
    output_tokens: int = 0
    """Number of generated tokens, including reasoning, as reported by the endpoint."""
    reasoning_tokens: int = 0
    """Number of `output_tokens` used for hidden reasoning, if the endpoint reports it."""
    cached_tokens: int = 0
    """Number of `input_tokens` that the endpoint read from its cache, if the endpoint reports it."""
    requests: int = 0
    """Number of replies received."""
    unreported: int = 0
    """Number of replies that did not report their usage, so that their tokens are unknown."""
    cost: float | None = None
    """Cost in US dollars; None if unknown."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two usages. The cost is unknown only if both costs are."""
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cached_tokens + other.cached_tokens,
            self.requests + other.requests,
            self.unreported + other.unreported,
            cost,
        )


@value_class
class ModelResponse:
    """One parsed reply of a model."""

    message: Message
    """The assistant message for the transcript. `content` may be "" or None: an empty answer."""
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter` or another value of the provider."""
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    """The model name that the endpoint reported."""
    id: str | None = None
    seconds: float = 0.0
    """Seconds from sending the last attempt to the last byte of its reply, without waiting for a slot or a retry."""
    attempts: int = 1
    """Number of HTTP requests that were made for this reply, including retries."""
    wasted: Usage | None = None
    """Reported usage of earlier replies that had to be discarded but cost money as well."""
    logprobs: JsonDict | None = None
    """Log-probabilities of tokens, as the endpoint reported them; None unless the call requested them. Not recorded."""

    @property
    def is_truncated(self) -> bool:
        """Whether generation stopped at the token limit."""
        return self.finish_reason == "length"

    @property
    def is_refusal(self) -> bool:
        """Whether the model or its provider refused to answer."""
        return bool(self.message.get("refusal")) or self.finish_reason == "content_filter"


@value_class
class ModelCall:
    """One request to a model, independent of the wire format."""

    model: str
    prompt: Prompt
    """Messages for chat completions; a string for completions."""
    tools: Sequence[JsonDict] | None = None
    """Tool definitions in the OpenAI wire format."""
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that are added to the request body. Entries of `extra_body` become fields, too; the value None removes a
    field."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of this call, in addition to the endpoint's headers, which they override."""
    lane: str = ""
    """Name of the run that makes the request. The limiter shares its slots fairly between runs."""
    urgent: bool = False
    """Whether the call is sent before others. Set for calls of judges, whose rollouts are already paid for."""
    check: Callable[[], None] | None = None
    """Called when the request has a slot, before it is sent. Raises `BudgetSpent` if it must not be sent."""
    quick: bool = False
    """Whether the call is a health check, for which any HTTP answer is sufficient, so that it is not retried."""


class Client(Protocol):
    """Client of one endpoint, with retries, limits and the wire format."""

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send `call` and return the reply. Temporary errors are retried.

        Raises:
            ModelError: the call failed after all retries.
        """
        ...

    async def close(self) -> None:
        """Close connections; idempotent."""
        ...


class Chat(Protocol):
    """Interface with which an environment calls a model, bound to an endpoint, sampling arguments and a rollout."""

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        ...

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Call the model. `sampling_args` override those of the run.

        Raises:
            ModelError: the call failed after all retries.
        """
        ...


def text_of(message: Message) -> str:
    """Return the text of a message: its content, or the text parts of its content; "" if it has no text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [cast("Mapping[str, object]", p) for p in cast("Sequence[object]", content) if isinstance(p, Mapping)]
    return "".join(str(part.get("text") or "") for part in parts)


def without_gaps(message: Mapping[str, Any]) -> Message:
    """Copy a message without its fields that are None, which tables with one column per field add to every message."""
    return {name: value for name, value in message.items() if value is not None or name == "content"}
