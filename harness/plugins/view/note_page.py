"""The notes of one rollout as JSON, and a new one from the body of a request."""

from __future__ import annotations

from collections import Counter
from typing import cast

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.plugins.view.run_index import RunIndex
from harness.plugins.view.run_list import RunNotFound
from harness.store.codec import from_text
from harness.store.notes import add_note

LARGEST_BODY = 64 << 10
"""Maximum size of a request with a note, in bytes."""

_MOST_TAGS = 30
"""Maximum number of tags to suggest."""


def note_page(index: RunIndex, place: int, rollout: int, author: str) -> JsonDict:
    """The notes of a rollout; the keys are documented in docs/reference/view.md.

    Args:
        index: The index of the run.
        place: Position of the example in tables.
        rollout: Index of the rollout among those of the example.
        author: Who uses this server.

    Raises:
        RunNotFound: there is no such rollout.
        StoreError: its lines cannot be read.
    """
    file = index.note_file
    notes = file.notes.of(_key(index, place, rollout))
    used = Counter(tag for held in file.notes.by_rollout.values() for note in held for tag in note.tags)
    skipped = file.notes.skipped
    lines = "1 line of notes.jsonl is no note" if skipped == 1 else f"{skipped} lines of notes.jsonl are no notes"
    return {
        "notes": [{**note.to_json(), "own": note.author == author} for note in reversed(notes)],
        "author": author,
        "tags": [tag for tag, _ in used.most_common(_MOST_TAGS)],
        "problem": file.problem or (lines if skipped else ""),
    }


def write_note(index: RunIndex, place: int, rollout: int, author: str, body: bytes) -> JsonDict:
    """Append a note to the file of the run.

    Args:
        index: The index of the run.
        place: As in `note_page`.
        rollout: As in `note_page`.
        author: The author of the note.
        body: JSON with any of `tags`, `remark` and `score`; none of them removes the author's note.

    Returns:
        The notes of the rollout as in `note_page`.

    Raises:
        RunNotFound: there is no such rollout.
        UsageError: the body is no valid note.
        StoreError: the note was not written.
    """
    try:
        given = from_text(body)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not {"tags", "remark", "score"}.issuperset(cast(JsonDict, given)):
        raise UsageError("a note is a JSON object with tags, remark and score")
    add_note(index.entry.run, {**cast(JsonDict, given), "key": _key(index, place, rollout), "author": author})
    index.note_file.refresh()
    index.derived = {}
    return note_page(index, place, rollout, author)


def _key(index: RunIndex, place: int, rollout: int) -> str:
    """The key of a rollout in the journal."""
    number = index.find(place, rollout)
    if number is None:
        raise RunNotFound(f"The run {index.entry.id} has no rollout {rollout} of example {place}.")
    with index.reader() as reader:
        return index.outcome(reader, number).base.key
