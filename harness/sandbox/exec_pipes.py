"""A program in a container: the scripts that start and kill it, its variables and its pipes."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping

from harness.core.redact import names_secret
from harness.sandbox.api import Outcome, Result
from harness.sandbox.leftovers import OF_ENGINES
from harness.sandbox.machine import OnOutput
from harness.sandbox.pipes import BoundedOutput, Pipes

OOM = r"""{ while read -r BENCH_KEY BENCH_COUNT; do [ "$BENCH_KEY" != oom_kill ] || break
done </sys/fs/cgroup/memory.events || while read -r BENCH_KEY BENCH_COUNT; do [ "$BENCH_KEY" != oom_kill ] || break
done </sys/fs/cgroup/memory/memory.oom_control; } 2>/dev/null
"""
"""Reads how many processes of the container were killed for lack of memory, into BENCH_COUNT. Starts no process."""

BEGIN = (
    OOM
    + r"""printf '\036%s %s %s\n' "$1" "$$" "$BENCH_COUNT" >&2; unset BENCH_KEY BENCH_COUNT
cd -- "$2" || exit 126; shift 2; exec "$@" """
)
"""Reports on stderr that the program starts, with its process id, which is also the id of its session, and the number
of processes killed for lack of memory."""

MARK = "BENCH_EXEC"
"""Environment variable that tells to which call of `exec` a process belongs."""

KILL = r"""
mark=$1 killed=" $2 " since= passes=0
{ read -r line <"/proc/$2/stat"; } 2>/dev/null && set -- ${line##*) } && since=${20}
while [ "$passes" -lt 50 ]; do
  passes=$((passes + 1)) found=
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [ "$pid" -gt 1 ] && [ "$pid" != "$$" ] || continue
    { read -r line <"$folder/stat"; } 2>/dev/null || continue
    set -- ${line##*) }
    case $1 in Z | X | "") continue ;; esac
    hit= orphan=
    case $killed in *" $pid "* | *" $2 "* | *" $4 "*) hit=1 ;; esac
    if [ -z "$hit" ] && [ "${20}" -ge "${since:-0}" ]; then
      [ "$2" != 1 ] || [ -z "$since" ] || orphan=1
      { while read -r part || [ -n "$part" ]; do
        case $part in *"BENCH_EXEC=$mark"*) hit=1 ;; *BENCH_EXEC=*) orphan= ;; esac
      done <"$folder/environ"; } 2>/dev/null
    fi
    [ -n "$hit$orphan" ] || continue
    killed="$killed$pid " found=1
    kill -9 "$pid" 2>/dev/null
  done
  [ -n "$found" ] || exit 0
done
exit 1
"""
"""Kills a program and all that it has started: processes of its session, children, processes with its mark, and orphans
that are not older, unless they have the mark of another call. Uses nothing but `sh`, so it needs only one process."""

ALIVE = (
    OOM
    + r"""no=3; [ "$BENCH_COUNT" = "$2" ] || no=4; [ "$1" != "$$" ] || exit $no
{ read -r line <"/proc/$1/stat"; } 2>/dev/null || exit $no
pid=$1; set -- ${line##*) }; case $1 in Z | X | "") exit $no ;; esac; [ "$4" = "$pid" ] || exit $no"""
)
"""Exits with code 0 if the program of a call is running, and if not with 3, or with 4 if meanwhile a process of the
container was killed for lack of memory."""

KILLED = 137
"""Exit code of a program that was killed, or of a shell whose last program was."""

DOUBTFUL = (125, KILLED, 255)
"""Exit codes of programs that are also those of an engine's client that has lost its program."""

NO, LACK = 3, 4
"""Exit codes of scripts whose answer is no, and of `ALIVE` if a process was killed for lack of memory."""

NO_MEMORY = "[a process was killed: the programs used all memory of the machine]"

NOT_STARTED = 127
"""Exit code of a program that the container cannot start, as in a shell."""


NO_ROOM = re.compile(
    r"resource temporarily unavailable|cannot allocate memory|cannot fork|setns|procready|init-p|oom-killed",
    re.IGNORECASE,
)
"""Errors of engines if programs have used up the processes or the memory of a container."""


class BothEnds(BoundedOutput):
    """The start and the end of a stream, and between them a note on the bytes left out."""

    def __init__(self, bound: int) -> None:
        super().__init__(bound)
        self._half = max(1, bound // 2)
        self._end = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add a chunk; store its part at the start and the end."""
        super().add(chunk)
        self._end += chunk[-self._half :]
        if len(self._end) > 4 * self._half:  # seldom, since this copies it
            del self._end[: -self._half]

    @property
    def text(self) -> str:
        """The stored bytes as text."""
        if not self.is_truncated:
            return super().text
        start, end = (part.decode("utf-8", "replace") for part in (self.data[: self._half], self._end[-self._half :]))
        return f"{start}\n[… {self.seen - 2 * self._half} bytes left out …]\n{end}"


class ExecPipes(Pipes):
    """Pipes of a program in a container.

    Args:
        bound: Maximum number of bytes stored of each stream.
        notify: Called after every event.
        on_output: See `Machine.exec`.
    """

    def __init__(self, bound: int, notify: Callable[[], None], on_output: OnOutput | None) -> None:
        self.mark = secrets.token_hex(16)
        """Tells in the container which processes belong to this call, and here the report of its start."""
        super().__init__(self.mark, bound, False, notify)
        self.stdout, self.stderr = BothEnds(bound), BothEnds(bound)
        self.head = b""
        """The start of stderr: messages of the engine, until the report of the start."""
        self.pid: int | None = None
        """Id of the program's process in the container, once it has been started."""
        self.memory_kills = ""
        """Number of processes of the container that had been killed for lack of memory before; "" if unknown."""
        self.lacked_memory = False
        """Whether a process of the container has been killed meanwhile for lack of memory."""
        self.restarts = 0
        """How often the container had been restarted before."""
        self.begun = asyncio.Event()
        """Set when the program has been started, or the engine's client has ended."""
        self.flood = asyncio.Event()
        """Set when the program must be killed: a stream is too long, or `on_output` has failed."""
        self.fault: Exception | None = None
        """Error of `on_output`."""
        self._on_output = on_output

    @property
    def is_running(self) -> bool:
        """Whether the engine's client has been started and has not ended."""
        return self.transport is not None and self.exit_code is None

    @property
    def is_doubtful(self) -> bool:
        """Whether only the engine's client may have ended, and not the program."""
        return self.exit_code in DOUBTFUL and self.pid is not None

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2 and self.pid is None:
            data = self._after_start(data)
        if data:
            stream = self.stdout if fd == 1 else self.stderr
            stream.add(data)
            if stream.is_above_kill_limit:
                self.flood.set()
            if self._on_output is not None and self.fault is None:
                try:
                    self._on_output("stdout" if fd == 1 else "stderr", data)
                except Exception as error:  # raised by `exec`; here it would be lost
                    self.fault = error
                    self.flood.set()
        self._notify()

    def _after_start(self, data: bytes) -> bytes:
        self.head = (self.head + data)[-65_536:]
        _, mark, rest = self.head.partition(f"\x1e{self.mark} ".encode())
        words, line, rest = rest.partition(b"\n")
        if not mark or not line:
            return b""
        number, _, count = words.partition(b" ")  # may be anything if the program has replaced the shell
        self.pid = int(number) if re.fullmatch(rb"\d{1,9}", number) else 0
        self.memory_kills = count.decode() if re.fullmatch(rb"\d{1,19}", count) else ""
        self.begun.set()
        return rest

    def process_exited(self) -> None:
        self.begun.set()
        super().process_exited()

    async def feed(self, data: bytes) -> None:
        """Write the input of the program once it has started: if it ends before its input is read, podman otherwise
        loses its output, with the report of its start."""
        if data:
            await self.begun.wait()
        self.write(data)
        self.close_stdin()


def variables(values: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return options that set environment variables in a container, and those that its client needs for that.

    Only secrets are among the latter, since every user of this computer can read command lines. Others would also be
    variables of the client, a program of this computer, which may obey them."""
    is_secret = {name: names_secret(name) and not name.upper().startswith(OF_ENGINES) for name in values}
    texts = (name if is_secret[name] else f"{name}={value}" for name, value in values.items())
    secret = {name: value for name, value in values.items() if is_secret[name]}
    return [part for text in texts for part in ("--env", text)], secret


def result_of(pipes: ExecPipes, outcome: Outcome, wall: float) -> Result:
    """The result of a program.

    Args:
        pipes: Its pipes.
        outcome: How it ended.
        wall: Its duration in seconds.
    """
    errors = pipes.stderr.text
    code = pipes.exit_code if pipes.exit_code is not None else -1
    if pipes.pid is None:
        errors, code = pipes.head.decode("utf-8", "replace"), NOT_STARTED
    if pipes.lacked_memory and code == KILLED:
        errors += f"{'' if errors.endswith(chr(10)) or not errors else chr(10)}{NO_MEMORY}\n"
    return Result(
        exit_code=code if outcome == "exited" else None,
        stdout=pipes.stdout.text,
        stderr=errors,
        outcome=outcome,
        wall_seconds=wall,
        stdout_truncated=pipes.stdout.is_truncated,
        stderr_truncated=pipes.stderr.is_truncated,
    )
