"""Runs as data frames, for notebooks. Names are imported on first use, so importing this package is cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.report.frames.messages import messages_df
    from harness.report.frames.rollouts import rollouts_df
    from harness.report.frames.runs import runs_df

_HOMES = {
    "messages_df": "harness.report.frames.messages",
    "rollouts_df": "harness.report.frames.rollouts",
    "runs_df": "harness.report.frames.runs",
}
"""Module that defines each public name."""

__all__ = ["messages_df", "rollouts_df", "runs_df"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'harness.report.frames' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
