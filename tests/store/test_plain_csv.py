"""CSV: what an analyst finds in the columns, and that no cell of foreign text is a formula."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odd_runs import odd_run
from store_samples import example, generated, make_run, scored, write
from tables import for_each_row

from harness.core.records import Record
from harness.store.export_formats import Exported, export_run, formats
from harness.store.export_plain import APOSTROPHE, defused, restored, stream_csv
from harness.store.rundir import RunDir

DANGEROUS = "=+-@＝＋－＠﹦﹢﹣﹫"
INVISIBLE = " \t\r\n\v\f\x00\x1f\x7f\x85\xa0\u00ad\u200b\u200e\u2028\u2060\u3000\ufeff"


def csv_of(run: RunDir) -> tuple[Exported, list[dict[str, str]]]:
    stream = io.BytesIO()
    exported = stream_csv(run, stream)
    return exported, list(csv.DictReader(io.StringIO(stream.getvalue().decode(), newline="")))


def one(tmp_path: Path, *lines: Record, **manifest: Any) -> dict[str, str]:
    run = make_run(tmp_path, **manifest)
    write(run.journal_path, lines)
    [row] = csv_of(run)[1]
    return row


def test_columns_stand_in_the_documented_order(tmp_path: Path) -> None:
    _, rows = csv_of(odd_run(tmp_path))
    assert list(rows[0]) == [
        "example_id", "rollout_index", "final_answer", "answer", "reward", "correct", "style",
        "outcome", "error", "stop_condition", "is_truncated", "input_tokens", "output_tokens", "cost", "seconds",
        "task", "model", "env_id", "run_id", "prompt_text", "completion_text",
        "prompt", "completion", "info", "usage", "timing", "turn", "board",
    ]  # fmt: skip


def test_every_rollout_is_a_row_in_the_order_of_every_table(tmp_path: Path) -> None:
    run = odd_run(tmp_path)
    exported, rows = csv_of(run)
    assert (exported.paths, exported.rows, exported.notes) == ((), 6, ())
    shown = ("example_id", "rollout_index", "reward", "correct", "style", "outcome", "error", "final_answer")
    assert [tuple(row[name] for name in shown) for row in rows] == [
        ("a", "0", "1.0", "1.0", "-0.25", "scored", "", '\'=HYPERLINK("http://evil.example","2")'),
        ("a", "1", "-1.5", "0.0", "", "scored", "style: ValueError: boom", "#### 1"),
        ("b", "0", "", "", "", "unscored", "timeout: no reply in 600 s", ""),
        ("b", "1", "", "", "0.5", "unscored", "correct: judge refused: no", "#### 2"),
        ("c", "0", "0.0", "0.0", "0.0", "scored", "", " a time"),
        ("c", "1", "", "", "", "unscored", "not scored", " upon"),
    ]
    assert {row["run_id"] for row in rows} == {run.id}
    assert (rows[0]["model"], rows[0]["env_id"], rows[0]["task"], rows[0]["answer"]) == ("lab/m-1", "sums", "sums", "1")
    assert (rows[3]["answer"], rows[3]["turn"], rows[3]["board"]) == ("'-2", "-1", '{"x":"=1"}')
    assert (rows[0]["turn"], rows[0]["board"], rows[1]["turn"], rows[1]["board"]) == ("3", '[1,"ü"]', "1", "")


def test_tokens_that_no_endpoint_reported_are_empty_and_not_zero(tmp_path: Path) -> None:
    _, rows = csv_of(odd_run(tmp_path))
    spent = [(row["input_tokens"], row["output_tokens"], row["cost"], row["seconds"]) for row in rows]
    assert spent[:3] == [("10", "5", "", "0.5"), ("", "", "", "0.5"), ("0", "0", "", "")]
    assert [row["is_truncated"] for row in rows[:3]] == ["false", "true", "false"]
    assert [row["stop_condition"] for row in rows[:3]] == ["stop", "max_turns", ""]


def test_messages_are_there_to_be_read_and_as_json(tmp_path: Path) -> None:
    _, rows = csv_of(odd_run(tmp_path))
    assert rows[0]["prompt_text"] == "system: Think.\n\nuser: What is 0 + 1?"
    assert rows[0]["completion_text"] == (
        "assistant (reasoning): One needs a sum.\n"
        'assistant calls add({"a": 1})\n\n'
        "tool add: 2\n\n"
        'assistant: =HYPERLINK("http://evil.example","2")'
    )
    assert json.loads(rows[0]["completion"])[0]["tool_calls"][0]["id"] == "c1"
    assert rows[2]["prompt_text"] == "user: What is this?\n[image_url]"
    assert (rows[4]["prompt_text"], rows[4]["completion_text"]) == ("user: Once upon", "assistant:  a time")
    assert json.loads(rows[4]["completion"]) == [{"role": "assistant", "content": " a time"}]
    assert (rows[2]["completion_text"], rows[2]["completion"]) == ("", "[]")


@for_each_row(
    "text",
    [
        "=1+1", "+1", "-1", "@SUM(A1)", "  =1", "\u00a0-1", "\ufeff@x", "\u200b+x", "\x00=x",
        "\tplain", "\rplain", "＝1", "＋1", "－1", "＠x", " ﹦x", "'=1", "- a list", "-x; (y)",
    ],
)  # fmt: skip
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(text: str) -> None:
    assert defused(text) == f"'{text}"
    assert restored(defused(text)) == text


BEHIND = (
    ("a;=1", "a;'=1"), ("a\t-2", "a\t'-2"), ("x\n@y", "x\n'@y"), ("a;'=1", "a;''=1"), ("a;;=1", "a;;'=1"),
    ("a;\t=1", "a;\t'=1"), ("a; =1;+2", "a;' =1;'+2"), ("a;\r\n=1", "a;\r\n'=1"), ("=1;=1", "'=1;'=1"),
    ('a;"=1', "a;'\"=1"), ("\t=1", "'\t'=1"), ("\r=1", "'\r'=1"), ("\n=1", "\n'=1"), ("''\t=1", "''"+"'\t'=1"),
    ("- a\n- b", "'- a\n'- b"), ("a;\u200b＝1", "a;'\u200b＝1"), ("a; b = 1; c", "a; b = 1; c"), ("a|=1,=2", "a|=1,=2"),
)  # fmt: skip


@for_each_row(("text", "safe"), BEHIND)
def test_a_formula_where_another_separator_starts_a_cell_gets_one_too(text: str, safe: str) -> None:
    assert (defused(text), restored(safe)) == (safe, text)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_no_cell_begins_a_formula_for_a_reader_with_another_separator(separator: str, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    texts = [text for text, _ in BEHIND]
    lines = [
        line
        for number, text in enumerate(texts)
        for line in (example(number, prompt=text, answer=text), generated(number, completion=text), scored(number))
    ]
    write(run.journal_path, lines)
    stream = io.BytesIO()
    stream_csv(run, stream)
    whole = stream.getvalue().decode()
    cells = [cell for row in csv.reader(io.StringIO(whole, newline=None), delimiter=separator) for cell in row]
    assert not [cell for cell in cells if cell.lstrip(INVISIBLE).startswith(tuple(DANGEROUS))]
    rows = list(csv.DictReader(io.StringIO(whole, newline="")))
    assert [restored(row["answer"]) for row in rows] == texts
    assert [restored(row["prompt_text"]) for row in rows] == [f"user: {text}" for text in texts]
    assert ["".join(message["content"] for message in json.loads(row["prompt"])) for row in rows] == texts


@for_each_row("text", ["", "'", "'a", "1-1", "a=1", "(-1)", " a", "\n\nThe answer is 4.", "−1", "#REF!", '"=1"'])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert defused(text) == text
    assert restored(text) == text


@pytest.mark.slow
@given(st.text(st.sampled_from([*DANGEROUS, *INVISIBLE, *"'a1\""]), max_size=8) | st.text(max_size=20))
def test_no_cell_begins_a_formula_and_none_loses_anything(text: str) -> None:
    cell = defused(text)
    assert not cell.lstrip(INVISIBLE).startswith(tuple(DANGEROUS))
    assert not cell.startswith(("\t", "\r"))
    assert restored(cell) == text


@pytest.mark.parametrize("letter", ["\r", "\n", "\r\n", ",", '"', "\v", "\f", "\x85", "\u2028"])
def test_no_letter_of_a_text_ends_its_cell(letter: str, tmp_path: Path) -> None:
    """A carriage return outside quotes ends a row, and the next one would begin with the formula."""
    text = f"see{letter}1+1"
    row = one(tmp_path, example(0), generated(0, completion=[{"role": "assistant", "content": text}]), scored(0))
    assert (row["final_answer"], row["completion_text"], row["reward"]) == (text, f"assistant: {text}", "1.0")


def test_a_row_ends_in_a_line_feed_alone(tmp_path: Path) -> None:
    stream = io.BytesIO()
    stream_csv(odd_run(tmp_path), stream)
    text = stream.getvalue()
    assert (text.count(b"\r"), text[-1:]) == (0, b"\n")


def test_numbers_that_are_numbers_stay_numbers(tmp_path: Path) -> None:
    lines = (example(0, example_id=-3), generated(0, state={"turn": -7}), scored(0, 0, -0.5))
    row = one(tmp_path, *lines)
    assert (row["example_id"], row["reward"], row["correct"], row["turn"]) == ("-3", "-0.5", "-0.5", "-7")


def test_names_of_columns_are_foreign_text_too(tmp_path: Path) -> None:
    row = one(tmp_path, example(0), generated(0), scored(0, 0, 1.0, metrics={"=1": 1.0}), metric_names=("=1",))
    assert row["'=1"] == "1.0"


def test_every_text_column_is_defused(tmp_path: Path) -> None:
    attack = "@SUM(1)"
    asked = example(0, example_id=attack, prompt=attack, answer=attack, task=attack)
    replied = generated(0, completion=attack, stop_condition=attack)
    refused = scored(0, 0, None, reasons={"*": attack})
    row = one(tmp_path, asked, replied, refused, env_id=attack, model=attack)
    foreign = ("example_id", "answer", "task", "final_answer", "stop_condition", "error", "env_id", "model")
    assert {row[name] for name in foreign} == {f"'{attack}"}
    assert not [value for value in row.values() if value.startswith("@")]


def test_what_csv_cannot_hold_is_replaced_and_all_else_survives(tmp_path: Path) -> None:
    said = 'a,"b"\r\nc\rd\n\u2028e \ud83d\ude00 \ud800 \0 ü'
    row = one(tmp_path, example(0), generated(0, completion=said), scored(0))
    assert row["final_answer"] == 'a,"b"\r\nc\rd\n\u2028e \U0001f600 \ufffd \ufffd ü'


def test_cells_that_a_spreadsheet_would_cut_are_told_of(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write(run.journal_path, [example(0), generated(0, completion="x" * 32_768), scored(0)])
    exported, [row] = csv_of(run)
    assert len(row["final_answer"]) == 32_768
    [note] = exported.notes
    assert note.startswith("3 cells are longer than 32,767 characters, which spreadsheets cut;")


def test_columns_of_ours_give_way_to_those_of_the_run(tmp_path: Path) -> None:
    lines = [example(0), generated(0, state={"run_id": "theirs"}), scored(0, 0, 1.0, metrics={"cost": 3.0})]
    run = odd_run(tmp_path, lines, metric_names=("cost",), state_columns=("run_id", "bench_run_id"))
    exported, [row] = csv_of(run)
    assert (row["cost"], row["bench_cost"]) == ("3.0", "")
    assert (row["run_id"], row["bench_run_id"], row["bench_run_id_"]) == ('"theirs"', "", run.id)
    assert exported.notes == (
        "the run has its own column 'cost'; the additional column of this name is called 'bench_cost'",
        "the run has its own column 'run_id'; the additional column of this name is called 'bench_run_id_'",
    )


def test_pandas_reads_the_types(tmp_path: Path) -> None:
    import pandas as pd

    run = odd_run(tmp_path)
    exported = export_run(run, formats()["csv"], tmp_path / "rows.csv")
    frame: Any = pd.read_csv(exported.paths[0])
    assert frame.shape == (6, 28)
    assert frame["reward"].mean() == pytest.approx((1.0 - 1.5 + 0.0) / 3)
    assert [str(frame[name].dtype) for name in ("rollout_index", "reward", "is_truncated", "seconds")] == [
        "int64", "float64", "bool", "float64",
    ]  # fmt: skip


def test_polars_reads_the_types(tmp_path: Path) -> None:
    import polars as pl

    run = odd_run(tmp_path)
    exported = export_run(run, formats()["csv"], tmp_path / "rows.csv")
    frame = pl.read_csv(exported.paths[0])
    assert frame["reward"].to_list() == [1.0, -1.5, None, None, 0.0, None]
    assert frame["is_truncated"].to_list() == [False, True, False, False, False, False]


def test_an_empty_run_is_a_header(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    stream = io.BytesIO()
    assert stream_csv(run, stream).rows == 0
    assert stream.getvalue().startswith(b"example_id,rollout_index,final_answer,answer,reward,correct,outcome,")
    assert stream.getvalue().count(b"\n") == 1


def test_the_guide_undoes_what_is_done() -> None:
    """Its program is run by tests/e2e/test_documented.py; here, that its pattern is ours."""
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "export.md"
    assert f'r"{APOSTROPHE.pattern}"' in guide.read_text(encoding="utf-8")
