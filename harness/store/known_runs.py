"""Registry of runs made on this machine: hashes of their settings, in the user's state folder. A run folder from others
can have the path or id of a known run, but has the same hash only if its settings are the same. A run stays known when
its folder is moved, but not when its settings are edited."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

LIMIT = 16 << 20
"""File size in bytes (250,000 runs) at which a new file is started; the previous file is still read."""


def state_file() -> Path:
    """Path of the registry file: `bench/known-runs` in `XDG_STATE_HOME`, by default in `~/.local/state`."""
    given = os.environ.get("XDG_STATE_HOME", "")
    root = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~"), ".local", "state")
    return root / "bench" / "known-runs"


def remember(content: bytes) -> None:
    """Record that this machine made a run with these settings. On failure, a warning is logged.

    Args:
        content: Content of the run's `config.toml`, or of a record of `bench multi`.
    """
    path = state_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, _line(content))  # a single write, so that lines of several processes do not mix
            if os.fstat(fd).st_size > LIMIT:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(fd), os.stat(path)):  # otherwise another process has begun a new file
                    os.replace(path, _older(path))
        finally:
            os.close(fd)
    except OSError as error:
        logger.warning(
            "cannot record in %s that this run was made here (%s): it will count as one from another machine",
            path, error.strerror,
        )  # fmt: skip


def is_known(content: bytes) -> bool:
    """Return whether this machine made a run with these settings; False if the state folder cannot be read."""
    wanted = _line(content)
    for path in (state_file(), _older(state_file())):
        try:
            if wanted in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def _line(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")
