"""The index of a run agrees with the journal: each stored value, and each query."""

from __future__ import annotations

import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from indexed_runs import METRICS, SETTINGS, indexed
from run_samples import run_at
from store_samples import example, failed, generated, scored, write

from harness.core.records import Record
from harness.core.types import JsonDict, Usage
from harness.plugins.view.column_values import values_of
from harness.plugins.view.index_helper import get, packed, put, unpacked
from harness.plugins.view.index_rows import Lines, RowMaker, Rows
from harness.plugins.view.query_arrays import Progress, matching, parsed_query
from harness.report.rollout_columns import COLUMNS, FLAGS, rollout_columns
from harness.report.selection import value_text
from harness.store.journal_index import Recorded
from harness.store.query_match import compile_query, is_missing

WORDS = ("stop", "Length", "max  turns", "1", "1.5", "01", "nan", "", "ß", "SS", "a b", "x" * 250, "\ud800")
FLOATS = (0.0, 1.0, -0.0, 0.5, 1e-10, 1.0 + 1e-10, 0.9999999, -3.0, 1e9, 1e300)
word = st.sampled_from(WORDS)
amount = st.sampled_from(FLOATS)


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(["add", "Add", "find it"]), max_size=2))
    return [{"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]


@st.composite
def completions(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["", "#### 7", "plain", " "]))
    said: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 3))):
        text = draw(st.sampled_from([None, "", "#### 1.5", r"so \boxed{ 7 }", "<a>X y</a>", "line\nlast  line", [{}]]))
        message: dict[str, Any] = {"role": draw(st.sampled_from(["assistant", "user"])), "content": text}
        message |= {"tool_calls": draw(calls())} if draw(st.booleans()) else {}
        message |= {"refusal": "no"} if draw(st.integers(0, 9)) == 0 else {}
        said.append(message | ({"reasoning_content": "Hm 1"} if draw(st.booleans()) else {}))
    return said


@st.composite
def journals(draw: st.DrawFn) -> list[Record]:
    """A journal with a few rollouts, some of them generated and scored again."""
    found: list[Record] = []
    ids = draw(st.sampled_from([st.integers(0, 3), word, st.one_of(st.integers(0, 3), word)]))
    for index in range(draw(st.integers(1, 3))):
        info = draw(st.sampled_from([{}, {"level": 1}, {"level": "1"}, {"level": [1, "x"]}, {"level": True}]))
        fields = {"answer": draw(word), "task": draw(word), "info": info, "example_id": draw(ids)}
        found.append(example(index, **fields))
    for _ in range(draw(st.integers(0, 8))):
        index, rollout = (
            draw(st.integers(0, sum(each.kind == "example" for each in found) - 1)),
            draw(st.integers(0, 2)),
        )
        cost = draw(st.sampled_from([None, 0.0, 0.25, 1e-12]))
        unreported = draw(st.integers(0, 1))
        usage = Usage(draw(st.integers(0, 5)), draw(st.integers(0, 3)), requests=1, cost=cost, unreported=unreported)
        common: dict[str, Any] = {
            "completion": draw(completions()),
            "usage": usage,
            "attempts": draw(st.integers(1, 2)),
        }
        if draw(st.integers(0, 3)) == 0:
            found.append(failed(index, rollout, reason=draw(word), error=draw(word), retryable=index > 0, **common))
            continue
        stop, state = draw(st.one_of(st.none(), word)), draw(st.sampled_from([{}, {"turn": 2}, {"turn": "2"}]))
        truncated = draw(st.booleans())
        found.append(generated(index, rollout, stop_condition=stop, is_truncated=truncated, state=state, **common))
        if draw(st.integers(0, 4)):
            reward = draw(st.one_of(st.none(), amount))
            metrics = {name: draw(st.one_of(st.none(), amount)) for name in METRICS[: draw(st.integers(0, 2))]}
            reasons = {} if reward is not None else {"correct": draw(word)}
            found.append(scored(index, rollout, reward, metrics=metrics, reasons=reasons))
    return found


NAMES = [each.name for each in COLUMNS] + ["metric.correct", 'metric."two words"', "info.level", "state.turn"]
VALUES = ["1", "0", "1.5", "0.5", "7", "stop", "length", "max turns", "ss", "add", "unscored", "scored", "a b", "hm",
          "sums", "x", "0.99999999999", "-3", "1e9", "Add", "true", "timeout"]  # fmt: skip


@st.composite
def terms(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return f"is:{draw(st.sampled_from([*FLAGS]))}"
    if kind == 1:
        return f"has:{draw(st.sampled_from(NAMES[:-3]))}"
    name, value = draw(st.sampled_from(NAMES)), draw(st.sampled_from(VALUES))
    return f'{name}{draw(st.sampled_from([":", "=", "!=", "<", "<=", ">", ">="]))}"{value}"'


queries = st.recursive(
    terms(),
    lambda inner: st.one_of(
        inner.map(lambda text: f"-({text})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' or '.join(parts)})"),
    ),
    max_leaves=5,
)


@st.composite
def notes(draw: st.DrawFn) -> JsonDict:
    """A note about a rollout of `journals`, or about none."""
    return {
        "key": generated(draw(st.integers(0, 3)), draw(st.integers(0, 2))).key,
        "author": draw(st.sampled_from(["ann", "Bob"])),
        "tags": draw(st.lists(st.sampled_from(["stop", "Length", "1", "add"]), max_size=2)),
        "remark": draw(st.sampled_from(["", "a b", "x" * 250, "1.5"])),
        "score": draw(st.sampled_from([None, *FLOATS[:-1]])),
    }


@SETTINGS
@given(journals(), st.lists(notes(), max_size=4))
def test_each_stored_value_is_that_of_the_rollout(records: list[Record], noted: list[JsonDict]) -> None:
    with indexed(records, notes=noted) as (index, rollouts), index.reading():
        everything = [True] * index.count
        assert index.count == len(rollouts)
        names = [each.name for each in COLUMNS] + [f"metric.{name}" for name in METRICS] + ["info.level", "state.turn"]
        columns = rollout_columns([index.manifest])
        for name in names:
            values = values_of(index, name, index.array("flags") >= 0, Progress())
            for number, rollout in zip(index.order.tolist(), rollouts, strict=True):
                value = columns.column(name).read(rollout)
                expected = None if is_missing(value) else value_text(value)[:200]
                assert values.text(number) == expected, (name, value, everything)
                if index.storage(name) == "number" and not is_missing(value):
                    assert index.numbers(name)[number] == value
        for name, (test, _) in FLAGS.items():
            assert index.flag(name)[index.order].tolist() == [test(rollout) for rollout in rollouts]


@SETTINGS
@given(journals(), st.lists(queries, min_size=8, max_size=8), st.lists(notes(), max_size=4))
def test_a_query_selects_the_same_rollouts_as_on_the_command_line(
    records: list[Record], texts: list[str], noted: list[JsonDict]
) -> None:
    with indexed(records, notes=noted) as (index, rollouts), index.reading():
        columns = rollout_columns([index.manifest])
        for text in texts:
            try:
                matches = compile_query(text, columns).matches
            except Exception as error:
                try:
                    parsed_query(index, text)
                except type(error):
                    continue
                raise AssertionError(text) from error
            progress = Progress(deadline=math.inf)
            found = matching(index, parsed_query(index, text), progress)
            assert found[index.order].tolist() == [matches(rollout) for rollout in rollouts], text
            assert progress.json is None


def test_a_journal_read_in_pieces_has_the_same_index() -> None:
    records: list[Record] = []
    for index in range(4):
        records += [example(index), generated(index), scored(index, 0, float(index % 2))]
    records += [generated(1, stop_condition="again"), failed(2), scored(0, 0, 0.5)]
    with indexed(records, pieces=7) as (index, rollouts), index.reading():
        rewards = [rollout.outcome.reward for rollout in rollouts]
        assert [None if math.isnan(x) else x for x in index.numbers("reward")[index.order].tolist()] == rewards
        assert rewards == [0.5, None, None, 1.0]


def plain(rows: Rows) -> Any:
    """Rows as JSON."""
    numbers = {name: [repr(each) for each in values.tolist()] for name, values in rows.numbers.items()}
    words = {name: (list(map(repr, found)), codes.tolist()) for name, (found, codes) in rows.words.items()}
    rest = (rows.readable.tolist(), rows.flags.tolist(), rows.replies, rows.examples, sorted(rows.left_out), rows.error)
    return json.dumps([numbers, words, *rest])


@SETTINGS
@given(journals())
def test_rows_are_the_same_after_they_were_sent(records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = run_at(Path(folder), metric_names=METRICS)
        write(run.journal_path, records)
        recorded = Recorded.load(run.journal_path)
        rows = np.array([recorded.row(number) for number in range(len(recorded))], "i8").reshape(-1, 6)
        lines, maker = Lines(0, recorded.end, rows), RowMaker(run, run.read_manifest())
        first, file = maker.rows(lines, {}), io.BytesIO()
        put(file, *packed(first))
        file.seek(0)
        assert plain(unpacked(*get(file))) == plain(first)
        assert plain(RowMaker(run, run.read_manifest()).rows(lines)) == plain(first), "read all at once, or one by one"
