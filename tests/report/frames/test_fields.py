"""From Python values to Arrow: every odd value finds its way, types are fixed, and little is held at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import UsageError
from harness.report.frames.fields import BATCH_CHARACTERS, BATCH_ROWS, Field, Kind, free_name, selected, table_of


def column(kind: Kind, values: list[object]) -> list[Any]:
    def itself(value: object) -> object:
        return value

    return table_of([Field("it", kind, itself)], values)["it"].to_pylist()


@for_each_row(
    ("kind", "values", "expected"),
    [
        ("text", ["a", "", None, 5, {"b": [1, None]}, "\ud800"], ["a", "", None, "5", '{"b":[1,null]}', "�"]),
        ("number", [1, 0.5, None, True, "2", [1], float("nan"), 10**400], [1.0, 0.5, None, 1.0, *[None] * 4]),
        ("integer", [0, -3, None, 2**63 - 1, 2**63, -(2**63) - 1, 1.0, "1"], [0, -3, None, 2**63 - 1, *[None] * 4]),
        ("flag", [True, False, None, 1], [True, False, None, True]),
        (
            "time",
            [0, 1.5, -1, None, float("nan"), float("inf"), 1e300, 1e305, "today"],
            [datetime(1970, 1, 1, 0, 0, 0, 0, UTC), datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
             datetime(1969, 12, 31, 23, 59, 59, 0, UTC), *[None] * 6],
        ),
    ],
)  # fmt: skip
def test_values_of_every_kind(kind: Kind, values: list[object], expected: list[object]) -> None:
    assert column(kind, values) == expected


def test_infinity_is_a_number() -> None:
    assert column("number", [float("inf"), float("-inf")]) == [float("inf"), float("-inf")]


def test_little_is_held_before_it_becomes_arrow() -> None:
    fields: list[Field[str]] = [Field("text", "text", str), Field("length", "integer", len)]
    many = table_of(fields, iter(["x"] * (2 * BATCH_ROWS + 1)))
    assert [len(chunk) for chunk in many["text"].chunks] == [BATCH_ROWS, BATCH_ROWS, 1]
    long = table_of(fields, iter(["x" * (BATCH_CHARACTERS // 2)] * 5))
    assert [len(chunk) for chunk in long["text"].chunks] == [2, 2, 1]
    assert table_of(fields, []).num_rows == 0


def test_rows_are_read_once_and_as_they_come() -> None:
    seen: list[int] = []

    def value(row: int) -> int:
        seen.append(row)
        return row

    assert table_of([Field("n", "integer", value)], iter(range(3)))["n"].to_pylist() == [0, 1, 2]
    assert seen == [0, 1, 2]


def test_columns_are_chosen_by_name() -> None:
    fields: list[Field[int]] = [Field(name, "integer", int) for name in ("one", "two", "three")]
    assert [field.name for field in selected(fields, None)] == ["one", "two", "three"]
    assert [field.name for field in selected(fields, ("three", "one", "three"))] == ["three", "one"]
    assert selected(fields, []) == []
    with pytest.raises(UsageError, match="there is no column 'tow'; did you mean \"two\""):
        selected(fields, ["one", "tow"])


def test_a_name_that_is_taken_gets_a_prefix_until_it_is_free() -> None:
    assert free_name("cost", "metric", {"reward"}) == "cost"
    assert free_name("cost", "metric", {"cost"}) == "metric.cost"
    assert free_name("cost", "metric", {"cost", "metric.cost"}) == "metric.metric.cost"
