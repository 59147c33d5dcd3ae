"""Where questions come from: the Hub, a file, or the built-in sample. Owns what a row must hold and what may name a
judge; grades nothing."""

from __future__ import annotations

from harness import JsonDict, RowSource, SourceRow
from harness.errors import ConfigError
from simple_qa.sample import facts

SOURCE = RowSource(hub_id="basicv8vc/SimpleQA", sample=facts, noun="question", columns=("problem", "answer"))


def check_judge(model: object, base_url: object, key_var: object) -> None:
    """Refuse what can name no judge.

    Raises:
        ConfigError: names the argument.
    """
    for name, value in (("judge_model", model), ("judge_base_url", base_url), ("judge_api_key_var", key_var)):
        if not (isinstance(value, str) and value) and not (value is None and name != "judge_model"):
            raise ConfigError(f"{name} must be a text, not {value!r}")


def read_rows(dataset: str, split: str) -> list[JsonDict]:
    """The questions of a source, checked, in its own order.

    Raises:
        EnvironmentLoadError: the source cannot be read, or a row lacks a question or an answer.
    """
    return [_row(row) for row in SOURCE.rows(dataset, split)]


def _row(row: SourceRow) -> JsonDict:
    """The row as the environment wants it."""
    column = "problem" if "problem" in row.cells else "question"
    return {"question": row.text(column), "answer": row.text("answer", numbers=True)}
