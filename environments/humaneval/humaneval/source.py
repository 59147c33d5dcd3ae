"""Where problems come from: the Hub, a local file, or the package's own. Owns what a row must hold; runs nothing."""

from __future__ import annotations

from harness import RowSource, SourceRow
from humaneval.extraction import definition_of
from humaneval.sample import PROBLEMS

COLUMNS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
SOURCE = RowSource(
    hub_id="openai/openai_humaneval",
    sample=lambda: PROBLEMS,
    noun="problem",
    columns=COLUMNS,
    suffixes=(".jsonl", ".jsonl.gz"),
)


def read_rows(dataset: str, split: str) -> list[dict[str, str]]:
    """The problems of a source, checked, in its own order.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row is no problem.
    """
    return [_row(row) for row in SOURCE.rows(dataset, split)]


def _row(row: SourceRow) -> dict[str, str]:
    found = {column: row.text(column) for column in COLUMNS}
    if not found["entry_point"].isidentifier() or not definition_of(found["entry_point"]).search(found["prompt"]):
        raise row.fault(
            f"column 'prompt' does not define the function that 'entry_point' names, {found['entry_point']!r}"
        )
    return found
