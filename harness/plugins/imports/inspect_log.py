"""The parts of an Inspect eval log that an import reads, as classes that validate them. Other fields are ignored."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, Field

from harness.core.types import JsonDict
from harness.store.values import table


class LogScore(BaseModel):
    """Score of one scorer."""

    value: Any = None
    answer: str | None = None
    explanation: str | None = None
    metadata: JsonDict | None = None
    reason: str | None = None


class LogError(BaseModel):
    """Error that ended a sample."""

    message: str = ""


class LogLimit(BaseModel):
    """Limit that ended a sample."""

    type: str


class LogUsage(BaseModel):
    """Tokens of one model; `input_tokens` do not include cached ones."""

    input_tokens: int = Field(0, ge=0)
    output_tokens: int = Field(0, ge=0)
    input_tokens_cache_read: int | None = None
    input_tokens_cache_write: int | None = None
    reasoning_tokens: int | None = None
    total_cost: float | None = None


class LogChoice(BaseModel):
    """One reply of the model."""

    stop_reason: str | None = None


class LogOutput(BaseModel):
    """The model's last output."""

    choices: list[LogChoice] = []
    time: float | None = None


class LogSample(BaseModel):
    """One sample: an example in one epoch."""

    id: int | str
    epoch: int = Field(ge=1)
    input: str | list[JsonDict]
    choices: list[str] | None = None
    target: str | list[str] = ""
    messages: list[JsonDict] = []
    output: LogOutput = LogOutput()
    scores: dict[str, LogScore] | None = None
    score: LogScore | None = None
    """The only score, in logs of 2024."""
    metadata: JsonDict | None = None
    store: JsonDict | None = None
    model_usage: dict[str, LogUsage] = {}
    started_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    error: LogError | None = None
    limit: LogLimit | None = None
    attachments: dict[str, str] = {}


class LogDataset(BaseModel):
    """The dataset."""

    samples: int | None = None
    sample_ids: list[int | str] | None = None


class LogConfig(BaseModel):
    """Settings of the evaluation."""

    epochs: int | None = None
    limit: int | list[int] | None = None


class LogSpec(BaseModel):
    """What was evaluated."""

    task: str
    model: str
    created: str = ""
    task_display_name: str | None = None
    task_version: int | str = 0
    task_args: JsonDict | None = None
    dataset: LogDataset = LogDataset()
    model_base_url: str | None = None
    model_args: JsonDict | None = None
    model_generate_config: JsonDict | None = None
    config: LogConfig = LogConfig()
    packages: JsonDict | None = None
    metadata: JsonDict | None = None


class LogPlan(BaseModel):
    """The solvers."""

    config: JsonDict | None = None


class LogHeadline(BaseModel):
    """The main score."""

    scorer: str | None = None
    score: str | None = None


class LogResults(BaseModel):
    """Totals of the evaluation."""

    headline: LogHeadline | None = None


class LogStats(BaseModel):
    """Times of the whole evaluation."""

    started_at: str | None = None
    completed_at: str | None = None


class LogHeader(BaseModel):
    """The log without its samples."""

    status: str = "started"
    eval: LogSpec
    plan: LogPlan | None = None
    results: LogResults | None = None
    stats: LogStats | None = None

    @property
    def own(self) -> JsonDict | None:
        """Data of the run that `bench export` adds; None if another tool wrote the log."""
        known = table(self.eval.metadata).get("bench")
        return cast(JsonDict, known) if isinstance(known, dict) and "pass_threshold" in known else None
