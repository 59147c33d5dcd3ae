"""The processes that most commands are run in here are what new interpreters would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import nursery
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, processes are started in the usual way")

PROBE = """
import atexit, json, os, signal, sys, threading, time
print(json.dumps({
    "name": __name__, "argv": sys.argv[1:], "cwd": os.getcwd(), "environ": dict(os.environ), "path": sys.path,
    "main": sys.modules["__main__"].__dict__["WORD"] if "WORD" in globals() else None,
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "flags": str(sys.flags), "umask": os.umask(0), "files": sorted(os.listdir("/proc/self/fd"), key=int)[:4],
    "stdin": sys.stdin.read(), "encodings": [sys.stdout.encoding, sys.stderr.encoding, sys.stderr.errors],
    "late": sorted({"datasets", "huggingface_hub", "probe"} & set(sys.modules)),
}))
atexit.register(print, "at the end")
threading.Thread(target=lambda: (time.sleep(0.1), print("a thread"))).start()
print("an error", file=sys.stderr)
"""
ENDS = ["", "sys.exit(3)", "sys.exit('words')", "raise ValueError('no')", "os._exit(7)", "os.kill(os.getpid(), 9)"]


def usual(command: list[str], cwd: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    bench = str(Path(sys.executable).with_name("bench"))
    words = [bench, *command[1:]] if command[0] == "bench" else [sys.executable, *command]
    return subprocess.run(
        words, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )


def place(folder: Path) -> dict[str, str]:
    """The environment of a process, of its own modules."""
    environ = {**os.environ, "PYTHONPATH": str(folder), "WORD": "blue"}
    assert nursery.is_alike(environ)
    return environ


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", ["-m", "-c"])
def test_a_process_is_what_a_new_one_would_be(tmp_path: Path, way: str, end: str) -> None:
    (tmp_path / "probe.py").write_text(PROBE + end)
    environ, work = place(tmp_path), tmp_path / "work"
    work.mkdir()
    command = [way, "probe" if way == "-m" else PROBE + end, "--a", "b c"]
    done, wanted = nursery.run(command, cwd=work, environ=environ), usual(command, work, environ)
    assert (done.returncode, done.stdout) == (wanted.returncode, wanted.stdout)
    assert done.stderr.splitlines()[0] == "an error"
    assert done.stderr.splitlines()[-1] == wanted.stderr.splitlines()[-1]
    if end not in ENDS[-2:]:  # which lose what is not yet written
        said, *later = done.stdout.splitlines()
        assert (json.loads(said)["argv"], later) == (["--a", "b c"], ["a thread", "at the end"])


@pytest.mark.parametrize("words", [["--version"], ["run", "nothing-of-this-name"], ["run", "--help"], ["push"]])
def test_bench_is_the_command_that_is_installed(tmp_path: Path, words: list[str]) -> None:
    environ = {**place(tmp_path), "NO_COLOR": "1", "COLUMNS": "100"}
    done, wanted = (of(["bench", *words], cwd=tmp_path, environ=environ) for of in (nursery.run, usual))
    assert (done.returncode, done.stdout, done.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)


def test_a_shell_can_have_it_too(tmp_path: Path) -> None:
    nursery.write_shim(tmp_path / "bench")
    environ = {**place(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}", "NO_COLOR": "1"}
    line = "bench --version && bench run nothing-of-this-name 2> said; echo $?; grep -c . said"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    version, code, lines = done.stdout.splitlines()
    assert (version.split()[0], code) == ("bench", "2")
    assert "nothing-of-this-name" in (tmp_path / "said").read_text()
    assert int(lines) >= 1


def test_a_process_takes_signals_and_how_it_ended_is_told(tmp_path: Path) -> None:
    code = "import pathlib, time; pathlib.Path('here').touch(); time.sleep(60)"
    with (tmp_path / "out").open("wb") as out:
        process = nursery.start(
            ["-c", code], cwd=tmp_path, environ=place(tmp_path), stdout=out.fileno(), stderr=out.fileno()
        )
    deadline = time.monotonic() + 30
    while not (tmp_path / "here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(30) == process.poll() == -signal.SIGTERM
    process.kill()  # which says nothing of a process that is gone


def test_another_interpreter_setting_takes_the_usual_way(tmp_path: Path) -> None:
    environ = {**place(tmp_path), "PYTHONHASHSEED": "5"}
    assert not nursery.is_alike(environ)
    command = ["-c", "print(hash('a'))"]
    done = nursery.run(command, environ=environ)
    assert done.stdout == usual(command, tmp_path, environ).stdout


@pytest.mark.slow
def test_those_of_another_interpreter_find_what_was_installed_since(tmp_path: Path) -> None:
    folder, place_of_more = tmp_path / "venv", tmp_path / "more"
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "bench.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    code = "import json, sys; from harness.cli import main; print(json.dumps([sys.executable, sys.prefix, sys.path]))"
    environ = place(tmp_path)
    with nursery.Nursery(folder / "bin" / "python") as other:
        assert other.run(["-c", "import late"], cwd=tmp_path, environ=environ).returncode == 1
        place_of_more.mkdir()
        (place_of_more / "late.py").write_text("")
        (packages / "late.pth").write_text(f"{place_of_more}\n")  # as an editable install does
        command = ["-c", f"import late; {code}"]
        done = other.run(command, cwd=tmp_path, environ=environ)
        assert done.returncode == 0, done.stderr
        words = [str(folder / "bin" / "python"), *command]
        wanted = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        (*same, found), (*usual, path) = json.loads(done.stdout), json.loads(wanted.stdout)
        assert (same, sorted(found)) == (usual, sorted(path))
        version = other.run(["bench", "--version"], cwd=tmp_path, environ=environ)
        assert version.stdout.startswith("bench ")
