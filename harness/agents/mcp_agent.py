"""`MCPAgentLoop`: an agent that offers the tools of a FastMCP server to the model and calls them. A server is started
once and runs as long as an agent uses it, since some releases of fastmcp cannot enter a server's lifespan twice. All
tools of a server run in one event loop, and each run that calls a tool has its own session with the server."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
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
"""Limits of MCP servers. The startup timeout is long, since a server may load an index when it starts. Calls have no
timeout of their own, since rollouts have one."""

_CLOSE_SECONDS = 15.0
"""Timeout for ending a server's lifespan, in seconds."""


class MCPAgentLoop(RolloutAgentLoop):
    """Agent whose tools are those of a FastMCP server in this process.

    When the agent is created, the server is started and its tools are listed. The server is stopped when no agent uses
    it any more, or when the process ends.

    Args:
        mcp_server: The FastMCP server.
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
        """Whether the MCP server offers any tools."""
        return bool(self._tools)

    def get_tools(self, request: RolloutRequest) -> list[JsonDict]:
        """Return the MCP server's tools, with their complete schemas."""
        definitions: list[JsonDict] = []
        for name, tool in self._tools.items():
            function = {"name": name, "description": tool.description or f"Tool: {tool.name}"}
            definitions.append({"type": "function", "function": {**function, "parameters": tool.parameters}})
        return definitions

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Let the model call tools until it answers without a tool call, or has reached the maximum number of turns.

        The model gets the error of a failed call as the tool's result. If the server fails, the run fails."""
        messages = list(ctx.request.messages)
        async with self._server.session() as open_session:
            for _ in range(ctx.request.max_turns):
                reply = await ctx.chat(messages, **ctx.request.completion_params)
                messages.append(reply.message)
                if not reply.has_tool_calls:
                    return ctx.complete(messages)
                for call in reply.tool_calls:  # in sequence: a call sees the effects of the one before
                    started = time.monotonic()
                    answer = await self._answer(open_session, call)
                    milliseconds = (time.monotonic() - started) * 1000
                    messages.append(answer)
                    ctx.record_tool_call(milliseconds)
                    ctx.log_event("tool_call", call=call, result=answer["content"], latency_ms=milliseconds)
        return ctx.complete(messages, finish_reason="max_turns")

    async def _answer(self, open_session: Callable[[], Awaitable[MCPSession]], call: JsonDict) -> Message:
        try:
            call_id, name, arguments = get_tool_call_info(call)
            tool = self._tools.get(name)
            if tool is None:
                raise unknown_tool(name, self._tools)
            session = await open_session()
            value = _value(await session.answer(tool, arguments))
            return create_tool_result(call_id, serialize_tool_result(value))
        except ToolError as error:
            return create_tool_error_result(str(call.get("id") or "unknown"), str(error))


class _RunningServer:
    """A FastMCP server that runs as long as this object exists."""

    def __init__(self, server: object) -> None:
        self.host = MCPHost([MCPServer("mcp", server=lambda: server)], _LIMITS)
        self._main: MCPSession | None = None
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self.host).atexit = False  # `_register` does that earlier

    def start(self) -> list[ServerTool]:
        """Wait until the MCP server has started, and return its tools.

        Raises:
            EnvironmentFault: the server does not start.
        """
        session = self._main_session()
        session.wait()
        return session.tools

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Callable[[], Awaitable[MCPSession]]]:
        """Provide one run with a function that returns its session with the MCP server. The first call opens it and
        raises `EnvironmentFault` if that fails."""
        session: MCPSession | None = None

        async def opened() -> MCPSession:
            nonlocal session
            if session is None:
                await self._main_session().ready()
                session = self.host.open()
                await session.ready()
            return session

        try:
            yield opened
        finally:
            if session is not None:
                session.leave()

    def _main_session(self) -> MCPSession:
        """Return the session that keeps the server running. The first session enters the server's lifespan; closing it
        would end the lifespan for all other sessions."""
        with self._lock:
            if self._main is None or self._main.is_broken:
                self._main = self.host.open()
            return self._main


_servers: weakref.WeakValueDictionary[int, _RunningServer] = weakref.WeakValueDictionary()
"""Running servers by the id of their server object."""

_servers_lock = threading.Lock()


def _running(server: object) -> _RunningServer:
    """Return the only running instance of an MCP server object. Two instances would end each other's lifespan."""
    with _servers_lock:
        found = _servers.get(id(server))
        if found is None:
            found = _servers[id(server)] = _RunningServer(server)
        return found


def _close(host: MCPHost) -> None:
    """Stop an MCP server, and block until its lifespan has ended."""
    with contextlib.suppress(RuntimeError):  # garbage-collected in the host's own thread, which cannot wait for itself
        host.close(_CLOSE_SECONDS)


# Close servers before `atexit` and before thread pools refuse work: the end of a lifespan may need a thread, and with
# some releases of fastmcp it would hang. Handlers run last to first, so that of the pools must be registered earlier.
importlib.import_module("concurrent.futures.thread")
_register: Callable[[Callable[[], object]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(lambda: [_close(server.host) for server in list(_servers.values())])


def _named(tools: Iterable[ServerTool]) -> dict[str, ServerTool]:
    """Return the MCP server's tools by the names that models use for them.

    Raises:
        MCPLoadError: two tools have the same name for models.
    """
    named: dict[str, ServerTool] = {}
    for tool in tools:
        name = tool_name(tool, with_prefix=False)
        if not name[:1].isalpha() and not name.startswith("_"):
            name = f"_{name}"[:64]
        if name in named:
            raise MCPLoadError(
                f"the MCP server's tools {named[name].name!r} and {tool.name!r} would both be named {name!r} for the "
                "model, because a tool's name may have only letters, digits, _ and -, at most 64 of them; rename one"
            )
        named[name] = tool
    return named


def _value(answer: Any) -> object:
    """Return the value of an MCP tool call: its structured value, or else the text of its content.

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
