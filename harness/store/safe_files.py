"""Open files of run folders: regular files only, and never through a symbolic link.

A run folder may come from somebody else, and then a link in it may lead to any file of the user, and a FIFO may block
for ever. The path of the folder itself is the user's: links in that are followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from harness.core.size_limits import DOCUMENT, too_large

_NAMES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

LINK = "it is a symbolic link, and no link inside an output folder is followed"


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file.

    Args:
        path: The file; its folder must be no link that the caller has not checked.
        flags: As `os.open` takes them.
        mode: Of a file that is made.

    Returns:
        The file descriptor.

    Raises:
        OSError: it cannot be opened, or is a symbolic link, a FIFO, a socket, a device or a folder.
    """
    try:
        _require_regular(os.lstat(path), path)  # before it is opened: opening a FIFO or a device has effects
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # The file may have been replaced since: O_NOFOLLOW and the second look are what counts.
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        _require_regular(os.fstat(fd), path)
    except OSError:
        os.close(fd)
        raise
    return fd


def open_to_append(path: Path, flags: int, mode: int) -> int:
    """As `open_regular`, for a file that is changed in place.

    Raises:
        OSError: also if the file has another name (a hard link), under which it would be changed, too.
    """
    fd = open_regular(path, flags, mode)
    if has_other_names(fd):
        os.close(fd)
        raise OSError(
            errno.EMLINK,
            f"it has another name (a hard link), under which it would be changed, too; give it a copy of its own: "
            f"cp {path.name} copy && mv copy {path.name}",
            str(path),
        )
    return fd


def has_other_names(fd: int) -> bool:
    """Whether an open file has more than one name."""
    return os.fstat(fd).st_nlink > 1


def open_binary(path: Path) -> BinaryIO:
    """A regular file, open for reading.

    Raises:
        OSError: as `open_regular`.
    """
    return os.fdopen(open_regular(path), "rb")


def read_file(path: Path, cap: int = DOCUMENT) -> bytes:
    """The bytes of a regular file.

    Args:
        path: The file.
        cap: Bytes at most.

    Raises:
        OSError: as `open_regular`; or it is larger.
    """
    with open_binary(path) as file:
        data = file.read(cap + 1) if os.fstat(file.fileno()).st_size <= cap else b""
        if len(data) > cap or os.fstat(file.fileno()).st_size > cap:
            raise too_large("it", cap)
    return data


def is_file(path: Path) -> bool:
    """Whether there is a regular file that is no link."""
    return _kind(path) == stat.S_IFREG


def is_folder(path: Path) -> bool:
    """Whether there is a folder that is no link."""
    return _kind(path) == stat.S_IFDIR


def files_in(folder: Path, ending: str) -> list[Path]:
    """The regular files of a folder whose names end so, sorted by name; none if it is a link, or no folder.

    Args:
        folder: The folder.
        ending: Such as `.parquet`.
    """
    if not is_folder(folder):
        return []
    return sorted(path for path in folder.glob(f"*{ending}") if is_file(path))


def refuse_links(root: Path, path: Path) -> None:
    """Refuse a path below `root` that leads through a link, or is one.

    Args:
        root: A folder that the user named; links in its own path are the user's.
        path: Below it; need not exist.

    Raises:
        OSError: names the link, and what to do.
    """
    for folder in (*reversed(path.parents), path):
        if folder != root and folder.is_relative_to(root) and folder.is_symlink():
            raise link_error(folder)


def link_error(path: Path) -> OSError:
    """The error of a path that is a symbolic link."""
    return OSError(errno.ELOOP, LINK, str(path))


def _kind(path: Path) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


def _require_regular(found: os.stat_result, path: Path) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFLNK:
        raise link_error(path)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_NAMES.get(kind, 'no regular file')}, and no regular file", str(path))
