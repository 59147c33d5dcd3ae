"""Notes of people about rollouts: tags, a remark and a score, in `notes.jsonl` beside the journal. A line is one note.
Lines are only appended: the newest line of an author about a rollout replaces the earlier ones, and one without content
removes them. Notes are no part of the scores, the dataset or a push to the Hub."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Mapping, Sequence
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

DRAWS = "draws.jsonl"
"""Name of the file in the run folder with the rollouts that were drawn for labelling (`store.draws`)."""

LARGEST_FILE = 16 << 20
"""Maximum size of each file in bytes."""

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
    """Append a note to the file of a run, as `add_notes` does.

    Returns:
        The note as written.
    """
    return add_notes(folder, [document])[0]


def add_notes(folder: RunDir, documents: Sequence[JsonDict]) -> list[Note]:
    """Append notes to the file of a run, with one write. Known secrets are removed from their texts. Several processes
    may do this at the same time.

    Args:
        folder: The run; the caller has checked that the path of its folder contains no link.
        documents: The notes as in `note_of`; their time is now.

    Returns:
        The notes as written.

    Raises:
        UsageError: a note is invalid; nothing was written.
        StoreError: the notes were not written.
    """
    notes: list[Note] = []
    for document in documents:
        checked = note_of(document)
        clean = cast(JsonDict, map_texts(document, partial(redactor.text, patterns=False)))
        notes.append(replace(note_of({**clean, "key": checked.key}), time=timestamp()))
    append_lines(folder, FILE, [{"key": note.key, **note.to_json()} for note in notes])
    return notes


def append_lines(folder: RunDir, name: str, documents: Sequence[JsonDict]) -> None:
    """Append JSON lines to a file that people add to a run, with one write and one sync.

    Args:
        folder: The run; the caller has checked that the path of its folder contains no link.
        name: Name of the file.
        documents: The lines.

    Raises:
        StoreError: the lines were not written, or the file would be larger than `LARGEST_FILE`.
    """
    content = b"".join(to_text(document).encode() + b"\n" for document in documents)
    path = folder.path / name
    with translated("write", path):
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        fd = open_to_append(path, flags, file_mode(private=folder.is_closed))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # until the file is closed
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                content = b"\n" + content  # another writer died within its line
            if size + len(content) > LARGEST_FILE:
                raise OSError(errno.EFBIG, f"it would be larger than {size_text(LARGEST_FILE)}, the maximum size")
            if os.write(fd, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            durable_sync(fd)
        finally:
            os.close(fd)
        if not size:
            sync_folder(folder.path)


def copy_notes(source: RunDir, target: RunDir) -> None:
    """Copy the notes of a run, and its record of drawn rollouts, to a run that has the same rollouts, as after a
    rescore.

    Raises:
        StoreError: a file cannot be read or written.
    """
    for name in (FILE, DRAWS):
        with translated("read", source.path / name):
            try:
                content = read_file(source.path / name, LARGEST_FILE)
            except FileNotFoundError:
                continue
        atomic_write(target.path / name, content, private=target.is_closed)
