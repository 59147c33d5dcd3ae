"""Options of an agent evaluation: the settings of the environment `agent-eval` besides rows, agent and eval functions.
The values are not validated here."""

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
    """Options of an agent evaluation."""

    first_row: int = 0
    """Number of the first row in the whole dataset."""
    max_turns: int = 10
    """Maximum number of model calls, which the agent sees in its request."""
    mode: Mode = "eval"
    """Kind of evaluation, as the agent sees it in its request."""
    model_tag: str | None = None
    """`baseline` for the second model of a comparison."""
    first_run: int = 0
    """Number of the first run of a row."""
    debug_dir: str | None = None
    """Folder of the trace files; None for no traces."""
    files: tuple[Path, ...] = ()
    """Source files of the agent and of the eval functions."""
    dataset: str = ""
    """Name of the dataset in messages about a row."""
    fingerprint: JsonDict = field(default_factory=dict[str, Any])
    """Hashes of the files that the arguments name."""
    step: Step | None = None
    """Callback before each model call, for an interactive session."""
