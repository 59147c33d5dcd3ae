"""Durable file operations: atomic replacement, folder sync, folder exchange, private permissions. Also converts
`OSError` to `StoreError`. Private files and folders are created with their final permissions, so that they are never
readable by others."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from harness.core.errors import StoreError

_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space: the quota is used up",
    errno.EFBIG: "the file may not grow further: check `ulimit -f`",
    errno.EROFS: "the file system is read-only: choose another output folder",
    errno.EACCES: "choose an output folder that you may write to",
    errno.EPERM: "choose an output folder that you may write to",
    errno.EIO: "check the disk",
}


NO_PERMISSIONS = "this file system does not support permissions, so nothing on it can be private"

_OTHERS = 0o077
"""Permission bits for the group and for other users."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, ctypes.c_uint(2)
"""Constants for renameat2, from linux/fcntl.h and linux/fs.h."""
_RENAME_SWAP = ctypes.c_uint(2)
"""Flag for renamex_np, from sys/stdio.h of macOS."""


def store_error(action: str, path: Path, error: OSError) -> StoreError:
    """Convert an `OSError` to a `StoreError` that names the file, the errno and a remedy.

    Args:
        action: The failed operation, as a verb for the message "cannot {action} {path}".
        path: The file or folder.
        error: The original error.
    """
    code = errno.errorcode.get(error.errno, "") if error.errno is not None else ""
    hint = _HINTS.get(error.errno or 0, "")
    if action in ("read", "remove") and "output folder" in hint:
        hint = "ask its owner for permission"  # another folder to write to does not help
    if action == "read" and error.errno == errno.EFBIG:
        hint = ""  # our own limit, see `harness.core.size_limits`
    # str(error) may repeat the path; the reason alone is shorter.
    reason = error.strerror or str(error) or type(error).__name__
    words = f"cannot {action} {path}: {reason} ({code or 'no errno'}, errno {error.errno})"
    return StoreError(f"{words}; {hint}" if hint else words)


@contextlib.contextmanager
def translated(action: str, path: Path) -> Generator[None]:
    """Context manager that converts an `OSError` raised in its block to a `StoreError` about `path`."""
    try:
        yield
    except OSError as error:
        raise store_error(action, path, error) from error


def durable_sync(fd: int) -> None:
    """Sync a file to stable storage.

    Raises:
        OSError: syncing failed, so the content may not be on stable storage.
    """
    if sys.platform == "darwin":
        import fcntl

        # On macOS fsync(2) leaves the bytes in the drive's cache; some network mounts reject F_FULLFSYNC.
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_file(path: Path) -> None:
    """Sync a closed file to stable storage.

    Raises:
        OSError: as in `durable_sync`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        durable_sync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that creations, renames and removals in it survive power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network and FUSE mounts cannot sync a folder at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def is_closed(folder: Path) -> bool:
    """Return whether a folder's permissions let only its owner enter it; False if the folder does not exist."""
    try:
        return folder.stat().st_mode & _OTHERS == 0
    except OSError:
        return False


def file_mode(*, private: bool) -> int:
    """Return the permissions for a new file, before the umask is applied."""
    return 0o600 if private else 0o666


def new_folder(path: Path, *, private: bool) -> None:
    """Create a folder (`mkdir`).

    Args:
        path: The folder; must not exist.
        private: Whether only its owner may access the folder.

    Raises:
        OSError: the folder cannot be created, or the file system does not support private folders.
    """
    path.mkdir(0o700 if private else 0o777)
    if private and not is_closed(path):
        path.rmdir()
        raise OSError(errno.ENOTSUP, NO_PERMISSIONS, str(path))


def make_folder(path: Path, *, private: bool = False) -> None:
    """Create a folder and its parents (`mkdir -p`), and sync the new entries.

    Args:
        path: The folder.
        private: Whether only their owner may access the new folders. Existing folders are not changed.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, private=private)
    with contextlib.suppress(FileExistsError):
        new_folder(path, private=private)
        sync_folder(path.parent)


def close_to_others(folder: Path) -> None:
    """Make a folder and everything in it private to its owner. Targets of symbolic links are not changed.

    Raises:
        OSError: the permissions cannot be changed.
    """
    folder.chmod(0o700)  # first, so that others lose access to its content at once
    if not is_closed(folder):
        raise OSError(errno.ENOTSUP, NO_PERMISSIONS, str(folder))
    for root, folders, files in os.walk(folder):
        for name, mode in (*((each, 0o700) for each in folders), *((each, 0o600) for each in files)):
            path = Path(root, name)
            if not path.is_symlink():
                with contextlib.suppress(FileNotFoundError):
                    path.chmod(mode)


def new_file(path: Path) -> BinaryIO:
    """Create a file for writing; it must not exist. The file is private if its folder is."""
    mode = file_mode(private=is_closed(path.parent))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def atomic_write(path: Path, content: bytes | str, *, private: bool = False) -> None:
    """Replace a file atomically: a reader sees the old or the new content, even after a crash.

    Args:
        path: The file.
        content: New content.
        private: Whether only its owner may read the file.

    Raises:
        StoreError: the content was not written; the old file is unchanged.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with translated("write", path), replacement(path) as temporary:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_mode(private=private))
        try:
            write_all(fd, data)
            durable_sync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def replacement(path: Path) -> Generator[Path]:
    """Context manager with a temporary path: the file written there replaces `path`, or is removed on an error. The
    block must sync the file itself."""
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes: a full disk or a signal may interrupt write(2) after some of them."""
    written = os.write(fd, data)
    view = memoryview(data)
    while written < len(data):
        written += os.write(fd, view[written:])


def swap_folder(new: Path, current: Path) -> None:
    """Replace the folder `current` by the folder `new`, and remove the old one. Both must have the same parent. If the
    old folder cannot be removed, it is left under a name that begins with a dot. On Linux and macOS this is atomic.
    Elsewhere (some network mounts), `current` is missing for an instant; a reader then gets an error, but never wrong
    rows."""
    if not os.path.lexists(current):
        os.rename(new, current)
    elif exchange_folders(new, current):
        with contextlib.suppress(OSError):
            discard(new)
    else:
        retired = current.with_name(f".{current.name}.{secrets.token_hex(4)}.old")
        os.rename(current, retired)
        os.rename(new, current)
        with contextlib.suppress(OSError):
            discard(retired)
    sync_folder(current.parent)


def discard(path: Path) -> None:
    """Remove a folder with its content, a file, or a symbolic link (not its target).

    Raises:
        OSError: a part could not be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def exchange_folders(a: Path, b: Path) -> bool:
    """Exchange two folders atomically; return False if the file system cannot do that."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(a), os.fsencode(b)
    if sys.platform == "darwin":
        renamex = getattr(libc, "renamex_np", None)
        return renamex is not None and renamex(*names, _RENAME_SWAP) == 0
    renameat2 = getattr(libc, "renameat2", None)  # glibc >= 2.28, musl >= 1.2.5
    return renameat2 is not None and renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0
