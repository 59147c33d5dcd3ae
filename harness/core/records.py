"""The records of a run: examples, items, and the journal lines `generated`, `scored` and `failed`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from harness.core.types import JsonDict, Message, Messages, Prompt, Usage

FIXED_COLUMNS: tuple[str, ...] = (
    "example_id", "rollout_index", "prompt", "completion", "answer", "task", "info", "reward",
    "outcome", "error", "stop_condition", "is_truncated", "usage", "timing", "model", "env_id",
)  # fmt: skip
"""Columns of every dataset. Metrics come after `reward`, state columns at the end."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an environment's dataset, formatted for the model but without a position in a plan."""

    example_id: int | str
    """The dataset's own id, or the row's index in the dataset."""
    prompt: Prompt
    answer: str = ""
    task: str = ""
    info: JsonDict = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Example:
    """One row of an environment's dataset, formatted for the model. Journal line `example`."""

    kind: ClassVar[str] = "example"

    key: str
    """sha256 (hex) of the content and of its occurrence number among equal examples."""
    example_id: int | str
    """The dataset's own id, or the row's index in the dataset."""
    prompt: Prompt
    answer: str = ""
    task: str = ""
    info: JsonDict = field(default_factory=dict[str, object])
    index: int = 0
    """Position in the run's plan, 0-based; the order of rows in every table."""


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work: a rollout that has not been run yet."""

    key: str
    example: Example
    rollout_index: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Start time and durations of a rollout; durations in seconds."""

    started_at: float = 0.0
    """Start of the rollout as Unix time."""
    generation: float = 0.0
    """Wall time from the start to the last message."""
    model: float = 0.0
    """Part of `generation` spent in model requests, without retries and waiting for a slot."""
    waiting: float = 0.0
    """Part of `generation` in which a request waited for a slot, for pacing or for a retry."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A rollout whose generation is complete. Contains all that scoring needs."""

    kind: ClassVar[str] = "generated"

    key: str
    example_key: str
    rollout_index: int
    completion: Prompt
    """The messages after the prompt, or the completed text of a completion model."""
    stop_condition: str | None = None
    is_truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    attempts: int = 1
    """Attempts at the whole rollout (see `max_retries`)."""
    state: JsonDict = field(default_factory=dict[str, object])
    """The part of the rollout's state that JSON can represent, without the fixed keys."""
    lost: tuple[str, ...] = ()
    """Names of state values that JSON cannot represent and that are therefore lost after a crash."""
    replies: list[JsonDict] | None = None
    """The model's replies (`message`, `finish_reason`) where they cannot be derived from the completion; see
    `core.replies`."""

    @property
    def is_empty(self) -> bool:
        """Whether the last assistant message has neither text nor a tool call."""
        if isinstance(self.completion, str):
            return not self.completion.strip()
        last = self._last_reply
        content = last.get("content")
        return not (content.strip() if isinstance(content, str) else content) and not last.get("tool_calls")

    @property
    def is_refusal(self) -> bool:
        """Whether the last assistant message is a refusal by the model or its provider."""
        return bool(self._last_reply.get("refusal"))

    @property
    def _last_reply(self) -> Message:
        """The last assistant message; empty without one, or if the completion is a text."""
        messages: Messages = [] if isinstance(self.completion, str) else self.completion
        return next((m for m in reversed(messages) if m.get("role") == "assistant"), dict[str, Any]())


BUDGET_SPENT = "budget"
"""Reason of rollouts without outcome because the budget of the invocation was spent. A resume repeats them."""

STATE_LOST = "state lost"
"""Prefix of the reason when scoring needs a value that the journal does not contain: the rollout must be made again."""

JUDGEMENTS = "judgements"
"""State key of the judges' replies about a rollout: a list of `{model, prompt, text, label, …, usage}`."""


@dataclass(frozen=True, slots=True)
class Score:
    """Result of a rubric for one rollout."""

    reward: float | None
    """Weighted sum of the reward functions; None if one of them failed."""
    metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Value of every function, whether weighted or not; None if it failed."""
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Reason for each missing value, by function name; `*` if it is not the fault of one function."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of a rollout. If the journal has several for one key, the last one counts."""

    kind: ClassVar[str] = "scored"

    key: str
    outcome: str
    """Kind of the rollout's end: `scored` or `unscored`."""
    reward: float | None
    metrics: dict[str, float | None]
    reasons: dict[str, str]
    """Reason for each missing value, as in `Score`; tables count the first entry."""
    seconds: float = 0.0
    """Wall time of scoring in seconds; for group rewards the group's time divided by its members."""
    extra: JsonDict = field(default_factory=dict[str, object])
    """State that scoring added, as JSON (such as a judge's verdict and cost)."""

    @property
    def reason(self) -> str:
        """Short reason for a missing score: the reward function and the kind of failure. Tables count it."""
        function, words = self._first_reason
        kind = words.split(":", 1)[0]
        return kind if function == "*" else f"{function} {kind}"

    @property
    def words(self) -> str:
        """Full reason for a missing score: the function and its message."""
        function, words = self._first_reason
        return words if function == "*" else f"{function}: {words}"

    @property
    def _first_reason(self) -> tuple[str, str]:
        """The first function without a value and its message; `*` and "" if the rollout has a reward or no reason."""
        return ("*", "") if self.reward is not None else next(iter(self.reasons.items()), ("*", ""))


@dataclass(frozen=True, slots=True)
class Failed:
    """A rollout that failed and has no score."""

    kind: ClassVar[str] = "failed"

    key: str
    example_key: str
    rollout_index: int
    stage: Literal["setup", "generation", "cancelled"]
    reason: str
    """Short stable identifier for tables: `timeout`, `rate_limit`, `connection`, `environment_error`, …"""
    error: str
    """The full message, with secrets redacted."""
    retryable: bool
    attempts: int = 1
    completion: Prompt = ""
    """The conversation until the failure; kept because its tokens were paid for."""
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    replies: list[JsonDict] | None = None
    """The model's replies where they cannot be derived from the completion; see `core.replies`."""


Record: TypeAlias = Example | Generated | Scored | Failed
