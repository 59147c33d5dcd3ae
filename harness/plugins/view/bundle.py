"""Writes runs as a static site (`bench view --bundle`): the pages, and the data of the runs in `data/`. The site is
written beside its folder, and then takes the folder's place, so that a reader sees the old one or the new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from harness.core.errors import StoreError, UsageError
from harness.core.types import JsonDict
from harness.plugins.view.access import SECURITY_HEADERS
from harness.plugins.view.bundle_data import RunFiles, redacted
from harness.plugins.view.run_index import RunIndex
from harness.plugins.view.server import STATIC
from harness.store.atomic import discard, new_file, new_folder, swap_folder, translated
from harness.store.catalogue import ListedRun
from harness.store.codec import from_text, to_text
from harness.store.safe_files import is_folder, read_file

MARKER = "bench-bundle.json"
"""File by which a folder is recognized as a bundle: its runs, and the names of what else is in the folder."""

_FORMAT = 1
_PATIENCE = 60.0
"""Seconds without any progress after which the index of a run cannot be built."""

_WAIT = '<p class="wait">Loading …</p>'
_NEEDS_SERVER = (
    '<p class="wait">Loading … These files need a web server, such as <code>python -m http.server</code> in their '
    "folder.</p>"
)
_CHARSET = '<meta charset="utf-8">'


@dataclass
class Site:
    """The files that were written."""

    folder: Path
    is_private: bool = False
    """Whether only the user can read them."""
    runs: int = 0
    rollouts: int = 0
    unreadable: int = 0
    """Number of rollouts whose transcripts cannot be read."""
    files: int = 0
    size: int = 0
    """Number of bytes."""

    def write(self, name: str, content: bytes) -> None:
        """Write a new file below the folder.

        Raises:
            StoreError: it cannot be written.
        """
        path = self.folder / name
        with translated("write", path):
            missing = [parent for parent in path.parents if not parent.is_dir()]
            for parent in reversed(missing):
                new_folder(parent, private=self.is_private)
            with new_file(path) as file:
                file.write(content)
        self.files += 1
        self.size += len(content)


def check_folder(folder: Path) -> None:
    """Check that a bundle may be written to a folder: a new or empty one, or one that has only a bundle.

    Raises:
        UsageError: it may not.
    """
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: the folder {folder.parent} does not exist; create it first")
    if not os.path.lexists(folder):
        return
    if not is_folder(folder):
        raise UsageError(f"{folder} is a link or a file; give a new or empty folder for the bundle")
    with translated("read", folder):
        names = {*os.listdir(folder)}
    if names and (foreign := sorted(names - _names_of(folder))):
        raise UsageError(
            f"{folder} has other files than those of a bundle, such as {foreign[0]!r}, and the whole folder would be "
            "replaced; give a new or empty folder, or that of an earlier bundle"
        )


def _names_of(folder: Path) -> set[str]:
    """Names of the files and folders of an earlier bundle; empty if the folder is none."""
    with suppress(OSError, ValueError):
        found = from_text(read_file(folder / MARKER))
        if isinstance(found, dict) and cast(JsonDict, found).get("bundle") == _FORMAT:
            names = cast(JsonDict, found).get("names")
            return {MARKER, *map(str, cast("list[object]", names) if isinstance(names, list) else [])}
    return set()


def write_bundle(folder: Path, entries: Sequence[ListedRun]) -> Site:
    """Write runs as a static site, in place of the bundle that is there.

    Args:
        folder: The folder of the site.
        entries: The runs, which have different ids.

    Returns:
        The written site. Only the user can read it if one of the runs is private.

    Raises:
        UsageError: the folder has other files.
        StoreError: a run cannot be read, or a file cannot be written; the folder is unchanged.
    """
    folder = Path(os.path.abspath(folder))
    check_folder(folder)
    is_private = any(entry.manifest is not None and entry.manifest.is_private for entry in entries)
    new = folder.with_name(f".{folder.name[:100]}.{secrets.token_hex(4)}.tmp")
    site = Site(new, is_private)
    try:
        with translated("write", new):
            new_folder(new, private=is_private)
        _write(site, sorted(entries, key=lambda entry: entry.id, reverse=True))
        check_folder(folder)  # it may have changed meanwhile
        with translated("write", folder):
            swap_folder(new, folder)
    finally:
        if os.path.lexists(new):
            with suppress(OSError):
                discard(new)
    site.folder = folder
    return site


def _write(site: Site, entries: Sequence[ListedRun]) -> None:
    names = {"data"}
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            name = path.relative_to(STATIC)
            names.add(name.parts[0])
            content = path.read_bytes()
            site.write(name.as_posix(), _page(content) if name.as_posix() == "index.html" else content)
    written = datetime.now(UTC)
    runs: list[JsonDict] = []
    for number, entry in enumerate(entries):
        with _complete_index(entry) as index, index.reading():

            def write(name: str, content: bytes, folder: str = f"data/{number}") -> None:
                site.write(f"{folder}/{name}", content)

            files = RunFiles(index, write)
            runs.append(files.write())
            site.rollouts += index.count
            site.unreadable += files.unreadable
    listed = {"root": f"this bundle of {written:%d %b %Y}", "runs": runs, "problem": ""}
    site.write("data/runs.json", redacted(to_text(listed)))
    marker = {"bundle": _FORMAT, "written": written.isoformat(timespec="seconds"), "names": sorted(names)}
    site.write(MARKER, to_text(marker | {"runs": [entry.id for entry in entries]}).encode())
    site.runs = len(entries)


def _page(content: bytes) -> bytes:
    """The page, marked as that of a bundle, with the policy that the server sends as a header."""
    # A policy in a page cannot say who may frame it.
    policy = SECURITY_HEADERS["Content-Security-Policy"].partition("; frame-ancestors")[0]
    marks = (
        f'{_CHARSET}\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="bench-bundle" content="1">'
    )
    text = content.decode()
    assert _CHARSET in text and _WAIT in text
    return text.replace(_CHARSET, marks).replace(_WAIT, _NEEDS_SERVER).encode()


@contextmanager
def _complete_index(entry: ListedRun) -> Generator[RunIndex]:
    """Context manager with the index of a run that has all of its journal.

    Raises:
        StoreError: the index cannot be built.
    """
    if entry.manifest is None:
        raise StoreError(entry.problems[0] if entry.problems else f"the run {entry.id} cannot be read")
    index = RunIndex(entry)
    try:
        seen = -1
        while True:
            known, seen = seen, index.wait(_PATIENCE, seen=seen)
            with index.reading():
                if index.status()["done"]:
                    break
            if known == seen:
                raise StoreError(f"the index of {entry.id} cannot be built")
        yield index
    finally:
        index.close()
