"""Opening, calling and closing MCP servers, in a thread with its own event loop.

A client must be closed by the task that opened it, but a rollout may be cancelled at any time, and an environment may
outlive its event loop. So each session is a task of this loop that opens, waits and closes; other code only sends
messages to it. A server in this process that blocks therefore blocks this loop and not the one that runs rollouts. If
it blocks for too long, the thread is abandoned and the next session gets a new one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from harness.core.errors import EnvironmentFault, ToolServerError
from harness.core.types import JsonDict
from harness.tools.mcp import MCPServer, ServerTool, convert_error, make_client, opening_error, read_result, read_tools
from harness.usercode.deadline import waiting
from harness.usercode.threads import cores

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CLOSED = "the MCP servers are closed"

_MAX_STDERR = 800
"""Maximum characters of a server's stderr in an error message."""

_ECHO_SECONDS = 5.0
"""The loop counts as blocked if it does not answer within this time."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Time and concurrency limits for servers."""

    startup_seconds: float = 30.0
    """Timeout for opening one server, in seconds, not counting the wait for its turn."""
    call_seconds: float | None = None
    """Timeout of one call in seconds; None for no timeout."""
    starts_at_once: int = 0
    """Maximum number of sessions that open concurrently; 0 for the number of CPU cores, at least two. Starting a
    program takes CPU time, so with hundreds at once each would exceed its timeout."""


class MCPSession:
    """Clients of all servers of an environment, open until `leave`."""

    def __init__(self, loop: _Loop, servers: Sequence[MCPServer], limits: ServerLimits) -> None:
        self.tools: list[ServerTool] = []
        """The tools of all servers; set once the session is open."""
        self.named: dict[str, ServerTool] | None = None
        """The tools by their names for models; set by the code that assigns the names."""
        self.is_broken = False
        """Whether a server has failed; a shared session is then opened again."""
        self._loop = loop
        self._servers = servers
        self._limits = limits
        self._clients: dict[str, Any] = {}
        self._begun = _shared_future()
        self._opened = _shared_future()
        self._closed = _shared_future()
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    @property
    def is_stateless(self) -> bool:
        """Whether the open session has no id from any server. By the MCP specification, a server for streamable HTTP
        without session ids keeps no state of sessions."""
        if any(not server.url for server in self._servers):
            return False
        return not any(client.transport.get_session_id() for client in self._clients.values())

    async def ready(self) -> None:
        """Wait until all servers are open. Waiting for a turn does not count towards the rollout's timeout.

        Raises:
            EnvironmentFault: a server cannot be opened; the message says which and why.
        """
        with waiting():
            await self._while_alive(self._begun)
        await self._while_alive(self._opened)

    def wait(self) -> None:
        """Block the thread until all servers are open; for callers without an event loop."""
        self._opened.result()

    async def call(self, tool: ServerTool, arguments: JsonDict) -> str | list[JsonDict]:
        """Call a tool.

        Returns:
            The result as message content, without a limit on its length.

        Raises:
            ToolCallError: the tool failed or rejected the arguments; with the tool's message.
            EnvironmentFault: the server failed or did not answer in time.
        """
        return read_result(await self.answer(tool, arguments))

    async def answer(self, tool: ServerTool, arguments: JsonDict) -> Any:
        """Call a tool and return the unparsed result (a `CallToolResult` of MCP).

        Raises:
            ToolCallError: the server rejected the call. The failure of a tool is part of the result instead.
            EnvironmentFault: the server failed or did not answer in time.
        """
        bound = asyncio.timeout(self._limits.call_seconds)  # set here, since the other loop may be blocked
        try:
            async with bound:
                return await self._loop.run(lambda: self._call(tool, arguments))
        except TimeoutError as error:
            self.is_broken = True
            words = f"MCP server {tool.server!r} did not answer {tool.name} within {self._limits.call_seconds:g} s"
            await self._loop.check(words)
            raise ToolServerError(words) from error
        except EnvironmentFault:
            self.is_broken = True
            raise

    def leave(self) -> None:
        """Start closing the session; returns at once. Thread-safe."""
        self._loop.post(self._begin_to_leave)

    async def closed(self) -> None:
        """Wait until all servers of the session are closed."""
        await asyncio.wrap_future(self._closed)

    async def _while_alive(self, future: Future[None]) -> None:
        """Wait for a future of the servers' event loop; raise an error if that loop is blocked."""
        patience = self._limits.startup_seconds
        waiter = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait([waiter], timeout=patience))[0]:
                await self._loop.check(f"MCP servers did not open within {patience:g} s")
        finally:
            waiter.cancel()  # else an error that comes later would be logged as never retrieved
        waiter.result()

    # Called in the host's loop, or in its place

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start opening the servers."""
        self._task = tasks.create_task(self._keep())
        self._task.add_done_callback(self._over)  # a task that is cancelled at once does not run its own cleanup

    def give_up(self, error: Exception) -> None:
        """Mark the session as failed; tasks that wait for its opening get `error`."""
        self._fail_opening(error)
        _set(self._closed)

    async def _keep(self) -> None:
        """Open the servers, wait for `leave`, and close them."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with self._turn():
                    _set(self._begun)
                    for server in self._servers:
                        self._clients[server.name] = await self._enter(stack, server)
                _set(self._opened)
                await self._leave.wait()
        except asyncio.CancelledError:
            pass  # see `_over`
        except Exception as error:  # any exception of clients and servers
            if not self._fail_opening(error):
                logger.warning("closing MCP servers failed: %s: %s", type(error).__name__, error)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._loop.sessions.discard(self)
        self.give_up(ToolServerError("the MCP servers were closed while they were being opened"))

    def _turn(self) -> contextlib.AbstractAsyncContextManager[object]:
        """Semaphore that limits how many sessions start local servers at once; no limit if all servers are remote."""
        return contextlib.nullcontext() if all(server.url for server in self._servers) else self._loop.turns

    def _begin_to_leave(self) -> None:
        self._leave.set()
        if self._task is not None and not self._opened.done():
            self._task.cancel()

    async def _enter(self, stack: contextlib.AsyncExitStack, server: MCPServer) -> Any:
        log = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115
        seconds = self._limits.startup_seconds
        try:
            async with asyncio.timeout(seconds):
                client = make_client(server, log)
                await stack.enter_async_context(client)
                self.tools += read_tools(server.name, await client.list_tools())
                return client
        except TimeoutError as error:
            words = f"MCP server {server.name!r} did not start within {seconds:g} s"
            raise ToolServerError(words + _stderr_end(log)) from error
        except Exception as error:  # any exception of fastmcp, anyio or the author's server
            raise opening_error(error, server, _stderr_end(log)) from error

    async def _call(self, tool: ServerTool, arguments: JsonDict) -> Any:
        try:
            return await self._clients[tool.server].call_tool_mcp(name=tool.name, arguments=arguments)
        except Exception as error:  # as in `_enter`
            raise convert_error(error, tool.server, f"running the tool {tool.name}") from error

    def _fail_opening(self, error: Exception) -> bool:
        """Set the result of the opening to `error`; return False if it was set before."""
        self.is_broken = True  # first, since a waiting task may read it at once
        _set(self._begun)
        return _set(self._opened, error)


class MCPHost:
    """The thread that runs the MCP sessions. It starts with the first session and ends with `close`; it may be started
    again.

    Args:
        servers: The servers that every session opens.
        limits: Timeouts, and how many sessions may open concurrently.
    """

    def __init__(self, servers: Sequence[MCPServer], limits: ServerLimits) -> None:
        self._servers = servers
        self._limits = limits
        self._loop: _Loop | None = None

    def open(self) -> MCPSession:
        """Start opening a session; returns at once."""
        if self._loop is None or not self._loop.is_usable:
            self._loop = _Loop(self._limits.starts_at_once or max(2, cores()))
        session = MCPSession(self._loop, self._servers, self._limits)
        self._loop.begin(session)
        return session

    def close(self, timeout: float) -> bool:
        """Close all sessions and end the thread; blocks.

        Args:
            timeout: Maximum seconds to wait.

        Returns:
            Whether the thread has ended.
        """
        return self._loop is None or self._loop.close(timeout)


class _Loop:
    """One thread with an event loop in which MCP sessions run."""

    def __init__(self, starts_at_once: int) -> None:
        self.sessions: set[MCPSession] = set()
        self.turns: asyncio.Semaphore
        self._starts_at_once = starts_at_once
        self._loop: asyncio.AbstractEventLoop
        self._tasks: asyncio.TaskGroup
        self._end: asyncio.Event
        self._is_blocked = False
        self._closed = ""
        self._lock = threading.Lock()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="bench-mcp", daemon=True)
        self._thread.start()
        started.wait()

    @property
    def is_usable(self) -> bool:
        """Whether the thread is running and not blocked."""
        return self._thread.is_alive() and not self._is_blocked and not self._closed

    def begin(self, session: MCPSession) -> None:
        """Schedule the opening of a session."""
        with self._lock:
            if not self._closed:
                self.sessions.add(session)
                self.post(lambda: self._begin(session))
                return
        session.give_up(ToolServerError(self._closed))

    def post(self, function: Callable[[], object]) -> bool:
        """Schedule a call to `function` on the event loop; return False if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False  # closed in the meantime
        return True

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `make()` returns in the thread's event loop. Cancelling the caller cancels it.

        Raises:
            EnvironmentFault: the loop has ended, or ends during the call.
        """
        if not self._thread.is_alive():
            raise ToolServerError(self._closed or _CLOSED)
        task = asyncio.current_task()
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self._loop))
        except asyncio.CancelledError:
            if task is not None and not task.cancelling():
                raise ToolServerError(self._closed or _CLOSED) from None  # the loop ended; our task was not cancelled
            raise

    async def check(self, words: str) -> None:
        """Check whether the loop is blocked, and abandon it if so.

        Args:
            words: The symptom, for the message.

        Raises:
            EnvironmentFault: the loop is blocked or has ended.
        """
        echo = _shared_future()
        if not self.post(lambda: _set(echo)):
            raise ToolServerError(self._closed or _CLOSED)
        if (await asyncio.wait([asyncio.wrap_future(echo)], timeout=_ECHO_SECONDS))[0]:
            return
        self._is_blocked = True
        fault = ToolServerError(f"{words}: a server in this process blocks its event loop; run it as a program")
        for session in list(self.sessions):
            session.give_up(fault)
        self.post(self._end.set)  # in case it recovers
        raise fault

    def close(self, timeout: float) -> bool:
        """Close all sessions and end the thread, but do not wait for a blocked one; see `MCPHost.close`."""
        self.post(self._end.set)
        self._thread.join(0 if self._is_blocked else timeout)
        return not self._thread.is_alive()

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            try:
                runner.run(self._serve(started))
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio passes these two through every task; unfinished tasks end with the loop.
                runner.get_loop().set_exception_handler(lambda _loop, _context: None)
                self._close(
                    f"an MCP server in this process raised {error!r}, which ended the server and all running "
                    "calls; a failing tool should raise another exception"
                )
        self._close(_CLOSED)

    def _close(self, words: str) -> None:
        """Reject new sessions, and fail those that are waiting."""
        with self._lock:
            self._closed = self._closed or words
        for session in list(self.sessions):
            session.give_up(ToolServerError(self._closed))

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self.turns = asyncio.Semaphore(self._starts_at_once)
        async with asyncio.TaskGroup() as self._tasks:
            started.set()
            await self._end.wait()
            for session in list(self.sessions):
                session.leave()

    def _begin(self, session: MCPSession) -> None:
        if not self._end.is_set() and not self._closed:  # else `_close` fails the session
            session.begin(self._tasks)


def _shared_future() -> Future[None]:
    """Make a future for several waiting tasks: cancelling one of them does not cancel it."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _set(future: Future[None], error: Exception | None = None) -> bool:
    """Set the result of a future that another thread may also set; return False if it was set before."""
    try:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
    except InvalidStateError:
        return False
    return True


def _stderr_end(log: TextIO) -> str:
    """The last part of a server's stderr, for the end of an error message."""
    log.seek(0)
    text = log.read().strip()
    return f"; the end of its stderr: …{text[-_MAX_STDERR:]}" if text else ""
