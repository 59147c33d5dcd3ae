"""Images of containers: a name, or a folder with a Dockerfile, which is built once for each content.

The tag of a built image is the hash of the folder, so that rollouts, runs and concurrent processes share it. A lock
file lets one process build while the others wait."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.core.safe_text import clean_block
from harness.sandbox.engine_client import Engine
from harness.sandbox.engine_load import Breaker, turn
from harness.sandbox.leftovers import private_folder
from harness.sandbox.pipes import last_line, shortened
from harness.usercode.deadline import waiting
from harness.usercode.threads import offload

PREFIX = "localhost/bench/"

_FROM = re.compile(r"(\s*FROM\s+(?:--platform=\S+\s+)?)(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY_FROM = re.compile(r"(\s*COPY\s+(?:--\S+\s+)*--from=)(\S+)", re.IGNORECASE)
_MOUNT_FROM = re.compile(r"(\s*RUN\s+(?:--\S+\s+)*--mount=(?:[^\s,]+,)*from=)([^\s,]+)", re.IGNORECASE)
_ARG = re.compile(r"(\s*ARG\s+\w+=[\"']?)([^\s\"']+)", re.IGNORECASE)
_WITH_FILES = re.compile(r"\s*(RUN|COPY|ADD)\s", re.IGNORECASE)
_HEREDOC = re.compile(r"\s\d*<<-?([\"']?)(\w+)\1")

_SETTLED_NS = 2_000_000_000
"""Age of a file's last change, above which another change gives it another time."""

SHOWN_LINES, SHOWN_CHARACTERS, LINE_CHARACTERS = 20, 2000, 400
"""How much of the output of a failed build is shown: lines, characters, and characters of one line."""

_hashes: dict[tuple[Path, str, int], tuple[list[object], str]] = {}
"""Hashes of folders, with the names, modes, sizes and times of the files that they had."""

_ready: set[tuple[str, str]] = set()
"""Images, by engine and name, that this process has found or made."""

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], asyncio.Lock]] = WeakKeyDictionary()
"""Locks of images, so that only one task of a process waits for other processes."""

_breakers: dict[tuple[str, str], Breaker] = {}
"""Delays of images that could not be had."""


async def local_image(engine: Engine, image: str | Path, images: Mapping[str, str], seconds: float) -> str:
    """Return the name of an image on this machine; pull or build it first if it is not there.

    Args:
        engine: The engine that has or gets the image.
        image: A name, or the path of a folder with a Dockerfile.
        images: Names of images, with the image to use instead of each. Also replaces names in the Dockerfile that is
            built; the file itself is not changed.
        seconds: Timeout for building or pulling.

    Raises:
        ConfigError: there is no Dockerfile.
        EnvironmentFault: the image cannot be built.
        SandboxError: the image cannot be pulled, or the engine failed.
    """
    with waiting():
        if isinstance(image, str):
            name = images.get(image, image)
            return await _ensure(engine, name, lambda: _pull(engine, name, seconds))
        text = dockerfile(image, images)
        try:
            name = PREFIX + await offload.run(content_hash, image, text)
        except OSError as error:
            raise EnvironmentFault(f"the folder {image} cannot be read: {error}") from error
        return await _ensure(engine, name, lambda: _build(engine, name, image, text, seconds))


def dockerfile(folder: Path, images: Mapping[str, str]) -> str:
    """The text of a folder's Dockerfile, with other images in place of those in `images`.

    Raises:
        ConfigError: the folder has no Dockerfile.
    """
    try:
        if (folder / "Dockerfile").exists() and not (folder / "Dockerfile").is_file():
            raise OSError("it is not a regular file")
        text = (folder / "Dockerfile").read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"image={str(folder)!r} must be a folder with a Dockerfile; the name of an image is a string: {error}"
        ) from error
    return "".join(_replaced(text, images)) if images else text


def _replaced(text: str, images: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the lines of a Dockerfile, with other images in instructions that name one."""
    stages: set[str] = set()
    inside: list[str] = []
    is_continued = False
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if inside:  # the lines of a file in the Dockerfile, up to this word
            if line.strip() == inside[0]:
                inside.pop(0)
            yield line
            continue
        if not is_continued:
            if _WITH_FILES.match(line):
                words = [found[2] for found in _HEREDOC.finditer(line)]
                inside = [word for word in words if word in map(str.strip, lines[number + 1 :])]
            patterns = (_FROM, _COPY_FROM, _MOUNT_FROM, *(() if stages else (_ARG,)))
            found = next((match for pattern in patterns if (match := pattern.match(line))), None)
            if found is not None and found[2].lower() not in stages:
                line = found[1] + images.get(found[2], found[2]) + line[found.end(2) :]
            if found is not None and found.re is _FROM:
                stages.add((found[3] or "").lower())
        is_continued = line.rstrip().endswith("\\") or (is_continued and line.lstrip().startswith("#"))
        yield line


def content_hash(folder: Path, text: str, modes: int = 0o7777) -> str:
    """Hash of a folder's files and folders with their modes, and of a text, such as its Dockerfile. Files are read
    again only if their sizes or times have changed. Blocks.

    Args:
        folder: The folder.
        text: The text.
        modes: Bits of the modes that count.

    Raises:
        OSError: a file or folder cannot be read.
    """
    began = time.time_ns()
    entries = sorted(_entries(folder))
    seen: list[object] = [
        (path, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino) for path, info in entries
    ]
    key = (folder, text, modes)
    known = _hashes.get(key)
    if known is not None and known[0] == seen:
        return known[1]
    total = hashlib.sha256(json.dumps(text).encode())
    for path, info in entries:
        mode = info.st_mode
        entry = f"{os.path.relpath(path, folder)}\0{stat.S_IFMT(mode):o}{mode & modes:o}\0"
        total.update(entry.encode(errors="surrogateescape"))
        if stat.S_ISLNK(mode):
            total.update(os.fsencode(os.readlink(path)) + b"\0")
        elif stat.S_ISREG(mode):
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    found = total.hexdigest()[:32]
    if all(info.st_ctime_ns < began - _SETTLED_NS for _, info in entries):
        _hashes[key] = (seen, found)
    return found


def _entries(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Iterate over all files and folders below a folder."""

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=fail):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            yield path, os.lstat(path)


async def is_missing(engine: Engine, name: str) -> bool:
    """Return whether an image is no longer on this machine; then `local_image` gets it again.

    Raises:
        SandboxError: the engine does not answer.
    """
    found = await engine.call("image", "inspect", "--format", "{{.Id}}", name)
    if found.code:
        _ready.discard((engine.program, name))
    return found.code != 0


async def _ensure(engine: Engine, name: str, make: Callable[[], Awaitable[None]]) -> str:
    key, since = (engine.program, name), time.monotonic()
    if key in _ready:
        return name
    locks = _locks.setdefault(asyncio.get_running_loop(), {})
    async with locks.setdefault(key, asyncio.Lock()):
        if key not in _ready and await is_missing(engine, name):
            breaker = _breakers.setdefault(key, Breaker())
            await breaker.admit(f"{engine.name}: getting the image {name}", name, since)
            try:
                async with _lock(name):
                    if await is_missing(engine, name):  # else another process has made it meanwhile
                        async with turn("builds"):
                            await make()
            except (SandboxError, EnvironmentFault) as failure:
                breaker.record(name, str(failure))
                raise
            breaker.record(name)
        _ready.add(key)
    return name


async def _pull(engine: Engine, name: str, seconds: float) -> None:
    answer = await engine.call("pull", "--quiet", name, seconds=seconds)
    if answer.code:
        raise SandboxError(
            f"{engine.name}: the image {name!r} is not on this machine and cannot be pulled: {answer.error}. "
            "To use an image of this machine instead, name it: images={…}"
        )


async def _build(engine: Engine, name: str, folder: Path, text: str, seconds: float) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="bench-", suffix=".Dockerfile", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        context = str(await offload.run(folder.resolve))
        answer = await engine.attempt("build", "--tag", name, "--file", file.name, context, seconds=seconds)
    if answer.code:
        words = f"{engine.name} cannot build the image of {folder}/Dockerfile: {clean_block(answer.error)}"
        if shown := last_lines(answer.end, answer.error):
            words += f"\nThe end of its output:\n{shown}"
        raise SandboxError(words) if answer.code < 0 else EnvironmentFault(words)


def last_lines(output: bytes, error: str) -> str:
    """The end of a build's output, without control characters: the last lines, the middle of long ones left out. Of a
    line that was overwritten, such as the bar of a download, only the last state counts, as on a terminal.

    Args:
        output: The output.
        error: A line of it that is known, and not repeated.
    """
    shown: list[str] = []
    for line in reversed(output.decode("utf-8", "replace").split("\n")):
        text = clean_block(line.rstrip("\r").rpartition("\r")[2]).rstrip()
        if text and last_line(text.encode()) != error:
            shown.insert(0, shortened(text, LINE_CHARACTERS))
            if len(shown) > SHOWN_LINES or len("\n".join(shown)) > SHOWN_CHARACTERS:
                return "\n".join(shown[1:])
    return "\n".join(shown)


@asynccontextmanager
async def _lock(name: str) -> AsyncGenerator[None, None]:
    """Hold the lock of an image, which excludes other processes of this user."""
    path = private_folder() / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SandboxError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        pause = 0.01
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(pause)
            pause = min(0.5, 2 * pause)
        yield
    finally:
        os.close(file)
