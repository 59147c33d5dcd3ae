"""Notes of people about rollouts: tags, a remark and a score, in `notes.jsonl` beside the journal. A line is one note.
Lines are only appended: the newest line of an author about a rollout replaces the earlier ones, and one without content
removes them. Notes are no part of the scores, the dataset or a push to the Hub."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from harness.core.errors import UsageError
from harness.core.redact import redactor
from harness.core.size_limits import size_text
from harness.core.types import JsonDict
from harness.stats.scores import LARGEST_SCORE
from harness.store.atomic import atomic_write, durable_sync, file_mode, sync_folder, translated
from harness.store.codec import from_text, map_texts, to_text
from harness.store.rundir import RunDir, timestamp
from harness.store.safe_files import open_to_append, read_file

FILE = "notes.jsonl"
"""Name of the file in the run folder."""

LARGEST_FILE = 16 << 20
"""Maximum size of the file in bytes."""

LARGEST_LINE = 256 << 10
"""Maximum size of a line in bytes."""

MOST_TAGS = 20
LONGEST_TAG = 60
LONGEST_REMARK = 10_000
LONGEST_NAME = 200

_TAG = re.compile(r"[^\s,]+")


@dataclass(frozen=True, slots=True)
class Note:
    """The note of one author about one rollout."""

    key: str
    """Key of the rollout, as in the journal."""
    author: str
    time: str = ""
    """UTC time in ISO 8601."""
    tags: tuple[str, ...] = ()
    """Words without blanks and commas."""
    remark: str = ""
    score: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the note has no content, which removes the author's earlier note."""
        return not self.tags and not self.remark and self.score is None

    def to_json(self) -> JsonDict:
        """The note as JSON, without the key of its rollout."""
        names = ("author", "time", "tags", "remark", "score")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of a run."""

    by_rollout: Mapping[str, tuple[Note, ...]] = field(default_factory=dict[str, tuple[Note, ...]])
    """Notes by the key of their rollout, the newest last; only rollouts with a note."""
    skipped: int = 0
    """Number of lines that are no note, such as one that a crash cut off."""

    def of(self, key: str) -> tuple[Note, ...]:
        """The notes about a rollout."""
        return self.by_rollout.get(key, ())


def note_of(document: object) -> Note:
    """Make a note from JSON.

    Args:
        document: An object with `key` and `author`, and any of `time`, `tags`, `remark` and `score`.

    Raises:
        UsageError: a value has the wrong type, or is too long.
    """
    known = cast(JsonDict, document) if isinstance(document, dict) else {}
    key, author, time = (known.get(name, "") for name in ("key", "author", "time"))
    for name, value in {"key": key, "author": author, "time": time}.items():
        if not isinstance(value, str) or len(value) > LONGEST_NAME or (name != "time" and not value.strip()):
            raise UsageError(f"the {name} of a note is a text of at most {LONGEST_NAME} characters")
    remark, score, tags = known.get("remark", ""), known.get("score"), known.get("tags", [])
    if not isinstance(remark, str) or len(remark) > LONGEST_REMARK:
        raise UsageError(f"the remark of a note is a text of at most {LONGEST_REMARK:,} characters")
    if not isinstance(tags, list) or len(cast("list[object]", tags)) > MOST_TAGS:
        raise UsageError(f"a note has at most {MOST_TAGS} tags")
    for tag in cast("list[object]", tags):
        if not isinstance(tag, str) or len(tag) > LONGEST_TAG or not _TAG.fullmatch(tag):
            raise UsageError(f"a tag is one word of at most {LONGEST_TAG} characters, without blanks and commas")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise UsageError("the score of a note is a number")
    if score is not None and not abs(score) <= LARGEST_SCORE:  # NaN, too
        raise UsageError("the score of a note is a finite number")
    return Note(
        cast(str, key), " ".join(cast(str, author).split()), cast(str, time),
        tuple(dict.fromkeys(cast("list[str]", tags))), remark.strip(), None if score is None else float(score),
    )  # fmt: skip


def read_notes(folder: RunDir) -> Notes:
    """Read the notes of a run. Lines that are no note are skipped.

    Raises:
        StoreError: the file cannot be read, is no regular file, or is larger than `LARGEST_FILE`.
    """
    path = folder.path / FILE
    with translated("read", path):
        try:
            content = read_file(path, LARGEST_FILE)
        except FileNotFoundError:
            return Notes()
    found: dict[str, dict[str, Note]] = {}
    skipped = 0
    for line in filter(None, content.split(b"\n")):
        try:
            if len(line) > LARGEST_LINE:
                raise ValueError
            note = note_of(from_text(line))
        except (ValueError, UsageError):
            skipped += 1
            continue
        held = found.setdefault(note.key, {})
        held.pop(note.author, None)
        if not note.is_empty:
            held[note.author] = note
    return Notes({key: tuple(held.values()) for key, held in found.items() if held}, skipped)


def add_note(folder: RunDir, document: JsonDict) -> Note:
    """Append a note to the file of a run. Known secrets are removed from its texts. Several processes may do this at
    the same time.

    Args:
        folder: The run; the caller has checked that the path of its folder contains no link.
        document: The note as in `note_of`; its time is now.

    Returns:
        The note as written.

    Raises:
        UsageError: the note is invalid; nothing was written.
        StoreError: the note was not written.
    """
    checked = note_of(document)
    clean = cast(JsonDict, map_texts(document, partial(redactor.text, patterns=False)))
    note = replace(note_of({**clean, "key": checked.key}), time=timestamp())
    line = to_text({"key": note.key, **note.to_json()}).encode() + b"\n"
    path = folder.path / FILE
    with translated("write", path):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        fd = open_to_append(path, flags, file_mode(private=folder.is_closed))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # until the file is closed
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # another writer died within its line
            if size + len(line) > LARGEST_FILE:
                raise OSError(errno.EFBIG, f"it would be larger than {size_text(LARGEST_FILE)}, the maximum size")
            if os.write(fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            durable_sync(fd)
        finally:
            os.close(fd)
        if not size:
            sync_folder(folder.path)
    return note


def copy_notes(source: RunDir, target: RunDir) -> None:
    """Copy the notes of a run to a run that has the same rollouts, as after a rescore.

    Raises:
        StoreError: a file cannot be read or written.
    """
    with translated("read", source.path / FILE):
        try:
            content = read_file(source.path / FILE, LARGEST_FILE)
        except FileNotFoundError:
            return
    atomic_write(target.path / FILE, content, private=target.is_closed)
