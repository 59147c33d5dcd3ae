"""Types of the documented agent contract: the request for a run, the run's metrics, and tools in OpenAI's format. The
module `validation` checks tools for faults that an endpoint would reject."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harness.core.types import JsonDict

MAX_METADATA_BYTES = 1024 * 1024
"""Maximum size of `metadata` as JSON, in bytes."""

MessageDict: TypeAlias = dict[str, Any]
SamplingParamsDict: TypeAlias = dict[str, Any]


class OpenAIFunctionPropertySchema(BaseModel):
    """Schema of one parameter of a tool. Additional keys (`items`, `default`, `properties`, …) are sent unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str | list[str] | None = None
    description: str | None = None
    enum: list[Any] | None = None


class OpenAIFunctionParametersSchema(BaseModel):
    """Schema of a tool's parameters. Additional keys (`$defs`, `additionalProperties`, …) are sent unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str = "object"
    properties: dict[str, OpenAIFunctionPropertySchema] = Field(default_factory=dict[str, OpenAIFunctionPropertySchema])
    required: list[str] = Field(default_factory=list[str])


class OpenAIFunctionSchema(BaseModel):
    """Description of a tool's function for the model."""

    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema = Field(default_factory=OpenAIFunctionParametersSchema)
    strict: bool = False


class OpenAIFunctionToolSchema(BaseModel):
    """Definition of a tool that the model may call."""

    type: str
    function: OpenAIFunctionSchema


class RolloutStatus(StrEnum):
    """Status of an agent's run, completed or failed, as in `RolloutResult.status`."""

    COMPLETED = "COMPLETED"
    ERROR = "ERROR"


class RolloutMetrics(BaseModel):
    """Metrics of one run: durations in ms, and numbers of calls and tokens."""

    total_latency_ms: float = 0.0
    llm_latency_ms: float = 0.0
    tool_latency_ms: float = 0.0
    num_llm_calls: int = 0
    num_tool_calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    max_context_tokens: int = 0
    """Number of tokens of the largest prompt; 0 if the model client does not report it."""


class RolloutRequest(BaseModel):
    """Request for one run of an agent.

    Raises:
        pydantic.ValidationError: a field is missing or invalid.
    """

    rollout_id: str = Field(min_length=1, max_length=256)
    server_url: str
    """Address of a training server; an evaluation has none and passes a placeholder."""
    messages: list[MessageDict]
    completion_params: SamplingParamsDict
    """Sampling arguments of the run. They are the defaults of `ctx.chat`."""
    tool_server_url: str | None = None
    max_turns: int = 10
    """Maximum number of model calls. The agent itself must observe this limit."""
    max_tokens_total: int = 8192
    metadata: JsonDict = Field(default_factory=dict[str, Any])
    """The other columns of the row, the ground truth, and the run's row index, run index and mode."""
    api_key: str | None = None
    idempotency_key: str | None = None

    @field_validator("rollout_id")
    @classmethod
    def _check_rollout_id(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("rollout_id cannot be empty or whitespace only")
        return value

    @field_validator("server_url")
    @classmethod
    def _check_server_url(cls, value: str) -> str:
        address = urlsplit(value)
        if address.scheme not in ("http", "https"):
            raise ValueError("server_url must use http or https scheme")
        if not address.hostname:
            raise ValueError("server_url must have a valid host")
        return value

    @field_validator("metadata")
    @classmethod
    def _check_metadata(cls, value: JsonDict) -> JsonDict:
        try:
            size = len(json.dumps(value).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"metadata must be JSON serializable: {error}") from error
        if size > MAX_METADATA_BYTES:
            raise ValueError("metadata size exceeds maximum allowed size of 1MB")
        return value
