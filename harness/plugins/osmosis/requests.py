"""Functions of osmosis_ai that prepare a run of an agent outside of an evaluation: the request for a dataset row, and
the server of an MCP folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.agents.dataset import REQUIRED, DatasetRow
from harness.agents.environment import SERVER_URL
from harness.agents.mcp_folder import load_server
from harness.agents.schemas import RolloutRequest
from harness.core.types import JsonDict


def dataset_row_to_request(  # noqa: PLR0913 - the arguments of osmosis_ai
    row: DatasetRow,
    row_index: int,
    max_turns: int = 10,
    max_tokens_total: int = 4096,
    completion_params: Mapping[str, Any] | None = None,
    rollout_id_prefix: str = "local",
    rollout_id: str | None = None,
    metadata_overrides: Mapping[str, Any] | None = None,
) -> RolloutRequest:
    """Build the request for a run of an agent from a dataset row.

    Args:
        row: The row, from `DatasetReader`.
        row_index: Its number in the dataset, from 0.
        max_turns: Maximum number of model calls.
        max_tokens_total: Maximum number of tokens; for the agent's information.
        completion_params: Sampling arguments.
        rollout_id_prefix: Beginning of the request's id, before the row's number.
        rollout_id: The request's id, instead of one with the prefix.
        metadata_overrides: Additional metadata, which replaces metadata of the row.

    Raises:
        KeyError: a required column is missing.
        pydantic.ValidationError: the row does not fit into a request.
    """
    metadata: JsonDict = {"ground_truth": row["ground_truth"], "row_index": row_index}
    metadata |= {name: value for name, value in row.items() if name.lower() not in REQUIRED}
    return RolloutRequest(
        rollout_id=rollout_id or f"{rollout_id_prefix}-{row_index}",
        server_url=SERVER_URL,
        messages=[
            {"role": "system", "content": row["system_prompt"]},
            {"role": "user", "content": row["user_prompt"]},
        ],
        completion_params=dict(completion_params or {}),
        max_turns=max_turns,
        max_tokens_total=max_tokens_total,
        metadata=metadata | dict(metadata_overrides or {}),
    )


def load_mcp_server(mcp_path: str | Path) -> object:
    """Import the `main.py` of an MCP folder and return its FastMCP server, which is not started.

    Args:
        mcp_path: The folder.

    Raises:
        MCPLoadError: the folder or the server does not exist, `fastmcp` is not installed, or the import failed.
    """
    return load_server(mcp_path)
