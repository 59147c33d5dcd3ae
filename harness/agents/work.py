"""What one call of the Python API asks for: the work and the models that do it. Owns these values and the check of the
numbers among them; knows no engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.agents.clients import ClientFactory
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loading import LoadedAgent
from harness.agents.loop import LLM
from harness.agents.options import Mode
from harness.agents.results import PRIMARY

_MOST_IN_FLIGHT = 1_000_000
"""Above any number of rollouts in flight: what a bound is cut to, since a semaphore is made of it."""


_NOT_SAMPLING = {
    "api_base": "it is ExternalLLMClient's",
    "api_key": "it is ExternalLLMClient's; in a request body it would do nothing but show itself",
    "base_url": "ExternalLLMClient has it as api_base",
    "messages": "they are the agent's",
    "model": "it is ExternalLLMClient's, and a report would name the wrong one",
}
"""What `completion_params` may not hold, and why."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One model of an evaluation."""

    client: LLM
    tag: str | None = None
    """`primary`, `baseline`, or None where there is one model."""
    factory: ClientFactory | None = None
    """Makes the clients of concurrent rollouts."""

    @property
    def is_other(self) -> bool:
        """Whether it is the baseline. The primary model's run is the same with a baseline and without."""
        return self.tag not in (None, PRIMARY)


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of a runner asks for."""

    agent: LoadedAgent
    rows: Sequence[object]
    eval_fns: Sequence[EvalFnWrapper] = ()
    mode: Mode = "eval"
    n_runs: int = 1
    max_turns: int = 10
    completion_params: Mapping[str, Any] | None = None
    pass_threshold: float = 1.0
    batch_size: int = 1
    first_row: int = 0
    """Number of the first row."""
    first_run: int = 0
    """Number of each row's first run."""
    debug_dir: str | None = None
    output_dir: str | None = None
    """Where the run folder goes; None keeps nothing."""
    resume: bool = False
    retry_failed: bool = False
    private: bool = False
    """Whether what is kept is for its owner only."""

    @property
    def rollouts(self) -> int:
        """Of each model."""
        return len(self.rows) * self.n_runs

    @property
    def in_flight(self) -> int:
        """Rollouts of all models together that may be under way."""
        return min(self.batch_size, _MOST_IN_FLIGHT)

    def check(self) -> None:
        """Refuse numbers that are none, or out of range, and sampling arguments that are none.

        Raises:
            ValueError: a number is out of range, or an argument needs another one, or stands in the wrong place.
            TypeError: one is of the wrong kind.
        """
        numbers = {
            "n_runs": (self.n_runs, 1),
            "max_turns": (self.max_turns, 1),
            "batch_size": (self.batch_size, 1),
            "row_index (start_index)": (self.first_row, 0),
            "run_index": (self.first_run, 0),
        }
        for name, (value, least) in numbers.items():
            _require(name, value, least)
        _require_number("pass_threshold", self.pass_threshold)
        _require_params(self.completion_params)
        if self.private and self.output_dir is None:
            raise ValueError("private=True is about the run folder that is kept: say with output_dir= where it goes")
        if self.resume and self.output_dir is None:
            raise ValueError("resume=True goes on with a run folder: say with output_dir= where it is")
        if self.retry_failed and not self.resume:
            raise ValueError("retry_failed=True makes up for what an earlier evaluation lacks: give resume=True, too")


def _require(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be >= {least}, not {value}")


def _require_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value}")


def _require_params(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise TypeError(f"completion_params must be a dict, not {type(given).__name__}")
    for name in cast("Mapping[object, object]", given):
        if not isinstance(name, str):
            raise TypeError(f"completion_params: {name!r} must be a string, as the name of an argument is")
        if name in _NOT_SAMPLING:
            raise ValueError(f"completion_params: {name!r} does not belong there: {_NOT_SAMPLING[name]}")
