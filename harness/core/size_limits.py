"""Size limits for reading untrusted files: whole files, single lines and decompressed data.

The limits are far above any legitimate file. A larger file is rejected, not truncated, so that it cannot exhaust the
memory."""

from __future__ import annotations

import errno
import gzip
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

DOCUMENT = 64 << 20
"""Maximum size of settings files, manifests, summaries and cards, in bytes."""

ROWS = 2 << 30
"""Maximum size of a file of rows, tasks or results after decompression, in bytes."""

LINE = 256 << 20
"""Maximum size of one line (a row or a journal record), in bytes."""

_BATCH = 256
"""Number of rows of a parquet file that are decompressed at a time."""


def too_large(what: str, cap: int) -> OSError:
    """Return the error for a file, line or other data that is larger than `cap` bytes.

    Args:
        what: Name of the file or data, which begins the message.
        cap: Maximum size in bytes.
    """
    return OSError(errno.EFBIG, f"{what} is larger than {size_text(cap)}, the maximum size")


def size_text(size: int) -> str:
    """Format a size with its unit, such as `64 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def read_whole(path: Path, cap: int = DOCUMENT) -> bytes:
    """Read a file as bytes.

    Args:
        path: The file.
        cap: Maximum size in bytes.

    Raises:
        OSError: the file cannot be read or is larger than `cap`.
    """
    with path.open("rb") as file:
        return read_open(file, cap)


def read_open(file: BinaryIO, cap: int) -> bytes:
    """Read an open file to its end.

    Raises:
        OSError: the file cannot be read or is larger than `cap` bytes.
    """
    if os.fstat(file.fileno()).st_size > cap:
        raise too_large("it", cap)
    data = file.read(cap + 1)  # a pipe has no size, and a file may grow
    if len(data) > cap:
        raise too_large("it", cap)
    return data


def read_text(path: Path, cap: int = DOCUMENT, encoding: str = "utf-8-sig") -> str:
    """Read a file as text like `Path.read_text`, without a byte order mark.

    Raises:
        OSError: the file cannot be read or is larger than `cap` bytes.
        UnicodeDecodeError: the file is not in this encoding.
    """
    return read_whole(path, cap).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def lines_of(file: BinaryIO, cap: int = LINE) -> Iterator[bytes]:
    """Yield the lines of a file, including their line ends.

    Raises:
        OSError: the file cannot be read, or a line is larger than `cap` bytes; the message names the line.
    """
    number = 0
    while line := file.readline(cap + 1):
        number += 1
        if len(line) > cap:
            raise too_large(f"line {number}", cap)
        yield line


def unzipped(data: bytes, cap: int = ROWS) -> bytes:
    """Decompress a gzip file with all of its members.

    Raises:
        OSError: the result is larger than `cap` bytes, or the data is not gzip. EOFError: the data is truncated.
        zlib.error: the data is damaged.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(cap + 1)
    if len(found) > cap:
        raise too_large("the decompressed content", cap)
    return found


def parquet_batches(file: Any, cap: int = ROWS) -> Iterator[Any]:
    """Read a parquet file in batches. Even a small file may be too large for the memory when it is decompressed.

    Args:
        file: An open `pyarrow.parquet.ParquetFile`.
        cap: Maximum size of all rows together in memory, in bytes.

    Raises:
        OSError: the rows are larger than `cap` bytes.
    """
    size = 0
    for batch in file.iter_batches(batch_size=_BATCH, use_threads=False):
        size += batch.nbytes
        if size > cap:
            raise too_large("the decompressed content", cap)
        yield batch
