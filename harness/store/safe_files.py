"""Open files in run folders: regular files only, and never through a symbolic link. A run folder may come from another
person: a link in it could lead to any file of the user, and a FIFO could block forever. Links in the path of the folder
itself were created by the user, and are followed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from harness.core.size_limits import DOCUMENT, read_open

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
        path: The file; the caller has checked that its folder is not a link.
        flags: Flags for `os.open`.
        mode: Permissions of a new file.

    Returns:
        The file descriptor.

    Raises:
        OSError: the file cannot be opened, or is a symbolic link, a FIFO, a socket, a device or a folder.
    """
    try:
        _require_regular(os.lstat(path), path)  # first: opening a FIFO or a device has effects
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # The file may have been replaced meanwhile; O_NOFOLLOW and the second check cover that.
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        _require_regular(os.fstat(fd), path)
    except OSError:
        os.close(fd)
        raise
    return fd


def open_to_append(path: Path, flags: int, mode: int) -> int:
    """Open a regular file to change it in place, for example to append to it.

    Raises:
        OSError: as in `open_regular`, or the file has another name (a hard link), under which it would also change.
    """
    fd = open_regular(path, flags, mode)
    if has_other_names(fd):
        os.close(fd)
        raise OSError(
            errno.EMLINK,
            f"the file has another name (a hard link), and writing would change both; replace it with a "
            f"copy: cp {path.name} copy && mv copy {path.name}",
            str(path),
        )
    return fd


def has_other_names(fd: int) -> bool:
    """Return whether an open file has more than one name."""
    return os.fstat(fd).st_nlink > 1


def open_binary(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: as in `open_regular`.
    """
    return os.fdopen(open_regular(path), "rb")


def read_file(path: Path, cap: int = DOCUMENT) -> bytes:
    """Read a regular file.

    Args:
        path: The file.
        cap: Maximum size in bytes.

    Raises:
        OSError: as in `open_regular`, or the file is larger than `cap`.
    """
    with open_binary(path) as file:
        return read_open(file, cap)


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file and not a link."""
    return _kind(path) == stat.S_IFREG


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder and not a link."""
    return _kind(path) == stat.S_IFDIR


def files_in(folder: Path, ending: str) -> list[Path]:
    """Regular files in a folder that have the given suffix, sorted by name; empty if `folder` is a link or no folder.

    Args:
        folder: The folder.
        ending: Suffix such as `.parquet`.
    """
    if not is_folder(folder):
        return []
    return sorted(path for path in folder.glob(f"*{ending}") if is_file(path))


def refuse_links(root: Path, path: Path) -> None:
    """Raise an error if a path below `root` is, or leads through, a symbolic link.

    Args:
        root: A folder named by the user; links in its own path are allowed.
        path: A path below `root`; need not exist.

    Raises:
        OSError: the path contains a link; the message names it.
    """
    for folder in (*reversed(path.parents), path):
        if folder != root and folder.is_relative_to(root) and folder.is_symlink():
            raise link_error(folder)


def link_error(path: Path) -> OSError:
    """Error for a path that is a symbolic link."""
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
        raise OSError(errno.EINVAL, f"it is {_NAMES.get(kind, 'a special file')}, not a regular file", str(path))
