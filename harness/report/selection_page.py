"""Output of a search in runs: one line per rollout, or a table of groups."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from rich.cells import cell_len, chop_cells
from rich.text import Text

from harness.core.records import Failed
from harness.report import numerals
from harness.report.layout import GAP, Column, head, table_lines
from harness.report.rollout_columns import RunRollout, reply_of
from harness.report.selection import NO_VALUE, Search, ValueGroup, value_text
from harness.report.text import clean
from harness.store.manifest import Manifest
from harness.store.query_match import QueryColumn, fold, is_missing

MOST_COLUMNS = 3
"""Maximum number of columns to show because the query names them."""

_SEARCHED = ("text", "prompt", "completion", "reply", "reasoning", "judge", "error", "parsed", "answer", "note")
"""Columns of long text; a rollout's line shows an excerpt with the words that were found there."""

_SHOWN_ALREADY = frozenset({"reward", "rollout"})

_LEAST_TEXT = 16
_MOST_TEXT = 200
"""Width of a rollout's text in cells."""

_BEFORE = 12
"""Characters shown before the text that was found."""


@dataclass(frozen=True, slots=True)
class RolloutLine:
    """Cells of one rollout."""

    run_id: str
    example: str
    rollout: int
    reward: str
    end: str
    """Stop condition, or the reason for a missing reward."""
    numbers: tuple[str, ...]
    """Values of the numeric columns that the query names."""
    text: str
    is_end: bool
    """Whether `text` is the end of a reply; if it is too long, its beginning is cut off."""


def rollout_line(rollout: RunRollout, found: Search) -> RolloutLine:
    """The cells of a rollout that a search found."""
    outcome = rollout.outcome
    base = outcome.base
    end = outcome.reason if not outcome.is_scored else "" if isinstance(base, Failed) else base.stop_condition or ""
    text, is_end = _excerpt(rollout, found)
    return RolloutLine(
        rollout.run_id,
        clean(outcome.example.example_id, 100),
        base.rollout_index,
        numerals.score(outcome.reward),
        clean(end, 60) or numerals.NONE,
        tuple(
            numerals.NONE if is_missing(value := column.read(rollout)) else clean(value_text(value), 30)
            for column in _numbers(found)
        ),
        text,
        is_end,
    )


def _numbers(found: Search) -> list[QueryColumn[RunRollout]]:
    columns = [each for each in found.query.columns if each.kind == "number" and each.name not in _SHOWN_ALREADY]
    return columns[:MOST_COLUMNS]


def _excerpt(rollout: RunRollout, found: Search) -> tuple[str, bool]:
    """The text around the first word of the query that occurs in the rollout; else the rollout's error, or the end of
    its reply. Also return whether the text is the end of the reply."""
    for column, word in found.query.words:
        if column.name not in _SEARCHED:
            continue
        value = column.read(rollout)
        for text in cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]:
            plain = " ".join(str(text or "").split())
            place = plain.casefold().find(fold(word))
            if place >= 0:
                start = max(0, place - _BEFORE)
                return ("…" if start else "") + clean(plain[start : start + 2 * _MOST_TEXT], _MOST_TEXT), False
    outcome = rollout.outcome
    if outcome.error not in (None, outcome.reason) and not outcome.is_scored:
        return clean(outcome.error, _MOST_TEXT), False
    reply = reply_of(outcome.base)
    end = clean(reply[-4 * _MOST_TEXT :], 4 * _MOST_TEXT)[-_MOST_TEXT:]
    return ("…" + end if len(reply) > 4 * _MOST_TEXT or len(end) == _MOST_TEXT else end) or outcome.no_text, True


def search_lines(lines: Sequence[RolloutLine], found: Search, width: int) -> Iterator[Text]:
    """Format rollouts as tables, one per run.

    Args:
        lines: The rollouts; those of the same run are adjacent unless they are sorted by reward.
        found: The search.
        width: Width of a line in cells.
    """
    names = [column.name for column in _numbers(found)]
    has_runs = len(found.runs) > 1
    columns = [Column("run", [line.run_id for line in lines], is_text=True)] if has_runs else []
    columns += [
        Column("example", [line.example for line in lines], is_text=True, shrink="middle", least=7),
        Column("rollout", [str(line.rollout) for line in lines]),
        Column("reward", [line.reward for line in lines]),
        *(Column(name, [line.numbers[place] for line in lines]) for place, name in enumerate(names)),
        Column("ended by", [line.end for line in lines], is_text=True, shrink="middle", least=8),
    ]
    if not lines:
        return
    spare = width - sum(column.width + GAP for column in columns)
    room = max(_LEAST_TEXT, min(_MOST_TEXT, spare))
    texts = [_last_cells(line.text, room) if line.is_end else line.text for line in lines]
    yield from table_lines([*columns, Column("text", texts, is_text=True, shrink="end", least=8)], width)


def _last_cells(text: str, room: int) -> str:
    """The end of a string, preceded by `…` if the string is longer."""
    if cell_len(text) <= room:
        return text
    return "…" + chop_cells(text[::-1], room - 1)[0][::-1]


def group_lines(
    column: QueryColumn[RunRollout],
    groups: Sequence[ValueGroup],
    limits: tuple[float, float] | None,
    most: int | None,
    title: str,
    width: int,
) -> Iterator[Text]:
    """Format the groups of one run as a table.

    Args:
        column: The column that the rollouts are grouped by.
        groups: The groups, the largest first.
        limits: Lowest and highest possible reward; None if unknown.
        most: Maximum number of groups; None for all.
        title: Line above the table; "" for none.
        width: Width of a line in cells.
    """
    shown = groups[:most]
    total = sum(group.count for group in groups)
    if title:
        yield head(clean(title, 200))
    estimates = [group.estimate(limits) for group in shown]
    values = [clean(group.value, 120) or NO_VALUE for group in shown]
    yield from table_lines(
        [
            Column(clean(column.name, 40), values, is_text=True, shrink="wrap", least=20),
            Column("count", [numerals.count(group.count) for group in shown]),
            Column("share", [numerals.percent(group.count / total) for group in shown]),
            Column("mean", [numerals.score(each.mean) for each in estimates]),
            Column("95 % interval", [numerals.interval(each) for each in estimates]),
            Column("example", [clean(group.example, 60) for group in shown], is_text=True, shrink="middle", least=7),
            Column("rollout", [str(group.rollout) for group in shown]),
        ],
        width,
    )
    if rest := groups[len(shown) :]:
        count = numerals.count(sum(group.count for group in rest))
        yield Text(f"and {numerals.counted(len(rest), 'more value')} of {count} rollouts; -n -1 shows all")


def read_command(name: str, line: RolloutLine) -> str:
    """The command that prints a rollout's transcript.

    Args:
        name: Name of the run for commands.
        line: The rollout.
    """
    example = shlex.quote(clean(line.example, 200))
    return f"bench runs show {shlex.quote(name)} --example {example} --rollout {line.rollout}"


def title_of(manifest: Manifest) -> str:
    """Environment, label and model of a run, for the heading of its table."""
    label = manifest.name if manifest.name not in ("", manifest.env_id) else ""
    return " · ".join(part for part in (manifest.env_id, label, manifest.model, manifest.id) if part)
