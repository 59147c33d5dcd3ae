"""CSV, JSON Lines and parquet exports with one row per rollout. Text in CSV cells that a spreadsheet could run as a
formula is escaped."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from harness.core.types import JsonDict, Message, text_of
from harness.stats.summary import tokens_known
from harness.store.arrow import unbroken
from harness.store.codec import from_text, to_text
from harness.store.dataset import NOTES
from harness.store.export_formats import Exported
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rows import RowFile, RowShape, as_messages, completion_messages, plain_row
from harness.store.rundir import RunDir

CELL_LIMIT = 32_767
"""Maximum characters of a cell in Excel and LibreOffice, which cut longer text."""

_BLANK = r"\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_FIRST_OF_CELL = rf"'*(?:[\t\r]|(?:(?![\t\r\n])[{_BLANK}])*[=+\-@＝＋－＠﹦﹢﹣﹫])"
_BEHIND = rf"'*(?:(?![\t\r\n])[\x22{_BLANK}])*[=+\-@＝＋－＠﹦﹢﹣﹫]"
_FORMULA = re.compile(rf"\A(?={_FIRST_OF_CELL})|(?<=[;\t\r\n])(?={_BEHIND})")
"""Positions at which a spreadsheet may see the start of a formula: the first visible character of a cell, including its
full-width and small forms; a leading tab or carriage return, which some spreadsheets remove; and every position where a
spreadsheet that separates cells by `;` or a tab starts a cell or a row, since it ignores quotation marks after a comma.
Leading apostrophes are part of the pattern, so that removing one always reverts `defused`."""

APOSTROPHE = re.compile(rf"\A'(?={_FIRST_OF_CELL})|(?<=[;\t\r\n])'(?={_BEHIND})")
"""Pattern of the apostrophes with which `defused` protects CSV cells from being read as formulas."""

_IN_JSON = re.compile(rf";(?={_BEHIND})")

_ROW_END = "\r\n"
"""Line terminator for `csv`. The module `csv` quotes cells that contain one of its characters; an unquoted carriage
return would end the row, so that a new cell could begin with a formula."""

_LINE_BREAKS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
"""Line separators that `str.splitlines` recognizes and JSON does not escape, with their escapes. In JSON they occur
only in strings."""

_FIRST = ("example_id", "rollout_index", "final_answer", "answer", "reward")
_PLAIN = ("outcome", "error", "stop_condition", "is_truncated", "input_tokens", "output_tokens", "cost", "seconds")
_NAMES = ("task", "model", "env_id", "run_id", "prompt_text", "completion_text")
_JSON = ("prompt", "completion", "info", "usage", "timing")

_ADDED = (
    "final_answer", "input_tokens", "output_tokens", "cost", "seconds", "run_id", "prompt_text", "completion_text",
)  # fmt: skip
"""Columns that exports add to those of the dataset. One that has the name of a metric or state column is renamed."""


def write_parquet(run: RunDir, target: Path) -> Exported:
    """Write a run as one parquet file; see `Writer`. The columns are those of the dataset, and the rows are sorted by
    example and rollout."""
    manifest = run.read_manifest()
    notes = {NOTES.decode(): json.dumps({"run": manifest.id})}
    with RowFile(target, RowShape.of(manifest), notes) as file:
        for outcome in outcomes(read_journal(run)):
            file.add(outcome)
    return Exported((target,), file.rows)


def stream_csv(run: RunDir, stream: IO[bytes]) -> Exported:
    """Write a run as CSV in UTF-8 with commas, a header, and a line feed after each row; see `Streamer`."""
    manifest = run.read_manifest()
    columns = RowShape.of(manifest)
    names = _own_names(columns)
    ours = {name: names.get(name, name) for name in (*_FIRST, *_PLAIN, *_NAMES, *_JSON)}
    before, after = [ours[name] for name in _FIRST], [ours[name] for name in (*_PLAIN, *_NAMES, *_JSON)]
    order = [*before, *columns.metric_names, *after, *columns.state_columns]
    as_json = {*_JSON, *columns.state_columns}
    writer = csv.writer(CsvText(stream), lineterminator=_ROW_END)
    writer.writerow([defused(_writable(name)) for name in order])
    rows = long = 0
    for outcome in outcomes(read_journal(run)):
        row = _csv_row(columns, manifest, outcome, names)
        cells = [csv_cell(row[name], is_json=name in as_json) for name in order]
        writer.writerow(cells)
        rows += 1
        long += sum(isinstance(cell, str) and len(cell) > CELL_LIMIT for cell in cells)
    notes = _renamed(names)
    if long:
        cells = "1 cell is" if long == 1 else f"{long} cells are"
        notes += (
            f"{cells} longer than {CELL_LIMIT:,} characters, which spreadsheets cut; other programs read them "
            "completely, as do the formats jsonl and parquet",
        )
    return Exported((), rows, notes)


def stream_jsonl(run: RunDir, stream: IO[bytes]) -> Exported:
    """Write a run as JSON Lines: the dataset's columns, with JSON texts as JSON values; see `Streamer`."""
    manifest = run.read_manifest()
    columns = RowShape.of(manifest)
    names = _own_names(columns, ("run_id",))
    rows = 0
    for outcome in outcomes(read_journal(run)):
        stream.write(one_line(to_text(_json_row(columns, manifest, outcome, names)).encode()))
        rows += 1
    return Exported((), rows, _renamed(names))


def defused(text: str) -> str:
    """Insert an apostrophe before every possible formula in a CSV cell; `restored` reverts this."""
    return _FORMULA.sub("'", text)


def restored(cell: str) -> str:
    """Remove the apostrophes that `defused` added."""
    return APOSTROPHE.sub("", cell)


class CsvText:
    """Text adapter for `csv` on a binary stream. A text stream would buffer, and would close the stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.removesuffix(_ROW_END).encode() + b"\n")


def _own_names(columns: RowShape, added: Sequence[str] = _ADDED) -> dict[str, str]:
    """Return new names for the added columns that would have the name of a metric or of a state column."""
    taken = set(columns.names)
    names: dict[str, str] = {}
    for name in added:
        if name in taken:
            new = f"bench_{name}"
            while new in taken:
                new += "_"
            taken.add(new)
            names[name] = new
    return names


def _renamed(names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"the run has its own column {name!r}; the additional column of this name is called {new!r}"
        for name, new in names.items()
    )


def _csv_row(
    columns: RowShape, manifest: Manifest, outcome: Outcome, names: Mapping[str, str]
) -> dict[str, str | int | float | bool | None]:
    row = plain_row(columns, outcome)
    prompt, completion = as_messages(outcome.example.prompt, "user"), completion_messages(outcome.base)
    usage, timing = outcome.base.usage, outcome.base.timing
    known = tokens_known(usage)
    reply = last_reply(cast(Message, message) for message in completion if isinstance(message, dict))
    if isinstance(outcome.example.example_id, int):
        row["example_id"] = outcome.example.example_id
    own: dict[str, str | int | float | bool | None] = {
        "final_answer": None if reply is None else text_of(reply),
        "input_tokens": usage.input_tokens if known else None,
        "output_tokens": usage.output_tokens if known else None,
        "cost": usage.cost,
        "seconds": max(0.0, timing.generation - timing.waiting) if timing.is_known else None,
        "run_id": manifest.id,
        "prompt_text": _transcript(prompt),
        "completion_text": _transcript(completion),
    }
    row |= {names.get(name, name): value for name, value in own.items()}
    return {**row, "prompt": to_text(prompt), "completion": to_text(completion)}


def _json_row(columns: RowShape, manifest: Manifest, outcome: Outcome, names: Mapping[str, str]) -> JsonDict:
    row = plain_row(columns, outcome)
    whole: JsonDict = {
        "example_id": outcome.example.example_id,
        "prompt": as_messages(outcome.example.prompt, "user"),
        "completion": completion_messages(outcome.base),
        "info": outcome.example.info,
    }
    texts = ("usage", "timing", *columns.state_columns)
    for name in texts:
        text = cast("str | None", row[name])
        whole[name] = None if text is None else from_text(text.encode("utf-8", "surrogatepass"))
    line: JsonDict = {name: whole[name] if name in whole else row[name] for name in columns.names}
    return {**line, names.get("run_id", "run_id"): manifest.id}


def csv_cell(value: str | int | float | bool | None, *, is_json: bool = False) -> str | int | float:
    """Convert a value to a CSV cell: null becomes empty, numbers are kept, and text is protected against formulas."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    # JSON text begins with a bracket, a quote, a letter, or is a number, so it is not taken for a formula.
    text = _writable(value)
    return _IN_JSON.sub(r"\\u003b", text) if is_json else defused(text)


def _writable(text: str) -> str:
    """Replace what CSV readers reject: lone surrogates, and NUL, which ends a cell in some readers."""
    return unbroken(text.replace("\0", "\ufffd"))


def _transcript(messages: Sequence[object]) -> str:
    """Format messages as readable text: `role: text`, separated by blank lines."""
    return "\n\n".join(_spoken(cast(Message, m) if isinstance(m, dict) else {"content": m}) for m in messages)


def _spoken(message: Message) -> str:
    role = str(message.get("role") or "message")
    name = message.get("name") if role == "tool" else None
    lines: list[str] = []
    if reasoning := message.get("reasoning_content"):
        lines.append(f"{role} (reasoning): {reasoning}")
    text = _text(message.get("content"))
    if text or not message.get("tool_calls"):
        lines.append(f"{role}{f' {name}' if name else ''}: {text}")
    calls: object = message.get("tool_calls")
    for call in cast("list[object]", calls) if isinstance(calls, list) else ():
        part: object = cast(JsonDict, call).get("function") if isinstance(call, dict) else None
        function = cast(JsonDict, part) if isinstance(part, dict) else {}
        lines.append(f"{role} calls {function.get('name', '?')}({function.get('arguments') or ''})")
    return "\n".join(lines)


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return to_text(content)
    return "\n".join(_part(part) for part in cast("list[object]", content))


def _part(part: object) -> str:
    if not isinstance(part, dict):
        return str(part)
    known = cast(JsonDict, part)
    text = known.get("text")
    return text if isinstance(text, str) else f"[{known.get('type', 'part')}]"


def one_line(document: bytes) -> bytes:
    """Format a JSON document as one line, also for readers that split lines at Unicode separators."""
    for letter, escape in _LINE_BREAKS:
        document = document.replace(letter, escape)
    return document + b"\n"


def last_reply(messages: Iterable[Message]) -> Message | None:
    """Return the last assistant message; None if there is no such message."""
    return next((message for message in reversed([*messages]) if message.get("role") == "assistant"), None)
