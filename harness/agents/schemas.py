"""Schemas of the documented agent contract: the request of a run, its metrics, and tools in the OpenAI shape, with
field names and limits. `validation` checks tools for what endpoints refuse."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harness.core.types import JsonDict

MAX_METADATA_BYTES = 1024 * 1024
"""Limit for `metadata`, which is meant for small values beside the conversation; larger data belongs in a file."""

MessageDict: TypeAlias = dict[str, Any]
SamplingParamsDict: TypeAlias = dict[str, Any]


class OpenAIFunctionPropertySchema(BaseModel):
    """One parameter of a tool. Keys without a field here (`items`, `default`, `properties`, …) are sent unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str | list[str] | None = None
    description: str | None = None
    enum: list[Any] | None = None


class OpenAIFunctionParametersSchema(BaseModel):
    """The parameters of a tool. Further keys (`$defs`, `additionalProperties`, …) are sent unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str = "object"
    properties: dict[str, OpenAIFunctionPropertySchema] = Field(default_factory=dict[str, OpenAIFunctionPropertySchema])
    required: list[str] = Field(default_factory=list[str])


class OpenAIFunctionSchema(BaseModel):
    """A tool's function, as described to the model."""

    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema = Field(default_factory=OpenAIFunctionParametersSchema)
    strict: bool = False


class OpenAIFunctionToolSchema(BaseModel):
    """A tool that a model may call."""

    type: str
    function: OpenAIFunctionSchema


class RolloutStatus(StrEnum):
    """The outcome of a run, as in `RolloutResult.status`."""

    COMPLETED = "COMPLETED"
    ERROR = "ERROR"


class RolloutMetrics(BaseModel):
    """Durations, calls and tokens of one run."""

    total_latency_ms: float = 0.0
    llm_latency_ms: float = 0.0
    tool_latency_ms: float = 0.0
    num_llm_calls: int = 0
    num_tool_calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    max_context_tokens: int = 0
    """Tokens of the largest prompt, if the model client reports them."""


class RolloutRequest(BaseModel):
    """The request for one run of an agent.

    Raises:
        pydantic.ValidationError: a field is missing or breaks its limits.
    """

    rollout_id: str = Field(min_length=1, max_length=256)
    server_url: str
    """Address of a remote trainer; in an evaluation an unused placeholder."""
    messages: list[MessageDict]
    completion_params: SamplingParamsDict
    """Sampling arguments of the run; `ctx.chat` applies them by default, and an agent may also pass them."""
    tool_server_url: str | None = None
    max_turns: int = 10
    """Maximum number of model calls; it is up to the agent to keep to it."""
    max_tokens_total: int = 8192
    metadata: JsonDict = Field(default_factory=dict[str, Any])
    """The row's other columns, and the run's row, index and mode."""
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
