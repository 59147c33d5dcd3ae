"""An OpenAI-compatible server in the test's own event loop, which answers as the test says and sees who goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

from aiohttp import web

PATIENCE = 60.0
"""Seconds after which a condition that has not come true is a failure."""


@dataclass
class Asked:
    """One request."""

    model: str
    text: str
    """Of its last message."""
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def key(self) -> str | None:
        """Its bearer token."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None


Answer = Callable[[Asked], "str | tuple[int, str] | Awaitable[str]"]
"""The text of a reply; or a status and the message of an error; or a coroutine of a text."""


@dataclass
class ModelServer:
    """Serves as long as the `async with` block.

    Args:
        answer: What it says.
        usage: What every reply says it used: prompt and completion tokens; None says nothing.
    """

    answer: Answer
    usage: tuple[int, int] | None = (10, 5)
    asked: list[Asked] = field(default_factory=list[Asked])
    """In the order of arrival."""
    left: list[Asked] = field(default_factory=list[Asked])
    """Requests whose client went away before there was an answer."""
    in_flight: int = 0
    peak: int = 0
    url: str = ""

    async def __aenter__(self) -> Self:
        self._changed = asyncio.Condition()
        server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def texts(self) -> list[str]:
        """What was asked, in the order of arrival."""
        return [each.text for each in self.asked]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Return when `condition` holds, which only requests can change."""
        try:
            async with asyncio.timeout(PATIENCE), self._changed:
                await self._changed.wait_for(lambda: bool(condition()))
        except TimeoutError:
            raise AssertionError(f"never came true: {what}") from None

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        body = json.loads(await request.read())
        asked = Asked(body["model"], str(body["messages"][-1]["content"]), body, dict(request.headers))
        self.asked.append(asked)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await self._tell()
            said = self.answer(asked)
            if isinstance(said, tuple):
                return web.json_response({"error": {"message": said[1]}}, status=said[0])
            text = said if isinstance(said, str) else await cast("Awaitable[str]", said)
            return web.json_response(self._reply(asked.model, text))
        except asyncio.CancelledError:
            self.left.append(asked)
            raise
        finally:
            self.in_flight -= 1
            await asyncio.shield(self._tell())

    def _reply(self, model: str, text: str) -> dict[str, Any]:
        reply: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        }
        if self.usage is not None:
            prompt, completion = self.usage
            total = prompt + completion
            reply["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        return reply


async def never(_: Sequence[object] | object = None) -> str:
    """No answer, ever."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")
