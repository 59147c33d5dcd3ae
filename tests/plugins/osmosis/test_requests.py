"""Tool calls, results of tools, requests for rows and servers of MCP folders, as osmosis_ai has them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.agents.dataset import DatasetRow
from harness.core.errors import MCPLoadError
from harness.plugins.osmosis.requests import dataset_row_to_request, load_mcp_server
from harness.plugins.osmosis.tool_schemas import (
    OpenAIFunctionCallSchema,
    OpenAIFunctionParsedSchema,
    OpenAIFunctionToolCall,
    ToolResponse,
)

ROW = DatasetRow(ground_truth="4", user_prompt="2 + 2?", system_prompt="Answer with a number.", topic="sums")  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportCallIssue]


def test_arguments_of_a_call_are_parsed() -> None:
    parse = OpenAIFunctionCallSchema.from_openai_function_parsed_schema
    call, has_error = parse(OpenAIFunctionParsedSchema(name="add", arguments='{"a": 5}'))
    assert (call.name, call.arguments, has_error) == ("add", {"a": 5}, False)
    for wrong in ("{", "[1]", "", "[" * 100_000):
        call, has_error = parse(OpenAIFunctionParsedSchema(name="add", arguments=wrong))
        assert (call.arguments, has_error) == ({}, True), wrong
    whole = OpenAIFunctionToolCall(id="c", function=call)
    assert whole.model_dump() == {"id": "c", "type": "function", "function": {"name": "add", "arguments": {}}}


def test_the_result_of_a_tool() -> None:
    assert ToolResponse().is_empty()
    assert not ToolResponse().is_text_only()
    assert ToolResponse(text="42").is_text_only()
    assert not ToolResponse(text="42", image=[1]).is_text_only()
    assert not ToolResponse(video=[1]).is_empty()
    with pytest.raises(ValidationError, match="image"):
        ToolResponse(image="one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_request_for_a_row() -> None:
    request = dataset_row_to_request(ROW, 3, completion_params={"temperature": 0.5}, metadata_overrides={"run": 1})
    assert request.rollout_id == "local-3"
    assert [message["content"] for message in request.messages] == ["Answer with a number.", "2 + 2?"]
    assert request.metadata == {"ground_truth": "4", "row_index": 3, "topic": "sums", "run": 1}
    assert (request.max_turns, request.max_tokens_total, request.completion_params) == (10, 4096, {"temperature": 0.5})
    assert dataset_row_to_request(ROW, 3, 5, rollout_id="mine", rollout_id_prefix="x").rollout_id == "mine"


def test_the_server_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MCPLoadError, match=r"No main\.py found"):
        load_mcp_server(tmp_path)
    lines = ["from fastmcp import FastMCP", "mcp = FastMCP('sums')", "@mcp.tool()", "def add(a: int) -> int: return a"]
    (tmp_path / "main.py").write_text("\n".join(lines))
    server = load_mcp_server(tmp_path)
    assert [tool.name for tool in asyncio.run(server.list_tools())] == ["add"]  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
