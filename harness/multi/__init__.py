"""Multi-model evaluation in Python: run the same tasks with several models, store evaluations and replay them. The
public names are imported lazily, at their first use, so importing this package is cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.core.errors import ConfigError as ConfigError
    from harness.core.errors import HarnessError as HarnessError
    from harness.core.errors import StateError as StateError
    from harness.core.errors import ValidationError as ValidationError
    from harness.multi.evaluation import evaluate as evaluate
    from harness.multi.evaluation import list_runs as list_runs
    from harness.multi.evaluation import load_run as load_run
    from harness.multi.evaluation import replay_run as replay_run
    from harness.multi.models import Model as Model
    from harness.multi.models import load_models as load_models
    from harness.multi.options import Options as Options
    from harness.multi.options import Persist as Persist
    from harness.multi.results import EvaluationResult as EvaluationResult
    from harness.multi.results import ModelResult as ModelResult
    from harness.multi.results import ModelSummary as ModelSummary
    from harness.multi.results import PersistStatus as PersistStatus
    from harness.multi.results import RunEntry as RunEntry
    from harness.multi.results import RunRecord as RunRecord
    from harness.multi.results import TaskResult as TaskResult
    from harness.multi.results import TaskUsage as TaskUsage
    from harness.multi.results import Totals as Totals
    from harness.multi.task_files import load_tasks as load_tasks
    from harness.multi.tasks import Task as Task
    from harness.multi.tasks import TaskScore as TaskScore

_HOMES: dict[str, tuple[str, ...]] = {
    "harness.core.errors": ("ConfigError", "HarnessError", "StateError", "ValidationError"),
    "harness.multi.evaluation": ("evaluate", "list_runs", "load_run", "replay_run"),
    "harness.multi.models": ("Model", "load_models"),
    "harness.multi.options": ("Options", "Persist"),
    "harness.multi.results": (
        "EvaluationResult", "ModelResult", "ModelSummary", "PersistStatus", "RunEntry", "RunRecord", "TaskResult",
        "TaskUsage", "Totals",
    ),
    "harness.multi.task_files": ("load_tasks",),
    "harness.multi.tasks": ("Task", "TaskScore"),
}  # fmt: skip
"""Module → the public names that this package imports from it on first use."""

__all__ = sorted(name for names in _HOMES.values() for name in names)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'harness.multi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
