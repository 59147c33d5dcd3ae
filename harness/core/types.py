"""The values that environments and model clients exchange: messages, usage, replies, and the `Chat` and
`Client` protocols. Owns no behaviour beyond adding usage up; knows no wire format, no disk, no schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, cast

JsonDict: TypeAlias = dict[str, Any]
"""A JSON object; the values are whatever JSON holds."""

Message: TypeAlias = dict[str, Any]
"""One chat message in the wire's own shape (`role`, `content`, `tool_calls`, …), so that a provider's extra
fields survive."""

Messages: TypeAlias = list[Message]

Prompt: TypeAlias = "Messages | str"
"""Messages for chat models; a string for completion models."""

MessageType: TypeAlias = Literal["chat", "completion"]

ROLLOUT_HEADER = "X-Bench-Rollout"
"""Says to the embedded reference server which rollout asks; clients send it to loopback endpoints only."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and requests of one call or of a sum of calls. Adding keeps what is unknown apart from what is zero."""

    input_tokens: int = 0
    """Prompt tokens, as the endpoint reported them."""
    output_tokens: int = 0
    """Generated tokens, reasoning included, as the endpoint reported them."""
    reasoning_tokens: int = 0
    """Part of `output_tokens` spent on hidden reasoning, where the endpoint says so."""
    cached_tokens: int = 0
    """Part of `input_tokens` that the endpoint served from its cache, where it says so."""
    requests: int = 0
    """Replies that were received."""
    unreported: int = 0
    """Replies without usage: their tokens are unknown, not zero."""
    cost: float | None = None
    """US dollars, when the endpoint itself reported a cost."""

    def __add__(self, other: Usage) -> Usage:
        """The sum of both; `cost` is unknown only if both are."""
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
    """One reply of a model, as read from the wire."""

    message: Message
    """The assistant message as it goes into the transcript. `content` may be "" or None: that is the model's answer."""
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter` or a provider's own word."""
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    """The name that the endpoint says it answered with."""
    id: str | None = None
    seconds: float = 0.0
    """From sending the last attempt to its last byte; waiting for a slot or a retry is not in it."""
    attempts: int = 1
    """HTTP requests made for this reply, retries included."""
    wasted: Usage | None = None
    """What earlier replies took that could not be used, where they said it: they are paid for, too."""

    @property
    def is_truncated(self) -> bool:
        """Whether the endpoint stopped for want of tokens."""
        return self.finish_reason == "length"

    @property
    def is_refusal(self) -> bool:
        """Whether the model or its provider declined to answer."""
        return bool(self.message.get("refusal")) or self.finish_reason == "content_filter"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model, before it has a wire format."""

    model: str
    prompt: Prompt
    """Messages go to chat completions, a string to completions."""
    tools: Sequence[JsonDict] | None = None
    """Tool definitions in the OpenAI wire shape."""
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the request body as they are; `extra_body` is spread over the top level; None drops a key."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of this call alone, over the endpoint's own."""
    lane: str = ""
    """Who asks, so that the limiter can share its slots fairly between runs."""
    urgent: bool = False
    """Judges: served before everything else, since what they score is already paid for."""
    check: Callable[[], None] | None = None
    """Called when the request has its slot, before it is sent; raises `BudgetSpent` if it may not be sent any more."""
    quick: bool = False
    """Asks whether the endpoint works at all: any HTTP answer settles that, so none is waited out and asked again."""


class Client(Protocol):
    """What talks to one endpoint: retries, limits and the wire format are behind it."""

    async def request(self, call: ModelCall) -> ModelResponse:
        """Answer `call`, retrying what may heal.

        Raises:
            ModelError: the call failed for good.
        """
        ...

    async def close(self) -> None:
        """Close connections; idempotent."""
        ...


class Chat(Protocol):
    """One model as an environment sees it: bound to its endpoint, name, sampling arguments and rollout."""

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
        """Ask the model; `sampling_args` are laid over the run's own.

        Raises:
            ModelError: the call failed for good.
        """
        ...


def text_of(message: Message) -> str:
    """What a message says, as text: its content, or the text parts of its content; "" where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [cast("Mapping[str, object]", p) for p in cast("Sequence[object]", content) if isinstance(p, Mapping)]
    return "".join(str(part.get("text") or "") for part in parts)
