"""Modules that take long to import, imported when a test first uses them: each of pytest's workers collects every test,
and runs a few of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A module that is imported when one of its attributes is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for marks on everything in a test module
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
