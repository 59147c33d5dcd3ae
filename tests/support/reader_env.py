"""The tools that exports are for, in an environment of their own: `inspect_ai`, `verifiers` and `every_eval_ever`, of
pinned versions, installed from whatever index this machine's pip uses. Made once for all workers and kept for later
sessions, outside the repository; a test that needs it is skipped only where no index answers in time, and fails where
one answers that it has no such package."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

UV = "uv==0.13.9"
READERS = ("inspect_ai==0.3.285", "verifiers==0.1.14")
VALIDATOR = "every-eval-ever==0.3.0"
"""Says that it wants Python 3.12. The part that validates does not, and needs nothing that the readers lack."""

PATIENCE = 300.0
"""Seconds for one installation; 100 MB come from the index."""

MEMORY = 300.0
"""Seconds for which other workers believe the one that found no index. Each would wait as long as it did."""

_OFFLINE = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|connection (?:refused|reset|error|broken|timed out)|timed out|"
    r"error sending request|dns error|name resolution|name or service|unreachable|could not fetch URL|"
    r"status code 5\d\d|service unavailable|bad gateway",
    re.IGNORECASE,
)
"""How pip and uv say that nobody answers, as opposed to: the answer was no."""

_SAME = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""pip's settings and the variables by which uv takes them."""


def reader_python() -> Path:
    """The interpreter of the environment, which is made if it is missing.

    Skips the test if no index can be reached.
    """
    found = _found()
    if isinstance(found, str):
        pytest.skip(found)
    return found


class Unreachable(Exception):
    """Nobody answers where packages come from."""


@cache
def _found() -> Path | str:
    """The interpreter, or why there is none: asked once, since pip takes its time to give up."""
    pins = hashlib.sha256(repr((UV, READERS, VALIDATOR, sys.version)).encode()).hexdigest()[:12]
    return environment(_own_folder(), pins, _make)


def environment(folder: Path, pins: str, make: Callable[[Path], None]) -> Path | str:
    """The interpreter of the environment `pins`, or why there is none.

    One process makes it, the others wait; what was left half made is made anew.
    """
    home, ready, missing = folder / pins, folder / f"{pins}.ready", folder / f"{pins}.missing"
    python = home / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists() and python.exists():
            return python
        if missing.exists() and 0 <= time.time() - missing.stat().st_mtime < MEMORY:
            return missing.read_text()
        ready.unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)
        try:
            make(home)
        except Unreachable as error:
            missing.write_text(f"no package index answers, so the readers of exports are not here: {error}")
            return missing.read_text()
        missing.unlink(missing_ok=True)
        ready.touch()
    return python


def _own_folder() -> Path:
    """A folder that nobody else can write to: what lies there is run."""
    folder = Path(tempfile.gettempdir()) / f"bench-readers-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    assert mine, f"{folder} is open to others, or somebody else's; remove it"
    return folder


def reader(*args: str | Path, cwd: Path, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs the environment's interpreter, without any network to fall back on and without a key."""
    return subprocess.run(
        [reader_python(), *args], cwd=cwd, env=reader_environ(cwd), capture_output=True, text=True, timeout=timeout,
        check=False,
    )  # fmt: skip


def reader_environ(home: Path) -> dict[str, str]:
    """What a process of the environment finds: a home of its own, for logs and caches, and no key of anybody."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**keep, "HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200", "PYTHONUTF8": "1"}


def _make(home: Path) -> None:
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    # Every index has uv, so one that knows no version of it was not asked: pip keeps quiet about why.
    _install([python, "-m", "pip", "install", "-q", UV], os.environ, unreachable="from versions: none")
    settings = _pip_settings(python)
    _install([python.with_name("uv"), "pip", "install", "-q", "--python", python, *READERS], settings)
    _install([python, "-m", "pip", "install", "-q", "--no-deps", "--ignore-requires-python", VALIDATOR], os.environ)


def _pip_settings(python: Path) -> dict[str, str]:
    """This process's environment, with pip's configuration in the words of uv. What uv is told already stays."""
    listed = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    told: dict[str, str] = {}
    for line in listed.stdout.splitlines():  # files first, variables last: the last one counts
        name, _, value = line.partition("=")
        where, _, key = name.partition(".")
        if where in ("global", "install", ":env:") and key in _SAME:
            told[_SAME[key]] = " ".join(str(ast.literal_eval(value)).split())
    if "UV_FIND_LINKS" in told:
        told["UV_FIND_LINKS"] = told["UV_FIND_LINKS"].replace(" ", ",")
    if "UV_INDEX" in told:  # pip takes the best of all indexes, uv the first that knows a name
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {**told, **os.environ}


def _install(command: Sequence[str | Path], environ: Mapping[str, str], unreachable: str = "no-index") -> None:
    try:
        done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{Path(command[0]).name} was not done after {PATIENCE:.0f} s") from None
    if done.returncode == 0:
        return
    # An address may hold a password.
    words = re.sub(r"\S+://\S+", "<address>", f"{done.stdout}\n{done.stderr}").strip()
    if _OFFLINE.search(words) or unreachable in words:
        raise Unreachable(words[-300:])
    raise AssertionError(f"{Path(command[0]).name} {' '.join(map(str, command[1:]))} failed:\n{words}")
