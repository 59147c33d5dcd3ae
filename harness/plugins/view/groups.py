"""Groups of rollouts by the value of a column, and the frequent values of a column, as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import numpy as np

from harness.core.types import JsonDict
from harness.plugins.view.column_values import ColumnValues, values_of
from harness.plugins.view.query_arrays import Progress, compared, matching, parsed_query, value_matcher
from harness.plugins.view.run_index import Array, RunIndex
from harness.plugins.view.tables import estimate, limits_of
from harness.report.selection import LONGEST_VALUE, value_text
from harness.store.query import AllOf, Negation, Node, QueryError, Term, parse_query, query_text
from harness.store.query_match import HAS, fold

MOST_GROUPS = 500
"""Maximum number of groups of an answer."""

_MOST_NAMES = 12
"""Maximum number of names in the condition of a group whose values are lists."""


def groups_page(index: RunIndex, query: str, by: str, limit: int) -> JsonDict:
    """Groups of the rollouts that match a query, the largest first, as JSON; the keys are documented in
    docs/reference/view.md.

    Args:
        index: The index of the run.
        query: The query.
        by: Name of the column to group by.
        limit: Maximum number of groups.

    Raises:
        QueryError: the query is invalid, or there is no such column.
    """
    progress = Progress()
    matches = matching(index, parsed_query(index, query), progress)
    values = values_of(index, by, matches, progress)
    texts, members = grouped(values, matches, index.order)
    counts = np.bincount(members[members >= 0], minlength=len(texts))
    ordered: list[int] = np.argsort(-counts, kind="stable")[: min(limit, MOST_GROUPS)].tolist()
    total = int((members >= 0).sum())
    small = members.astype("i2") if len(texts) < 1 << 15 else members  # which is sorted faster
    by_group = index.order[np.argsort(small[index.order], kind="stable")]
    ends = np.cumsum(np.append(index.count - total, counts))
    groups: list[JsonDict] = []
    for group in ordered:
        numbers = by_group[ends[group] : ends[group + 1]]
        found, scored = estimate(index, numbers, limits_of(index))
        first = int(numbers[0])
        groups.append(
            {
                "value": texts[group], "count": len(numbers), "share": len(numbers) / total, "scored": scored,
                "mean": found.mean, "low": found.low, "high": found.high,
                "query": condition_of(values, texts[group], [text for text in texts if text is not None]),
                "first": {"index": int(index.array("place")[first]), "r": int(index.array("r")[first])},
            }
        )  # fmt: skip
    return {
        "index": index.status(), "scan": progress.json, "by": by, "total": total, "groups": groups,
        "more": len(texts) - len(groups),
    }  # fmt: skip


def grouped(values: ColumnValues, matches: Array, order: Array) -> tuple[list[str | None], Array]:
    """Group rollouts by the text of their values.

    Args:
        values: The values.
        matches: The rollouts to group.
        order: Numbers of all rollouts in table order.

    Returns:
        The text of each group, None for that of rollouts without a value, in the order of their first rollouts; and for
        each rollout the number of its group, -1 for those that are not grouped.
    """
    different = list[str | None]()
    if values.numbers is not None:
        codes = np.searchsorted(values.different, values.numbers)  # all NaN are after the last one
        floats: list[float] = values.different.tolist()
        different = [*map(value_text, floats), None]
    else:
        codes = np.where(values.codes >= 0, values.codes, np.int32(len(values.values)))
        different = [*(value_text(value)[:LONGEST_VALUE] for value in values.values), None]
        matches = matches & (values.codes > -2)
    present = codes[order][matches[order]]
    used, first = np.unique(present, return_index=True)
    texts: dict[str | None, int] = {}
    groups = np.full(len(different), -1, "i4")
    chosen: list[int] = used[np.argsort(first, kind="stable")].tolist()
    for code in chosen:
        groups[code] = texts.setdefault(different[code], len(texts))
    return list(texts), np.where(matches, groups[codes], np.int32(-1)) if len(codes) else np.zeros(0, "i4")


def condition_of(values: ColumnValues, text: str | None, texts: list[str]) -> str | None:
    """A condition that selects exactly the rollouts of a group among those of all groups; None if there is none.

    Args:
        values: The values of the column.
        text: Text of the group; None for the group without a value.
        texts: Texts of all groups.
    """
    name = values.column.name
    if text is None:
        return query_text(Negation(Term(HAS, ":", name)))
    if not text.strip() or len(text) >= LONGEST_VALUE:
        return None
    if values.numbers is not None:
        node: Node | None = Term(name, "=", text)
        held = values.different
        same = {value_text(value) for value in held[compared(held, "=", float(text))].tolist()}
        inside = [value for value in held.tolist() if value_text(value) == text]
        is_exact = same == {text} and bool(compared(np.array(inside), "=", float(text)).all())
    else:
        node = _words_condition(values, text)
        is_exact = node is not None and _selected_texts(node, values) == {text}
    if node is None or not is_exact:
        return None
    return _written(node)


def _words_condition(values: ColumnValues, text: str) -> Node | None:
    """A condition for the values with a text. Of lists, it names all parts, and excludes all others."""
    name = values.column.name
    found = next(value for value in values.values if value_text(value)[:LONGEST_VALUE] == text)
    if not isinstance(found, tuple):
        return Term(name, "=", text)
    own = cast("tuple[str, ...]", found)
    lists = [cast("tuple[str, ...]", value) for value in values.values if isinstance(value, tuple)]
    others = {part for value in lists for part in value}.difference(own)
    if len(own) + len(others) > _MOST_NAMES:
        return None
    parts: list[Node] = [Term(name, "=", part) for part in own]
    parts += [Negation(Term(name, "=", part)) for part in sorted(others)]
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _selected_texts(node: Node, values: ColumnValues) -> set[str] | None:
    """Texts of the values that meet a condition; None if it cannot be a query."""
    long = {value_text(value)[:LONGEST_VALUE] for value in values.values if len(value_text(value)) > LONGEST_VALUE}
    try:
        tests = [_tester(part, values) for part in (node.parts if isinstance(node, AllOf) else (node,))]
    except QueryError:
        return None
    chosen = {value_text(value)[:LONGEST_VALUE] for value in values.values if all(test(value) for test in tests)}
    return None if chosen & long else chosen


def _tester(node: Node, values: ColumnValues) -> Callable[[object], bool]:
    if isinstance(node, Negation):
        inner = _tester(node.part, values)

        def negated(value: object) -> bool:
            return not inner(value)

        return negated
    assert isinstance(node, Term)
    return value_matcher(node, values.column)


def _written(node: Node) -> str | None:
    """Text of a condition; None if the query language cannot express it."""
    try:
        text = query_text(node)
        return text if parse_query(text) == node else None
    except QueryError:
        return None


def frequent_values(index: RunIndex, name: str, prefix: str, limit: int = 20) -> JsonDict:
    """Frequent values of a column that begin with a text, as JSON.

    Args:
        index: The index of the run.
        name: Name of the column; `is` for the properties.
        prefix: Beginning of the values.
        limit: Maximum number of values.

    Raises:
        QueryError: there is no such column.
    """
    wanted = fold(prefix)
    if name == "is":
        flags = [(flag, int(index.flag(flag).sum())) for flag in index.columns.flags]
        found = [(text, count) for text, count in flags if text.startswith(wanted)]
    else:
        progress = Progress()
        everything = np.ones(index.count, bool)
        values = values_of(index, name, everything, progress)
        texts, members = grouped(values, everything, index.order)
        counts = np.bincount(members[members >= 0], minlength=len(texts)).tolist()
        lists = [cast("tuple[str, ...]", value) for value in values.values if isinstance(value, tuple)]
        parts = {value_text(value)[:LONGEST_VALUE]: value for value in lists}
        counted = Counter[str]()
        for text, count in zip(texts, counts, strict=True):
            if text is not None:
                names = parts.get(text, (text,))  # of a list, any part may match
                counted.update(dict.fromkeys(names, count))
        found = [(text, count) for text, count in counted.items() if fold(text).startswith(wanted)]
    found.sort(key=lambda pair: -pair[1])
    shown = [{"value": text, "count": count} for text, count in found[:limit]]
    return {"name": name, "values": shown, "more": max(0, len(found) - limit)}
