"""Dataset files as rows of an agent evaluation: four formats, one meaning; and the words for each way to be wrong."""

from __future__ import annotations

import codecs
import datetime
import decimal
import gc
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness.agents.dataset import DatasetReader, checked
from harness.agents.dataset_files import FileRows, open_file, open_rows
from harness.agents.json_values import json_value
from harness.core.errors import DatasetParseError, DatasetValidationError

ROWS = [
    {"ground_truth": "4", "user_prompt": "2 + 2?", "system_prompt": "Add.", "topic": "sums"},
    {"ground_truth": "Bär", "user_prompt": "Ours, in German?", "system_prompt": "Translate.", "topic": "words"},
    {"ground_truth": 'a,b\n"c"', "user_prompt": "Quote.", "system_prompt": "Copy.", "topic": ""},
]


def as_json(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows, ensure_ascii=False).encode()


def as_jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    import csv
    import io

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(path: Path, columns: dict[str, Any], **types: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), path)
    return path


def row_of(**more: Any) -> dict[str, Any]:
    return {"ground_truth": "g", "user_prompt": "u", "system_prompt": "s", **more}


def text_file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Formats


@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8], ids=["plain", "bom"])
@pytest.mark.parametrize(("suffix", "write"), [(".json", as_json), (".jsonl", as_jsonl), (".csv", as_csv)])
def test_text_formats_mean_the_same(
    tmp_path: Path, suffix: str, write: Callable[[list[dict[str, Any]]], bytes], bom: bytes
) -> None:
    reader = DatasetReader(text_file(tmp_path / f"rows{suffix}", bom + write(ROWS)))
    assert reader.read() == ROWS
    assert len(reader) == 3
    assert list(reader.iter_rows(limit=1, offset=1)) == ROWS[1:2]


def test_a_parquet_file_means_the_same(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", {name: [row[name] for row in ROWS] for name in ROWS[0]})
    reader = DatasetReader(str(path))
    assert reader.read() == ROWS
    assert len(reader) == 3
    assert reader.read(2, 2) == ROWS[2:]


def test_the_case_of_a_suffix_does_not_matter(tmp_path: Path) -> None:
    assert DatasetReader(text_file(tmp_path / "ROWS.JSONL", as_jsonl(ROWS))).read(1) == ROWS[:1]


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_file(tmp_path / "rows.jsonl", as_jsonl(ROWS))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(DatasetReader("~/rows.jsonl")) == 3


def test_blank_lines_are_no_rows_and_a_windows_line_end_is_no_text(tmp_path: Path) -> None:
    lines = b"\r\n" + as_jsonl(ROWS[:1]).replace(b"\n", b"\r\n") + b"  \r\n" + as_jsonl(ROWS[1:2])
    reader = DatasetReader(text_file(tmp_path / "rows.jsonl", lines))
    assert (reader.read(), len(reader)) == (ROWS[:2], 2)
    table = b"ground_truth,user_prompt,system_prompt\r\n\r\n4,q,s\r\n"
    assert DatasetReader(text_file(tmp_path / "rows.csv", table)).read() == [
        {"ground_truth": "4", "user_prompt": "q", "system_prompt": "s"}
    ]


def test_numbers_and_lists_of_a_json_file_stay_what_they_are(tmp_path: Path) -> None:
    row = row_of(n=2**70, list=[1, {"a": None}], x=0.1, yes=True)
    for name, content in (("a.json", as_json([row])), ("a.jsonl", as_jsonl([row]))):
        [read] = DatasetReader(text_file(tmp_path / name, content)).read()
        assert read == row


def test_a_csv_cell_may_be_long_and_missing_cells_are_null(tmp_path: Path) -> None:
    long = "x" * 200_000
    path = text_file(tmp_path / "a.csv", f"ground_truth,user_prompt,system_prompt,note\ng,{long},s\n")
    [row] = DatasetReader(path).read()
    assert row == {"ground_truth": "g", "user_prompt": long, "system_prompt": "s", "note": None}


def test_what_parquet_has_and_json_has_not(tmp_path: Path) -> None:
    import pyarrow as pa

    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
    path = parquet(
        tmp_path / "rows.parquet",
        {
            **{name: [value] for name, value in row_of().items()},
            "at": [moment],
            "ns": [1_767_323_045_123_456_789],
            "day": [moment.date()],
            "clock": [3_723_000_000_007],
            "took": [1_500_000_001],
            "price": [decimal.Decimal("12.50")],
            "raw": [b"text"],
            "bits": [b"\xff\x00"],
            "gap": [float("nan")],
            "deep": [{"days": [moment.date()], "none": None}],
            "pairs": [[("k", decimal.Decimal("0.1"))]],
        },
        ns=pa.timestamp("ns"), clock=pa.time64("ns"), took=pa.duration("ns"),
        pairs=pa.map_(pa.string(), pa.decimal128(3, 1)),
    )  # fmt: skip
    [row] = DatasetReader(path).read()
    assert row == row_of(
        at="2026-01-02T03:04:05.678901+00:00",
        ns="2026-01-02T03:04:05.123456",
        day="2026-01-02",
        clock="01:02:03",
        took=1.5,
        price="12.50",
        raw="text",
        bits="/wA=",
        gap=None,
        deep={"days": ["2026-01-02"], "none": None},
        pairs=[["k", "0.1"]],
    )
    assert json.loads(json.dumps(row)) == row


def test_other_values_that_become_json() -> None:
    import dataclasses

    import numpy as np
    from pydantic import BaseModel

    @dataclasses.dataclass
    class Point:
        x: int
        at: datetime.date

    class Model(BaseModel):
        a: int
        b: str | None = None

    number = uuid.UUID(int=5)
    assert json_value((1, {2: {"b", "a"}}, number)) == [1, {"2": ["a", "b"]}, str(number)]
    assert json_value([Point(1, datetime.date(2026, 1, 2)), Model(a=1)]) == [{"x": 1, "at": "2026-01-02"}, {"a": 1}]
    assert json_value({"n": np.float32(0.5), "m": np.array([[1, 2]]), "t": np.bool_(True)}) == {
        "n": 0.5, "m": [[1, 2]], "t": True,
    }  # fmt: skip
    assert json_value(Path("a/b")) == "a/b"
    with pytest.raises(TypeError, match="a value of type object cannot be converted to JSON"):
        json_value([object()])
    with pytest.raises(TypeError, match="a value of type ModelMetaclass cannot be converted to JSON"):
        json_value(Model)


# Only what is asked for


def test_rows_that_are_left_out_are_not_looked_at(tmp_path: Path) -> None:
    lines = b"no json\n" + as_jsonl(ROWS[:1]) + b'{"ground_truth": 4}\n'
    reader = DatasetReader(text_file(tmp_path / "rows.jsonl", lines))
    assert reader.read(limit=1, offset=1) == ROWS[:1]
    assert len(reader) == 3
    assert reader.read(limit=0) == []
    with pytest.raises(DatasetParseError, match="line 1"):
        reader.read()


def test_lines_and_csv_rows_are_read_one_by_one(tmp_path: Path) -> None:
    table = b"ground_truth,user_prompt,system_prompt\n" + b"g,u,s\n" * 10_000 + b"\xff"
    assert len(DatasetReader(text_file(tmp_path / "a.csv", table)).read(limit=2)) == 2
    lines = as_jsonl(ROWS[:2]) + b"\xff\n"
    rows = DatasetReader(text_file(tmp_path / "a.jsonl", lines)).iter_rows()
    assert [next(rows), next(rows)] == ROWS[:2]
    with pytest.raises(DatasetParseError, match="Invalid JSON at line 3: 'utf-8' codec"):
        next(rows)


def test_an_offset_past_the_end_leaves_nothing(tmp_path: Path) -> None:
    assert DatasetReader(text_file(tmp_path / "rows.json", as_json(ROWS))).read(offset=3) == []


@pytest.mark.parametrize(("limit", "offset", "words"), [(-1, 0, "limit must be"), (None, -1, "offset must be")])
def test_a_negative_bound_is_refused_at_once(tmp_path: Path, limit: int | None, offset: int, words: str) -> None:
    reader = DatasetReader(text_file(tmp_path / "rows.json", as_json(ROWS)))
    with pytest.raises(ValueError, match=words):
        reader.iter_rows(limit, offset)


# Files that are wrong


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    with pytest.raises(FileNotFoundError) as error:
        DatasetReader(path)
    assert str(error.value) == f"Dataset file not found: {path}"
    with pytest.raises(FileNotFoundError):
        DatasetReader(tmp_path)


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(DatasetParseError) as error:
        DatasetReader(text_file(tmp_path / "rows.TXT", ""))
    assert str(error.value) == "Unsupported file format: .txt. Supported formats: .json, .jsonl, .parquet, .csv"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", "{", "Invalid JSON file: Expecting property name"),
        ("a.json", '{"rows": []}', "JSON file must contain an array of objects, got dict"),
        ("a.json", "", "Invalid JSON file: Expecting value"),
        ("a.json", b"[\xff]", "Invalid JSON file: 'utf-8' codec"),
        ("a.json", "[" * 100_000, "Invalid JSON file: "),
        ("a.jsonl", "\n\n{]\n", "Invalid JSON at line 3: Expecting property name"),
        ("a.csv", "ground_truth,user_prompt,system_prompt\ng,u,s\ng,u,s,x\n",
         "CSV row 1 has more columns than the header (line 3)"),
        ("a.csv", 'ground_truth,user_prompt,system_prompt\n"g,u,s\n',
         "Invalid CSV file: unexpected end of data (line 2)"),
        ("a.csv", b"ground_truth,user_prompt,system_prompt\n\xff,u,s\n", "Invalid CSV file: it is not UTF-8 text"),
        ("a.csv", "user_prompt;system_prompt\nu,v;s\n", "Invalid CSV file: its columns are separated by ';'; use"),
        ("a.csv", "user_prompt\tsystem_prompt\nu\ts\n", "Invalid CSV file: its columns are separated by tabs; use"),
        ("a.csv", "a,b,a\n1,2,3\n", "Invalid CSV file: two columns are named 'a' in the header; rename one"),
        ("a.parquet", "PAR1", "Error reading Parquet file: "),
    ],
)  # fmt: skip
def test_a_file_that_is_not_of_its_format(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    with pytest.raises(DatasetParseError) as error:
        DatasetReader(text_file(tmp_path / name, content)).read()
    assert str(error.value).startswith(words)


def test_a_parquet_file_with_two_columns_of_one_name(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["x", "x"]), path)
    with pytest.raises(DatasetParseError, match="two columns are named 'x'"):
        DatasetReader(path).read()


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_a_file_that_has_gone_meanwhile(tmp_path: Path, suffix: str) -> None:
    path = text_file(tmp_path / f"a{suffix}", as_jsonl(ROWS))
    reader = DatasetReader(path)
    path.unlink()
    with pytest.raises(DatasetParseError, match="No such file or directory"):
        reader.read()
    with pytest.raises(DatasetParseError, match="No such file or directory"):
        open_rows(path)


def test_an_empty_csv_file_has_no_rows(tmp_path: Path) -> None:
    assert DatasetReader(text_file(tmp_path / "a.csv", "")).read() == []


# Rows that are wrong


@for_each_row(
    ("raw", "words"),
    [
        ([1], "Row 7: Expected object, got list"),
        ({}, "Row 7: Missing required columns: ['ground_truth', 'user_prompt', 'system_prompt']; the row is empty"),
        ({"system_prompt": "s", "Ground_Truth": "g", "ask": "u"},
         "Row 7: Missing required columns: ['user_prompt']; its columns are ['system_prompt', 'Ground_Truth', 'ask']"),
        (row_of(user_prompt=None), "Row 7: 'user_prompt' cannot be null"),
        (row_of(ground_truth=4), "Row 7: 'ground_truth' must be a string, got int"),
        (row_of(system_prompt=" \n"), "Row 7: 'system_prompt' cannot be empty"),
        (row_of(GROUND_TRUTH="h"),
         "Row 7: columns 'ground_truth' and 'GROUND_TRUTH' both mean 'ground_truth'; rename one of them"),
        (row_of(image=object()), "Row 7: 'image' is not JSON: a value of type object cannot be converted to JSON"),
    ],
)  # fmt: skip
def test_a_row_that_is_wrong(raw: object, words: str) -> None:
    with pytest.raises(DatasetValidationError) as error:
        checked(raw, 7)
    assert str(error.value) == words


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(DatasetValidationError, match="Row 0: 'x' is nested too deeply"):
        checked(row_of(x=loop), 0)


def test_column_names_are_compared_without_case_and_values_kept_as_they_are() -> None:
    raw = {"USER_Prompt": " u ", " System_Prompt": "s", "ground_truth": "g\n", "Topic": 1, "topic": 2}
    row = checked(raw, 0)
    assert row == {"user_prompt": " u ", "system_prompt": "s", "ground_truth": "g\n", "Topic": 1, "topic": 2}
    assert list(row) == ["user_prompt", "system_prompt", "ground_truth", "Topic", "topic"]
    assert "USER_Prompt" in raw


def test_the_number_of_a_wrong_row_is_that_in_the_file(tmp_path: Path) -> None:
    reader = DatasetReader(text_file(tmp_path / "a.jsonl", as_jsonl([*ROWS, row_of(user_prompt=1)])))
    with pytest.raises(DatasetValidationError, match=r"^Row 3: 'user_prompt' must be a string, got int$"):
        reader.read(limit=2, offset=2)


# Rows for a run


def test_rows_of_a_file_are_parsed_when_they_are_asked_for(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.jsonl", as_jsonl(ROWS[:2]) + b"nothing\n")
    rows = FileRows(open_file(path), 1)
    assert len(rows) == 2
    assert rows[0] == ROWS[1]
    with pytest.raises(DatasetParseError, match="line 3"):
        rows[1]
    with pytest.raises(IndexError):
        rows[2]


def test_rows_do_not_change_with_their_file_and_are_held_once(tmp_path: Path) -> None:
    path = text_file(tmp_path / "a.jsonl", as_jsonl(ROWS))
    rows = open_rows(path)
    assert open_rows(path) is rows
    assert open_rows(path, 1) is not rows
    text_file(path, as_jsonl(ROWS[:1]))
    assert rows[2] == ROWS[2]
    changed = open_rows(path)
    assert (len(changed), len(rows)) == (1, 3)
    assert changed.sha256 != rows.sha256
    before = id(rows)
    del rows, changed
    gc.collect()
    assert len(open_rows(path)) == 1, before
