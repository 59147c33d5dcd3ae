"""Environments with tools from MCP servers."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Sequence
from typing import Any, Literal

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import Chat, JsonDict, Message
from harness.envs.hooks import cleanup, teardown
from harness.envs.tool_env import ToolEnv, tool_message
from harness.tools.mcp import ServerSettings, ServerTool, check_installed, read_servers, tool_name
from harness.tools.mcp_host import MCPHost, MCPSession, ServerLimits
from harness.usercode.scope import scope, scoped
from harness.usercode.threads import offload

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 15.0
"""Seconds to wait for a server to close. A client terminates a server process after two seconds and kills it two
seconds later."""


class MCPEnv(ToolEnv):
    """An environment whose model may call the tools of MCP servers, besides Python functions as in `ToolEnv`.

    Args:
        mcp_servers: The servers: a list of dicts with `name` and either `command`, `args`, `env`, `cwd` (stdio) or
            `url`, `headers` (streamable HTTP); or a mapping of names to dicts, as in an `mcpServers` file. A FastMCP
            object, or a function that returns one, runs in this process.
        scope: `rollout` opens all servers for each rollout and closes them afterwards; `shared` opens them once for all
            rollouts. Connections to URLs whose servers assign no session id are always kept for further rollouts.
        prefix_tools: Whether tools are named `server_tool` for models. Otherwise tool names must be unique among
            servers.
        allowed_tools: Names of the tools to offer, as models see them; all by default. Each tool listed here also gets
            its own metric.
        startup_timeout: Timeout in seconds for opening one server. At most one server per CPU core is opened at a time;
            the wait for other servers counts neither here nor in the rollout's timeout.
        call_timeout: Timeout in seconds for one tool call; when it expires, the rollout fails.
        **options: See `ToolEnv`; Python functions in `tools` are offered as well.

    Raises:
        EnvironmentFault: see `ToolEnv`; or `fastmcp` is not installed, or the settings of a server are invalid.
    """

    def __init__(
        self,
        mcp_servers: ServerSettings,
        *,
        scope: Literal["rollout", "shared"] = "rollout",
        prefix_tools: bool = False,
        allowed_tools: Sequence[str] | None = None,
        startup_timeout: float = 30.0,
        call_timeout: float = 300.0,
        **options: Any,
    ) -> None:
        where = type(self).__name__
        if scope not in ("rollout", "shared"):
            raise EnvironmentFault(f"{where}(scope=…) must be 'rollout' or 'shared', not {scope!r}")
        if isinstance(allowed_tools, str):
            raise EnvironmentFault(f"{where}(allowed_tools=…) must be a list of names, not {allowed_tools!r}")
        for option, seconds in (("startup_timeout", startup_timeout), ("call_timeout", call_timeout)):
            if not seconds > 0:
                raise EnvironmentFault(f"{where}({option}=…) must be above 0, not {seconds!r}")
        servers = read_servers(mcp_servers)
        check_installed()
        super().__init__(**options)
        self._scope = scope
        self._prefix_tools = prefix_tools
        self._allowed = None if allowed_tools is None else tuple(allowed_tools)
        self._sessions: dict[str, MCPSession] = {}
        self._shared: MCPSession | None = None
        self._host = MCPHost(servers, ServerLimits(startup_timeout, call_timeout))
        weakref.finalize(self, self._host.close, CLOSE_SECONDS)  # in case teardown is never called
        for name in self._allowed or ():
            self._count_calls(name)

    async def rollout(self, state: State, chat: Chat) -> None:
        """Run one rollout, and provide its MCP session to the tasks that it starts."""
        with scoped(rollout=state["trajectory_id"]):
            await super().rollout(state, chat)

    async def play(self, state: State) -> None:
        """Open the servers, offer their tools, and run the rollout."""
        session = self._session()
        self._sessions[state["trajectory_id"]] = session
        await session.ready()
        if session.is_stateless and (self._shared is None or self._shared.is_broken):
            self._shared = session
        tools = self._named(session)
        if not any(state["info"].get(key) for key in ("tool_defs", "oai_tools")):
            state["tools"] = [*self.tool_defs, *(_definition(name, tool) for name, tool in tools.items())]
        await super().play(state)

    async def call_tool(self, tool_name: str, tool_args: JsonDict, tool_call_id: str, **kwargs: Any) -> Message:
        """Call a Python tool, or a tool of an MCP server.

        Raises:
            ToolCallError: the tool failed or rejected its arguments.
            EnvironmentFault: the server failed or did not answer in time, or the rollout has ended.
        """
        if tool_name in self.tool_map:
            return await super().call_tool(tool_name, tool_args, tool_call_id, **kwargs)
        session = self._sessions.get(scope().rollout)
        if session is None:
            raise EnvironmentFault(f"{type(self).__name__}: tools of MCP servers can only be called in a rollout")
        tool = self._named(session).get(tool_name)
        if tool is None:
            raise EnvironmentFault(f"{type(self).__name__}: a row's info lists tool {tool_name!r}, which is undefined")
        content = await session.call(tool, tool_args)
        return tool_message(self.format_result(tool_name, content), tool_call_id)

    @cleanup(priority=-100)
    async def close_mcp_session(self, state: State) -> None:
        """Close the rollout's servers, after all other `@cleanup` methods."""
        session = self._sessions.pop(state["trajectory_id"], None)
        if session is None or session is self._shared or session in self._sessions.values():
            return
        session.leave()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await session.closed()
        except TimeoutError:  # the rollout is complete; a problem with its servers must not affect its score
            logger.warning("%s: an MCP server did not close within %g s", type(self).__name__, CLOSE_SECONDS)

    @teardown(priority=-100)
    async def close_mcp_servers(self) -> None:
        """Close all servers and end their thread."""
        self._shared = None
        if not await offload.run(self._host.close, CLOSE_SECONDS):
            logger.warning("%s: an MCP server did not close within %g s", type(self).__name__, CLOSE_SECONDS)

    def _session(self) -> MCPSession:
        """Open the MCP session for a rollout, or return the one that rollouts share. A failed shared session is
        replaced; the last rollout that uses it closes it, since other calls may still succeed."""
        if self._shared is not None and not self._shared.is_broken:
            return self._shared
        if self._shared is not None and self._shared not in self._sessions.values():
            self._shared.leave()
        self._shared = None
        session = self._host.open()
        if self._scope == "shared":
            self._shared = session
        return session

    def _named(self, session: MCPSession) -> dict[str, ServerTool]:
        """Return the offered tools, by the names that models see. Computed once per session."""
        if session.named is None:
            session.named = self._checked_tools(session.tools)
        return session.named

    def _checked_tools(self, tools: Sequence[ServerTool]) -> dict[str, ServerTool]:
        where = type(self).__name__
        named: dict[str, ServerTool] = {}
        for tool in tools:
            name = tool_name(tool, with_prefix=self._prefix_tools)
            if self._allowed is not None and name not in self._allowed:
                continue
            if name in named or name in self.tool_map:
                owner = f"MCP server {named[name].server!r}" if name in named else "a Python function"
                raise EnvironmentFault(
                    f"{where}: MCP server {tool.server!r} and {owner} both offer a tool {name!r}; pass "
                    "prefix_tools=True, or choose with allowed_tools=[…]"
                )
            named[name] = tool
        missing = [name for name in self._allowed or () if name not in named and name not in self.tool_map]
        if missing:
            offered = ", ".join(tool_name(tool, with_prefix=self._prefix_tools) for tool in tools) or "nothing"
            raise EnvironmentFault(f"{where}: no MCP server offers {missing[0]!r}; offered tools: {offered}")
        return named


def _definition(name: str, tool: ServerTool) -> JsonDict:
    function = {"name": name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
