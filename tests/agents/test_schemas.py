"""The request of a run and the schemas of tools: what they take, what they refuse, and what goes to the endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tables import for_each_row

from harness.agents.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    RolloutMetrics,
    RolloutRequest,
    RolloutStatus,
)


def request(**fields: Any) -> RolloutRequest:
    whole: dict[str, Any] = {"rollout_id": "r", "server_url": "http://h", "messages": [], "completion_params": {}}
    return RolloutRequest(**{**whole, **fields})


def fault(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        request(**fields)
    [error] = caught.value.errors()
    return f"{error['loc'][0]}: {error['msg']}"


def test_a_request_has_the_documented_defaults() -> None:
    made = request()
    assert (made.max_turns, made.max_tokens_total, made.metadata) == (10, 8192, {})
    assert (made.tool_server_url, made.api_key, made.idempotency_key) == (None, None, None)


def test_every_request_has_metadata_of_its_own() -> None:
    first, second = request(), request()
    first.metadata["row_index"] = 1
    assert second.metadata == {}


@for_each_row(
    ("fields", "words"),
    [
        ({"rollout_id": ""}, "rollout_id: String should have at least 1 character"),
        ({"rollout_id": " \t"}, "rollout_id: Value error, rollout_id cannot be empty or whitespace only"),
        ({"rollout_id": "x" * 257}, "rollout_id: String should have at most 256 characters"),
        ({"server_url": "ftp://h"}, "server_url: Value error, server_url must use http or https scheme"),
        ({"server_url": "http://"}, "server_url: Value error, server_url must have a valid host"),
        ({"server_url": "http://:80/v1"}, "server_url: Value error, server_url must have a valid host"),
        ({"messages": None}, "messages: Input should be a valid list"),
        (
            {"metadata": {"when": object}},
            "metadata: Value error, metadata must be JSON serializable: Object of type type is not JSON serializable",
        ),
        (
            {"metadata": {"text": "x" * 1024 * 1024}},
            "metadata: Value error, metadata size exceeds maximum allowed size of 1MB",
        ),
    ],
)
def test_what_breaks_a_limit_is_refused(fields: dict[str, Any], words: str) -> None:
    assert fault(**fields) == words


def test_metadata_of_exactly_a_mebibyte_is_taken() -> None:
    frame = len('{"text": ""}')
    assert len(request(metadata={"text": "x" * (1024 * 1024 - frame)}).metadata["text"]) == 1024 * 1024 - frame
    assert fault(metadata={"text": "x" * (1024 * 1024 - frame + 1)}).endswith("maximum allowed size of 1MB")


def test_a_tool_goes_to_the_endpoint_as_documented() -> None:
    tool = OpenAIFunctionToolSchema(
        type="function",
        function=OpenAIFunctionSchema(
            name="add",
            description="Add.",
            parameters=OpenAIFunctionParametersSchema(
                type="object", properties={"a": OpenAIFunctionPropertySchema(type="number")}, required=["a"]
            ),
        ),
    )
    assert tool.model_dump(exclude_none=True) == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
            "strict": False,
        },
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    dumped = OpenAIFunctionSchema(name="now", description="").model_dump(exclude_none=True)
    assert dumped["parameters"] == {"type": "object", "properties": {}, "required": []}


def test_a_property_keeps_the_keys_of_a_real_schema() -> None:
    given = {
        "type": "array",
        "items": {"$ref": "#/$defs/Point"},
        "default": [],
        "enum": [1, 2.5, True],
        "properties": {"x": {"type": ["integer", "null"]}},
    }
    made = OpenAIFunctionPropertySchema.model_validate(given)
    assert made.model_dump(exclude_none=True) == given


def test_a_property_may_be_made_of_keywords_alone() -> None:
    made = OpenAIFunctionPropertySchema.model_validate({"anyOf": [{"type": "string"}, {"type": "null"}]})
    assert made.model_dump(exclude_none=True) == {"anyOf": [{"type": "string"}, {"type": "null"}]}


def test_a_status_equals_its_word() -> None:
    assert RolloutStatus.COMPLETED == "COMPLETED"
    assert RolloutStatus.ERROR == "ERROR"


def test_metrics_begin_at_zero() -> None:
    assert set(RolloutMetrics().model_dump().values()) == {0}
    assert sorted(RolloutMetrics.model_fields) == [
        "llm_latency_ms", "max_context_tokens", "num_llm_calls", "num_tool_calls",
        "prompt_tokens", "response_tokens", "tool_latency_ms", "total_latency_ms",
    ]  # fmt: skip
