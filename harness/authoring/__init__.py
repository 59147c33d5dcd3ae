"""Tools for environment authors: create, install, list, describe and check environments (`bench env`). Prints nothing.
Exported names are imported on first use, so that listing environments does not load the engine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.authoring.check import check_environment
    from harness.authoring.findings import Finding, Report
    from harness.authoring.play import play

_HOMES = {"Finding": "findings", "Report": "findings", "check_environment": "check", "play": "play"}
"""Name of the submodule that defines each exported name."""

__all__ = ["Finding", "Report", "check_environment", "play"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness.authoring' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"harness.authoring.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
