"""An index does not depend on the processes that help to build it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from indexed_runs import METRICS
from run_samples import run_at
from store_samples import example, failed, generated, scored, write

from harness.core.records import Record
from harness.plugins.view import index_build
from harness.plugins.view.index_build import Builder
from harness.plugins.view.index_file import IndexFile
from harness.plugins.view.index_helper import Helper
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir


def sample(run: RunDir, examples: int = 40) -> None:
    """A journal in which rollouts are scored long after they were generated, and some again."""
    records: list[Record] = []
    for number in range(examples):
        call = {"id": "c", "type": "function", "function": {"name": f"tool{number % 3}", "arguments": "{}"}}
        said = [{"role": "assistant", "content": f"so {number}\ud800", "tool_calls": [call]}]
        records += [example(number, answer=f"{number}\ud800"), generated(number, completion=said), failed(number, 1)]
        if number >= 10:
            records.append(scored(number - 10, 0, (number % 4) / 4))
        if number % 7 == 6:
            records += [generated(number - 5, 0), scored(number - 5, 0, None, reasons={"correct": "x" * 3000})]
    write(run.journal_path, records)


def content(path: Path) -> list[Any]:
    """Content of an index, without its name."""
    with closing(sqlite3.connect(path)) as database:
        tables = [database.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in
                  ("piece", "word", "example", "reply")]  # fmt: skip
        kept = database.execute("SELECT * FROM meta WHERE name IN ('end', 'rollouts', 'left_out', 'error')").fetchall()
    return [*tables, kept]


def built(run: RunDir, path: Path) -> tuple[list[Any], list[int]]:
    """Content of a new index, and the bytes that were left after each batch."""
    file = IndexFile(path)
    builder = Builder(file, run, run.read_manifest())
    builder.resume()
    left = [*builder.advance()]
    file.close()
    return content(path), left


@pytest.mark.parametrize("fails", [False, True])
def test_the_index_is_the_same_with_the_help_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    run = run_at(tmp_path / "outputs", metric_names=METRICS)
    sample(run)
    monkeypatch.setattr(index_build, "SLICE", 1_000)
    expected, _ = built(run, tmp_path / "alone.sqlite")
    started: list[Helper] = []

    def helpers(folder: RunDir, manifest: Manifest) -> list[Helper]:
        started.append(Helper(folder, manifest))
        if fails:
            started[0]._process.kill()  # pyright: ignore[reportPrivateUsage]
        return started[:]

    for name, size in {"LONG": 0, "BATCH": 4_000, "_LONG_BATCH": 6_000}.items():
        monkeypatch.setattr(index_build, name, size)
    monkeypatch.setattr(index_build, "helpers_of", helpers)
    found, left = built(run, tmp_path / "helped.sqlite")
    assert found == expected
    assert left[-1] == 0
    assert len(started) == 1
    started[0]._process.wait(60)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("damage", [b'{"type": 1}\n', b'{"type":"scored","key":"nowhere"}\n'])
def test_a_damaged_line_ends_the_index_before_it_also_with_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    run = run_at(tmp_path / "outputs", metric_names=METRICS)
    sample(run)
    whole = run.journal_path.read_bytes()
    at = whole.index(b"\n", len(whole) * 2 // 3) + 1
    run.journal_path.write_bytes(whole[:at] + damage + whole[at:])
    monkeypatch.setattr(index_build, "SLICE", 1_000)
    expected, _ = built(run, tmp_path / "alone.sqlite")
    assert f"byte {at}" in dict(expected[-1])["error"] or "not known" in dict(expected[-1])["error"]
    for name, size in {"LONG": 0, "BATCH": 4_000}.items():
        monkeypatch.setattr(index_build, name, size)
    made: Callable[[RunDir, Manifest], list[Helper]] = lambda folder, manifest: [Helper(folder, manifest)]  # noqa: E731
    monkeypatch.setattr(index_build, "helpers_of", made)
    found, _ = built(run, tmp_path / "helped.sqlite")
    assert found == expected
    assert dict(found[-1])["end"] == str(at)
