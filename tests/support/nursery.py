"""Python processes that do not pay for their imports: one process imports what `bench` imports, and forks a new one for
each command. What is started has its own arguments, environment, folder, streams and exit status, as a new interpreter
would give it; it only finds modules imported already. All of one nursery share the seed of hashes: what must not depend
on it is tested in processes of the usual kind. So is whatever is about starting and ending. Where interpreter settings
differ, and where this cannot be done, a command is started in the usual way without being asked to.

The interpreter is the one that runs the tests, unless `Nursery` is told of another: that of a virtual environment,
whose processes find what has been installed in it since.

A command is `bench …`, `-m MODULE …` or `-c CODE …`.

Read as a program, `python nursery.py FD FD` is that process, and the numbers are those of its sockets; a word after
them has each new process look for what has been installed."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn, Self

PRELOADED = (
    "aiohttp.web",
    "harness.cli.execute",
    "harness.cli.main",
    "harness.cli.options",
    "harness.settings.resolver",
    "harness.engine.prepare",
    "harness.engine.evaluation",
    "harness.engine.environment_loader",
    "harness.reference.http",
    "harness.reference.player",
    "harness.reference.server",
    "harness.report.live",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "rich.live",
    "typer",
    "uvloop",
)
IF_THERE = ("dill", "fsspec", "multiprocess", "openai", "pandas", "xxhash")
"""What `datasets` and classic packages import; the names are their business."""
LATE = ("datasets", "huggingface_hub")
"""They read their settings from the environment when they are imported, so that each process imports its own."""
_BIN = Path(sys.executable).parent
_BENCH = "import sys; from harness.cli.main import main; sys.exit(main())"
_LIMIT = 1 << 17

_SHIM = """#!{python} -IS
import json, os, socket, sys
asked = {{"command": ["bench", *sys.argv[1:]], "cwd": os.getcwd(), "environ": dict(os.environ)}}
read, write = os.pipe()
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as nursery:
    nursery.connect({address!r})
    socket.send_fds(nursery, [json.dumps(asked).encode()], [0, 1, 2, write])
    nursery.recv(16)
os.close(write)
sys.exit(int(os.read(read, 16)) & 0xFF)
"""


class Child:
    """A process that the nursery started; what `subprocess.Popen` offers of it."""

    def __init__(self, args: Sequence[str], pid: int, status: int) -> None:
        self.args, self.pid = list(args), pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """The exit status, if it has ended; negative is the signal that ended it."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            said = os.read(self._status, 16)
            os.close(self._status)
            assert said, f"the nursery has died, and with it what is known of {self.args}"
            self.returncode = int(said)
        return self.returncode


class Nursery:
    """One process that forks others; it ends with the block, or with the process that started it.

    Args:
        python: Its interpreter, which has all that `bench` imports.
        is_fixed: Whether nothing is installed for that interpreter as long as this lasts.
    """

    def __init__(self, python: Path, *, is_fixed: bool = False) -> None:
        self._python, self._is_fixed = python, is_fixed
        self._begun: tuple[subprocess.Popen[bytes], socket.socket, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it; what it has started goes on."""
        if self._begun is not None:
            process, control, address = self._begun
            self._begun = None
            control.close()  # and it ends, as it does when this process is killed
            process.wait()
            shutil.rmtree(Path(address).parent)

    def start(
        self, command: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str], stdout: int, stderr: int
    ) -> Child | subprocess.Popen[bytes]:
        """Start a command, with nothing to read on stdin."""
        assert command[0] in ("bench", "-m", "-c"), command
        if not is_alike(environ):
            return subprocess.Popen(
                self._usual(command), cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        asked = json.dumps({"command": [*command], "cwd": str(cwd or Path.cwd()), "environ": dict(environ)}).encode()
        assert len(asked) < _LIMIT, "the arguments and the environment of a command are longer than a message may be"
        read, write = os.pipe()
        with open(os.devnull, "rb") as nothing:
            _, control, _ = self._begin()
            socket.send_fds(control, [asked], [nothing.fileno(), stdout, stderr, write])
            os.close(write)
            pid = int(control.recv(16))
        return Child(command, pid, read)

    def run(
        self, command: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str], timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(command, cwd=cwd, environ=environ, stdout=out.fileno(), stderr=err.fileno())
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(process.args, code, out.read().decode(), err.read().decode())

    def write_shim(self, path: Path) -> None:
        """Write a program that is `bench` to a shell. Whoever runs it sees to it that `is_alike`."""
        _, _, address = self._begin()
        path.write_text(_SHIM.format(python=sys.executable, address=address))
        path.chmod(0o755)

    def _usual(self, command: Sequence[str]) -> list[str]:
        """A command as a shell has it."""
        script = self._python.with_name("bench")
        if command[0] != "bench":
            return [str(self._python), *command]
        return [*([str(script)] if script.exists() else [str(self._python), "-c", _BENCH]), *command[1:]]

    def _begin(self) -> tuple[subprocess.Popen[bytes], socket.socket, str]:
        """The process, a socket to ask on, and the address at which others ask."""
        if self._begun is None:
            address = f"{tempfile.mkdtemp()}/asked"
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(address)
            listener.listen()
            environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            with theirs, listener:
                fds = (theirs.fileno(), listener.fileno())
                command = [str(self._python), __file__, *map(str, fds), *([] if self._is_fixed else ["look again"])]
                process = subprocess.Popen(command, env=environ, pass_fds=fds, stdin=subprocess.DEVNULL)
            self._begun = process, ours, address
        return self._begun


def start(
    command: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str], stdout: int, stderr: int
) -> Child | subprocess.Popen[bytes]:
    """Start a command, with nothing to read on stdin."""
    return _nursery().start(command, cwd=cwd, environ=environ, stdout=stdout, stderr=stderr)


def run(
    command: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return _nursery().run(command, cwd=cwd, environ=environ, timeout=timeout)


def write_shim(path: Path) -> None:
    """Write a program that is `bench` to a shell. Whoever runs it sees to it that `is_alike`."""
    _nursery().write_shim(path)


def is_alike(environ: Mapping[str, str]) -> bool:
    """Whether a new interpreter would start as the nursery's did: what it reads before it runs anything is the same."""

    def read(of: Mapping[str, str]) -> dict[str, str]:
        early = ("PYTHON", "LC_", "LANG", "OPENBLAS_", "OMP_", "ARROW_", "MALLOC_")
        return {name: value for name, value in of.items() if name.startswith(early) and name != "PYTHONPATH"}

    return sys.platform == "linux" and read(environ) == read(os.environ)


@cache
def _nursery() -> Nursery:
    nursery = Nursery(Path(sys.executable), is_fixed=True)
    atexit.register(nursery.end)
    return nursery


# The process that forks


def _preload() -> None:
    before = dict(os.environ)
    for name in PRELOADED:
        importlib.import_module(name)
    for name in IF_THERE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not set(LATE) & set(sys.modules) and before == dict(os.environ)
    gc.collect()
    gc.freeze()  # so that no process copies pages only because it counts what is there


def _serve(control: socket.socket, listener: socket.socket, *, looks_again: bool) -> list[str]:
    """Fork when asked, and say how each process ended. Returns in a new process, with what it is told, and with nothing
    when nobody can ask any more."""
    path = [each for each in sys.path if each != str(Path(__file__).parent)]
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    waited: dict[int, int] = {}
    while True:
        ready = select.select([control, listener, wake], [], [])[0]
        if wake in ready:
            wake.recv(4096)
            _tell(waited)
            continue
        asking = control if control in ready else listener.accept()[0]
        asked, fds, _, _ = socket.recv_fds(asking, _LIMIT, 4)
        if not asked:
            return []
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            return _become(json.loads(asked), fds, path, looks_again=looks_again)
        for fd in fds[:3]:
            os.close(fd)
        waited[pid] = fds[3]
        asking.send(str(pid).encode())
        if asking is not control:
            asking.close()


def _tell(waited: dict[int, int]) -> None:
    """Hand on how processes ended to those who wait for them."""
    while waited:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        fd = waited.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody waits any more
            os.write(fd, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(fd)


def _become(asked: dict[str, object], fds: list[int], path: list[str], *, looks_again: bool) -> list[str]:
    """Make this process what a new one would be. Its streams are still those of the nursery, on other files."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, 4096)
    environ, cwd, command = asked["environ"], str(asked["cwd"]), asked["command"]
    assert isinstance(environ, dict) and isinstance(command, list)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    named = [each for each in str(environ.get("PYTHONPATH", "")).split(os.pathsep) if each]
    first = {"bench": str(_BIN), "-m": cwd, "-c": ""}[command[0]]
    sys.path[:] = [first, *named, *path]
    sys.path_importer_cache.clear()
    if looks_again:  # an editable install is a line in a file that an interpreter reads when it starts
        for folder in site.getsitepackages():
            site.addsitedir(folder)
    del sys.modules["__main__"]
    if command[0] == "bench":
        sys.argv[:] = [str(_BIN / "bench"), *command[1:]]
        return ["-c", _BENCH]
    sys.modules.pop(command[1], None)  # a module that is run is not imported
    sys.argv[:] = [command[0], *command[2:]]
    return command[:2]


def _run(way: str, what: str) -> NoReturn:
    """Run a module or code to its end, and end as the interpreter does, but without taking apart what was imported:
    each page of that would have to be copied first."""
    code: object = 0
    try:
        try:
            if way == "-m":
                runpy.run_module(what, run_name="__main__", alter_sys=True)
            else:
                main = sys.modules["__main__"] = ModuleType("__main__")
                exec(compile(what, "<string>", "exec"), main.__dict__)
        finally:
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of every program
            atexit._run_exitfuncs()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        traceback.print_exception(error)
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    _preload()
    sockets = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    wanted = _serve(*sockets, looks_again=len(sys.argv) > 3)
    if wanted:
        _run(*wanted)
