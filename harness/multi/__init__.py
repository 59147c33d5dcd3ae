"""Multi-model evaluation in Python: run the same tasks with several models, store evaluations and replay them. The
public names are imported lazily, at their first use, so importing this package is cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.errors import ConfigError, HarnessError, StateError, ValidationError
    from harness.multi.evaluation import evaluate, list_runs, load_run, replay_run
    from harness.multi.files import load_tasks
    from harness.multi.models import Model, load_models
    from harness.multi.options import Options, Persist
    from harness.multi.results import (
        EvaluationResult,
        ModelResult,
        ModelSummary,
        PersistStatus,
        RunEntry,
        RunRecord,
        TaskResult,
        TaskUsage,
        Totals,
    )
    from harness.multi.scoring import TaskScore
    from harness.multi.tasks import Task

_HOMES: dict[str, tuple[str, ...]] = {
    "harness.core.errors": ("ConfigError", "HarnessError", "StateError", "ValidationError"),
    "harness.multi.evaluation": ("evaluate", "list_runs", "load_run", "replay_run"),
    "harness.multi.models": ("Model", "load_models"),
    "harness.multi.options": ("Options", "Persist"),
    "harness.multi.results": (
        "EvaluationResult",
        "ModelResult",
        "ModelSummary",
        "PersistStatus",
        "RunEntry",
        "RunRecord",
        "TaskResult",
        "TaskUsage",
        "Totals",
    ),
    "harness.multi.files": ("load_tasks",),
    "harness.multi.scoring": ("TaskScore",),
    "harness.multi.tasks": ("Task",),
}
"""The module that defines each public name."""

__all__ = [
    "ConfigError",
    "EvaluationResult",
    "HarnessError",
    "Model",
    "ModelResult",
    "ModelSummary",
    "Options",
    "Persist",
    "PersistStatus",
    "RunEntry",
    "RunRecord",
    "StateError",
    "Task",
    "TaskResult",
    "TaskScore",
    "TaskUsage",
    "Totals",
    "ValidationError",
    "evaluate",
    "list_runs",
    "load_models",
    "load_run",
    "load_tasks",
    "replay_run",
]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'harness.multi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
