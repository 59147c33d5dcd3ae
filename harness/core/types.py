"""The types that environments and model clients exchange: messages, usage, replies, and the protocols `Chat` and
`Client`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, cast

JsonDict: TypeAlias = dict[str, Any]
"""A JSON object."""

Message: TypeAlias = dict[str, Any]
"""One chat message in the OpenAI wire format (`role`, `content`, `tool_calls`, …). A dict, so that extra fields of a
provider are kept."""

Messages: TypeAlias = list[Message]

Prompt: TypeAlias = "Messages | str"
"""Messages for chat models; a string for completion models."""

MessageType: TypeAlias = Literal["chat", "completion"]

ROLLOUT_HEADER = "X-Bench-Rollout"
"""HTTP header with the rollout's key, for the embedded reference server. Sent to loopback endpoints only."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and requests of one call or of a sum of calls. Distinguishes unknown from zero."""

    input_tokens: int = 0
    """Prompt tokens, as the endpoint reported them."""
    output_tokens: int = 0
    """Generated tokens, reasoning included, as the endpoint reported them."""
    reasoning_tokens: int = 0
    """Part of `output_tokens` spent on hidden reasoning, where the endpoint says so."""
    cached_tokens: int = 0
    """Part of `input_tokens` that the endpoint served from its cache, where it says so."""
    requests: int = 0
    """Number of replies received."""
    unreported: int = 0
    """Number of replies without usage; their tokens are unknown, not zero."""
    cost: float | None = None
    """Cost in US dollars, if the endpoint reported it."""

    def __add__(self, other: Usage) -> Usage:
        """Add two usages; `cost` is unknown only if both costs are."""
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


@dataclass(frozen=True, slots=True)
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
    """Seconds from sending the last attempt to its last byte, without waiting for a slot or for a retry."""
    attempts: int = 1
    """HTTP requests made for this reply, including retries."""
    wasted: Usage | None = None
    """Reported usage of earlier replies that had to be discarded; they cost money as well."""

    @property
    def is_truncated(self) -> bool:
        """Whether generation stopped at the token limit."""
        return self.finish_reason == "length"

    @property
    def is_refusal(self) -> bool:
        """Whether the model or its provider refused to answer."""
        return bool(self.message.get("refusal")) or self.finish_reason == "content_filter"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model, independent of the wire format."""

    model: str
    prompt: Prompt
    """Messages for chat completions; a string for completions."""
    tools: Sequence[JsonDict] | None = None
    """Tool definitions in the OpenAI wire format."""
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the request body; the entries of `extra_body` become top-level fields; a None value removes a
    field."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of this call, in addition to the endpoint's headers, which they override."""
    lane: str = ""
    """Name of the run that makes the request, so that the limiter shares slots fairly between runs."""
    urgent: bool = False
    """Priority for judge calls: served first, since the rollout that they score is already paid for."""
    check: Callable[[], None] | None = None
    """Called when the request has a slot and before it is sent; raises `BudgetSpent` if it must not be sent."""
    quick: bool = False
    """Set for a health check: any HTTP answer is sufficient, so there is no retry."""


class Client(Protocol):
    """Client of one endpoint, with retries, limits and the wire format."""

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send `call` and return the reply; retry on temporary errors.

        Raises:
            ModelError: the call failed after all retries.
        """
        ...

    async def close(self) -> None:
        """Close connections; idempotent."""
        ...


class Chat(Protocol):
    """A model as an environment uses it: bound to an endpoint, a name, sampling arguments and a rollout."""

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        ...

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """Call the model; `sampling_args` override those of the run.

        Raises:
            ModelError: the call failed after all retries.
        """
        ...


def text_of(message: Message) -> str:
    """The text of a message: its content, or the text parts of its content; "" if there is none."""
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
