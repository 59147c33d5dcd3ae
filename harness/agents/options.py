"""Options of the environment `agent-eval`, besides rows, agent and eval functions. The values are not validated
here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.agents.llm import Step
from harness.core.types import JsonDict

Mode: TypeAlias = Literal["eval", "bench", "test"]

MODES: tuple[Mode, ...] = ("eval", "bench", "test")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of an agent evaluation besides rows, agent and eval functions; see `environment.AgentEnv`."""

    first_row: int = 0
    """Number of the first evaluated row in the dataset, from 0."""
    max_turns: int = 10
    """Maximum number of model calls, passed to the agent in its request."""
    mode: Mode = "eval"
    """Kind of evaluation, passed to the agent in its request."""
    model_tag: str | None = None
    """`baseline` for the second model of a comparison, `primary` for the first; None without a second model."""
    first_run: int = 0
    """Index of the first run of each row, from 0."""
    debug_dir: str | None = None
    """Folder of the trace files; None for no traces."""
    files: tuple[Path, ...] = ()
    """Source files of the agent and of the eval functions."""
    dataset: str = ""
    """Name of the dataset, for error messages about a row."""
    fingerprint: JsonDict = field(default_factory=dict[str, Any])
    """Hashes of the dataset and of the source files, which a resume compares."""
    step: Step | None = None
    """Callback of an interactive session; see `llm.Step`."""
