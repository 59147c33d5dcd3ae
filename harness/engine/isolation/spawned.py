"""The operating system's process of an isolated environment: its environment variables, pipes and output, and the
termination of the process and its descendants. `process` handles the messages in the pipes."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Protocol, cast

from harness.core.errors import WORKER_DIED, EnvironmentLoadError
from harness.core.redact import names_secret, redactor
from harness.core.safe_text import clean_block
from harness.core.types import JsonDict
from harness.engine.isolation.wire import OUT_OF_MEMORY

SILENCE = 120.0
"""Seconds without a heartbeat after which a process is ended. Blocking functions run in threads and do not block the
event loop; code that blocks it for two minutes blocks every other rollout of the process, too."""

OVERDUE = 5.0
"""Seconds without a heartbeat that are allowed after the time limit of an order. The process itself enforces the time
limit unless its event loop is blocked."""

LOAD_SECONDS = 600.0
"""Timeout in seconds for loading an environment, which may download a dataset."""

PATIENCE = 10.0
"""Seconds to wait until an ended process and its descendants have exited."""

_MAIN = """
import gc, sys
gc.disable()
sys.path[:] = {path!r}
from harness.engine.isolation.keeper import keep, stand_between
if {apart}:
    stand_between(({life}, {orders}, {reports}))
keep({life}, ({orders}, {reports}))
from harness.engine.isolation.child import main
main({orders}, {reports})
"""

_LONGEST_LINE = 1 << 16
"""Maximum number of bytes of a line of output; a longer line is shown in parts."""

_LONGEST_SEQUENCE = 64
"""Maximum length of a control sequence in characters; an incomplete one is held back until more output arrives."""


class Watch(Protocol):
    """Waits for the end of a process."""

    def on_end(self, notify: Callable[[], None]) -> None:
        """Register a callback for the end of the process, called in any thread, and at once if it has ended."""
        ...

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` until the process has ended and all its output was forwarded."""
        ...


class Process(Protocol):
    """A started process of an environment. Messages pass through two pipes of this process."""

    orders: int
    """File descriptor to write orders to."""
    reports: int
    """File descriptor to read reports from."""
    death_reason: str
    """Reason of `WorkerDied` if the process has ended unexpectedly."""

    @property
    def node(self) -> str:
        """Name of the computer on which the process runs; "" for this one."""
        ...

    @property
    def watch(self) -> Watch:
        """Waits for the end of the process."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        ...

    @property
    def is_killed(self) -> bool:
        """Whether `kill` was called."""
        ...

    def files(self) -> tuple[BinaryIO, BinaryIO]:
        """The report pipe and the order pipe as files; the caller must close them."""
        ...

    def kill(self) -> None:
        """Kill the process and its descendants; does not wait for their end."""
        ...

    def how_it_ended(self, patience: float = 0.0) -> str:
        """Return a description of how the process ended. Waits at most `patience` seconds until it has ended."""
        ...


class WorkerHost(Protocol):
    """Where the processes of an environment run, if that is not this computer."""

    @property
    def size(self) -> int:
        """Number of processes to run at once, which may change during a run; at least 1."""
        ...

    def start(self, recipe: Recipe) -> Process:
        """Start a process. Does not wait until it runs."""
        ...

    def close(self) -> None:
        """Release the host when all processes of the environment have ended; idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings for starting a process of an isolated environment."""

    env_id: str
    env_args: JsonDict
    extra_env_kwargs: JsonDict
    name: str
    """Name of the environment in messages."""
    memory_mb: int = -1
    """Memory limit of each process in megabytes; −1 is no limit."""
    allowed: frozenset[str] = frozenset()
    """Environment variables that the process receives although their names look like those of keys."""
    hidden: frozenset[str] = frozenset()
    """Environment variables hidden from the process because they hold keys, although their names do not suggest it."""
    load_seconds: float = LOAD_SECONDS
    """Timeout in seconds for loading the environment, and for each request for rows."""
    silence: float = SILENCE
    """Seconds without a heartbeat after which the process counts as hung."""
    overdue: float = OVERDUE
    """Seconds without a heartbeat after the time limit of an order, after which the process counts as hung."""
    host: WorkerHost | None = None
    """Where processes run; None is this computer."""
    expected: JsonDict | None = None
    """What `environment_loader.source_identity` returns, if the process must refuse any other environment."""

    def showing(self, names: Iterable[str | None]) -> frozenset[str]:
        """Return those of the given key variables that the process would receive although `allowed` lacks them. On
        another computer, all that are not hidden count, since its variables are not known."""
        keys = frozenset(filter(None, names))
        given = self.environ(os.environ if self.host is None else dict.fromkeys(keys, ""))
        return frozenset(name for name in keys if name in given and name not in self.allowed)

    def environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables for the process, without those that contain a key."""
        return {
            name: value
            for name, value in variables.items()
            if name in self.allowed
            or not (
                name in self.hidden or names_secret(name) or redactor.text(value, patterns=False) != value
            )
        }  # fmt: skip


def start_process(recipe: Recipe) -> Process:
    """Start a process of an environment, on this computer or where the recipe says."""
    return Spawned(recipe) if recipe.host is None else recipe.host.start(recipe)


class Spawned:
    """A started process on this computer. It is ended when this object is garbage-collected.

    Args:
        recipe: How to start the process.
        show: Called with each line of its output, without its line end; None writes it to stderr.
        is_apart: Whether the children of this process are killed when it ends, but not theirs, as Ray does. Then
            another process is put between this one and the keeper, which must end later.
    """

    node = ""
    death_reason = WORKER_DIED

    def __init__(self, recipe: Recipe, show: Callable[[str], None] | None = None, *, is_apart: bool = False) -> None:
        self._name = recipe.name
        self._memory_mb = recipe.memory_mb
        ends: list[int] = []
        try:
            for _ in range(3):
                ends += os.pipe()
            orders, self.orders, self.reports, reports, life, ours = ends
            source = _MAIN.format(path=sys.path, apart=is_apart, life=life, orders=orders, reports=reports)
            self._process = subprocess.Popen(
                [sys.executable, "-c", source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, pass_fds=(orders, reports, life), env=recipe.environ(os.environ),
                start_new_session=True, bufsize=_LONGEST_LINE,
            )  # fmt: skip
        except BaseException as error:
            _close(ends)
            if isinstance(error, OSError):
                words = f"the process of this environment cannot be started: {error.strerror}"
                raise EnvironmentLoadError(f"environment {recipe.name!r}: {words}") from error
            raise
        _close([orders, reports, life])
        self._fds = [ours, self.orders, self.reports]
        self.watch = _Watch(self._process, show or partial(show_line, recipe.name))
        self._finalizer = weakref.finalize(self, _end, self.watch, self._fds)

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def is_killed(self) -> bool:
        """Whether `kill` was called."""
        return not self._finalizer.alive

    def files(self) -> tuple[BinaryIO, BinaryIO]:
        """The report pipe and the order pipe as files; the caller must close them."""
        del self._fds[1:]
        return os.fdopen(self.reports, "rb", buffering=0), os.fdopen(self.orders, "wb", buffering=0)

    def kill(self) -> None:
        """Kill the process and its descendants; does not wait for their end."""
        if self._finalizer.detach() is not None:
            _close(self._fds)

    def how_it_ended(self, patience: float = 0.0) -> str:
        """Return a description of how the process ended. Waits at most `patience` seconds until it has ended."""
        self.watch.join(patience)
        code = self._process.poll()
        if code is None:
            return f"the process of {self._name} was ended because its code closed the pipe to bench"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the process of {self._name} was killed by {signal.Signals(-code).name}"
        if code == OUT_OF_MEMORY:
            bound = f" (worker_memory_mb = {self._memory_mb})" if self._memory_mb >= 0 else ""
            return f"the process of {self._name} ran out of memory{bound}"
        return f"the process of {self._name} exited with code {abs(code)}"


class _Watch:
    """Thread that forwards a process's output to stderr until the process ends. It has no reference to the `Spawned`
    object, so that this object can be garbage-collected."""

    def __init__(self, process: subprocess.Popen[bytes], show: Callable[[str], None]) -> None:
        self._process = process
        self._show = show
        self._lock = threading.Lock()
        self._has_ended = False
        self._notify: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="bench-printed", daemon=True)
        self._thread.start()

    def on_end(self, notify: Callable[[], None]) -> None:
        """Register a callback for the end of the process, called in any thread, and at once if it has ended."""
        with self._lock:
            self._notify, has_ended = notify, self._has_ended
        if has_ended:
            notify()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` until the process has ended and all its output was forwarded."""
        self._thread.join(seconds)

    def _run(self) -> None:
        printed = cast(BinaryIO, self._process.stdout)
        with printed:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            held = ""
            while line := printed.readline(_LONGEST_LINE):
                is_whole = line.endswith(b"\n")
                text, held = _shown(held + decoder.decode(line, is_whole), is_whole=is_whole)
                self._show(text)
            if held:
                self._show(_shown(held, is_whole=True)[0])
        self._process.wait()
        with self._lock:
            self._has_ended, notify = True, self._notify
            self._notify = None
        if notify is not None:
            notify()


def show_line(name: str, text: str) -> None:
    """Write a line of the output of a process to stderr, with the name of its environment."""
    with contextlib.suppress(OSError, ValueError):  # stderr is closed; the process must continue
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()


def _shown(text: str, *, is_whole: bool) -> tuple[str, str]:
    """Split a line of output into a part to show and a part to hold back, since a key or a control sequence may
    continue in the following output."""
    after = ""
    if not is_whole and (at := text.rfind("\x1b", max(0, len(text) - _LONGEST_SEQUENCE))) >= 0:
        text, after = text[:at], text[at:]
    # Keep only the text after the last carriage return, as a terminal does.
    text = text.rstrip(None if is_whole else "\r").rpartition("\r")[2]
    if not (text.isascii() and text.isprintable()):  # fast path for plain ASCII
        text = clean_block(text)
    text = redactor.text(text, patterns=False)  # after cleaning: a key may contain a sequence
    if is_whole:
        return text, ""
    cut = max(0, len(text) - redactor.longest)
    return text[:cut], text[cut:] + after


def _end(watch: _Watch, fds: list[int]) -> None:
    """End a process whose object was garbage-collected or which still runs when the interpreter exits."""
    _close(fds)
    watch.join(PATIENCE)


def _close(fds: list[int]) -> None:
    """Close the parent's ends of the pipes. When the first one is closed, the keeper ends the process."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
