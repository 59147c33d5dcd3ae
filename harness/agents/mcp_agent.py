"""The agent that offers the tools of a FastMCP server to the model and calls them. Servers are reached through
`harness.tools.mcp` and `mcp_host`. A server is started once and runs as long as an agent uses it, as it would in a
process of its own: its lifespan is entered once (some releases of fastmcp cannot enter it again), and all its tools run
in one event loop. Each run has its own session with the server."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from harness.agents.loop import RolloutAgentLoop, RolloutContext, RolloutResult
from harness.agents.schemas import RolloutRequest
from harness.agents.tool_calls import (
    create_tool_error_result,
    create_tool_result,
    get_tool_call_info,
    serialize_tool_result,
)
from harness.core.errors import EnvironmentFault, MCPLoadError, ToolError
from harness.core.types import JsonDict, Message
from harness.tools.mcp import MCPServer, ServerTool, read_result, tool_name
from harness.tools.mcp_host import MCPHost, MCPSession, ServerLimits
from harness.tools.tool import unknown_tool

_LIMITS = ServerLimits(startup_seconds=300.0)
"""A lifespan may load an index first. A call has no timeout: the rollout has one."""

_CLOSE_SECONDS = 15.0
"""Timeout for the end of a server's lifespan."""


class MCPAgentLoop(RolloutAgentLoop):
    """An agent whose tools are those of a FastMCP server in this process.

    The server is started, and its tools are listed, when the agent is created. It is stopped when no agent uses it any
    more, or when the process ends.

    Args:
        mcp_server: The server.
        agent_name: The agent's name in reports.

    Raises:
        MCPLoadError: the server does not start, or `fastmcp` is not installed.
    """

    name = "mcp_agent"

    def __init__(self, mcp_server: object, agent_name: str = "mcp_agent") -> None:
        self.name = agent_name
        self._server = _running(mcp_server)
        try:
            self._tools = _named(self._server.start())
        except EnvironmentFault as error:
            raise MCPLoadError(f"the tools of the MCP server cannot be listed: {error}") from error

    @property
    def has_tools(self) -> bool:
        """Whether the server offers any tools."""
        return bool(self._tools)

    def get_tools(self, request: RolloutRequest) -> list[JsonDict]:
        """The server's tools, with their complete schemas."""
        return [_definition(name, tool) for name, tool in self._tools.items()]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Let the model call tools until it answers without a tool call, or the turns are used up. The model gets the
        error of a failed call as the tool's result; a failed server ends the run."""
        messages = list(ctx.request.messages)
        async with self._server.session() as session:
            for _ in range(ctx.request.max_turns):
                reply = await ctx.chat(messages, **ctx.request.completion_params)
                messages.append(reply.message)
                if not reply.has_tool_calls:
                    return ctx.complete(messages)
                for call in reply.tool_calls:  # in sequence: a call sees the effects of the one before
                    started = time.monotonic()
                    answer = await self._answer(session, call)
                    milliseconds = (time.monotonic() - started) * 1000
                    messages.append(answer)
                    ctx.record_tool_call(milliseconds)
                    ctx.log_event("tool_call", call=call, result=answer["content"], latency_ms=milliseconds)
        return ctx.complete(messages, finish_reason="max_turns")

    async def _answer(self, session: MCPSession, call: JsonDict) -> Message:
        try:
            call_id, name, arguments = get_tool_call_info(call)
            tool = self._tools.get(name)
            if tool is None:
                raise unknown_tool(name, self._tools)
            value = _value(await session.answer(tool, arguments))
            return create_tool_result(call_id, serialize_tool_result(value))
        except ToolError as error:
            return create_tool_error_result(str(call.get("id") or "unknown"), str(error))


class _RunningServer:
    """A server that runs as long as this object exists."""

    def __init__(self, server: object) -> None:
        self._host = MCPHost([MCPServer("mcp", server=lambda: server)], _LIMITS)
        self._keeper: MCPSession | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._host).atexit = False  # see `_at_exit`

    def start(self) -> list[ServerTool]:
        """Wait until the server has started; returns its tools.

        Raises:
            EnvironmentFault: the server does not start.
        """
        keeper = self._keep()
        keeper.wait()
        return keeper.tools

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[MCPSession]:
        """Open a session for one run.

        Raises:
            EnvironmentFault: the session cannot be opened.
        """
        await self._keep().ready()
        session = self._host.open()
        try:
            await session.ready()
            yield session
        finally:
            session.leave()

    def close(self) -> None:
        """Stop the server; blocks until its lifespan has ended."""
        _close(self._host)

    def _keep(self) -> MCPSession:
        """The session that keeps the server running: the first session enters the server's lifespan, and closing it
        would end the lifespan for all other sessions."""
        with self._lock:
            if self._keeper is None or self._keeper.is_broken:
                self._keeper = self._host.open()
            return self._keeper


_servers: weakref.WeakValueDictionary[int, _RunningServer] = weakref.WeakValueDictionary()
"""Running servers by the id of the server object, which each of them keeps alive."""

_servers_lock = threading.Lock()


def _running(server: object) -> _RunningServer:
    """The running instance of a server object, started if needed: two lifespans of one object would end each other."""
    with _servers_lock:
        found = _servers.get(id(server))
        if found is None:
            found = _servers[id(server)] = _RunningServer(server)
        return found


def _at_exit() -> None:
    for server in list(_servers.values()):
        server.close()


# Close servers before `atexit` and before thread pools refuse work: the end of a lifespan may need a thread, and with
# some releases of fastmcp it would hang. Handlers run last to first, so that of the pools must be registered earlier.
importlib.import_module("concurrent.futures.thread")
_register: Callable[[Callable[[], object]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(_at_exit)


def _close(host: MCPHost) -> None:
    with contextlib.suppress(RuntimeError):  # dropped in the host's own thread, which cannot wait for itself
        host.close(_CLOSE_SECONDS)


def _named(tools: Iterable[ServerTool]) -> dict[str, ServerTool]:
    """Tools by the names that models use for them."""
    named: dict[str, ServerTool] = {}
    for tool in tools:
        name = tool_name(tool, with_prefix=False)
        if not name[:1].isalpha() and not name.startswith("_"):
            name = f"_{name}"[:64]
        if name in named:
            raise MCPLoadError(
                f"the MCP server's tools {named[name].name!r} and {tool.name!r} would both be {name!r} to a model, "
                "whose tools have names of letters, digits, _ and -, 64 at most; rename one"
            )
        named[name] = tool
    return named


def _definition(name: str, tool: ServerTool) -> JsonDict:
    description = tool.description or f"Tool: {tool.name}"
    return {"type": "function", "function": {"name": name, "description": description, "parameters": tool.parameters}}


def _value(answer: Any) -> object:
    """The value that a tool returned: its structured value, else the text of its content.

    Raises:
        ToolCallError: the tool failed.
    """
    content = read_result(answer)
    structured: object = answer.model_dump(mode="json", by_alias=True).get("structuredContent")
    if isinstance(structured, dict):
        fields = cast(JsonDict, structured)
        return fields["result"] if list(fields) == ["result"] else fields
    if isinstance(content, str):
        return content
    return "\n".join(
        str(part["text"]) if part["type"] == "text" else f"[{part['type']}: not shown]" for part in content
    )
