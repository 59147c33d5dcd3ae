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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.sandbox.engine_client import Engine
from harness.sandbox.engine_load import turn
from harness.sandbox.leftovers import private_folder
from harness.usercode.deadline import waiting
from harness.usercode.threads import offload

FAILED_SECONDS = 60.0
"""How long a failed build or pull is not repeated, so that a thousand rollouts do not repeat it."""

PREFIX = "localhost/bench/"

_FROM = re.compile(r"^(\s*FROM\s+(?:--platform=\S+\s+)?)(\S+)", re.IGNORECASE | re.MULTILINE)
_COPY_FROM = re.compile(r"^(\s*COPY\s+(?:--\S+\s+)*--from=)(\S+)", re.IGNORECASE | re.MULTILINE)

_ready: set[tuple[str, str]] = set()
"""Images, by engine and name, that this process has found or made."""

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], asyncio.Lock]] = WeakKeyDictionary()
"""Locks of images, so that only one task of a process waits for other processes."""

_failed: dict[tuple[str, str], tuple[float, type[Exception], str]] = {}
"""Images that could not be had: until when this is not tried again, and the error."""


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
        name = PREFIX + await offload.run(content_hash, image, text)
        return await _ensure(engine, name, lambda: _build(engine, name, image, text, seconds))


def dockerfile(folder: Path, images: Mapping[str, str]) -> str:
    """The text of a folder's Dockerfile, with other images in place of those in `images`.

    Raises:
        ConfigError: the folder has no Dockerfile.
    """
    try:
        text = (folder / "Dockerfile").read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"image={str(folder)!r} must be a folder with a Dockerfile; the name of an image is a string: {error}"
        ) from error
    for pattern in (_FROM, _COPY_FROM):
        text = pattern.sub(lambda found: found[1] + images.get(found[2], found[2]), text)
    return text


def content_hash(folder: Path, text: str) -> str:
    """Hash of a folder's files with their modes, and of the text that is used as its Dockerfile. Blocks."""
    total = hashlib.sha256(json.dumps(text).encode())
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *(each for each in folders if Path(parent, each).is_symlink())]):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            entry = f"{path.relative_to(folder)}\0{stat.S_IFMT(mode):o}{mode & 0o111:o}\0"
            total.update(entry.encode(errors="surrogateescape"))
            if stat.S_ISLNK(mode):
                total.update(os.fsencode(os.readlink(path)))
            elif stat.S_ISREG(mode):
                with path.open("rb") as file:
                    total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:32]


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
    key = (engine.program, name)
    if key in _ready:
        return name
    locks = _locks.setdefault(asyncio.get_running_loop(), {})
    async with locks.setdefault(key, asyncio.Lock()):
        until, kind, words = _failed.get(key, (0.0, SandboxError, ""))
        if time.monotonic() < until:
            raise kind(words)
        if key not in _ready and await is_missing(engine, name):
            async with _lock(name):
                await _make(engine, name, make)
        _ready.add(key)
    return name


async def _make(engine: Engine, name: str, make: Callable[[], Awaitable[None]]) -> None:
    if not await is_missing(engine, name):  # another process has made it meanwhile
        return
    try:
        async with turn("builds"):
            await make()
    except (SandboxError, EnvironmentFault) as failure:
        _failed[engine.program, name] = (time.monotonic() + FAILED_SECONDS, type(failure), str(failure))
        raise


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
        answer = await engine.call("build", "--tag", name, "--file", file.name, context, seconds=seconds)
    if answer.code:
        raise EnvironmentFault(f"{engine.name} cannot build the image of {folder}/Dockerfile: {answer.error}")


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
