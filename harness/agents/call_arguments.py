"""Arguments passed to a runner such as `EvalRunner` in the Python API (rows, agent, models and options), and their
validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from harness.agents.clients import ClientFactory
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loading import LoadedAgent
from harness.agents.loop import LLM
from harness.agents.results import PRIMARY
from harness.agents.run import AgentOptions

_NOT_SAMPLING = {
    "api_base": "pass it to ExternalLLMClient",
    "api_key": "pass it to ExternalLLMClient; in a request body, it would be disclosed to the endpoint",
    "base_url": "pass it to ExternalLLMClient as api_base",
    "messages": "the agent supplies the messages",
    "model": "pass it to ExternalLLMClient; otherwise reports would name the wrong model",
}
"""Keys that `completion_params` must not contain, each with the reason that the error message gives."""


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One model of an agent evaluation, as the caller passed it."""

    client: LLM
    tag: str | None = None
    """`primary`, `baseline`, or None if there is only one model."""
    factory: ClientFactory | None = None
    """Function that creates a client for each concurrent rollout; None if all rollouts share `client`."""

    @property
    def is_baseline(self) -> bool:
        """Whether this model is the baseline of a comparison."""
        return self.tag not in (None, PRIMARY)


@dataclass(frozen=True, slots=True)
class Work:
    """The arguments of one runner call: rows, agent, eval functions and options."""

    agent: LoadedAgent
    rows: Sequence[object]
    options: AgentOptions
    """Options of the environment, except those that depend on the model or the code."""
    eval_fns: Sequence[EvalFnWrapper] = ()
    n_runs: int = 1
    completion_params: Mapping[str, Any] | None = None
    pass_threshold: float = 1.0
    batch_size: int = 1
    output_dir: str | None = None
    """Folder in which run folders are stored; None to store nothing."""
    resume: bool = False
    retry_failed: bool = False
    private: bool = False
    """Whether the run folders are readable by their owner only."""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further settings by their TOML names, such as `message_limit`."""

    @property
    def rollouts(self) -> int:
        """Number of rollouts of each model."""
        return len(self.rows) * self.n_runs

    @property
    def in_flight(self) -> int:
        """Maximum number of concurrent rollouts of all models together."""
        return min(self.batch_size, 1_000_000)  # the size of a semaphore

    def check(self) -> None:
        """Validate the arguments of an agent evaluation: numbers, sampling arguments and options of stored runs.

        Raises:
            ValueError: a number is out of range, or an argument requires another one or is not allowed.
            TypeError: an argument has the wrong type.
        """
        numbers: dict[str, tuple[object, int]] = {
            "n_runs": (self.n_runs, 1),
            "max_turns": (self.options.max_turns, 1),
            "batch_size": (self.batch_size, 1),
            "row_index (start_index)": (self.options.first_row, 0),
            "run_index": (self.options.first_run, 0),
        }
        for name, (value, least) in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
            if value < least:
                raise ValueError(f"{name} must be >= {least}, not {value}")
        threshold = cast(object, self.pass_threshold)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise TypeError(f"pass_threshold must be a number, not {type(threshold).__name__}")
        if not math.isfinite(threshold):
            raise ValueError(f"pass_threshold must be a finite number, not {threshold}")
        _check_params(self.completion_params)
        for name, verb in (("private", "applies to"), ("resume", "resumes")):
            if getattr(self, name) and self.output_dir is None:
                raise ValueError(f"{name}=True {verb} stored run folders; pass their parent folder as output_dir")
        if self.retry_failed and not self.resume:
            raise ValueError(
                "retry_failed=True retries the failed runs of an earlier evaluation; pass resume=True as well"
            )


def _check_params(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise TypeError(f"completion_params must be a dict, not {type(given).__name__}")
    for name in cast("Mapping[object, object]", given):
        if not isinstance(name, str):
            raise TypeError(f"completion_params: {name!r} is not a string; the keys are names of request arguments")
        if name in _NOT_SAMPLING:
            raise ValueError(f"completion_params: {name!r} is not allowed: {_NOT_SAMPLING[name]}")
