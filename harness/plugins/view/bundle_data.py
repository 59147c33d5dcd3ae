"""The data of a bundle: the answers of the server about one run, in JSON files that a script fetches by number.

Rollouts are in table order. `run.json` says which columns, groups and transcripts there are; `rollouts.json` has the
places of all rollouts; each column has one file of codes, and one of its groups; `queries.json` says which codes the
queries that the pages make select; beginnings of texts and transcripts are in chunks of bounded size."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np

from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.plugins.view.column_values import ColumnValues, column_of, values_of
from harness.plugins.view.groups import groups_page
from harness.plugins.view.index_columns import FLAG_BITS, WORDS
from harness.plugins.view.note_columns import NOTE_NUMBERS, NOTE_WORDS
from harness.plugins.view.query_arrays import Progress, matching, parsed_query, plain_word
from harness.plugins.view.rollout_page import fitted, rollout_json
from harness.plugins.view.run_index import Array, RunIndex
from harness.plugins.view.run_info import run_info
from harness.plugins.view.tables import RowWriter, Sorted, plain
from harness.report.selection import LONGEST_VALUE, value_text
from harness.store.codec import from_text, map_texts, redacted_key, to_text
from harness.store.journal import JournalReader
from harness.store.values import table

logger = logging.getLogger(__name__)

TEXTS = 200
"""Number of rollouts whose beginnings of texts are in one file."""

CHUNK = 1_000_000
"""Number of bytes of transcripts in one file; a larger transcript has a file of its own."""

GROUPS = 50
"""Maximum number of groups of a column."""

_NEIGHBOURS = 500
"""Number of other rollouts of an example, on either side, that a transcript is listed with."""

_SHOWN = ("reward", "outcome", "reason", "stop", "tokens", "cost", "seconds", "turns")
"""Columns that the tables show."""

_GROUPED = (*WORDS, "reward", "turns")
"""Columns to group by, besides the metrics."""

_QUERIES = ("outcome:unscored",)
"""Queries of buttons of the pages, besides properties, groups and bins."""

Write = Callable[[str, bytes], None]
"""A function that writes a file of the run, given its name and its content."""

Ranges = list[list[int]]


def redacted(text: str) -> bytes:
    """JSON text without the known secrets, in UTF-8."""
    encoded = text.encode()
    if redactor.is_clean(encoded):
        return encoded
    redact = partial(redactor.text, patterns=False)
    return to_text(map_texts(from_text(encoded), redact, redacted_key)).encode()


class RunFiles:
    """Writes the files of one run. Used inside `index.reading()`.

    Args:
        index: The complete index of the run.
        write: Function that writes a file.
    """

    def __init__(self, index: RunIndex, write: Write) -> None:
        self.unreadable = 0
        """Number of rollouts whose transcripts cannot be read."""
        self._index, self._put = index, write
        self._columns: dict[str, int] = {}
        """Numbers of the columns, by name."""
        self._queries: dict[str, tuple[str, Ranges]] = {}
        """For each query the column that it is about, and the ranges of codes that it selects."""

    def write(self) -> JsonDict:
        """Write all files.

        Returns:
            The run as in the list of runs.

        Raises:
            StoreError: the journal cannot be opened.
        """
        info = run_info(self._index, self._index.entry, [])
        # Notes are what people wrote for themselves: they are not published.
        kept = [each for each in info["columns"] if each["name"] not in NOTE_NUMBERS | NOTE_WORDS]
        sortable = [each for each in kept if each["indexed"] and each["kind"] != "flag"]
        metrics = [each["name"] for each in sortable if each["name"].startswith("metric.")]
        names = [each["name"] for each in sortable]
        grouped = [name for name in (*_GROUPED, *metrics) if name in names]
        bins = cast("list[str]", table(info["histogram"]).get("queries", []))
        for name in dict.fromkeys((*names, *_SHOWN)):
            self._column(name, is_grouped=name in grouped, queries=bins if name == "reward" else ())
        for name in FLAG_BITS:
            codes = self._index.flag(name).astype("i4")
            self._write_column(f"is:{name}", codes, {"values": [False, True]}, (f"is:{name}",))
        self._json("queries.json", [[text, *selected] for text, selected in self._queries.items()])
        self._table()
        self._texts()
        layout = {"columns": [*self._columns], "groups": grouped, "texts": TEXTS, "chunks": self._transcripts()}
        run = self._run(info["run"])
        info |= {
            "run": run,
            "index": self._status(),
            "summary": None,
            "columns": sortable,
            "bundle": layout,
            "noted": 0,
        }
        self._json("run.json", info)
        return run

    def _json(self, name: str, value: object) -> None:
        self._put(name, redacted(to_text(value)))

    def _run(self, run: JsonDict) -> JsonDict:
        """The run for the list of runs, without paths of this machine."""
        entry = self._index.entry
        problems = [each.replace(str(entry.run.path), entry.id) for each in entry.problems]
        if error := self._status()["error"]:
            problems.append(f"{error[0].upper()}{error[1:]}.")
        if entry.state == "running":
            problems.append("This run had not ended when the bundle was written; it shows the rollouts until then.")
        return {**run, "path": "", "problems": problems}

    def _status(self) -> JsonDict:
        error = "the journal is damaged, and its rest could not be read" if self._index.status()["error"] else ""
        return {"rollouts": self._index.count, "done": True, "error": error}

    def _column(self, name: str, *, is_grouped: bool, queries: tuple[str, ...] | list[str]) -> None:
        """Write a column, and its groups."""
        index = self._index
        if index.storage(name):
            values = values_of(index, name, np.ones(index.count, bool), Progress())
        else:  # a column that the tables show, and that is not stored exactly
            words = name in WORDS
            held = [plain_word(word) for word in index.words(name)] if words else []
            codes = index.codes(name) if words else np.zeros(0, "i4")
            values = ColumnValues(column_of(index, name), None if words else index.numbers(name), codes, held)
        codes, found = coded(values)
        if not is_grouped:
            self._write_column(name, codes, found, queries)
            return
        page = groups_page(index, "", name, GROUPS)
        if values.numbers is not None:
            found["texts"] = [value_text(value) for value in found["values"]]
        texts: list[str] = [each["query"] for each in page["groups"] if each["query"] is not None]
        extra = _QUERIES if name == "outcome" else ()
        self._write_column(name, codes, found, (*texts, *queries, *extra))
        for each in page["groups"]:
            if redactor.text(each["query"] or "", patterns=False) not in self._queries:
                each["query"] = None
        self._json(f"groups-{self._columns[name]}.json", page | {"index": self._status()})

    def _write_column(self, name: str, codes: Array, found: JsonDict, queries: tuple[str, ...] | list[str]) -> None:
        number = self._columns[name] = len(self._columns)
        for query in queries:
            ranges = self._selected(query, codes)
            # Queries that are the same without secrets would select the wrong rollouts.
            text = redactor.text(query, patterns=False)
            if ranges is not None and text not in self._queries:
                self._queries[text] = name, ranges
        self._json(f"column-{number}.json", found | {"codes": codes[self._index.order].tolist()})

    def _selected(self, query: str, codes: Array) -> Ranges | None:
        """Ranges of the codes of a column that a query selects; None if codes do not decide it."""
        index = self._index
        parsed = parsed_query(index, query)
        matches = matching(index, parsed, Progress())
        index.derived.pop(("query", parsed.text), None)  # an array for each query would fill the memory
        chosen = np.unique(codes[matches])
        if not np.array_equal(np.isin(codes, chosen), matches):
            return None
        parts = np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1)
        return [[int(part[0]), int(part[-1])] for part in parts if len(part)]

    def _table(self) -> None:
        """Write the places of all rollouts, and the mean reward of each example."""
        index, everything = self._index, np.ones(self._index.count, bool)
        means = Sorted(index, everything, None).means(index.numbers("reward"), everything)
        self._json(
            "rollouts.json",
            {
                "places": index.array("place")[index.order].tolist(), "r": index.array("r")[index.order].tolist(),
                "starts": index.starts.tolist(), "means": [plain(mean) for mean in means.tolist()],
            },
        )  # fmt: skip

    def _texts(self) -> None:
        """Write the beginnings of texts that the tables show."""
        index, places = self._index, self._index.array("place")
        for first in range(0, index.count, TEXTS):
            numbers: list[int] = index.order[first : first + TEXTS].tolist()
            examples, replies = index.texts(np.unique(places[numbers]).tolist(), numbers)
            shown = {str(place): list(texts) for place, texts in examples.items()}
            found = {"first": first, "examples": shown, "replies": [replies.get(number, "") for number in numbers]}
            self._json(f"texts-{first // TEXTS}.json", found)

    def _transcripts(self) -> list[tuple[int, int]]:
        """Write the transcripts.

        Returns:
            Position of the example and rollout index of the first transcript in each file.
        """
        index = self._index
        places, rollouts = (index.array(name)[index.order].tolist() for name in ("place", "r"))
        firsts: list[tuple[int, int]] = []
        held: list[bytes] = []
        size = start = 0

        def flush(end: int) -> None:
            names = (f'"{places[each]}/{rollouts[each]}":'.encode() for each in range(start, end))
            pairs = b",".join(name + text for name, text in zip(names, held, strict=True))
            siblings = redacted(to_text(self._siblings(start, end)))
            self._put(f"transcripts-{len(firsts)}.json", b'{"siblings":' + siblings + b',"rollouts":{' + pairs + b"}}")
            firsts.append((places[start], rollouts[start]))
            held.clear()

        if not index.count:
            return []
        with index.reader() as reader:
            for position in range(index.count):
                text = self._transcript(reader, position, places[position])
                if held and size + len(text) > CHUNK:
                    flush(position)
                    size, start = 0, position
                held.append(text)
                size += len(text)
        flush(index.count)
        return firsts

    def _transcript(self, reader: JournalReader, position: int, place: int) -> bytes:
        index = self._index
        try:
            outcome = index.outcome(reader, int(index.order[position]))
            page = rollout_json(index, place, outcome, [])
            return redacted(fitted({**page, "run": None}, whole=True))
        except Exception as error:  # the other rollouts can be read
            logger.info("rollout %s of example %s: %s", position, place, error, exc_info=True)
            self.unreadable += 1
            return to_text({"error": "this rollout cannot be read from the journal"}).encode()

    def _siblings(self, start: int, end: int) -> dict[str, list[JsonDict]]:
        """The rollouts of the examples of some transcripts, near these, by position of the example.

        Args:
            start: Position of the first transcript.
            end: Position behind the last one.
        """
        index, rows = self._index, RowWriter(self._index)
        places = index.array("place")[index.order]
        first, last = max(0, start - _NEIGHBOURS), end + _NEIGHBOURS
        near = np.isin(places[first:last], places[start:end])
        found: dict[str, list[JsonDict]] = {}
        for number in index.order[first:last][near].tolist():
            found.setdefault(str(int(index.array("place")[number])), []).append(rows.strip(number))
        return found


def coded(values: ColumnValues) -> tuple[Array, JsonDict]:
    """A column as codes of its different values, -1 for none: the code of each rollout, and for the file the values
    and, unless they are sorted numbers, their ranks."""
    if values.numbers is not None:
        different, codes = np.unique(values.numbers, return_inverse=True)
        known = cast("list[float]", different[~np.isnan(different)].tolist())
        return np.where(codes < len(known), codes, -1), {"values": known}
    keys, has = values.keys()
    ranks = np.zeros(len(values.values), "i8")
    ranks[values.codes[has]] = keys[has]
    shown = [value_text(value)[:LONGEST_VALUE] for value in values.values]
    return np.maximum(values.codes, -1), {"values": shown, "ranks": ranks.tolist()}
