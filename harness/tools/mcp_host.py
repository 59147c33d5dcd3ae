"""Open MCP servers. Owns a thread with an event loop of its own, in which clients are opened, called and closed, and
how many are opened at once; what they say is `tools.mcp`'s.

A client must be left by the task that entered it, while a rollout may be cancelled at any time, and an environment may
outlive its event loop. So a session is a task of this loop that enters, waits and leaves; whoever uses it only sends
messages. A server in this process that blocks holds up this loop, and not the one that runs rollouts; if it goes on for
too long, the thread is left to itself and the next session gets another one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from harness.core.errors import EnvironmentFault, ToolServerError
from harness.core.types import JsonDict
from harness.tools.mcp import MCPServer, ServerTool, make_client, opening_fault, read_result, read_tools, translated
from harness.usercode.deadline import waiting

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CLOSED = "the MCP servers are closed"

_LAST_WORDS = 800
"""Characters of a server's stderr that a message about it repeats."""

_ECHO_SECONDS = 5.0
"""Within this time the loop answers, or it is blocked."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What may be asked of servers."""

    startup_seconds: float = 30.0
    """For one server to be open, from its turn on."""
    call_seconds: float | None = None
    """For one call; None for no bound."""
    starts_at_once: int = 0
    """Sessions that may be opening at once; 0 for as many as there are cores to do it, and at least two. A program
    that starts is busy: started by the hundred, each would take longer than any of them may."""


class MCPSession:
    """Clients of all servers, open until `leave`."""

    def __init__(self, loop: _Loop, servers: Sequence[MCPServer], limits: ServerLimits) -> None:
        self.tools: list[ServerTool] = []
        """What the servers offer; there once the session is open."""
        self.named: dict[str, ServerTool] | None = None
        """The tools by the name that models call them; for whoever gives the names."""
        self.is_broken = False
        """Whether a server failed: a session that is shared is then opened anew."""
        self._loop = loop
        self._servers = servers
        self._limits = limits
        self._clients: dict[str, Any] = {}
        self._begun = _promise()
        self._opened = _promise()
        self._closed = _promise()
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def ready(self) -> None:
        """Wait until all servers are open. Waiting for a turn to open them does not count as the rollout's time.

        Raises:
            EnvironmentFault: one cannot be opened; says which and why.
        """
        with waiting():
            await self._while_alive(self._begun)
        await self._while_alive(self._opened)

    def wait(self) -> None:
        """As `ready`, where there is no event loop to wait in: blocks the thread."""
        self._opened.result()

    async def call(self, tool: ServerTool, arguments: JsonDict) -> str | list[JsonDict]:
        """Call a tool.

        Returns:
            Its result as message content, not capped.

        Raises:
            ToolCallError: the tool failed, or refused the arguments; in its own words.
            EnvironmentFault: the server failed, or did not answer in time.
        """
        return read_result(await self.answer(tool, arguments))

    async def answer(self, tool: ServerTool, arguments: JsonDict) -> Any:
        """Call a tool, and leave it to the caller to read the answer (a `CallToolResult` of MCP).

        Raises:
            ToolCallError: the server refused the call; a tool that failed says so in its answer.
            EnvironmentFault: the server failed, or did not answer in time.
        """
        bound = asyncio.timeout(self._limits.call_seconds)  # here: in the other loop it might not get to run
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
        """Begin to close; returns at once, from any thread."""
        self._loop.post(self._begin_to_leave)

    async def closed(self) -> None:
        """Wait until everything is closed."""
        await asyncio.wrap_future(self._closed)

    async def _while_alive(self, future: Future[None]) -> None:
        """Wait for something that happens sooner or later, unless the loop is blocked."""
        patience = self._limits.startup_seconds
        waiter = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait([waiter], timeout=patience))[0]:
                await self._loop.check(f"MCP servers could not be opened for {patience:g} s")
        finally:
            waiter.cancel()  # or an error that comes later would be logged as nobody's
        waiter.result()

    # In the host's loop, or instead of it

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start to open."""
        self._task = tasks.create_task(self._keep())
        self._task.add_done_callback(self._over)  # one that is cancelled at once never gets to its own end

    def give_up(self, error: Exception) -> None:
        """It is no more; `error` is for whoever waits for it to be open."""
        self._settle(error)
        _set(self._closed)

    async def _keep(self) -> None:
        """The session's life."""
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
        except Exception as error:  # the boundary around clients and servers
            if not self._settle(error):
                logger.warning("closing MCP servers failed: %s: %s", type(error).__name__, error)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._loop.sessions.discard(self)
        self.give_up(ToolServerError("the MCP servers were closed while they were being opened"))

    def _turn(self) -> contextlib.AbstractAsyncContextManager[object]:
        """What runs elsewhere takes no core of ours when it is opened."""
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
            raise ToolServerError(words + _last_words(log)) from error
        except Exception as error:  # whatever fastmcp, anyio or the author's server raise
            raise opening_fault(error, server, _last_words(log)) from error

    async def _call(self, tool: ServerTool, arguments: JsonDict) -> Any:
        try:
            return await self._clients[tool.server].call_tool_mcp(name=tool.name, arguments=arguments)
        except Exception as error:  # as in `_enter`
            raise translated(error, tool.server, f"{tool.name} was called") from error

    def _settle(self, error: Exception) -> bool:
        """Tell whoever waits for the opening; False if it is over."""
        self.is_broken = True  # first: whoever is told may ask at once
        _set(self._begun)
        return _set(self._opened, error)


class MCPHost:
    """The thread. It starts with the first session and ends with `close`; after that it may start again.

    Args:
        servers: What every session opens.
        limits: How long they may take, and how many are opened at once.
    """

    def __init__(self, servers: Sequence[MCPServer], limits: ServerLimits) -> None:
        self._servers = servers
        self._limits = limits
        self._loop: _Loop | None = None

    def open(self) -> MCPSession:
        """Begin to open a session; returns at once."""
        if self._loop is None or not self._loop.is_usable:
            self._loop = _Loop(self._limits.starts_at_once or _starts_at_once())
        session = MCPSession(self._loop, self._servers, self._limits)
        self._loop.begin(session)
        return session

    def close(self, timeout: float) -> bool:
        """Close all sessions and end the thread; blocks.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether it has ended.
        """
        return self._loop is None or self._loop.close(timeout)


class _Loop:
    """One thread and its event loop, from its start to its end."""

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
        """Whether it lives and does something about it."""
        return self._thread.is_alive() and not self._is_blocked and not self._closed

    def begin(self, session: MCPSession) -> None:
        """Open a session, some time."""
        with self._lock:
            if not self._closed:
                self.sessions.add(session)
        if self._closed or not self.post(lambda: self._begin(session)):
            self.sessions.discard(session)
            session.give_up(ToolServerError(self._closed or _CLOSED))

    def post(self, function: Callable[[], object]) -> bool:
        """Call `function` in the loop, some time; False if it has ended."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False  # closed meanwhile
        return True

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await `make()` in the loop; cancelling cancels it there.

        Raises:
            EnvironmentFault: the loop has ended, or does so meanwhile.
        """
        if not self._thread.is_alive():
            raise ToolServerError(self._closed or _CLOSED)
        task = asyncio.current_task()
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self._loop))
        except asyncio.CancelledError:
            if task is not None and not task.cancelling():
                raise ToolServerError(self._closed or _CLOSED) from None  # the loop ended, nobody cancelled us
            raise

    async def check(self, words: str) -> None:
        """Find out whether the loop is blocked, and give it up if so.

        Args:
            words: What looks as if it was.

        Raises:
            EnvironmentFault: it is blocked, or has ended.
        """
        echo = _promise()
        if not self.post(lambda: _set(echo)):
            raise ToolServerError(self._closed or _CLOSED)
        if (await asyncio.wait([asyncio.wrap_future(echo)], timeout=_ECHO_SECONDS))[0]:
            return
        self._is_blocked = True
        fault = ToolServerError(f"{words}: a server in this process blocks its event loop; make it await, or a program")
        for session in list(self.sessions):
            session.give_up(fault)
        self.post(self._end.set)  # should it ever come back
        raise fault

    def close(self, timeout: float) -> bool:
        """See `MCPHost.close`; a thread that is blocked is not waited for."""
        self.post(self._end.set)
        self._thread.join(0 if self._is_blocked else timeout)
        return not self._thread.is_alive()

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            try:
                runner.run(self._serve(started))
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets these two through every task that meets them; what is still under way ends with the loop.
                runner.get_loop().set_exception_handler(lambda _loop, _context: None)
                self._close(
                    f"the code of an MCP server in this process raised {error!r}, which ended it and every call that "
                    "was under way; a tool that cannot go on should raise an exception of its own"
                )
        self._close(_CLOSED)

    def _close(self, words: str) -> None:
        """Take no more sessions, and tell those that wait for something why it will not come."""
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
        if self._end.is_set() or self._closed:
            self.sessions.discard(session)
            session.give_up(ToolServerError(self._closed or _CLOSED))
            return
        session.begin(self._tasks)


def _starts_at_once() -> int:
    """As many as there are cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, cores)


def _promise() -> Future[None]:
    """A future that several may await; one of them that is cancelled does not cancel it for all."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _set(future: Future[None], error: Exception | None = None) -> bool:
    """Settle a future that another thread may be settling; False if it was before."""
    try:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
    except InvalidStateError:
        return False
    return True


def _last_words(log: TextIO) -> str:
    """What a server wrote to its stderr at last, as the end of a sentence."""
    log.seek(0)
    text = log.read().strip()
    return f"; its last words: …{text[-_LAST_WORDS:]}" if text else ""
