"""Files and folders as tar archives, in which container engines copy them. All functions block.

Archives from a container are written by untrusted programs: only regular files and folders are read from them, one by
one and up to a limit, and nothing is written outside of the target."""

from __future__ import annotations

import io
import posixpath
import re
import shutil
import tarfile
import time
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

MAX_FILES = 100_000

PATTERN = re.compile(r"[\\?\[]")
"""Characters of paths that podman would read as a pattern, which may match another file. It cannot read a file with an
asterisk in its path."""

NoArchive: TypeAlias = tarfile.ReadError
"""Raised by functions that read an archive if the stream is none."""


def read_regular(stream: IO[bytes], path: str, limit: int) -> bytes:
    """Read the only file of an archive.

    Raises:
        FileNotFoundError: it is not a regular file.
        ValueError: it is larger than `limit` bytes.
        NoArchive: the stream is not an archive, or has no file.
    """
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        member = archive.next()
        if member is None:
            raise NoArchive("the archive is empty")
        content = archive.extractfile(member) if member.isreg() else None
        if content is None:
            raise FileNotFoundError(f"{path} is not a regular file")
        if member.size > limit:
            raise ValueError(f"{path} has {member.size:,} bytes, more than {limit:,}")
        return content.read()


def write_regular(stream: IO[bytes], name: str, content: bytes, mode: int) -> None:
    """Write an archive with one file."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), mode, int(time.time())
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.addfile(member, io.BytesIO(content))


def pack(stream: IO[bytes], source: Path, folder: str) -> None:
    """Write an archive of a file, or of the contents of a folder, as they are to be in `folder`.

    Raises:
        FileNotFoundError: there is no such file or folder.
    """
    is_folder = source.is_dir()
    files = sorted(source.rglob("*")) if is_folder else [source]
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for file in files or [source]:  # of an empty folder, the folder itself
            relative = file.relative_to(source).as_posix() if is_folder else source.name
            name = posixpath.normpath(f"{folder}/{relative}").lstrip("/")
            archive.add(file, name, recursive=False, filter=_without_owner)


def unpack(stream: IO[bytes], source: str, target: Path, limit: int) -> None:
    """Write the files of a folder's archive to `target`.

    Raises:
        FileNotFoundError: the archive is not one of a folder.
        ValueError: the files have more than `limit` bytes together, or are more than 100,000.
        NoArchive: the stream is not an archive, or is empty.
    """
    size, count = 0, -1
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, member in enumerate(archive):
            if count == 0 and not member.isdir():
                raise FileNotFoundError(f"{source} is not a folder")
            size += member.size
            if size > limit or count > MAX_FILES:
                raise ValueError(f"{source} has more than {limit:,} bytes, or more than {MAX_FILES:,} files")
            _write(archive, member, target)
    if count < 0:
        raise NoArchive("the archive is empty")


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write a regular file or a folder below `target`, in place of the first folder of its path."""
    parts = PurePosixPath(member.name).parts[1:]
    if ".." in parts:
        return
    path = target.joinpath(*parts)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif parts and member.isreg() and (content := archive.extractfile(member)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(0o644 | (member.mode & 0o111))


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
