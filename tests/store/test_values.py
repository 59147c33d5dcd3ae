"""What is taken for a table, a number, a count and the ends of an interval in files that somebody may have edited."""

from __future__ import annotations

from tables import for_each_row

from harness.store.values import count, ends, number, table


@for_each_row(
    ("value", "expected"),
    [
        (None, ({}, None, 0, None)),
        ({"mean": 1}, ({"mean": 1}, None, 0, None)),
        (0.25, ({}, 0.25, 0, None)),
        (7, ({}, 7.0, 7, None)),
        (True, ({}, None, 0, None)),
        ("7", ({}, None, 0, None)),
        (float("nan"), ({}, None, 0, None)),
        (10**400, ({}, None, 10**400, None)),
        ([0, 0.5], ({}, None, 0, (0.0, 0.5))),
        ((0.25, 0.5), ({}, None, 0, (0.25, 0.5))),
        ([0.25], ({}, None, 0, None)),
        ([0.25, None], ({}, None, 0, None)),
        ([0.25, 0.5, 0.75], ({}, None, 0, None)),
        ([0.25, float("inf")], ({}, None, 0, None)),
    ],
)
def test_what_is_not_of_its_kind_is_as_good_as_not_there(value: object, expected: tuple[object, ...]) -> None:
    assert (table(value), number(value), count(value), ends(value)) == expected
