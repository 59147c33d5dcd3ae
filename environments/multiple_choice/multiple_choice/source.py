"""Where questions come from: benchmarks and other datasets on the Hub, local files, or the built-in sample. Owns
reading and checking rows, the layouts of the benchmarks, and the errors that name the row; shuffles and grades nothing.

One source is never taken for another: if the one that was asked for cannot be read, loading fails and says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from harness import JsonDict, SourceRow
from harness.envs.sources import FILE_SUFFIXES, SAMPLE, ask_for_file, is_file, read_file, read_hub
from harness.errors import ConfigError, EnvironmentLoadError
from multiple_choice.choices import Question
from multiple_choice.extraction import LETTERS
from multiple_choice.sample import questions


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns hold what."""

    question: str = "question"
    choices: str | tuple[str, ...] = "choices"
    """One column with all choices, or a column each."""
    answer: str = "answer"
    """The column with the right one: its index from 0, its letter or label, or its text. With a column each, it may be
    the column that holds the text of the right one."""
    keep: tuple[str, ...] = ()
    """Further columns for `info`."""

    @property
    def columns(self) -> list[str]:
        """Those that a row must have."""
        choices = [self.choices] if isinstance(self.choices, str) else self.choices
        return list(dict.fromkeys((self.question, *choices, self.answer)))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A dataset on the Hub that is known by name."""

    dataset: str
    subset: str
    split: str
    layout: Layout
    fixed: bool = False
    """Whether the subset is part of the name."""


_ARC = Layout(answer="answerKey", keep=("id",))
BENCHMARKS: dict[str, Benchmark] = {
    "mmlu": Benchmark("cais/mmlu", "all", "test", Layout(keep=("subject",))),
    "gpqa": Benchmark(
        "Idavidrein/gpqa",
        "gpqa_diamond",
        "train",
        Layout(
            "Question",
            ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
            "Correct Answer",
            ("Record ID", "High-level domain", "Subdomain"),
        ),
    ),
    "arc-challenge": Benchmark("allenai/ai2_arc", "ARC-Challenge", "test", _ARC, fixed=True),
    "arc-easy": Benchmark("allenai/ai2_arc", "ARC-Easy", "test", _ARC, fixed=True),
}


@dataclass(frozen=True, slots=True)
class Source:
    """What was asked for, checked."""

    name: str
    subset: str | None
    split: str
    layout: Layout


def find_source(benchmark: str, subset: str | None, split: str | None, columns: JsonDict | None) -> Source:
    """The source that the arguments name; reads nothing.

    Raises:
        ConfigError: an argument has the wrong type, they contradict each other, or they name a file that is not there.
    """
    for name, value in (("benchmark", benchmark), ("subset", subset), ("split", split)):
        if not isinstance(value, str) and not (name != "benchmark" and value is None):
            raise ConfigError(f"{name} must be a string, not {value!r}")
    layout = _layout(columns)
    known = BENCHMARKS.get(benchmark)
    if known is not None:
        if columns is not None or (known.fixed and subset is not None):
            raise ConfigError(f"benchmark={benchmark!r} has its own {'subset' if columns is None else 'columns'}")
        return Source(known.dataset, subset or known.subset, split or known.split, known.layout)
    if benchmark == SAMPLE or benchmark.endswith(FILE_SUFFIXES):
        if subset is not None or split is not None:
            raise ConfigError(f"benchmark={benchmark!r} has no `subset` and no `split`; leave them out")
        if benchmark == SAMPLE and columns is not None:
            raise ConfigError(f"benchmark={SAMPLE!r} has its own columns; leave out `columns`")
    if benchmark != SAMPLE:
        _check_name(benchmark)
    return Source(benchmark, subset, split or "test", layout)


def _check_name(benchmark: str) -> None:
    """Refuse what is neither a file that exists nor a Hub id."""
    if not is_file(benchmark, "benchmark") and "/" not in benchmark:
        near = difflib.get_close_matches(benchmark.lower(), [*BENCHMARKS, SAMPLE], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BENCHMARKS)} and {SAMPLE}"
        raise ConfigError(f"benchmark={benchmark!r} is unknown; {hint} (or a Hub id `owner/name`, or a file)")


def read_questions(source: Source) -> list[Question]:
    """The questions of a source, checked, in its own order.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row is wrong; names the row and the column.
    """
    if source.name == SAMPLE:
        return list(questions())
    if source.name.endswith(FILE_SUFFIXES):
        rows = read_file(source.name, source.layout.columns)
    else:
        ask = f"""-a '{{"benchmark": "{SAMPLE}"}}' for the questions in this package"""
        rows = read_hub(source.name, source.split, source.subset, instead=f"{ask_for_file('benchmark')}, or {ask}")
    read = [_Row(row, source.layout).question() for row in rows]
    if not read:
        raise EnvironmentLoadError(f"{source.name} holds no rows")
    return read


def _layout(columns: JsonDict | None) -> Layout:
    """The layout that the argument `columns` describes."""
    if columns is None:
        return Layout()
    example = '{"question": "stem", "choices": ["a", "b", "c"], "answer": "key"}'
    if not isinstance(columns, dict) or not columns.keys() <= {"question", "choices", "answer"}:  # pyright: ignore[reportUnnecessaryIsInstance]  # it may come from JSON
        raise ConfigError(f"columns must be a table like {example}, not {columns!r}")
    names = cast("object", columns.get("choices", "choices"))
    several = _strings(names)
    wrong = not isinstance(names, str) and not (several and 2 <= len(several) <= len(LETTERS))
    question, answer = columns.get("question", "question"), columns.get("answer", "answer")
    if wrong or not isinstance(question, str) or not isinstance(answer, str):
        raise ConfigError(f"columns must be a table like {example} with 2 to {len(LETTERS)} choices, not {columns!r}")
    return Layout(question, tuple(several) if several else str(names), answer)


class _Row:
    """One row, read by its layout."""

    def __init__(self, row: SourceRow, layout: Layout) -> None:
        self._row, self._layout = row, layout

    def question(self) -> Question:
        """The question.

        Raises:
            EnvironmentLoadError: names the row and the column.
        """
        layout = self._layout
        text = self._text(layout.question)
        if isinstance(layout.choices, str):
            labels, choices = self._choices(layout.choices)
        else:
            labels, choices = None, [self._text(column) for column in layout.choices]
        if not 2 <= len(choices) <= len(LETTERS):
            raise self._row.fault(f"there must be 2 to {len(LETTERS)} choices, not {len(choices)}")
        if not isinstance(layout.choices, str) and layout.answer in layout.choices:
            answer = layout.choices.index(layout.answer)
        else:
            answer = self._answer(labels, choices)
        cells = self._row.cells
        info = {column: cells[column] for column in layout.keep if cells.get(column) is not None}
        return Question(text, tuple(choices), answer, info)

    def _choices(self, column: str) -> tuple[list[str] | None, list[str]]:
        """Labels, where there are any, and texts of a column that holds all choices."""
        value, labels = self._row.cell(column), cast("object", None)
        if isinstance(value, Mapping):
            cells = cast("Mapping[str, object]", value)
            value, labels = cells.get("text"), cells.get("label")
        elif isinstance(value, list):
            items = cast("list[object]", value)
            if items and all(isinstance(item, Mapping) for item in items):
                tables = [cast("Mapping[str, object]", item) for item in items]
                value = cast("object", [table.get("text") for table in tables])
                labels = [table.get("label") for table in tables]
        texts = _strings(cast("object", value))
        if texts is None or not all(text.strip() for text in texts):
            raise self._row.wrong(column, "be a list of texts")
        names = _strings(labels)
        if names is not None and (len(names) != len(texts) or len(set(names)) < len(names)):
            raise self._row.fault(f"column {column!r} must have a label of its own for each choice, not {names}")
        return names, [text.strip() for text in texts]

    def _answer(self, labels: list[str] | None, choices: list[str]) -> int:
        """Index of the right choice."""
        column, value = self._layout.answer, self._row.cell(self._layout.answer)
        found: set[int] = set()
        if labels is not None:
            found = {index for index, label in enumerate(labels) if label == str(value)}
        elif isinstance(value, int) and not isinstance(value, bool):
            found = {value} if 0 <= value < len(choices) else set()
        elif isinstance(value, str):
            said = value.strip()
            found = {index for index, choice in enumerate(choices) if choice == said}
            if len(said) == 1 and (letter := LETTERS[: len(choices)].find(said.upper())) >= 0:
                found.add(letter)
        if len(found) != 1:
            among = ", ".join(labels) if labels else f"0 to {len(choices) - 1}, {LETTERS[: len(choices)]}, or a choice"
            raise self._row.wrong(column, f"name one choice ({among})")
        return found.pop()

    def _text(self, column: str) -> str:
        return self._row.text(column, numbers=True).strip()


def _strings(value: object) -> list[str] | None:
    """A list of texts or numbers as texts; None for anything else."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    items = cast("Sequence[object]", value)
    if not all(isinstance(item, str | int | float) for item in items):
        return None
    return [str(item) for item in items]
