"""Options for requests and scoring of tasks: the settings of the environment `multi-eval` besides the tasks, with their
validation."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.multi.schemas import SCHEMA_MODES, SchemaMode
from harness.multi.scoring import LENGTH_TARGET, ScoringOptions
from harness.multi.scoring_hook import ScoringHook
from harness.multi.tasks import MATCH_MODES, MatchMode
from harness.settings.wording import shown, suggestion


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options for requests and scoring of tasks.

    Raises:
        ConfigError: a value is invalid; names the option.
    """

    match_mode: MatchMode = "contains"
    """Default of the tasks: `exact` or `contains`."""
    length_target: float = LENGTH_TARGET
    """Number of characters for the full length bonus; 0 means 400, and a negative number no bonus."""
    score_output: ScoringHook | None = None
    """Scoring function that replaces the documented formula."""
    schema_mode: SchemaMode = "subset"
    timeout_ms: float = 0
    """Default timeout of a task, in milliseconds; 0 is no limit."""
    chat_options: JsonDict = field(default_factory=dict[str, Any])
    """Default of the tasks: `tools` and request arguments."""
    model_id: str | None = None
    """Name of the model in results; its own name by default."""
    files: tuple[Path, ...] = ()
    """Source files of the scoring function; by default those that it reports."""
    fingerprint: JsonDict | None = None
    """Hashed content that a resume compares, if part of it is recorded elsewhere; by default everything."""

    def __post_init__(self) -> None:
        _check_word("match_mode", self.match_mode, MATCH_MODES)
        _check_word("schema_mode", self.schema_mode, SCHEMA_MODES)
        _check_number("length_target", self.length_target)
        _check_number("timeout_ms", self.timeout_ms)
        if not isinstance(self.chat_options, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"chat_options must be an object, not {shown(self.chat_options)}")
        try:
            json.dumps(self.chat_options, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"chat_options hold what is no JSON value: {error}") from error
        if self.model_id is not None and not isinstance(self.model_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"model_id must be a text, not {shown(self.model_id)}")

    def scoring(self, model_id: str) -> ScoringOptions:
        """The options that affect a score.

        Args:
            model_id: The model's own name, used if the options have none.
        """
        return ScoringOptions(
            self.match_mode, self.length_target, self.schema_mode, self.chat_options, self.model_id or model_id
        )


def _check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        hint = suggestion(value, words) if isinstance(value, str) else f"valid here: {', '.join(words)}"
        raise ConfigError(f"{name} = {shown(value)}: {hint}")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ConfigError(f"{name} = {shown(value)}: must be a number")
