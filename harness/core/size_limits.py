"""How much is read of what others have made: files that are read whole, lines, and what packed files unfold to. Owns
these bounds and reading no more than they allow; what a file must hold, and how a user is told, is its reader's.

Nobody's file is that large by honest means; one that is would only fill the memory. So all of this is refused, and
nothing is cut."""

from __future__ import annotations

import errno
import gzip
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

DOCUMENT = 64 << 20
"""Bytes of a file of settings, a manifest, a summary, a card."""

ROWS = 2 << 30
"""Bytes of a file of rows, tasks or results, unpacked."""

LINE = 256 << 20
"""Bytes of one line: a row, or a record of a journal."""

_BATCH = 256
"""Rows of a parquet file that are unfolded at once."""


def too_large(what: str, cap: int) -> OSError:
    """The error of something that has more than `cap` bytes.

    Args:
        what: What has.
        cap: Bytes that are allowed.
    """
    return OSError(errno.EFBIG, f"{what} is larger than {size_words(cap)}, and no more is read")


def size_words(size: int) -> str:
    """A bound as people say it: `64 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def read_whole(path: Path, cap: int = DOCUMENT) -> bytes:
    """A file's bytes.

    Args:
        path: The file.
        cap: Bytes at most.

    Raises:
        OSError: it cannot be read, or is larger.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > cap:
            raise too_large("it", cap)
        data = file.read(cap + 1)  # a pipe has no size
    if len(data) > cap:
        raise too_large("it", cap)
    return data


def read_text(path: Path, cap: int = DOCUMENT, encoding: str = "utf-8-sig") -> str:
    """A file's text, as `Path.read_text` gives it; a byte order mark is left out.

    Raises:
        OSError: it cannot be read, or is larger than `cap` bytes.
        UnicodeDecodeError: it is no such text.
    """
    return read_whole(path, cap).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def lines_of(file: BinaryIO, cap: int = LINE) -> Iterator[bytes]:
    """The lines of a file, each with its end.

    Raises:
        OSError: it cannot be read, or a line is larger than `cap` bytes; says which.
    """
    number = 0
    while line := file.readline(cap + 1):
        number += 1
        if len(line) > cap:
            raise too_large(f"line {number}", cap)
        yield line


def unzipped(data: bytes, cap: int = ROWS) -> bytes:
    """What a gzip file holds, all of its members.

    Raises:
        OSError: it is larger than `cap` bytes, or no gzip.
        EOFError: it breaks off.
        zlib.error: it is damaged.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(cap + 1)
    if len(found) > cap:
        raise too_large("what it unfolds to", cap)
    return found


def parquet_batches(file: Any, cap: int = ROWS) -> Iterator[Any]:
    """The rows of a parquet file, some at a time: a small file may unfold to more than any memory.

    Args:
        file: An open `pyarrow.parquet.ParquetFile`.
        cap: Bytes in memory at most, of all rows together.

    Raises:
        OSError: they have more.
    """
    size = 0
    for batch in file.iter_batches(batch_size=_BATCH, use_threads=False):
        size += batch.nbytes
        if size > cap:
            raise too_large("what it unfolds to", cap)
        yield batch
