"""Where questions come from: the Hub, a file, or the built-in sample. Owns what a row must hold; grades nothing."""

from __future__ import annotations

from gsm8k.grading import number
from gsm8k.sample import problems
from harness import JsonDict, RowSource, SourceRow

SOURCE = RowSource(
    hub_id="openai/gsm8k", subset="main", sample=problems, noun="problem", columns=("question", "answer")
)


def read_rows(dataset: str, split: str, subset: str | None) -> list[JsonDict]:
    """The questions of a source, checked, in its own order.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row lacks a question or a number to compare with.
    """
    return [_row(row) for row in SOURCE.rows(dataset, split, subset)]


def _row(row: SourceRow) -> JsonDict:
    """The row as the environment wants it: the number to compare with apart from the worked solution."""
    question, solution = row.text("question"), row.text("answer", numbers=True)
    answer = solution.rpartition("####")[2].strip()
    if number(answer) is None:
        raise row.wrong("answer", "be a number or end in `#### <number>`", answer)
    return {"question": question, "answer": answer, "info": {"solution": solution}}
