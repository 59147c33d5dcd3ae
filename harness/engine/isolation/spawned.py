"""A process of an isolated environment as the operating system has it: its variables, its pipes, what it prints, and
its end with all that it has started. Owns no word that goes through the pipes (`process`)."""

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
from typing import BinaryIO, cast

from harness.core.errors import EnvironmentLoadError
from harness.core.redact import names_secret, redactor
from harness.core.safe_text import clean_block
from harness.core.types import JsonDict
from harness.engine.isolation.wire import OUT_OF_MEMORY

SILENCE = 120.0
"""Seconds without a sign of life of its event loop after which a process is ended. Blocking functions run in threads
and do not hold the loop up; what does so for two minutes holds up every other rollout of the process, too."""

OVERDUE = 5.0
"""Seconds. Its own clock ends what takes too long; only a blocked loop cannot."""

LOAD_SECONDS = 600.0
"""Loading may download a dataset; nothing may take for ever, since the other runs of a suite wait for it."""

PATIENCE = 10.0
"""Seconds that a process that was ended gets to be gone, with all that it has started."""

_MAIN = """
import gc, sys
gc.disable()
sys.path[:] = {path!r}
from harness.engine.isolation.keeper import keep
keep({life}, ({orders}, {reports}))
from harness.engine.isolation.child import main
main({orders}, {reports})
"""

_LONGEST_LINE = 1 << 16
"""Bytes that are shown at once of what a process prints."""

_LONGEST_SEQUENCE = 64
"""Characters that a control sequence has: one that a cut would halve is shown with what comes after it."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a process of an environment is made of."""

    env_id: str
    env_args: JsonDict
    extra_env_kwargs: JsonDict
    name: str
    """What messages call it."""
    memory_mb: int = -1
    """Of each process; −1 is no bound."""
    allowed: frozenset[str] = frozenset()
    """Variables that it may see although they look like keys."""
    hidden: frozenset[str] = frozenset()
    """Variables that it must not see although they do not: those that hold this run's keys."""
    load_seconds: float = LOAD_SECONDS
    """For loading the environment, and for each look at its rows."""
    silence: float = SILENCE
    """After which it is taken to hang."""
    overdue: float = OVERDUE
    """Of silence beyond the time limit of something that it carries out, after which it is, too."""

    def showing(self, names: Iterable[str | None]) -> frozenset[str]:
        """Which of these variables, whose values are keys, a process gets all the same."""
        given = self.environ(os.environ)
        return frozenset(name for name in names if name and name in given and name not in self.allowed)

    def environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables that the process gets: none that is, or holds, a known key."""
        return {
            name: value
            for name, value in variables.items()
            if name in self.allowed
            or not (
                name in self.hidden or names_secret(name) or redactor.text(value, patterns=False) != value
            )
        }  # fmt: skip


class Spawned:
    """A process that was started; it ends when this is forgotten.

    Args:
        recipe: What it is made of.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._name = recipe.name
        self._memory_mb = recipe.memory_mb
        ends: list[int] = []
        try:
            for _ in range(3):
                ends += os.pipe()
            orders, self.orders, self.reports, reports, life, ours = ends
            source = _MAIN.format(path=sys.path, life=life, orders=orders, reports=reports)
            self._process = subprocess.Popen(
                [sys.executable, "-c", source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, pass_fds=(orders, reports, life), env=recipe.environ(os.environ),
                start_new_session=True, bufsize=_LONGEST_LINE,
            )  # fmt: skip
        except BaseException as error:
            _close(ends)
            if isinstance(error, OSError):
                words = f"no process can be started for it: {error.strerror}"
                raise EnvironmentLoadError(f"environment {recipe.name!r}: {words}") from error
            raise
        _close([orders, reports, life])
        self._fds = [ours, self.orders, self.reports]
        self._watch = _Watch(self._process, recipe.name)
        self._finalizer = weakref.finalize(self, _end, self._watch, self._fds)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def is_killed(self) -> bool:
        """Whether `kill` was called."""
        return not self._finalizer.alive

    def files(self) -> tuple[BinaryIO, BinaryIO]:
        """What it reports and what it is ordered through; from here on whoever asks for them closes them."""
        del self._fds[1:]
        return os.fdopen(self.reports, "rb", buffering=0), os.fdopen(self.orders, "wb", buffering=0)

    def tell(self, tell: Callable[[], None]) -> None:
        """Have this called when it has ended, in any thread; at once if it has."""
        self._watch.tell(tell)

    def join(self, seconds: float) -> None:
        """Wait for its end, and until all is shown that it printed, but not longer than this."""
        self._watch.join(seconds)

    def kill(self) -> None:
        """End it now, and what it has started; does not wait for that."""
        if self._finalizer.detach() is not None:
            _close(self._fds)

    def how_it_ended(self, patience: float = 0.0) -> str:
        """In words; waits for its end, but not longer than this."""
        self._watch.join(patience)
        code = self._process.poll()
        if code is None:
            return f"the process of {self._name} was ended: something in it closed the pipe that bench talks through"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the process of {self._name} was killed by {signal.Signals(-code).name}"
        if code == OUT_OF_MEMORY:
            bound = f"worker_memory_mb = {self._memory_mb}" if self._memory_mb >= 0 else "the machine's memory"
            return f"the process of {self._name} ran out of {bound}"
        return f"the process of {self._name} ended itself with exit code {abs(code)}"


class _Watch:
    """Shows what a process prints, where what environments print in this process would go, and waits for its end; in a
    thread. Knows nothing of who has started it, and may forget it."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process = process
        self._name = name
        self._lock = threading.Lock()
        self._has_ended = False
        self._tell: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="bench-printed", daemon=True)
        self._thread.start()

    def tell(self, tell: Callable[[], None]) -> None:
        """See `Spawned`."""
        with self._lock:
            self._tell, has_ended = tell, self._has_ended
        if has_ended:
            tell()

    def join(self, seconds: float) -> None:
        """See `Spawned`."""
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
            self._has_ended, tell = True, self._tell
            self._tell = None
        if tell is not None:
            tell()

    def _show(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it; the process must go on all the same
            sys.stderr.write(f"{self._name}: {text}\n")
            sys.stderr.flush()


def _shown(text: str, *, is_whole: bool) -> tuple[str, str]:
    """What is shown of a line, and what is held back of one that goes on: a key, or a control sequence, may stand on
    both sides of the cut."""
    after = ""
    if not is_whole and (at := text.rfind("\x1b", max(0, len(text) - _LONGEST_SEQUENCE))) >= 0:
        text, after = text[:at], text[at:]
    # As a terminal leaves it: the last of what was written over itself.
    text = text.rstrip(None if is_whole else "\r").rpartition("\r")[2]
    if not (text.isascii() and text.isprintable()):  # most of what is printed is, and much may be
        text = clean_block(text)
    text = redactor.text(text, patterns=False)  # behind the cleaning: a key may stand around a sequence
    if is_whole:
        return text, ""
    cut = max(0, len(text) - redactor.longest)
    return text[:cut], text[cut:] + after


def _end(watch: _Watch, fds: list[int]) -> None:
    """End a process that was forgotten, or that is there when the interpreter ends."""
    _close(fds)
    watch.join(PATIENCE)


def _close(fds: list[int]) -> None:
    """Close our ends of pipes; the first one of a process is the one that its keeper waits for."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
