"""`vf.MCPEnv`: tools from MCP servers, with the classic constructor arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from harness.core.types import JsonDict
from harness.envs.mcp_env import MCPEnv as NativeMCPEnv

_SERVER = ("name", "command", "args", "env", "url", "headers", "cwd")


class MCPEnv(NativeMCPEnv):
    """The class `MCPEnv` of the classic API: `harness.MCPEnv` with the constructor arguments of that API.

    Args:
        mcp_servers: Settings of the servers: dicts, or objects with the same fields.
        max_turns: Model replies after which a rollout ends.
        **kwargs: See `harness.MCPEnv`; arguments without an effect here become attributes.
    """

    def __init__(self, mcp_servers: Sequence[Any] | None = None, max_turns: int = 10, **kwargs: Any) -> None:
        given = {name: value for name, value in kwargs.items() if name not in _IGNORED}
        super().__init__(
            [_settings(server) for server in mcp_servers or ()], scope="shared", max_turns=max_turns, **given
        )


_IGNORED = frozenset(
    {"map_kwargs", "max_seq_len", "max_workers", "interleaved_rollouts", "score_rollouts", "pass_threshold"}
)


def _settings(server: Any) -> JsonDict:
    fields: Any = (
        dataclasses.asdict(server) if dataclasses.is_dataclass(server) and not isinstance(server, type) else server
    )
    return {
        name: value for name, value in cast(JsonDict, dict(fields)).items() if name in _SERVER and value is not None
    }
