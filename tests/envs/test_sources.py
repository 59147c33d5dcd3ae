"""Rows of a file, of the Hub or of the package: in their own order, whole, and with words for what is wrong."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import for_each_row

from harness import RowSource, SourceRow
from harness.core.errors import ConfigError, EnvironmentLoadError
from harness.envs.sources import is_file, read_file

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "environment-api.md"
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
ROWS = [{"ask": "Line\u2028break?", "key": "1"}, {"ask": "b?", "key": "2"}]


def sample() -> Iterator[Mapping[str, object]]:
    yield from ROWS


def source(**options: Any) -> RowSource:
    return RowSource(hub_id="me/quiz", sample=sample, noun="riddle", columns=("ask", "key"), **options)


def write_jsonl(path: Path) -> None:
    path.write_text("\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), encoding="utf-8")


def write_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in ROWS).encode()))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize(
    ("name", "write", "numbers"),
    [("a.jsonl", write_jsonl, [1, 3]), ("a.jsonl.gz", write_gzip, [1, 2]), ("a.parquet", write_parquet, [1, 2])],
)
def test_a_file_is_read_in_its_own_order(
    tmp_path: Path, name: str, write: Callable[[Path], None], numbers: list[int]
) -> None:
    path = tmp_path / name
    write(path)
    of = source(suffixes=SUFFIXES)
    of.check(str(path))
    rows = list(of.rows(str(path)))
    assert [row.cells for row in rows] == ROWS
    assert [row.where for row in rows] == [f"{path}, row {n}" for n in numbers]


def test_a_path_may_begin_with_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_jsonl(tmp_path / "a.jsonl")
    source().check("~/a.jsonl")
    assert [row.cells for row in source().rows("~/a.jsonl")] == ROWS


def test_the_sample_is_a_split() -> None:
    source().check("me/quiz", "sample")
    rows = list(source().rows("me/quiz", "sample"))
    assert [row.cells for row in rows] == ROWS
    assert [row.where for row in rows] == ["sample riddle 1", "sample riddle 2"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.jsonl", b'{"ask": 1}\n{', "a.jsonl, row 2: not JSON: "),
        ("a.jsonl", b"[" * 100_000, "a.jsonl, row 1: not JSON: "),
        ("a.jsonl", b"[1]", "a.jsonl, row 1: must be an object with the columns ask, key, not list"),
        ("a.jsonl", b"\xff", "a.jsonl cannot be read as UTF-8 text: "),
        ("a.jsonl", b"\n \n", "a.jsonl has no rows"),
        ("a.jsonl.gz", b"plain", "a.jsonl.gz cannot be read as UTF-8 text: Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], "a.jsonl.gz cannot be read as UTF-8 text: Compressed"),
        ("a.jsonl.gz", b"\x1f\x8b\x08" + b"\0" * 7 + b"\xff" * 9, "a.jsonl.gz cannot be read as UTF-8 text: Error -3"),
        ("a.parquet", b"PAR1", "a.parquet cannot be read as parquet: "),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(EnvironmentLoadError) as caught:
        list(source(suffixes=SUFFIXES).rows(str(tmp_path / name)))
    assert str(caught.value).startswith(f"{tmp_path}/{words}")


def test_rows_are_checked_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"ask": "a?"}\n{', encoding="utf-8")
    rows = source().rows(str(path))
    assert next(rows).text("ask") == "a?"
    with pytest.raises(EnvironmentLoadError, match="row 2: not JSON"):
        next(rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("me/other", "sample"), "split='sample' selects the package's own riddles; leave out `dataset`"),
        (("me/quiz", "sample", "a"), "package's own riddles; leave out `dataset` and `subset`"),
        (("a.csv.jsonl",), "dataset='a.csv.jsonl': there is no such file (looked in "),
        (("./a.csv",), "dataset='./a.csv': the name of a file must end in .jsonl or .parquet"),
        (("here.jsonl", "train"), "dataset='here.jsonl' is a file, so it has no `split`; leave it out"),
        (("here.jsonl", "test", "a"), "is a file, so it has no `split` and no `subset`; leave them out"),
        (("here.txt",), "dataset='here.txt': the name of a file must end in"),
        ((5,), "dataset must be a string, not 5"),
        (("me/quiz", None), "split must be a string, not None"),
        (("me/quiz", "test", 5), "subset must be a string, not 5"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("here.jsonl", "here.txt"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError) as caught:
        source().check(*arguments)
    assert words in str(caught.value)


def test_what_has_subsets_says_so() -> None:
    with pytest.raises(ConfigError, match="leave out `dataset` and `subset`"):
        source(subset="main").check("me/other", "sample")


def test_a_name_of_the_hub_is_no_file() -> None:
    assert not is_file("me/quiz")
    source().check("me/quiz", "train", "hard")


# One row


def test_a_row_gives_its_cells() -> None:
    row = SourceRow("here", {"a": " x ", "n": 2.5, "none": None})
    assert (row.text("a"), row.text("n", numbers=True), row.cell("none")) == (" x ", "2.5", None)


@for_each_row(
    ("column", "numbers", "words"),
    [
        ("b", False, "here: there is no column 'b'; it has blank, n, yes, long"),
        ("blank", False, "here: column 'blank' must be a non-blank string, not ' '"),
        ("n", False, "here: column 'n' must be a non-blank string, not 2"),
        ("yes", True, "here: column 'yes' must be a non-blank string, not True"),
        ("long", True, f"here: column 'long' must be a non-blank string, not [{'0, ' * 19}0…"),
    ],
)
def test_a_column_that_holds_no_text_is_named(column: str, numbers: bool, words: str) -> None:
    row = SourceRow("here", {"blank": " ", "n": 2, "yes": True, "long": [0] * 99})
    with pytest.raises(EnvironmentLoadError) as caught:
        row.text(column, numbers=numbers)
    assert str(caught.value) == words


def test_a_row_words_the_faults_that_only_its_environment_sees() -> None:
    row = SourceRow("here", {"a": "x"})
    assert str(row.wrong("a", "be a number")) == "here: column 'a' must be a number, not 'x'"
    assert str(row.wrong("a", "end in a number", "y")) == "here: column 'a' must end in a number, not 'y'"
    assert str(row.wrong("b", "be a number")) == "here: there is no column 'b'; it has a"
    assert str(row.fault("too odd")) == "here: too odd"
    assert str(SourceRow("here", {}).wrong("b", "be")) == "here: there is no column 'b'; it has none"


# What the reference shows


def test_the_example_of_the_reference_works(tmp_path: Path) -> None:
    text = REFERENCE.read_text(encoding="utf-8").split("## Row sources")[1]
    (block,) = re.findall(r"```python\n(.*?)```", text.split("\n## ")[0], re.DOTALL)
    shown = ModuleType("shown")
    exec(compile(block, str(REFERENCE), "exec"), shown.__dict__)
    env = shown.load_environment(split="sample")
    assert (env.row(0).prompt[-1]["content"], env.row(0).answer) == ("6 x 7?", "42")
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Hm.", "answer": "1"}', encoding="utf-8")
    with pytest.raises(
        EnvironmentLoadError, match=r"rows\.jsonl, row 1: column 'question' must ask something, not 'Hm"
    ):
        _ = shown.load_environment(dataset=str(path)).row_count
    assert [row.cells for row in read_file(str(path), ())] == [{"question": "Hm.", "answer": "1"}]
