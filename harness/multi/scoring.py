"""The documented score of an output, as a pure function: half a point, adjusted for the schema and the expected text,
plus a bonus for length. The order of operations is the documented one, so that results are equal to the last bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from harness.core.types import JsonDict
from harness.multi import javascript
from harness.multi.schemas import SchemaMode, chat_options_of, registry_of
from harness.multi.tasks import MatchMode, Task

TaskError: TypeAlias = "str | JsonDict"
"""A text, or `{"expertId": model, "errors": [text, …]}` for a failed schema check."""

LENGTH_TARGET = 400

MISMATCH = "Expected output mismatch"

_BASE, _FITS, _MISFIT, _MATCH, _LENGTH = 0.5, 0.7, 0.1, 0.2, 0.2


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """The options that affect a score."""

    match_mode: MatchMode = "contains"
    length_target: float = LENGTH_TARGET
    schema_mode: SchemaMode = "subset"
    chat_options: JsonDict = field(default_factory=dict[str, Any])
    """Chat options of all tasks, with the tools that schemas may name."""
    model_id: str = "unknown"
    """The model's name in errors of its output."""


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The score of an output, with its validity and errors."""

    score: float
    valid: bool
    """Whether the output passes; success depends on this, not on the score."""
    errors: list[TaskError] = field(default_factory=list["TaskError"])
    schema_valid: bool | None = None
    """Whether the output fits the schema; None without a schema."""
    matched: bool | None = None
    """Whether the output equals or contains the expected text; None without one."""


def score_output(task: Task, output: str, options: ScoringOptions | None = None) -> TaskScore:
    """Score an output by the documented formula.

    Args:
        task: A validated task.
        output: The model's reply without its thinking.
        options: Options of the scoring.
    """
    options = options or ScoringOptions()
    score, valid = _BASE, True
    errors: list[TaskError] = []
    schema_valid = matched = None
    if task.schema is not None:
        registry = registry_of(chat_options_of(task, options.chat_options), options.schema_mode)
        verdict = registry.validate_combined_output({options.model_id: output}, task.schema)
        valid = schema_valid = bool(verdict["valid"])
        errors += verdict["errors"]
        score = _FITS if valid else _MISFIT
    expected = task.expected_text
    if expected is not None:
        matched = matches(expected, output, task.match_mode or options.match_mode)
        if matched:
            score = min(1.0, score + _MATCH)
        else:
            valid = False
            errors.append(MISMATCH)
            score = max(0.0, score - _MATCH)
    target = options.length_target or LENGTH_TARGET
    if target > 0:
        score = min(1.0, score + min(1.0, javascript.length(output) / target) * _LENGTH)
    return TaskScore(score, valid, errors, schema_valid, matched)


def matches(expected: str, output: str, mode: MatchMode) -> bool:
    """Whether an output equals or contains the expected text, ignoring case and surrounding space."""
    wanted, said = javascript.folded(expected), javascript.folded(output)
    return said == wanted if mode == "exact" else wanted in said
