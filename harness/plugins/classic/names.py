"""Type names of the classic API: aliases and dict shapes for annotations and constructors, without behaviour."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast

from harness.plugins.classic.records import Record

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

ClientType: TypeAlias = Literal[
    "openai_completions", "openai_chat_completions", "openai_responses", "anthropic_messages"
]
MessageType: TypeAlias = Literal["chat", "completion"]
JsonPrimitive: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"] | None

ChatMessage: TypeAlias = dict[str, Any]
ChatMessages: TypeAlias = list[ChatMessage]
Message: TypeAlias = str | ChatMessage
Messages: TypeAlias = str | list[ChatMessage]
TypedMessages: TypeAlias = list[Any]
ContentPart: TypeAlias = dict[str, Any]
MessageContent: TypeAlias = str | list[Any]
ModelResponse: TypeAlias = Any
ToolParam: TypeAlias = dict[str, Any]
Role: TypeAlias = str

Info: TypeAlias = dict[str, Any]
SamplingArgs: TypeAlias = dict[str, Any]
IndividualRewardFunc: TypeAlias = Callable[..., float | Awaitable[float]]
GroupRewardFunc: TypeAlias = Callable[..., list[float] | Awaitable[list[float]]]
RewardFunc: TypeAlias = Callable[..., Any]
DatasetBuilder: TypeAlias = Callable[[], Any]
StartCallback: TypeAlias = Callable[..., None]
ProgressCallback: TypeAlias = Callable[..., None]
LogCallback: TypeAlias = Callable[[str], None]
ThinkingBlock: TypeAlias = Any
Endpoints: TypeAlias = dict[str, Any]
ResponseTokens: TypeAlias = dict[str, Any]
ScoreObjectProvider: TypeAlias = Callable[[Any], Mapping[str, object]]
EnvironmentClient: TypeAlias = Any


class RolloutInput(TypedDict, total=False):
    """A row of a dataset."""

    prompt: Any
    answer: Any
    task: Any
    info: Any
    example_id: int


class TrajectoryStep(TypedDict, total=False):
    """One turn."""

    prompt: Any
    completion: Any
    response: Any
    tokens: Any
    reward: float | None
    advantage: float | None
    is_truncated: bool
    trajectory_id: str
    extras: dict[str, Any]


class TrajectoryStepTokens(TypedDict, total=False):
    """Tokens of one turn; never filled here."""

    prompt_ids: list[int]
    prompt_mask: list[int]
    completion_ids: list[int]
    completion_mask: list[int]
    completion_logprobs: list[float]
    overlong_prompt: bool
    is_truncated: bool


class TokenUsage(TypedDict, total=False):
    """Tokens of a rollout."""

    input_tokens: float
    output_tokens: float
    final_input_tokens: float
    final_output_tokens: float


class RolloutScore(TypedDict):
    """Reward and metrics of a rollout."""

    reward: float
    metrics: dict[str, float]


class RolloutScores(TypedDict):
    """Rewards and metrics of several rollouts."""

    reward: list[float]
    metrics: dict[str, list[float]]


class GenerateMetadata(TypedDict, total=False):
    """Metadata of a classic evaluation."""

    env_id: str
    env_args: dict[str, Any]
    model: str
    num_examples: int
    rollouts_per_example: int


class GenerateOutputs(TypedDict, total=False):
    """Return value of a classic evaluation."""

    outputs: list[Any]
    metadata: Any


class ErrorInfo(TypedDict):
    """An error as text."""

    error: str
    error_chain_repr: str
    error_chain_str: str


class RolloutOutput(Record):
    """A rollout in the saved form of a classic evaluation."""


class ClientConfig(Record):
    """Configuration of a classic client."""

    defaults: ClassVar[Mapping[str, object]] = {
        "api_key_var": "OPENAI_API_KEY",
        "api_base_url": "https://api.openai.com/v1",
        "extra_headers": {},
    }


class Endpoint(Record):
    """An entry of a classic endpoint file."""


class EvalConfig(Record):
    """The settings of a classic evaluation."""


TASK_INPUT_FIELDS = {"prompt", "answer", "info", "example_id"}


def assert_json_serializable(value: object) -> None:
    """Validate that a value can be written as JSON.

    Raises:
        TypeError: it cannot.
    """
    try:
        json.dumps(value)
    except TypeError as error:
        raise TypeError("Task and State values must be JSON-serializable.") from error


def normalize_task_payload(value: object) -> dict[str, Any]:
    """Convert the task in a rollout's info to a dict.

    Raises:
        ValueError: it is text that is not JSON.
        TypeError: it is not a mapping.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError("Serialized task payloads must be JSON objects; route by info['env_id']") from error
    if not isinstance(value, Mapping):
        raise TypeError("Serialized task payloads must decode to a mapping.")
    return dict(cast("Mapping[str, Any]", value))


def task_payload_from_info(info: object) -> dict[str, Any] | None:
    """The task in `info["task"]`; None if missing."""
    table: object = json.loads(info) if isinstance(info, str) else info
    task = cast("Mapping[str, Any]", table).get("task") if isinstance(table, Mapping) else None
    return None if task is None else normalize_task_payload(task)


def flatten_task_input(input_data: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a rollout's input: from its info, from its `task` field, or the whole input."""
    task = task_payload_from_info(input_data.get("info"))
    if task is not None:
        return task
    own = input_data.get("task")
    return dict(input_data) if own is None else normalize_task_payload(own)
