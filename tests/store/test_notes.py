"""Notes of people in a run folder: what is read back of what was appended, by whom and however it ended."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_samples import finished
from store_samples import generated, key
from tables import for_each_row

from harness.core.errors import StoreError, UsageError
from harness.core.redact import Redactor
from harness.core.types import JsonDict
from harness.store import notes as module
from harness.store.notes import FILE, LARGEST_FILE, Note, add_note, copy_notes, note_of, read_notes
from harness.store.rundir import RunDir

KEY = generated(0).key


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return finished(tmp_path / "outputs")


def document(**changes: Any) -> JsonDict:
    return {"key": KEY, "author": "ann", "tags": ["wrong-label"], "remark": "Why?", "score": 0.5, **changes}


def contents(run: RunDir) -> list[tuple[str, tuple[str, ...], str, float | None]]:
    return [(each.author, each.tags, each.remark, each.score) for each in read_notes(run).of(KEY)]


def test_a_note_is_read_back_and_the_newest_of_an_author_counts(run: RunDir) -> None:
    assert read_notes(run).by_rollout == {}
    written = add_note(run, document())
    assert read_notes(run).by_rollout == {KEY: (written,)}
    assert written.time.endswith("Z") and written.to_json()["tags"] == ("wrong-label",)
    add_note(run, document(author="bob", tags=["unclear"], remark="", score=None))
    add_note(run, document(tags=["a", "a"], remark=" Two\nlines \u2028\u202e ", score=3))
    add_note(run, document(key=key("other")))
    assert contents(run) == [("bob", ("unclear",), "", None), ("ann", ("a",), "Two\nlines \u2028\u202e", 3.0)]
    add_note(run, {"key": KEY, "author": "bob"})
    assert [author for author, *_ in contents(run)] == ["ann"]
    assert (run.path / FILE).read_bytes().count(b"\n") == 5, "lines are only appended"
    assert read_notes(run).skipped == 0


@for_each_row(
    "changes, said",
    [
        ({"tags": ["two words"]}, "a tag is one word"),
        ({"tags": [""]}, "a tag is one word"),
        ({"tags": ["a,b"]}, "a tag is one word"),
        ({"tags": ["x" * 61]}, "a tag is one word of at most 60"),
        ({"tags": [7]}, "a tag is one word"),
        ({"tags": "a"}, "at most 20 tags"),
        ({"tags": [str(n) for n in range(21)]}, "at most 20 tags"),
        ({"remark": "x" * 10_001}, "at most 10,000 characters"),
        ({"remark": ["x"]}, "the remark of a note is a text"),
        ({"score": "1"}, "the score of a note is a number"),
        ({"score": True}, "the score of a note is a number"),
        ({"score": float("nan")}, "a finite number"),
        ({"score": 10**400}, "a finite number"),
        ({"author": " "}, "the author of a note"),
        ({"author": "x" * 201}, "the author of a note"),
        ({"key": None}, "the key of a note"),
    ],
)
def test_a_wrong_note_is_refused_and_nothing_is_written(run: RunDir, changes: JsonDict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        add_note(run, document(**changes))
    assert not (run.path / FILE).exists()


def test_known_secrets_are_not_written(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Redactor()
    known.add("k-1234567890-secret")
    monkeypatch.setattr(module, "redactor", known)
    add_note(run, document(remark="it says k-1234567890-secret!", tags=["k-1234567890-secret"]))
    assert b"k-1234567890" not in (run.path / FILE).read_bytes()
    assert contents(run) == [("ann", ("[redacted]",), "it says [redacted]!", 0.5)]


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder", "hard"])
def test_only_a_regular_file_of_one_name_is_written(run: RunDir, tmp_path: Path, kind: str) -> None:
    target, path = tmp_path / "precious", run.path / FILE
    target.write_text("precious")
    if kind in ("link", "dangling"):
        path.symlink_to(target if kind == "link" else tmp_path / "nothing")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.link(target, path)
    with pytest.raises(StoreError, match=r"cannot write .*notes\.jsonl"):
        add_note(run, document())
    if kind == "hard":
        assert read_notes(run).skipped == 1
    else:
        with pytest.raises(StoreError, match=r"cannot read .*notes\.jsonl"):
            read_notes(run)
    assert target.read_text() == "precious" and not (tmp_path / "nothing").exists()


def test_the_file_has_a_largest_size(run: RunDir) -> None:
    with (run.path / FILE).open("wb") as file:
        file.truncate(LARGEST_FILE - 10)
    with pytest.raises(StoreError, match="larger than 16 MiB"):
        add_note(run, document())
    with (run.path / FILE).open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(StoreError, match="larger than 16 MiB"):
        read_notes(run)


def test_notes_of_a_private_run_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run = finished(tmp_path / "outputs")
        run.close_to_others()
        add_note(run, document())
        other = finished(tmp_path / "outputs", minute=1)
        other.close_to_others()
        copy_notes(run, other)
    finally:
        os.umask(before)
    assert {stat.S_IMODE((each.path / FILE).stat().st_mode) for each in (run, other)} == {0o600}


def test_writers_in_several_processes_lose_nothing(run: RunDir) -> None:
    code = """
import sys
from pathlib import Path
from harness.store.notes import add_note
from harness.store.rundir import RunDir
for number in range(25):
    add_note(RunDir(Path(sys.argv[1])), {"key": f"{number}", "author": sys.argv[2], "remark": "x" * 5000})
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(run.path), name]) for name in ("ann", "bob")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    found = read_notes(run)
    assert found.skipped == 0
    assert {note.author for held in found.by_rollout.values() for note in held} == {"ann", "bob"}
    assert [len(held) for held in found.by_rollout.values()] == [2] * 25


changes = st.fixed_dictionaries(
    {},
    optional={
        "author": st.sampled_from(["ann", "bob", " Ann  B. "]),
        "key": st.sampled_from([KEY, key("other"), "not a digest"]),
        "tags": st.lists(st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters=","), min_size=1,
                                 max_size=60), max_size=3),
        "remark": st.text(max_size=40),
        "score": st.one_of(st.none(), st.floats(-1e100, 1e100), st.integers(-10, 10)),
    },
)  # fmt: skip


def newest(written: list[Note]) -> dict[str, tuple[Note, ...]]:
    """The notes that count among all that were written."""
    held: dict[str, dict[str, Note]] = {}
    for note in written:
        of_rollout = held.setdefault(note.key, {})
        of_rollout.pop(note.author, None)
        if note.tags or note.remark or note.score is not None:
            of_rollout[note.author] = note
    return {name: tuple(notes.values()) for name, notes in held.items() if notes}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(changes, st.integers(0, 400)), max_size=6))
def test_however_writers_die_each_whole_note_is_read_back(steps: list[tuple[JsonDict, int]]) -> None:
    """After some notes, another writer dies after so many bytes of its line."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(Path(folder))
        torn = json.dumps(document(author="dead", remark="x" * 300)).encode()
        written: list[Note] = []
        pieces = 0
        for change, cut in steps:
            written.append(add_note(run, document(**change)))
            if cut:
                with (run.path / FILE).open("ab") as file:
                    file.write(torn[:cut])
                if cut >= len(torn):
                    written.append(note_of(json.loads(torn)))  # only its line feed is missing
                pieces += cut < len(torn)
            found = read_notes(run)
            assert (found.by_rollout, found.skipped) == (newest(written), pieces)


LINE = b'{"key": "k", "author": "a", "score": 1}'
PIECES = [b"{", b"}", b"[" * 2000, b'"key"', b":", b"1e999", b"null", b"\n", LINE, b"9" * 5000]


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)))
def test_any_content_is_read(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(content)
        found = read_notes(RunDir(Path(folder)))
        assert found.skipped + sum(map(len, found.by_rollout.values())) <= content.count(b"\n") + 1
