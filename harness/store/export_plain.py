"""CSV and JSON Lines: one rollout a row. Owns their columns and what makes a CSV cell safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from harness.core.types import JsonDict, Message, text_of
from harness.stats.summary import tokens_known
from harness.store.codec import from_text, to_text
from harness.store.export_formats import Exported
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rows import RowShape, as_messages, plain_row, said
from harness.store.rundir import RunDir

CELL_LIMIT = 32_767
"""Characters that Excel and LibreOffice keep of a cell."""

_BLANK = r"\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_FIRST_OF_CELL = rf"'*(?:[\t\r]|(?:(?![\t\r\n])[{_BLANK}])*[=+\-@＝＋－＠﹦﹢﹣﹫])"
_BEHIND = rf"'*(?:(?![\t\r\n])[\x22{_BLANK}])*[=+\-@＝＋－＠﹦﹢﹣﹫]"
_FORMULA = re.compile(rf"\A(?={_FIRST_OF_CELL})|(?<=[;\t\r\n])(?={_BEHIND})")
"""Where a spreadsheet may see the start of a formula: at the first visible character of a cell, also in its wide or
small form, which some read as the plain one; at the tab or carriage return that some cut off before they look; and
where a spreadsheet that separates cells by `;` or a tab starts a cell or a row, since it sees no quotation marks that
stand behind a comma. Leading apostrophes belong to it so that taking one away always undoes `defused`."""

APOSTROPHE = re.compile(rf"\A'(?={_FIRST_OF_CELL})|(?<=[;\t\r\n])'(?={_BEHIND})")
"""The apostrophes that `defused` adds."""

_IN_JSON = re.compile(rf";(?={_BEHIND})")

_ROW_END = "\r\n"
"""What `csv` is told: it puts cells into quotes that hold a letter of it. A carriage return outside quotes ends a row
for every reader, so a cell could begin anew with a formula."""

_LINE_BREAKS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
"""What `str.splitlines` breaks lines at and JSON lets stand, and its escapes. In JSON it stands in strings alone."""

_FIRST = ("example_id", "rollout_index", "final_answer", "answer", "reward")
_PLAIN = ("outcome", "error", "stop_condition", "is_truncated", "input_tokens", "output_tokens", "cost", "seconds")
_NAMES = ("task", "model", "env_id", "run_id", "prompt_text", "completion_text")
_JSON = ("prompt", "completion", "info", "usage", "timing")

_ADDED = (
    "final_answer", "input_tokens", "output_tokens", "cost", "seconds", "run_id", "prompt_text", "completion_text",
)  # fmt: skip
"""Columns that the dataset does not have, and that give way to a metric or state column of their name."""


def write_csv(run: RunDir, target: Path) -> Exported:
    """Writes a run as a CSV file; see `Writer`."""
    return _write(stream_csv, run, target)


def write_jsonl(run: RunDir, target: Path) -> Exported:
    """Writes a run as a file of JSON Lines; see `Writer`."""
    return _write(stream_jsonl, run, target)


def stream_csv(run: RunDir, stream: IO[bytes]) -> Exported:
    """Writes a run as CSV: UTF-8, commas, a line feed after each row, a header; see `Streamer`."""
    manifest = run.read_manifest()
    columns = RowShape.of(manifest)
    names = _own_names(columns)
    ours = {name: names.get(name, name) for name in (*_FIRST, *_PLAIN, *_NAMES, *_JSON)}
    before, after = [ours[name] for name in _FIRST], [ours[name] for name in (*_PLAIN, *_NAMES, *_JSON)]
    order = [*before, *columns.metric_names, *after, *columns.state_columns]
    as_json = {*_JSON, *columns.state_columns}
    writer = csv.writer(_Encoded(stream), lineterminator=_ROW_END)
    writer.writerow([defused(_writable(name)) for name in order])
    rows = long = 0
    for outcome in outcomes(read_journal(run)):
        row = _csv_row(columns, manifest, outcome, names)
        cells = [_cell(row[name], is_json=name in as_json) for name in order]
        writer.writerow(cells)
        rows += 1
        long += sum(isinstance(cell, str) and len(cell) > CELL_LIMIT for cell in cells)
    return Exported((), rows, (*_renamed(names), *_cut(long)))


def stream_jsonl(run: RunDir, stream: IO[bytes]) -> Exported:
    """Writes a run as JSON Lines: the dataset's columns, with JSON values where it has JSON texts; see `Streamer`."""
    manifest = run.read_manifest()
    columns = RowShape.of(manifest)
    names = _own_names(columns, ("run_id",))
    rows = 0
    for outcome in outcomes(read_journal(run)):
        stream.write(one_line(to_text(_json_row(columns, manifest, outcome, names)).encode()))
        rows += 1
    return Exported((), rows, tuple(_renamed(names)))


def defused(text: str) -> str:
    """`text` with an apostrophe wherever a spreadsheet could take what follows for a formula; `restored` undoes it."""
    return _FORMULA.sub("'", text)


def restored(cell: str) -> str:
    """The text of a cell that `defused` made."""
    return APOSTROPHE.sub("", cell)


class _Encoded:
    """What `csv` writes to, row by row. A text stream would hold back what could not be written, and close ours with
    itself."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text.removesuffix(_ROW_END).encode() + b"\n")


def _write(write: Callable[[RunDir, IO[bytes]], Exported], run: RunDir, target: Path) -> Exported:
    with target.open("xb") as file:
        exported = write(run, file)
    return Exported((target,), exported.rows, exported.notes)


def _own_names(columns: RowShape, added: Sequence[str] = _ADDED) -> dict[str, str]:
    """New names for the columns that are ours alone and whose name a metric or state column has."""
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


def _renamed(names: Mapping[str, str]) -> Iterator[str]:
    for name, new in names.items():
        yield f"the run has a column {name!r} of its own; ours of that name is {new!r}"


def _cut(long: int) -> Iterator[str]:
    if long:
        cells = "1 cell is" if long == 1 else f"{long} cells are"
        yield (
            f"{cells} longer than the {CELL_LIMIT:,} characters that a spreadsheet keeps of one; a program reads them "
            "whole, and so do jsonl and parquet"
        )


def _csv_row(
    columns: RowShape, manifest: Manifest, outcome: Outcome, names: Mapping[str, str]
) -> dict[str, str | int | float | bool | None]:
    row = plain_row(columns, outcome.example, outcome.base, outcome.score)
    prompt, completion = as_messages(outcome.example.prompt, "user"), said(outcome.base)
    usage, timing = outcome.base.usage, outcome.base.timing
    known = tokens_known(usage)
    if isinstance(outcome.example.example_id, int):
        row["example_id"] = outcome.example.example_id
    own: dict[str, str | int | float | bool | None] = {
        "final_answer": _last_answer(completion),
        "input_tokens": usage.input_tokens if known else None,
        "output_tokens": usage.output_tokens if known else None,
        "cost": usage.cost,
        "seconds": max(0.0, timing.generation - timing.waiting),
        "run_id": manifest.id,
        "prompt_text": _transcript(prompt),
        "completion_text": _transcript(completion),
    }
    row |= {names.get(name, name): value for name, value in own.items()}
    return {**row, "prompt": to_text(prompt), "completion": to_text(completion)}


def _json_row(columns: RowShape, manifest: Manifest, outcome: Outcome, names: Mapping[str, str]) -> JsonDict:
    row = plain_row(columns, outcome.example, outcome.base, outcome.score)
    whole: JsonDict = {
        "example_id": outcome.example.example_id,
        "prompt": as_messages(outcome.example.prompt, "user"),
        "completion": said(outcome.base),
        "info": outcome.example.info,
    }
    texts = ("usage", "timing", *columns.state_columns)
    whole |= {name: _value(cast("str | None", row[name])) for name in texts}
    line: JsonDict = {name: whole[name] if name in whole else row[name] for name in columns.names}
    return {**line, names.get("run_id", "run_id"): manifest.id}


def _value(text: str | None) -> object:
    return None if text is None else from_text(text.encode("utf-8", "surrogatepass"))


def _cell(value: str | int | float | bool | None, *, is_json: bool) -> str | int | float:
    """What goes into a CSV cell: nothing for null, numbers as they are, text that no spreadsheet computes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    # JSON begins with a bracket, a quote, a letter or a number that was a number before.
    text = _writable(value)
    return _IN_JSON.sub(r"\\u003b", text) if is_json else defused(text)


def _writable(text: str) -> str:
    """`text` without what no CSV reader takes: halves of characters, and NUL, at which some end the cell."""
    return unbroken(text.replace("\0", "\ufffd"))


def _last_answer(completion: Sequence[object]) -> str | None:
    """The text of the last assistant message; None if there is none."""
    reply = last_reply(cast(Message, message) for message in completion if isinstance(message, dict))
    return None if reply is None else text_of(reply)


def _transcript(messages: Sequence[object]) -> str:
    """Messages as people read them: `role: text`, with a blank line between two."""
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
        told: object = cast(JsonDict, call).get("function") if isinstance(call, dict) else None
        function = cast(JsonDict, told) if isinstance(told, dict) else {}
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


def unbroken(text: str) -> str:
    """`text` in which no lone surrogate is left, since no UTF-8 holds one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def one_line(document: bytes) -> bytes:
    """A JSON document as a line of a file, also for readers that break lines where Unicode does."""
    for letter, escape in _LINE_BREAKS:
        document = document.replace(letter, escape)
    return document + b"\n"


def last_reply(messages: Iterable[Message]) -> Message | None:
    """The newest message of the model."""
    found: Message | None = None
    for message in messages:
        if message.get("role") == "assistant":
            found = message
    return found
