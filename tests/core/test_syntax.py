"""Source that several threads read at once."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core import syntax


class Cycle:
    """Garbage whose end lets another thread go on."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that change places all the time, and a collector that is always at work."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50, 1, 1)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("restless")
def test_threads_may_read_source_at_once() -> None:
    text = Path(syntax.__file__).read_text(encoding="utf-8") * 20
    found: list[object] = []

    def read() -> None:
        for _ in range(20):
            Cycle()
            try:
                found.append(len(syntax.parse(text).body))
            except SystemError as error:  # of Python 3.11, without the lock
                found.append(error)
            Cycle()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 80 and isinstance(found[0], int)
