"""The process that an isolated environment lives in, until its run begins (`service`). Owns the bound on its memory,
the loading of the environment and what must be known of it before. Talks only to its parent (see `wire`); what it
prints is the parent's to show."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
from io import TextIOWrapper
from typing import BinaryIO, cast

from harness.core.errors import EnvironmentLoadError
from harness.core.types import JsonDict
from harness.engine.isolation.keeper import ignore
from harness.engine.isolation.service import Service
from harness.engine.isolation.wire import OUT_OF_MEMORY, error_to_json, pack
from harness.engine.loader import load_environment
from harness.envs.environment import Environment
from harness.envs.hooks import hooks_of
from harness.rubrics.judge_port import JudgeSpec
from harness.store.codec import parse
from harness.usercode import event_loop
from harness.usercode.exceptions import describe

ROWS = 64
"""Rows that are sent at once."""

HEADROOM = 40
"""Megabytes that rollouts need beside what is loaded: threads, of which each counts 8, and what they say."""


def main(orders: int, reports: int) -> None:
    """Live until the parent says otherwise. What ends with the parent is `keeper`'s business.

    Args:
        orders: Pipe to read from.
        reports: Pipe to write to.
    """
    signal.signal(signal.SIGINT, ignore)  # Ctrl-C is the parent's; a KeyboardInterrupt is the environment's own
    faulthandler.enable(all_threads=False)
    cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # it is a pipe to the parent
    out = ParentChannel(reports)
    ours = logging.getLogger("harness")  # others print what they have to say
    ours.addHandler(_ToParent(out))
    ours.propagate = False
    gc.freeze()  # what is imported stays
    gc.enable()  # see `spawned`
    code = 0
    try:
        _live(orders, out)
    except BrokenPipeError:
        code = 1  # the parent has ended this, or is gone
    except BaseException as error:  # out of memory, say: nothing of this process can be relied on
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        lacks = isinstance(error, MemoryError) or "Not enough memory" in str(error)  # as a parser of JSON says it
        code = OUT_OF_MEMORY if lacks else 1
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"ended by {describe(error)}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the environment has closed it
            stream.flush()
    os._exit(code)  # whatever threads the environment has left


def _live(orders: int, out: ParentChannel) -> None:
    with open(orders, "rb", buffering=0, closefd=False) as pipe:
        environment = _before(pipe, out)
    if environment is None:
        return
    import uvloop

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    event_loop.run(runner, Service(environment, orders, out.send, out.send_packed).run())


class ParentChannel:
    """The way to the parent; any thread may use it.

    Args:
        fd: The pipe.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, frame: JsonDict) -> None:
        """Say something."""
        self.send_packed(pack(frame))

    def send_packed(self, line: bytes) -> None:
        """Say something that is a frame already."""
        rest = memoryview(line)
        with self._lock:
            while rest:
                rest = rest[os.write(self._fd, rest) :]


class _ToParent(logging.Handler):
    """What is logged here, the parent logs."""

    def __init__(self, out: ParentChannel) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._out.send(
                {"type": "log", "name": record.name, "level": record.levelno, "text": self.format(record)}
            )  # fmt: skip
        except OSError:
            pass  # something has closed the pipe: whoever logs is not to blame, and the parent will notice
        except Exception:  # logging must not fail who logs
            self.handleError(record)


# Before the event loop: constructors of environments may install signal handlers, or run loops of their own.


def _before(pipe: BinaryIO, out: ParentChannel) -> Environment | None:
    """Load the environment and answer what must be known before a run begins; None if there is nothing to begin."""
    environment: Environment | None = None
    while True:
        order = parse(_line(pipe))
        try:
            match order["type"]:
                case "load":
                    environment = _load(order)
                    out.send({"type": "loaded", **_description(environment)})
                case "start":
                    return environment
                case "rows":
                    assert environment is not None
                    out.send({"type": "rows", "rows": _rows(environment, order["first"])})
                case _:  # "only"
                    assert environment is not None
                    out.send({"type": "part", **_part(environment, order["function"])})
        except BaseException as error:  # the boundary around the author's code
            out.send({"type": "raised", **error_to_json(error)})
            if environment is None:
                return None


def _line(pipe: BinaryIO) -> bytes:
    """The next order. Nothing behind it is read: the rest is the event loop's."""
    line = bytearray()
    while not line.endswith(b"\n"):
        read = pipe.read(1)
        if not read:
            os._exit(0)  # the parent is gone
        line += read
    return bytes(line)


def _load(order: JsonDict) -> Environment:
    logging.getLogger("harness").setLevel(order["log_level"])
    megabytes = order["memory_mb"]
    _bound_memory(megabytes)
    try:
        environment = load_environment(order["env_id"], **order["env_args"])
        environment.set_kwargs(**order["extra_env_kwargs"])
    except BaseException as error:  # as below, where the bound may be why
        if words := _too_little(megabytes):
            raise EnvironmentLoadError(f"{error}; {words}") from error
        raise
    if words := _too_little(megabytes):
        raise EnvironmentLoadError(f"environment {order['env_id']!r}: {words}")
    return environment


def _bound_memory(megabytes: int) -> None:
    """Let the system refuse more than this to this process, and to each that it starts."""
    if megabytes < 0 or sys.platform != "linux":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))


def _too_little(megabytes: int) -> str:
    """Says so if hardly anything is left of the bound for rollouts, and what to set; "" if there is enough, or no
    bound."""
    if megabytes < 0 or sys.platform != "linux":
        return ""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        used = next((int(line.split()[1]) for line in status if line.startswith("VmData:")), 0) >> 10
    if megabytes - used >= HEADROOM:
        return ""
    return (
        f"worker_memory_mb = {megabytes} is too little: {used} MB are in use when it is loaded, and rollouts need "
        f"{HEADROOM} more; set {used + HEADROOM + 1} at least, or -1 for no bound"
    )


def _description(environment: Environment) -> JsonDict:
    rubric = environment.rubric
    return {
        "env_id": environment.env_id,
        "class": type(environment).__name__,
        "row_count": environment.row_count,
        "message_type": environment.message_type,
        "sampling_args": environment.sampling_args,
        "neutral_args": sorted(environment.neutral_args),
        "source_files": [str(path) for path in environment.source_files],
        "fingerprint": environment.fingerprint,
        "extra_env_kwargs": environment.extra_env_kwargs,
        "has_reference": environment.has_reference,
        "has_reference_verdict": environment.has_reference_verdict,
        # How long its end may take: every marked method has its own bound.
        "patience": environment.cleanup_timeout * sum(len(hooks_of(environment, k)) for k in ("cleanup", "teardown")),
        "rubric": {
            "metric_names": rubric.metric_names,
            "weights": rubric.weights,
            "is_group": rubric.is_group,
            "needs_live_state": rubric.needs_live_state,
            "has_own_way": rubric.has_own_way,
            "reward_range": [repr(bound) for bound in rubric.reward_range],
            "judges": [_spec_to_json(spec) for spec in rubric.judges],
        },
    }


def _spec_to_json(spec: JudgeSpec) -> JsonDict:
    return {name: getattr(spec, name) for name in JudgeSpec.__slots__}


def _rows(environment: Environment, first: int) -> list[JsonDict]:
    """Some rows from this one on. A wrong one ends them, so that it is told when it is asked for, and not before."""
    rows: list[JsonDict] = []
    for index in range(first, min(first + ROWS, environment.row_count)):
        try:
            row = environment.row(index)
        except Exception:
            if index == first:
                raise
            break
        rows.append({name: getattr(row, name) for name in type(row).__slots__})
    return rows


def _part(environment: Environment, function: str) -> JsonDict:
    whole, part = environment.rubric, environment.rubric.only(function)
    return {
        "is_group": part.is_group,
        "needs_live_state": part.needs_live_state,
        "judges": [number for number, spec in enumerate(whole.judges) if any(spec is each for each in part.judges)],
    }
