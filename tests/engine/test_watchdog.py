"""The watchdog: what it names, what it leaves alone, and what it costs nobody."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from harness.core import openai_client
from harness.core.errors import EnvironmentFault
from harness.core.types import Chat
from harness.engine.watchdog import Blocked, Watchdog

CODE = """
    import asyncio, re, threading, time

    def wait(event, seconds):
        event.wait(seconds)

    async def sleeps(event):
        wait(event, 60)

    async def in_native_code():
        re.match(r"(a+)+$", "a" * PATIENCE + "b")  # keeps the interpreter lock

    async def swallows(event):
        while not event.is_set():
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                pass

    async def asks(client, event):
        client()
        event.wait(1)  # the same turn of the loop, which is late by the import

    async def many_short_ones():
        for _ in range(40):
            time.sleep(0.001)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "slow_env.py"
    path.write_text(textwrap.dedent(CODE))
    spec = importlib.util.spec_from_file_location("slow_env", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Noticed:
    """An event that comes when a watchdog has found so much, however busy the machine is."""

    def __init__(self, watchdog: Watchdog, times: int) -> None:
        self._watchdog, self._times = watchdog, times

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while sum(each.times for each in self._watchdog.found) < self._times and time.monotonic() < until:
            time.sleep(0.01)


def watch(module: ModuleType, *calls: Callable[[Watchdog], object], threshold: float = 0.2) -> Watchdog:
    async def main() -> Watchdog:
        with Watchdog({Path(str(module.__file__)): "slow"}, threshold=threshold) as watchdog:
            for call in calls:
                await call(watchdog)  # type: ignore[misc]
                await asyncio.sleep(0.1)  # lets the loop beat between two calls
        return watchdog

    return asyncio.run(main())


def test_a_call_that_blocks_is_named_at_once_with_its_line_and_counted(
    module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    watchdog = watch(module, *(lambda dog, n=n: module.sleeps(Noticed(dog, n)) for n in (1, 2)))
    (blocked,) = watchdog.found
    assert (blocked.name, blocked.where, blocked.times) == ("slow", "wait (slow_env.py:5)", 2)
    assert 0.4 <= blocked.seconds < 120.0
    first, last = caplog.messages
    assert first.startswith("slow: wait (slow_env.py:5) blocks the event loop, and with it every rollout")
    assert last.startswith("slow: wait (slow_env.py:5) blocked the event loop 2 times, ")
    assert not [thread for thread in threading.enumerate() if thread.name == "bench-watchdog"]


def test_native_code_that_keeps_the_interpreter_lock_is_named_as_well(module: ModuleType) -> None:
    found: tuple[Blocked, ...] = ()
    for size in range(20, 40):  # until it takes long enough on this machine
        module.PATIENCE = size  # type: ignore[attr-defined]
        found = watch(module, lambda _: module.in_native_code()).found
        if found:
            break
    assert len(found) == 1
    assert found[0].where == "in_native_code (slow_env.py:11)"


def test_short_calls_and_a_busy_loop_are_left_alone(module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    assert watch(module, lambda _: module.many_short_ones(), threshold=5.0).found == ()
    assert caplog.messages == []


def test_threads_of_the_environment_are_its_own_business(module: ModuleType) -> None:
    async def in_a_thread(_: Watchdog) -> None:
        await asyncio.to_thread(module.wait, threading.Event(), 0.6)

    assert watch(module, in_a_thread).found == ()


def test_an_author_is_not_blamed_for_the_import_of_the_openai_package(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`state.openai` imports it when it is first read, which takes a second on a slow machine."""
    (tmp_path / "openai.py").write_text("import sys\nsys.modules['noticed'].wait(2)\nraise ImportError('slow')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "openai", raising=False)
    openai_client._sdk.cache_clear()  # pyright: ignore[reportPrivateUsage]

    async def asks(dog: Watchdog) -> None:
        monkeypatch.setitem(sys.modules, "noticed", cast("ModuleType", Noticed(dog, 1)))

        def client() -> None:
            with pytest.raises(EnvironmentFault, match="openai package"):
                openai_client.async_openai(cast("Chat", None), names=None)

        await module.asks(client, Noticed(dog, 1))

    assert watch(module, asks).found == ()


def test_without_files_to_look_for_there_is_no_thread() -> None:
    async def main() -> int:
        before = threading.active_count()
        with Watchdog({}):
            return threading.active_count() - before

    assert asyncio.run(main()) == 0


def test_code_that_goes_on_although_it_was_cancelled_is_named_once(
    module: ModuleType, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.engine.watchdog.STUBBORN", 0.5)
    told: list[str] = []
    over = threading.Event()

    async def main(on_stubborn: Callable[[str], None] | None) -> None:
        over.clear()
        with Watchdog({Path(str(module.__file__)): "slow"}, on_stubborn=on_stubborn):
            task = asyncio.create_task(module.swallows(over))
            await asyncio.sleep(0.01)
            task.cancel()
            async with asyncio.timeout(30):
                while not caplog.messages:  # noqa: ASYNC110 - what it says sets no event
                    await asyncio.sleep(0.01)
            await asyncio.sleep(1.5)  # another look
            over.set()
            await task

    with caplog.at_level(logging.WARNING):
        asyncio.run(main(told.append))
        assert [len(told), told[0].startswith("swallows (slow_env.py:")] == [1, True]
        [said] = caplog.messages
        assert said == f"slow: {told[0]} still runs although it was cancelled"
        caplog.clear()
        asyncio.run(main(None))
        assert [each.partition(", and the run waits for it")[1] != "" for each in caplog.messages] == [True]
