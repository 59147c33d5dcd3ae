"""Where problems come from: the Hub, a file, or the built-in sample. Owns what a row must hold; grades nothing."""

from __future__ import annotations

from harness import JsonDict, RowSource, SourceRow, extract_boxed_answer
from math_python.sample import problems

SOURCE = RowSource(hub_id="HuggingFaceH4/MATH-500", sample=problems, noun="problem", columns=("problem", "answer"))
KEPT = ("solution", "subject", "type", "level", "unique_id", "program")


def read_rows(dataset: str, split: str) -> list[JsonDict]:
    """The problems of a source, checked, in its own order.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row lacks a problem or an answer.
    """
    return [_row(row) for row in SOURCE.rows(dataset, split)]


def _row(row: SourceRow) -> JsonDict:
    """The row as the environment wants it: problem, expected answer, and what else is worth keeping."""
    info = {name: row.cells[name] for name in KEPT if row.cells.get(name) is not None}
    return {"question": row.text("problem").strip(), "answer": _answer(row), "info": info}


def _answer(row: SourceRow) -> str:
    r"""The column `answer`, or the last box of the column `solution`."""
    value = row.cells.get("answer")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        answer = extract_boxed_answer(value).strip()
    elif value is None and isinstance(solution := row.cells.get("solution"), str):
        answer = extract_boxed_answer(solution, strict=True).strip()
    else:
        answer = ""
    if not answer:
        raise row.wrong("answer", "be LaTeX or a number (or column 'solution' must hold it in \\boxed{})")
    return answer
