"""Where a child process of the chaos suite starts: `-m chaos_driver bench-arguments…`. Wraps the calls by which a
process reaches its disk and its clock, so that the n-th of them kills it, signals it or fails, and then calls what
`bench` calls. Owns what happens at a call; which call it is to be says `CHAOS`, a JSON list of rules. The product knows
nothing of it.

A rule has `call`, `path` (a pattern, below the working folder), `holds` (text in what is written), `nth` (from 1),
`when` (`before`, `after`; `half` of a write) and `do`: a signal, an errno, or seconds by which the clock jumps. A
`lasting` error meets all later calls, too."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

CALLS = ("write", "fsync", "replace", "rename", "unlink", "mkdir", "ftruncate", "open")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class Rule:
    """One fault."""

    call: str
    do: str
    path: str = "*"
    holds: str = ""
    nth: int = 1
    when: str = "before"
    lasting: bool = False
    seen: int = 0

    def hits(self, call: str, path: str, data: bytes) -> bool:
        """Whether it is now. Counts the calls that it is about."""
        if call not in self.call.split("|") or not fnmatch(path, self.path) or self.holds.encode() not in data:
            return False
        self.seen += 1
        return self.seen == self.nth or (self.lasting and self.seen > self.nth)


class Driver:
    """The wrapped calls of this process."""

    def __init__(self, rules: list[Rule], log: str) -> None:
        self._rules = rules
        self._log = log
        self._guard = threading.Lock()
        self._write = os.write
        self._cwd = os.getcwd() + os.sep
        self._torn: dict[int, int] = {}
        self.offset = 0.0

    def install(self) -> None:
        """Wrap every call that a rule is about."""
        named = {call for rule in self._rules for call in rule.call.split("|")}
        for name in named & set(CALLS):
            setattr(os, name, self._wrapped(name, getattr(os, name)))
        if "time" in named:
            self._wrap_clock()
        for rule in self._rules:
            if rule.call == "size":
                resource.setrlimit(resource.RLIMIT_FSIZE, (int(rule.do), resource.RLIM_INFINITY))
                self._note(rule)

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "write" and (code := self._torn.pop(args[0], 0)):
                raise OSError(code, os.strerror(code))  # the rest of a write that took only half
            rule = self._hit(name, args, kwargs)
            if rule is None:
                return real(*args, **kwargs)
            if rule.when == "half":
                return self._half(rule, *args)
            if rule.when == "before":
                self._act(rule)
            result = real(*args, **kwargs)
            if rule.when == "after":
                self._act(rule)
            return result

        return call

    def _hit(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rule | None:
        if name == "open" and not args[1] & _WRITING:
            return None
        path = self._path(name, args, kwargs)
        data = bytes(args[1]) if name == "write" else b""
        with self._guard:
            return next((rule for rule in self._rules if rule.hits(name, path, data)), None)

    def _path(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        first: Any = args[1] if name in ("replace", "rename") else args[0]
        if isinstance(first, int):
            first = os.readlink(f"/proc/self/fd/{first}")
        folder = kwargs.get("dir_fd")
        if folder is not None:
            first = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(first))
        return os.path.abspath(os.fsdecode(first)).removeprefix(self._cwd)

    def _half(self, rule: Rule, fd: int, data: bytes) -> int:
        written = self._write(fd, bytes(data)[: len(data) // 2])
        if rule.do.startswith("SIG"):
            self._act(rule)
        self._note(rule)
        self._torn[fd] = getattr(errno, rule.do)
        return written

    def _act(self, rule: Rule) -> None:
        self._note(rule)
        if rule.do.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, rule.do))
            return
        code = getattr(errno, rule.do)
        raise OSError(code, os.strerror(code))

    def _note(self, rule: Rule) -> None:
        """Leave word for whoever started this process, before anything happens to it."""
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(f"{rule.call} {rule.when} {rule.path} {rule.do}\n")

    def _wrap_clock(self) -> None:
        """`time.time` and `datetime.now` run ahead, or behind, from a call on; `time.monotonic` does not."""
        import datetime as module

        real, driver = time.time, self
        usual = module.datetime

        def jump() -> float:
            for rule in driver._rules:
                if rule.hits("time", "", b""):
                    driver.offset += float(rule.do)
                    driver._note(rule)
            return driver.offset

        class Moved(usual):
            @classmethod
            def now(cls, tz: module.tzinfo | None = None) -> Any:
                return usual.now(tz) + module.timedelta(seconds=jump())

        time.time = lambda: real() + jump()
        time.time_ns = lambda: int(time.time() * 1e9)
        module.datetime = Moved  # type: ignore[misc]


LEFT = "left behind: "


def descriptors() -> dict[int, str]:
    """What this process has open."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def left(before: dict[int, str]) -> list[str]:
    """Descriptors, threads and tasks that should be gone by now."""
    gc.collect()
    fresh = {fd: path for fd, path in descriptors().items() if before.get(fd) != path}
    found = [f"descriptor {fd}: {path}" for fd, path in fresh.items() if not path.startswith("/dev/")]
    found += [f"thread {each.name}" for each in threading.enumerate() if each.name.startswith("journal ")]
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]
    return found + [f"task {each.get_name()}" for each in tasks if not each.done()]


def main() -> int:
    """Wrap, be `bench`, and say what it has left behind in this process."""
    log = os.environ["CHAOS_LOG"]
    Driver([Rule(**rule) for rule in json.loads(os.environ["CHAOS"])], log).install()
    import uvloop

    from harness.cli.main import main as bench

    uvloop.new_event_loop().close()  # libuv has a pipe for signals, one a process, which it never closes
    before = descriptors()
    try:
        return int(bench() or 0)
    finally:
        found = left(before)
        with open(log, "a", encoding="utf-8") as file:
            file.writelines(f"{LEFT}{each}\n" for each in found)


if __name__ == "__main__":
    sys.argv[0] = "bench"
    sys.exit(main())
