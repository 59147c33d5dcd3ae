"""Arguments of one call of the Python API: the work and the models, with validation of the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from harness.agents.clients import ClientFactory
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loading import LoadedAgent
from harness.agents.loop import LLM
from harness.agents.options import Mode
from harness.agents.results import PRIMARY

_MOST_IN_FLIGHT = 1_000_000
"""Upper bound for rollouts in flight: the size of a semaphore."""


_NOT_SAMPLING = {
    "api_base": "it is ExternalLLMClient's",
    "api_key": "it is ExternalLLMClient's; in a request body it would do nothing but show itself",
    "base_url": "ExternalLLMClient has it as api_base",
    "messages": "they are the agent's",
    "model": "it is ExternalLLMClient's, and a report would name the wrong one",
}
"""Keys that `completion_params` must not contain → the reason."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One model of an evaluation."""

    client: LLM
    tag: str | None = None
    """`primary`, `baseline`, or None if there is one model."""
    factory: ClientFactory | None = None
    """Makes the clients of concurrent rollouts."""

    @property
    def is_other(self) -> bool:
        """Whether this model is the baseline. The primary model's run is the same with and without a baseline."""
        return self.tag not in (None, PRIMARY)


@dataclass(frozen=True, slots=True)
class Work:
    """The arguments of one call of a runner."""

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
    """Number of the first row in the dataset."""
    first_run: int = 0
    """Index of the first run of each row."""
    debug_dir: str | None = None
    output_dir: str | None = None
    """The folder of the run folders; None keeps nothing."""
    resume: bool = False
    retry_failed: bool = False
    private: bool = False
    """Whether the run folders are readable by their owner only."""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further settings, by TOML name."""

    @property
    def rollouts(self) -> int:
        """Number of rollouts of each model."""
        return len(self.rows) * self.n_runs

    @property
    def in_flight(self) -> int:
        """Maximum number of concurrent rollouts of all models together."""
        return min(self.batch_size, _MOST_IN_FLIGHT)

    def check(self) -> None:
        """Validate the numbers and sampling arguments.

        Raises:
            ValueError: a number is out of range, or an argument requires another one or is not allowed.
            TypeError: an argument has the wrong type.
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
