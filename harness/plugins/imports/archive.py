"""Members of a zip file that may come from a stranger: their number, their sizes and the size of all together are
limited. Python 3.11 cannot unpack Zstandard, which recent releases of Inspect use, but Arrow can."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.size_limits import LINE, ROWS, size_text
from harness.plugins.imports.reading import unreadable
from harness.store.arrow import arrow
from harness.store.safe_files import open_binary

_MEMBERS = 1_000_000
"""Maximum number of members."""

_RATIO = 200
"""Maximum ratio of the size of all members to that of the archive, if they are larger than `ROWS`."""

_ZSTANDARD = 93
"""Number of the compression method in a zip file."""

_LOCAL_HEADER = 30
"""Size of the fixed part of the header before each member."""


class Archive:
    """A zip file that is open for reading; a context manager.

    Args:
        path: The file.

    Raises:
        UsageError: it is no regular file, no zip file, or has too many members.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open_binary(path)
            self._size = path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from error
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError) as error:
            self._file.close()
            raise UsageError(f"{path} is not a zip file: {error}") from error
        self._unpacked = 0
        self.names = self._zip.namelist()
        if len(self.names) > _MEMBERS:
            raise UsageError(f"{path} has more than {_MEMBERS:,} members")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def read(self, name: str) -> bytes:
        """Unpack one member.

        Raises:
            UsageError: there is no such member, or it is damaged, too large or encrypted. The message names it.
        """
        where = f"{self._path}, {name}"
        if name not in self._zip.NameToInfo:
            raise UsageError(f"{self._path} has no member {name}")
        info = self._zip.getinfo(name)
        try:
            data = self._zstandard(info) if info.compress_type == _ZSTANDARD else self._deflated(info)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError, struct.error) as error:
            raise UsageError(f"{where} cannot be unpacked: {error}") from error
        if len(data) > LINE:
            raise UsageError(f"{where} is larger than {size_text(LINE)}, the maximum size")
        self._unpacked += len(data)
        if self._unpacked > max(ROWS, _RATIO * self._size):
            raise UsageError(f"{where}: the members together are far larger than the file, as in a zip bomb")
        return data

    def _deflated(self, info: zipfile.ZipInfo) -> bytes:
        with self._zip.open(info) as member:
            return member.read(LINE + 1)

    def _zstandard(self, info: zipfile.ZipInfo) -> bytes:
        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        name_size, extra_size = struct.unpack_from("<HH", header, 26)
        self._file.seek(name_size + extra_size, 1)
        packed = self._file.read(min(info.compress_size, LINE))
        pa = arrow()
        try:
            with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
                data: bytes = stream.read(LINE + 1)
        except pa.ArrowException as error:
            raise ValueError(error) from error
        if len(data) <= LINE and zlib.crc32(data) != info.CRC:
            raise ValueError("its checksum is wrong")
        return data
