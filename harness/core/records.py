"""The records of a run: examples, items, and the journal lines `generated`, `scored` and `failed`."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Literal, TypeAlias

from harness.core.types import JsonDict, Message, Messages, Prompt, Usage, value_class

FIXED_COLUMNS: tuple[str, ...] = (
    "example_id", "rollout_index", "prompt", "completion", "answer", "task", "info", "reward",
    "outcome", "error", "stop_condition", "is_truncated", "usage", "timing", "model", "env_id",
)  # fmt: skip
"""Columns of every dataset. Columns for metrics follow `reward`, and state columns are at the end."""


@value_class
class Row:
    """One row of an environment's dataset, formatted for the model but without a position in a plan."""

    example_id: int | str
    """The dataset's own id, or the row's index in the dataset."""
    prompt: Prompt
    answer: str = ""
    task: str = ""
    info: JsonDict = field(default_factory=dict[str, object])


@value_class
class Example:
    """One row of an environment's dataset, formatted for the model. Journal line `example`."""

    kind: ClassVar[str] = "example"

    key: str
    """SHA-256 digest of the content and of the example's number among equal examples, in hexadecimal digits."""
    example_id: int | str
    """The dataset's own id, or the row's index in the dataset."""
    prompt: Prompt
    answer: str = ""
    task: str = ""
    info: JsonDict = field(default_factory=dict[str, object])
    index: int = 0
    """Position in the run's plan, counted from 0. Tables list the rows in this order."""


@value_class
class Item:
    """One unit of work: a rollout that is planned."""

    key: str
    example: Example
    rollout_index: int


@value_class
class Timing:
    """Start time of a rollout, and durations in seconds."""

    started_at: float = 0.0
    """Start of the rollout as Unix time."""
    generation: float = 0.0
    """Seconds from the start to the last message."""
    model: float = 0.0
    """Seconds of `generation` that model requests took, not counting retries and waiting for a slot."""
    waiting: float = 0.0
    """Seconds of `generation` in which a request waited for a slot, a rate limit or a retry."""

    @property
    def is_known(self) -> bool:
        """Whether the durations are known. They are not if an imported run has no times."""
        return self.started_at > 0 or self.generation > 0


@value_class
class Generated:
    """A rollout whose generation is complete, with all data that scoring needs."""

    kind: ClassVar[str] = "generated"

    key: str
    example_key: str
    rollout_index: int
    completion: Prompt
    """The messages after the prompt; for a completion model, the generated text."""
    stop_condition: str | None = None
    is_truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    attempts: int = 1
    """Number of attempts at the whole rollout (see `max_retries`)."""
    state: JsonDict = field(default_factory=dict[str, object])
    """Values of the rollout's state that JSON can represent, without the predefined keys."""
    lost: tuple[str, ...] = ()
    """Names of state values that JSON cannot represent, so that they are lost after a crash; `completion` if an
    imported run has no messages."""
    replies: list[JsonDict] | None = None
    """The model's replies (`message`, `finish_reason`); None if they can be derived from the completion (see
    `core.replies`)."""
    calls: JsonDict | None = None
    """Tokens, cost and seconds of each reply (see `core.calls`); None if the rollout's totals are those of its only
    reply, and in journals of earlier versions."""
    node: str | None = None
    """Name of the computer that executed the rollout, if an executor runs it on others."""

    @property
    def is_empty(self) -> bool:
        """Whether the last assistant message has neither text nor a tool call; false if it is not recorded."""
        if "completion" in self.lost:
            return False
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
        """Return the last assistant message; an empty message if none exists or the completion is a string."""
        messages: Messages = [] if isinstance(self.completion, str) else self.completion
        for message in reversed(messages):
            if message.get("role") == "assistant":
                return message
        return {}


BUDGET_SPENT = "budget"
"""Reason of rollouts that were not finished because the budget was spent. A resumed run repeats them."""

STATE_LOST = "state lost"
"""Beginning of the reason if scoring needs a state value that is not in the journal. The rollout must be repeated."""

JUDGEMENTS = "judgements"
"""Key of the judges' replies in the state: a list of `{model, prompt, text, label, …, usage}`."""


@value_class
class Score:
    """Result of scoring one rollout with a rubric."""

    reward: float | None
    """Weighted sum of the reward functions; None if one of them failed."""
    metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Value of every function, with or without a weight; None if the function failed."""
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Reason for each missing value, by function name. The name is `*` if the reason concerns no single function."""


@value_class
class Scored:
    """The score of a rollout. If the journal has several scores for one key, the last one counts."""

    kind: ClassVar[str] = "scored"

    key: str
    outcome: str
    """Outcome of the rollout: `scored` or `unscored`."""
    reward: float | None
    metrics: dict[str, float | None]
    reasons: dict[str, str]
    """Reason for each missing value, as in `Score`. Tables count only the first reason."""
    seconds: float = 0.0
    """Duration of scoring in seconds. For group rewards, the group's time divided by its number of rollouts."""
    extra: JsonDict = field(default_factory=dict[str, object])
    """State values that scoring added, as JSON, such as the verdict and the cost of a judge."""

    @property
    def reason(self) -> str:
        """Short reason for a missing score, for tables: the reward function and the kind of failure."""
        function, words = self._first_reason
        kind = words.split(":", 1)[0]
        return kind if function == "*" else f"{function} {kind}"

    @property
    def words(self) -> str:
        """Full reason for a missing score: the reward function and its error message."""
        function, words = self._first_reason
        return words if function == "*" else f"{function}: {words}"

    @property
    def _first_reason(self) -> tuple[str, str]:
        """Return the first function without a value, and its message; `*` and "" if there is no such function."""
        return ("*", "") if self.reward is not None else next(iter(self.reasons.items()), ("*", ""))


@value_class
class Failed:
    """A rollout that failed and has no score."""

    kind: ClassVar[str] = "failed"

    key: str
    example_key: str
    rollout_index: int
    stage: Literal["setup", "generation", "cancelled"]
    reason: str
    """Short identifier for tables: `timeout`, `rate_limit`, `connection`, `environment_error`, …"""
    error: str
    """The full error message, with secrets redacted."""
    retryable: bool
    attempts: int = 1
    completion: Prompt = ""
    """The conversation until the failure, which is stored because its tokens were paid for."""
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    replies: list[JsonDict] | None = None
    """The model's replies; None if they can be derived from the completion (see `core.replies`)."""
    calls: JsonDict | None = None
    """Tokens, cost and seconds of each reply, as in `Generated`."""
    node: str | None = None
    """Name of the computer that executed the rollout, as in `Generated`."""


Record: TypeAlias = Example | Generated | Scored | Failed
