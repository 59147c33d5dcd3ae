"""The reference server with faults, for tests that are not coroutines: it serves from a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Self

from harness.reference.fault_sources import FaultSource
from harness.reference.script import fault_script
from harness.reference.server import ReferenceServer


class FaultServer:
    """Serves as long as the `with` block.

    Args:
        faults: As `--fault` has them, or a source of faults.
        options: Of `fault_script`, and `players`: lanes and who plays them; `policy`; `port`, 0 for a free one.
    """

    def __init__(self, *faults: str, source: FaultSource | None = None, **options: Any) -> None:
        players = options.pop("players", {})
        policy = options.pop("policy", None)
        port = options.pop("port", 0)
        self.server = ReferenceServer(faults=source or fault_script(*faults, **options), policy=policy, port=port)
        for lane, player in players.items():
            self.server.add(lane, player)
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def met(self) -> list[str]:
        """The fault of each request, in the order of arrival; "" where it was answered."""
        return [each.fault for each in self.server.served]

    def _serve(self) -> None:
        async def main() -> None:
            self.url = await self.server.start()
            self._started.set()
            await self._ended.wait()
            await self.server.stop()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(main())
