"""Datasets of one classic environment: the author's source, opened on first use, the rows formatted for our tables, and
the `datasets.Dataset` for authors, all kept consistent."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from harness.core.types import JsonDict, Prompt
from harness.plugins.classic.dataset import Format, Rows, to_dataset

NAMES = ("eval_dataset", "dataset")
"""Dataset names in order of preference for evaluation."""


class Sources:
    """The datasets by name.

    Args:
        form: Returns the rules for formatting rows; called whenever a dataset is opened.
    """

    def __init__(self, form: Callable[[], Format]) -> None:
        self._form = form
        self._given: dict[str, Any] = {}
        self._rows: dict[str, Rows] = {}
        self._shown: dict[str, Any] = {}

    @property
    def evaluated(self) -> str | None:
        """Name of the dataset that is evaluated."""
        return next((name for name in NAMES if name in self._given), None)

    def has(self, name: str) -> bool:
        """Whether the dataset exists."""
        return name in self._given

    def is_built(self, name: str) -> bool:
        """Whether the rows exist already; a builder function runs only on first use."""
        return name in self._given and (name in self._rows or not callable(self._given[name]))

    def put(self, name: str, source: Any) -> None:
        """Set or replace a dataset; None removes it."""
        for kept in (self._given, self._rows, self._shown):
            kept.pop(name, None)
        if source is not None:
            self._given[name] = source

    def rows(self, name: str) -> Rows:
        """The rows of a dataset, formatted when they are read."""
        if name not in self._rows:
            given = self._given[name]
            self._rows[name] = Rows(given() if callable(given) else given, self._form(), name)
        return self._rows[name]

    def shown(self, name: str) -> Any:
        """A dataset as a `datasets.Dataset`; None if it does not exist."""
        if name not in self._given:
            return None
        if name not in self._shown:
            self._shown[name] = to_dataset(self.rows(name))
        return self._shown[name]

    def columns(self) -> Collection[str] | None:
        """The columns of the evaluated dataset; None while unknown."""
        name = self.evaluated
        if name is None or not self.is_built(name) or not len(self.rows(name)):
            return None
        source = self.rows(name).source
        return list(getattr(source, "column_names", None) or source[0])

    def row_of(self, example_id: object, prompt: Prompt) -> JsonDict | None:
        """The author's own row for an example; None if it is unavailable."""
        name = self.evaluated
        return None if name is None else self.rows(name).columns(example_id, prompt)


def selected(dataset: Any, n: int, seed: int | None) -> Any:
    """The first `n` rows, or all if `n` is not above 0, shuffled if a seed is given. Returns a new dataset."""
    shuffled = dataset if seed is None else dataset.shuffle(seed=seed)
    return shuffled.select(range(min(n, len(shuffled)))) if n > 0 else shuffled
