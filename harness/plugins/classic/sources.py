"""The datasets of one classic environment: what the author gave, opened when it is first needed, formatted for our
tables, and shown as `datasets.Dataset` to whoever asks. Owns the keeping of these three in step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from harness.core.types import JsonDict, Prompt
from harness.plugins.classic.dataset import Format, Rows, to_dataset

NAMES = ("eval_dataset", "dataset")
"""In the order in which they are evaluated: the second if there is no first."""


class Sources:
    """The datasets by name.

    Args:
        form: How rows are formatted; asked whenever a dataset is opened.
    """

    def __init__(self, form: Callable[[], Format]) -> None:
        self._form = form
        self._given: dict[str, Any] = {}
        self._rows: dict[str, Rows] = {}
        self._shown: dict[str, Any] = {}

    @property
    def evaluated(self) -> str | None:
        """The dataset that is evaluated."""
        return next((name for name in NAMES if name in self._given), None)

    def has(self, name: str) -> bool:
        """Whether there is such a dataset."""
        return name in self._given

    def is_built(self, name: str) -> bool:
        """Whether its rows are there: a builder's are not before something asks for them."""
        return name in self._given and (name in self._rows or not callable(self._given[name]))

    def put(self, name: str, source: Any) -> None:
        """Set or replace a dataset; None takes it away."""
        for kept in (self._given, self._rows, self._shown):
            kept.pop(name, None)
        if source is not None:
            self._given[name] = source

    def rows(self, name: str) -> Rows:
        """A dataset's rows, formatted as they are read."""
        if name not in self._rows:
            given = self._given[name]
            self._rows[name] = Rows(given() if callable(given) else given, self._form(), name)
        return self._rows[name]

    def shown(self, name: str) -> Any:
        """A dataset as a `datasets.Dataset`; None if there is none."""
        if name not in self._given:
            return None
        if name not in self._shown:
            self._shown[name] = to_dataset(self.rows(name))
        return self._shown[name]

    def columns(self) -> Collection[str] | None:
        """The columns of the dataset that is evaluated; None while nobody knows."""
        name = self.evaluated
        if name is None or not self.is_built(name) or not len(self.rows(name)):
            return None
        source = self.rows(name).source
        return list(getattr(source, "column_names", None) or source[0])

    def row_of(self, example_id: object, prompt: Prompt) -> JsonDict | None:
        """The author's own row for an example; None if it is not at hand."""
        name = self.evaluated
        return None if name is None else self.rows(name).columns(example_id, prompt)


def selected(dataset: Any, n: int, seed: int | None) -> Any:
    """The first `n` rows, shuffled if there is a seed; all if `n` is not above 0. Changes nothing."""
    shuffled = dataset if seed is None else dataset.shuffle(seed=seed)
    return shuffled.select(range(min(n, len(shuffled)))) if n > 0 else shuffled
