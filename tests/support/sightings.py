"""Looks for words that must be nowhere: in every file below a folder, whatever its form, and in its name."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


def sightings(words: Mapping[str, str], *folders: Path, given: Iterable[Path] = ()) -> list[str]:
    """`word, file` of every file that holds a word, or has it in its name.

    Args:
        words: What to look for, by what it is called.
        folders: Where; with everything below.
        given: Files that hold them because the test wrote them there.
    """
    skip = {path.resolve() for path in given}
    found: list[str] = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.resolve() in skip or not path.is_file():
                continue
            name = str(path.relative_to(folder))
            for shown, data in [(name, name.encode()), *contents(name, path.read_bytes())]:
                found += [f"{called}: {shown}" for called, word in words.items() if word.encode() in data]
    return list(dict.fromkeys(found))


def contents(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of a file as it is and, if it is packed, of all that is in it."""
    yield name, data
    if data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            for each in packed.namelist():
                yield from contents(f"{name}!{each}", packed.read(each))
    elif data.startswith(b"\x1f\x8b"):
        yield from contents(f"{name}!", gzip.decompress(data))
    elif data.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        table = pq.read_table(io.BytesIO(data))
        whole = json.dumps([str(table.schema), str(table.schema.metadata), table.to_pylist()], default=str)
        yield f"{name}!rows", whole.encode()
