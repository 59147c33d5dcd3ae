"""Searches by the full-text index find exactly the rollouts that the command line finds, also while a run grows, when
the index is damaged or removed, and with two servers."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexed_runs import SETTINGS, indexed
from run_samples import finished
from store_samples import example, generated, write
from view_server import Client, until, viewing

from harness.core.records import Record
from harness.plugins.view import text_index
from harness.plugins.view.index_file import index_path
from harness.plugins.view.query_arrays import Progress, matching, parsed_query
from harness.plugins.view.run_index import RunIndex
from harness.plugins.view.text_index import TextBuilder, TextFile, is_supported, text_path
from harness.store.query import Term, query_text
from harness.store.query_match import compile_query
from harness.store.rundir import RunDir

texts = st.text("abcSsßİiΣς \"'*\n\t\0\ud800é🙂", max_size=14)


@pytest.fixture(autouse=True)
def every_run_is_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs of these tests get a full-text index, however short they are."""
    if not is_supported():
        pytest.skip("this SQLite has no FTS5 with trigrams")
    monkeypatch.setattr(text_index, "FEWEST", 1)
    yield


@st.composite
def journals(draw: st.DrawFn) -> list[Record]:
    """Rollouts with arbitrary text, some of them generated again."""
    found: list[Record] = [example(index, prompt=draw(texts)) for index in range(2)]
    for _ in range(draw(st.integers(1, 5))):
        messages = [
            {"role": "assistant", "content": draw(texts), "reasoning_content": draw(texts)}
            for _ in range(draw(st.integers(1, 2)))
        ]
        found.append(generated(draw(st.integers(0, 1)), draw(st.integers(0, 1)), completion=messages))
    return found


@st.composite
def searches(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["text", "prompt", "completion", "reasoning", "reply"]))
    value = draw(texts.filter(str.strip))
    return query_text(Term(column, ":", value)) if draw(st.booleans()) else f"-{query_text(Term(column, ':', value))}"


def build(index: RunIndex) -> None:
    """Build the full-text index of a run in this thread."""
    index.close()
    index._thread.join()  # pyright: ignore[reportPrivateUsage]
    path, run = index_path(index.entry.run.path), index.entry.run
    TextFile(text_path(path)).close()
    builder = TextBuilder(path, run, index.manifest)
    with index.reading():
        while builder.advance(index.array("base_line"), index.array("example_line")):
            pass
        builder.close()
        excluded = index.text_index.excluded(("\x01\x01\x01",), index.array("base_line"))
    assert np.all(excluded), "every rollout is in it"


places = st.tuples(st.integers(0, 9), st.integers(0, 40), st.integers(1, 12))


@SETTINGS
@given(journals(), st.lists(searches(), min_size=8, max_size=8), st.lists(places, min_size=3, max_size=3))
def test_a_search_finds_the_same_rollouts_as_on_the_command_line(
    records: list[Record], queries: list[str], parts: list[tuple[int, int, int]]
) -> None:
    with indexed(records) as (index, rollouts):
        build(index)
        for number, start, size in parts:  # of texts that are there
            held = index.columns.columns["text"].read(rollouts[number % len(rollouts)])
            assert isinstance(held, str)
            part = held[start % len(held) :][:size].swapcase()
            queries += [query_text(Term("text", ":", part))] if part.strip() else []
        with index.reading():
            for text in queries:
                matches = compile_query(text, index.columns).matches
                found = matching(index, parsed_query(index, text), Progress(deadline=math.inf))
                assert found[index.order].tolist() == [matches(rollout) for rollout in rollouts], text


def test_without_full_text_search_in_sqlite_the_journal_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = sqlite3.Connection(*args, **options)
        refused = sqlite3.SQLITE_CREATE_VTABLE
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action == refused else sqlite3.SQLITE_OK)
        return connection

    out = tmp_path / "outputs"
    run = finished(out, [example(), generated(completion="A quernstone"), example(1), generated(1, completion="No")])
    monkeypatch.setattr(sqlite3, "connect", connect)
    for is_known in (True, False):  # SQLite says it when it is asked, or, as on a full disk, only for the file
        is_supported.cache_clear()
        monkeypatch.setattr(text_index, "is_supported", (lambda: True) if is_known is False else is_supported)
        with viewing(out) as client:
            for _ in range(3):
                until(lambda of=client: found(of, run, "QUERN") == [(0, 0)])
                assert found(client, run, "nowhere") == []
        path = text_path(index_path(run.path))
        assert path.exists() is not is_known
    is_supported.cache_clear()


def found(client: Client, run: RunDir, words: str) -> list[tuple[int, int]]:
    answer = client.get(f"/api/runs/{run.id}/rollouts?q=text:{words}")
    assert answer["scan"] is None
    return sorted((row["index"], row["r"]) for row in answer["rows"])


def test_searches_of_two_servers_follow_a_run_and_survive_damage_and_removal(tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    run = finished(out)  # four rollouts
    path = text_path(index_path(run.path))

    def says(index: int, words: str) -> Record:
        return generated(index, completion=[{"role": "assistant", "content": words}])

    def is_filled(documents: int) -> bool:
        try:
            with closing(TextFile(path)) as file:
                return len(file.lines(1)) == documents
        except sqlite3.Error:  # it has no tables yet
            return False

    with viewing(out) as first, viewing(out) as second:
        for client in (first, second):
            until(lambda of=client: found(of, run, "nowhere") == [])
        until(lambda: found(first, run, "nowhere") == [] and is_filled(4))
        write(run.journal_path, [example(4), says(4, "Quernstone"), says(1, "a quernstone again")])
        for client in (first, second):
            until(lambda of=client: found(of, run, "QUERN") == [(1, 0), (4, 0)])
        until(lambda: found(first, run, "nowhere") == [] and is_filled(6))
        for harm in (lambda: path.write_bytes(b"no database" * 1000), path.unlink):
            harm()
            for client in (first, second):
                until(lambda of=client: found(of, run, "quernst") == [(1, 0), (4, 0)])
                assert found(client, run, "nowhere") == []
        until(lambda: found(first, run, "elsewhere") == [] and is_filled(5))
    # The last line, which is in the full-text index, is replaced by another one.
    newest = run.journal_path.read_bytes()[:-1].rfind(b"\n") + 1
    os.truncate(run.journal_path, newest)
    write(run.journal_path, [says(1, "a harpsichord, which has more words than the line had")])
    with viewing(out) as third:
        until(lambda: third.get(f"/api/runs/{run.id}")["index"] == {"rollouts": 5, "done": True, "error": ""})
        assert found(third, run, "harpsichord") == [(1, 0)]
