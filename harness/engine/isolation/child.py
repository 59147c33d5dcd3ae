"""Start of an isolated environment's process: set the memory limit, load the environment and describe it to the parent
process; then `service` executes the runs. The process communicates only with its parent (see `wire`), which also
displays its output."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import platform
import signal
import sys
from io import TextIOWrapper
from typing import BinaryIO, cast

from harness.core.errors import EnvironmentLoadError
from harness.core.types import JsonDict
from harness.engine.environment_loader import inner_source, load_environment, source_identity
from harness.engine.isolation.keeper import ignore
from harness.engine.isolation.service import Service
from harness.engine.isolation.wire import OUT_OF_MEMORY, ParentChannel, error_to_json
from harness.envs.environment import Environment
from harness.envs.hooks import hooks_of
from harness.rubrics.judge_port import JudgeSpec
from harness.settings.environment_sources import FoundEnvironment
from harness.settings.packages import find_environment
from harness.store.codec import parse
from harness.usercode import event_loop
from harness.usercode.exceptions import describe

ROWS = 64
"""Maximum number of rows in one message."""

_MUST_BE_SAME = {"distribution": "version of its package", "source": "source", "code": "source"}
"""What must be the same on each computer of a run, by the key of `source_identity`."""

HEADROOM = 40
"""Megabytes that rollouts need in addition to the loaded environment, for messages and for threads (8 MB each)."""


def main(orders: int, reports: int) -> None:
    """Run the child process until the parent process tells it to end. If the parent exits, the keeper process ends it.

    Args:
        orders: Pipe to read from.
        reports: Pipe to write to.
    """
    signal.signal(signal.SIGINT, ignore)  # the parent handles Ctrl-C; a KeyboardInterrupt comes from the environment
    faulthandler.enable(all_threads=False)
    cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # stdout is a pipe to the parent
    out = ParentChannel(reports)
    ours = logging.getLogger("harness")  # other loggers print their records
    ours.addHandler(_ToParent(out))
    ours.propagate = False
    gc.freeze()  # exclude imported modules from collection
    gc.enable()  # see `spawned`
    code = 0
    try:
        with open(orders, "rb", buffering=0, closefd=False) as pipe:
            environment = _before(pipe, out)
        if environment is not None:
            import uvloop

            runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
            event_loop.run(runner, Service(environment, orders, out).run())
    except BrokenPipeError:
        code = 1  # the parent has closed the pipe or exited
    except BaseException as error:  # for example out of memory: the process is unreliable
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        lacks = isinstance(error, MemoryError) or "Not enough memory" in str(error)  # message of a JSON parser
        code = OUT_OF_MEMORY if lacks else 1
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"ended by {describe(error)}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the environment has closed it
            stream.flush()
    os._exit(code)  # without waiting for threads of the environment


class _ToParent(logging.Handler):
    """Logging handler that forwards log records to the parent process."""

    def __init__(self, out: ParentChannel) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._out.send(
                {"type": "log", "name": record.name, "level": record.levelno, "text": self.format(record)}
            )  # fmt: skip
        except OSError:
            pass  # the pipe is closed: do not fail the caller; the parent will notice
        except Exception:  # logging must not raise in the caller
            self.handleError(record)


# Runs before the event loop: constructors of environments may install signal handlers, or run loops of their own.


def _before(pipe: BinaryIO, out: ParentChannel) -> Environment | None:
    """Load the environment, and answer the parent's questions until a run begins. Returns None if no run begins."""
    environment: Environment | None = None
    while True:
        line = pipe.readline()  # unbuffered, so that bytes after the line are left to the event loop
        if not line.endswith(b"\n"):
            os._exit(0)  # the parent has exited
        order = parse(line)
        try:
            match order["type"]:
                case "load":
                    environment = _load(order)
                    found = find_environment(order["env_id"])
                    out.send({"type": "loaded", **_description(environment, found)})
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


def _load(order: JsonDict) -> Environment:
    logging.getLogger("harness").setLevel(order["log_level"])
    megabytes = order["memory_mb"]
    # A limit below the memory already in use would end the process before it could report that.
    _bound_memory(megabytes if megabytes < 0 else max(megabytes, _used_memory() + HEADROOM))
    if order["expected"] is not None:
        _require_same(order["env_id"], order["expected"])
    try:
        environment = load_environment(order["env_id"], **order["env_args"])
        environment.set_kwargs(**order["extra_env_kwargs"])
    except BaseException as error:  # as below: the memory limit may be the cause
        if words := _too_little(megabytes):
            raise EnvironmentLoadError(f"{error}; {words}") from error
        raise
    if words := _too_little(megabytes):
        raise EnvironmentLoadError(f"environment {order['env_id']!r}: {words}")
    _bound_memory(megabytes)
    return environment


def _require_same(env_id: str, expected: JsonDict) -> None:
    """Raise an error if the environment differs here from that of the computer that started the run."""
    found = find_environment(env_id)
    if found is None:
        return  # loading it fails, and says how to install it
    here = source_identity(found)
    for name, words in _MUST_BE_SAME.items():
        if here.get(name) != expected.get(name):
            both = f" ({here[name]}, not {expected[name]})" if name == "distribution" else ""
            raise EnvironmentLoadError(
                f"environment {env_id!r}: the {words} on {platform.node()} differs from that of the computer which "
                f"started the run{both}; install the same on both"
            )


def _bound_memory(megabytes: int) -> None:
    """Set the operating system's memory limit for this process and for each process that it starts."""
    if megabytes < 0 or sys.platform != "linux":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))


def _used_memory() -> int:
    """Return the memory in MiB that counts toward the limit; 0 if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmData:")), 0) >> 10
    except OSError:
        return 0


def _too_little(megabytes: int) -> str:
    """Return a message with the required setting if the memory limit leaves too little memory for rollouts; "" if
    enough is left or no limit is set."""
    if megabytes < 0 or sys.platform != "linux":
        return ""
    used = _used_memory()
    if megabytes - used >= HEADROOM:
        return ""
    return (
        f"worker_memory_mb = {megabytes} is too little: the loaded environment uses {used} MB, and rollouts need "
        f"{HEADROOM} MB more; set it to at least {used + HEADROOM + 1}, or to -1 for no limit"
    )


def _description(environment: Environment, found: FoundEnvironment | None) -> JsonDict:
    rubric = environment.rubric
    return {
        "env_id": environment.env_id,
        "class": type(environment).__name__,
        "row_count": environment.row_count,
        "message_type": environment.message_type,
        "sampling_args": environment.sampling_args,
        "neutral_args": sorted(environment.neutral_args),
        "fingerprint": environment.fingerprint or inner_source(environment, found),
        "extra_env_kwargs": environment.extra_env_kwargs,
        "cluster_key": environment.cluster_key,
        "figures_of": environment.figures_of,
        "has_reference": environment.has_reference,
        "has_reference_verdict": environment.has_reference_verdict,
        # Timeout of the teardown: every cleanup and teardown method has its own limit.
        "patience": environment.cleanup_timeout * sum(len(hooks_of(environment, k)) for k in ("cleanup", "teardown")),
        "rubric": {
            "metric_names": rubric.metric_names,
            "weights": rubric.weights,
            "is_group": rubric.is_group,
            "needs_live_state": rubric.needs_live_state,
            "has_custom_reward": rubric.has_custom_reward,
            "reward_range": [repr(bound) for bound in rubric.reward_range],
            "judges": [{name: getattr(spec, name) for name in JudgeSpec.__slots__} for spec in rubric.judges],
        },
    }


_ROW_FIELDS = ("example_id", "prompt", "answer", "task", "info")
"""Attributes of a `Row`."""


def _rows(environment: Environment, first: int) -> list[JsonDict]:
    """Return dataset rows from index `first` on. Stops before an invalid row, so that its error is raised only when
    that row is requested."""
    rows: list[JsonDict] = []
    for index in range(first, min(first + ROWS, environment.row_count)):
        try:
            row = environment.row(index)
        except Exception:
            if index == first:
                raise
            break
        rows.append({name: getattr(row, name) for name in _ROW_FIELDS})
    return rows


def _part(environment: Environment, function: str) -> JsonDict:
    whole, part = environment.rubric, environment.rubric.only(function)
    return {
        "is_group": part.is_group,
        "needs_live_state": part.needs_live_state,
        "judges": [number for number, spec in enumerate(whole.judges) if any(spec is each for each in part.judges)],
    }
