"""The records of a run: example, item, and the journal's lines (`generated`, `scored`, `failed`). Owns their
fields and nothing else; `store.journal` knows how they lie on disk, `engine` how they come about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from harness.core.types import JsonDict, Prompt, Usage

FIXED_COLUMNS: tuple[str, ...] = (
    "example_id", "rollout_index", "prompt", "completion", "answer", "task", "info", "reward",
    "outcome", "error", "stop_condition", "is_truncated", "usage", "timing", "model", "env_id",
)  # fmt: skip
"""Columns that every dataset has; metrics stand after `reward`, state columns at the end."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an environment's dataset, formatted for the model but not yet placed in a plan."""

    example_id: int | str
    """The dataset's own id, else the row's index in the dataset."""
    prompt: Prompt
    answer: str = ""
    task: str = ""
    info: JsonDict = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Example:
    """One row of an environment's dataset, formatted for the model. Journal line `example`."""

    kind: ClassVar[str] = "example"

    key: str
    """sha256 (hex) of the content and of its occurrence number among equal ones."""
    example_id: int | str
    """The dataset's own id, else the row's index in the dataset."""
    prompt: Prompt
    answer: str = ""
    task: str = ""
    info: JsonDict = field(default_factory=dict[str, object])
    index: int = 0
    """Position in the run's plan, 0-based: the order of rows in every table."""


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work: an attempt at an example that is still to be made."""

    key: str
    example: Example
    rollout_index: int


@dataclass(frozen=True, slots=True)
class Timing:
    """When a rollout was generated and where its time went; seconds, except `started_at`."""

    started_at: float = 0.0
    """Unix time of the rollout's start."""
    generation: float = 0.0
    """Wall time from start to last message."""
    model: float = 0.0
    """Part of `generation` spent inside model requests; retries and waiting for a slot are not in it."""
    waiting: float = 0.0
    """Part of `generation` in which a request waited for a slot, for pacing or for a back-off: our time, not its."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A rollout whose last message is in. Holds all that scoring reads."""

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
    """Attempts at the whole rollout (`max_retries`)."""
    state: JsonDict = field(default_factory=dict[str, object])
    """The JSON-able part of the rollout's state, fixed keys left out."""
    lost: tuple[str, ...] = ()
    """Names of state values that were not JSON-able: gone after a crash."""
    replies: list[JsonDict] | None = None
    """The model's replies (`message`, `finish_reason`), where the completion does not tell them: see `replies`."""

    @property
    def is_empty(self) -> bool:
        """Whether the last answer says nothing: no text and no tool call."""
        if isinstance(self.completion, str):
            return not self.completion.strip()
        last = next((m for m in reversed(self.completion) if m.get("role") == "assistant"), None)
        if last is None:
            return True
        content = last.get("content")
        return not (content.strip() if isinstance(content, str) else content) and not last.get("tool_calls")

    @property
    def is_refusal(self) -> bool:
        """Whether the last answer is the model's or its provider's refusal."""
        if isinstance(self.completion, str):
            return False
        last = next((m for m in reversed(self.completion) if m.get("role") == "assistant"), None)
        return last is not None and bool(last.get("refusal"))


MESSAGE_LIMIT = "message_limit"
TOKEN_LIMIT = "token_limit"

LIMITS = frozenset({MESSAGE_LIMIT, TOKEN_LIMIT})
"""Stop conditions of rollouts that were ended by a limit of the run's settings."""

BUDGET_SPENT = "budget"
"""Reason of rollouts that have no outcome because the budget of the invocation was spent. A resume makes them again."""

STATE_LOST = "state lost"
"""How the reason begins when scoring would read what no journal holds: only a new rollout can be scored."""

JUDGEMENTS = "judgements"
"""State key that holds every reply of a judge about the rollout: a list of `{model, prompt, text, label, …, usage}`."""

OutcomeName: TypeAlias = Literal["scored", "unscored"]


@dataclass(frozen=True, slots=True)
class Score:
    """What a rubric says of one rollout."""

    reward: float | None
    """Weighted sum of the reward functions; None if any of them failed."""
    metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Every function's own value, weighted or not; None where it failed."""
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why a function gave no value, by function name; `*` when no function is to blame."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A rollout's score. The newest line of a key wins."""

    kind: ClassVar[str] = "scored"

    key: str
    outcome: OutcomeName
    reward: float | None
    metrics: dict[str, float | None]
    reasons: dict[str, str]
    """As in `Score`; the first value is the unscored reason that tables count."""
    seconds: float = 0.0
    """Wall time of scoring; for group rewards the group's, divided by its members."""
    extra: JsonDict = field(default_factory=dict[str, object])
    """JSON-able state that scoring added (a judge's verdict and cost)."""

    @property
    def reason(self) -> str:
        """Why there is no score, short and stable enough to be counted: the function and the kind of failure."""
        if self.reward is not None or not self.reasons:
            return ""
        function, words = next(iter(self.reasons.items()))
        kind = words.split(":", 1)[0]
        return kind if function == "*" else f"{function} {kind}"

    @property
    def words(self) -> str:
        """Why there is no score, as it was recorded: the function, and what it said."""
        if self.reward is not None or not self.reasons:
            return ""
        function, words = next(iter(self.reasons.items()))
        return words if function == "*" else f"{function}: {words}"


@dataclass(frozen=True, slots=True)
class Failed:
    """A rollout that came to no end: never a score."""

    kind: ClassVar[str] = "failed"

    key: str
    example_key: str
    rollout_index: int
    stage: Literal["setup", "generation", "cancelled"]
    reason: str
    """Short stable word for tables: `timeout`, `rate_limit`, `connection`, `environment_error`, …"""
    error: str
    """The whole message, redacted."""
    retryable: bool
    attempts: int = 1
    completion: Prompt = ""
    """What had been said until then; paid for, so kept."""
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    replies: list[JsonDict] | None = None
    """As in `Generated`."""


Record: TypeAlias = Example | Generated | Scored | Failed
