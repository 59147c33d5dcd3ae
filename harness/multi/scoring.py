"""The options of tasks, and the documented score of an output: half a point, adjusted for the schema and the expected
text, plus a bonus for length. The order of operations is the documented one, so that results are equal to the last
bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.core.types import JsonDict
from harness.multi import javascript
from harness.multi.fields import NUMBER, TABLE, FieldType, check_fields, choice, plain_json
from harness.multi.schemas import SCHEMA_MODES, SchemaMode, chat_options_of, registry_of
from harness.multi.scoring_hook import ScoringHook
from harness.multi.tasks import MATCH_MODES, MatchMode, Task, TaskError, TaskScore

LENGTH_TARGET = 400

MISMATCH = "Expected output mismatch"

_BASE, _FITS, _MISFIT, _MATCH, _LENGTH = 0.5, 0.7, 0.1, 0.2, 0.2


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options for requests and scoring of tasks.

    Raises:
        ConfigError: a value is invalid; the message names the option.
    """

    match_mode: MatchMode = "contains"
    """Default of the tasks for the comparison with the expected text: `exact` or `contains`."""
    length_target: float = LENGTH_TARGET
    """Number of characters for the full length bonus; 0 means 400, and a negative number no bonus."""
    score_output: ScoringHook | None = None
    """Scoring function that replaces the documented formula."""
    schema_mode: SchemaMode = "subset"
    timeout_ms: float = 0
    """Default timeout of a task, in milliseconds; 0 for no limit."""
    chat_options: JsonDict = field(default_factory=dict[str, Any])
    """Default chat options of the tasks: `tools`, which schemas may name, and request arguments."""
    model_id: str | None = None
    """Name of the model in results and errors; by default the model's own name."""
    fingerprint: JsonDict | None = None
    """Hashes that a resume compares if other settings record part of the content; by default, all content is hashed."""

    def __post_init__(self) -> None:
        check_fields({name: getattr(self, name) for name in _TYPES}, _TYPES, is_camel=False)
        plain_json(self.chat_options, "chat_options")


SHARED = ("match_mode", "length_target", "schema_mode", "timeout_ms", "chat_options")
"""Fields of `TaskOptions` that are options of a whole evaluation, too."""


def changed_options(options: object) -> JsonDict:
    """Return the options that affect the measurement and differ from their defaults, so that equal evaluations have
    the same name and fingerprint.

    Args:
        options: A `TaskOptions`, or the options of a whole evaluation.
    """
    return {name: value for name in SHARED if (value := getattr(options, name)) != getattr(TaskOptions(), name)}


_TYPES = {
    "match_mode": choice(*MATCH_MODES),
    "schema_mode": choice(*SCHEMA_MODES),
    "length_target": NUMBER,
    "timeout_ms": NUMBER,
    "chat_options": TABLE,
    "model_id": FieldType(lambda value: isinstance(value, str | None), "a string"),
}


def score_output(task: Task, output: str, options: TaskOptions | None = None, model_id: str = "unknown") -> TaskScore:
    """Score an output by the documented formula.

    Args:
        task: A validated task.
        output: The model's reply without its thinking.
        options: Options of the scoring.
        model_id: The model's name in errors, if the options have none.
    """
    options = options or TaskOptions()
    score, valid = _BASE, True
    errors: list[TaskError] = []
    schema_valid = matched = None
    if task.schema is not None:
        registry = registry_of(chat_options_of(task, options.chat_options), options.schema_mode)
        verdict = registry.validate_combined_output({options.model_id or model_id: output}, task.schema)
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
    """Return whether an output equals or contains the expected text, ignoring case and surrounding space."""
    wanted, said = javascript.folded(expected), javascript.folded(output)
    return said == wanted if mode == "exact" else wanted in said
