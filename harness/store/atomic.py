"""Durable file primitives: write-and-replace, folder entries that survive power loss, folder exchange, who may read
what is made, and the one translation of `OSError` into `StoreError`. Owns no file format and no file name.

What is private is made so: it is open to nobody else, not for an instant."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import BinaryIO

from harness.core.errors import StoreError

_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space: the quota is used up",
    errno.EFBIG: "the file may not grow further: check `ulimit -f`",
    errno.EROFS: "the file system is read-only: choose another place with -o",
    errno.EACCES: "choose a place with -o that you may write to",
    errno.EPERM: "choose a place with -o that you may write to",
    errno.EIO: "check the disk",
}


_OTHERS = 0o077
"""Bits of a mode that let in others than the owner."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, ctypes.c_uint(2)
"""From linux/fcntl.h and linux/fs.h."""
_RENAME_SWAP = ctypes.c_uint(2)
"""From macOS' sys/stdio.h."""


def store_error(action: str, path: Path, error: OSError) -> StoreError:
    """`error` as a message that names the file, the errno and what to do.

    Args:
        action: What was being done, as in "cannot {action} {path}".
        path: The file or folder.
        error: What the system said.
    """
    code = errno.errorcode.get(error.errno, "") if error.errno is not None else ""
    hint = _HINTS.get(error.errno or 0, "")
    if action in ("read", "remove") and " -o" in hint:
        hint = "ask its owner"  # another place to write to is no help
    if action == "read" and error.errno == errno.EFBIG:
        hint = ""  # our own bound, see `harness.core.size_limits`
    # str(error) repeats the path where the system names one; the bare reason reads better.
    reason = error.strerror or str(error) or type(error).__name__
    return StoreError(f"cannot {action} {path}: {reason} ({code or 'no errno'}, errno {error.errno})" + _tail(hint))


def _tail(hint: str) -> str:
    return f"; {hint}" if hint else ""


@contextlib.contextmanager
def translated(action: str, path: Path) -> Generator[None]:
    """Turns an `OSError` of the block into a `StoreError` about `path`."""
    try:
        yield
    except OSError as error:
        raise store_error(action, path, error) from error


def durable_sync(fd: int) -> None:
    """Returns when the file's bytes are on stable storage.

    Raises:
        OSError: they may not be.
    """
    if sys.platform == "darwin":
        import fcntl

        # On macOS fsync(2) leaves the bytes in the drive's cache; F_FULLFSYNC is refused by some network mounts.
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_folder(path: Path) -> None:
    """Makes creations, renames and removals in `path` survive power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network and FUSE mounts cannot sync a folder at all; there is nothing better to do on them.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def is_closed(folder: Path) -> bool:
    """Whether nobody but its owner may enter a folder, by its mode. One that is not there is open."""
    try:
        return folder.stat().st_mode & _OTHERS == 0
    except OSError:
        return False


def file_mode(*, private: bool) -> int:
    """What a new file is made with; the umask takes from it."""
    return 0o600 if private else 0o666


def new_folder(path: Path, *, private: bool) -> None:
    """`mkdir`.

    Args:
        path: The folder; must not exist.
        private: For its owner only.

    Raises:
        OSError: it cannot be made, or this file system lets others in all the same.
    """
    path.mkdir(0o700 if private else 0o777)
    if private and not is_closed(path):
        path.rmdir()
        raise OSError(errno.ENOTSUP, "this file system keeps nobody out, so nothing can be private on it", str(path))


def make_folder(path: Path, *, private: bool = False) -> None:
    """`mkdir -p` whose new entries survive power loss.

    Args:
        path: The folder.
        private: Make what is missing for its owner only. What is there stays as it is.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, private=private)
    with contextlib.suppress(FileExistsError):
        new_folder(path, private=private)
        sync_folder(path.parent)


def close_to_others(folder: Path) -> None:
    """Takes a folder, and all that lies in it, from everybody but its owner. What a link leads to is left alone.

    Raises:
        OSError: it cannot be done.
    """
    folder.chmod(0o700)  # first: from here on, nobody comes to what is in it
    if not is_closed(folder):
        raise OSError(errno.ENOTSUP, "this file system keeps nobody out, so nothing can be private on it", str(folder))
    for root, folders, files in os.walk(folder):
        for name, mode in (*((each, 0o700) for each in folders), *((each, 0o600) for each in files)):
            path = Path(root, name)
            if not path.is_symlink():
                with contextlib.suppress(FileNotFoundError):
                    path.chmod(mode)


def new_file(path: Path) -> BinaryIO:
    """Opens a file for writing that must not exist; private if its folder is closed to others."""
    mode = file_mode(private=is_closed(path.parent))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def atomic_write(path: Path, content: bytes | str, *, private: bool = False) -> None:
    """Replaces `path` by `content` in one step: a reader sees the old file or the new one, also after a crash.

    Args:
        path: The file.
        content: Its content.
        private: For its owner only.

    Raises:
        StoreError: the file is as it was.
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
    """Gives a new name beside `path`; what the block leaves there takes the place of `path`, or is removed on an error.

    The block syncs the file itself.
    """
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
    """write(2) until every byte is taken: a disk that fills up, or a signal, may take only some."""
    written = os.write(fd, data)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(data):
        written += os.write(fd, view[written:])


def swap_folder(new: Path, current: Path) -> None:
    """Puts the folder `new` in the place of `current`, and removes what was there. Both must lie in one folder.

    What cannot be removed stays under a name that begins with a dot. Where the system can exchange two names (Linux,
    macOS), no moment passes in which `current` is absent. Elsewhere (some network mounts) it is absent for an instant,
    which a reader meets as a missing folder, never as wrong rows.
    """
    if not os.path.lexists(current):
        os.rename(new, current)
    elif _exchange(new, current):
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
    """Removes a folder with all that is in it, a file, or a link without what it leads to.

    Raises:
        OSError: something of it is left.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def can_exchange(a: Path, b: Path) -> bool:
    """Whether the file system exchanges the names of two folders in one step, which it does to these."""
    return _exchange(a, b)


def _exchange(a: Path, b: Path) -> bool:
    call = _exchange_call()
    return call is not None and call(os.fsencode(a), os.fsencode(b)) == 0


def _exchange_call() -> Callable[[bytes, bytes], int] | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        renamex = getattr(libc, "renamex_np", None)
        return None if renamex is None else lambda a, b: renamex(a, b, _RENAME_SWAP)
    renameat2 = getattr(libc, "renameat2", None)  # glibc >= 2.28, musl >= 1.2.5
    if renameat2 is None:
        return None
    return lambda a, b: renameat2(_AT_FDCWD, a, _AT_FDCWD, b, _RENAME_EXCHANGE)
