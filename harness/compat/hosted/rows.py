"""A hosted environment's dataset: its own rows for its own rollout, and the same rows as our table reads them. Owns the
way back from an example to the row it was made of."""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable, Sequence
from typing import Any, cast, overload

from harness.errors import EnvironmentFault
from harness.types import JsonDict


class HostedRows(Sequence[JsonDict]):
    """The rows of the evaluation dataset, or of the training one where there is no other. Opened when they are needed.

    Args:
        inner: The package's environment.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._data: Any = None
        self._places: dict[Hashable, int] | None = None

    def __len__(self) -> int:
        return len(self._opened())

    @overload
    def __getitem__(self, index: int) -> JsonDict: ...
    @overload
    def __getitem__(self, index: slice) -> list[JsonDict]: ...
    def __getitem__(self, index: int | slice) -> JsonDict | list[JsonDict]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = cast(JsonDict, self._opened()[index])
        return {**self.formatted(row), "example_id": index if self._places is None else row["example_id"]}

    def formatted(self, row: JsonDict) -> JsonDict:
        """The cells of a row as our table wants them, without its id."""
        prompt = row.get("prompt")
        if isinstance(prompt, str) and self._inner.message_type == "chat":
            prompt = [{"role": "user", "content": prompt}]
        return {
            "prompt": prompt,
            "answer": _text(row.get("answer")),
            "info": row.get("info") or {},
            "task": _text(row.get("task")),
        }

    def raw(self, example_id: int | str) -> JsonDict:
        """The row as the package knows it.

        Args:
            example_id: As `self[…]` gave it.

        Raises:
            EnvironmentFault: there is no such row.
        """
        data = self._opened()
        place = example_id if self._places is None else self._places.get(example_id)
        if not isinstance(place, int) or not 0 <= place < len(data):
            raise EnvironmentFault(f"the environment's dataset has no row with the example_id {example_id!r} any more")
        return dict(data[place])

    def _opened(self) -> Any:
        with self._lock:
            if self._data is None:
                data = self._inner.get_eval_dataset()
                ids = list(data["example_id"]) if "example_id" in data.column_names else []
                # Rows that share an id would count as attempts at one example: then their position tells them apart.
                if ids and len(set(ids)) == len(ids):
                    self._places = {example_id: place for place, example_id in enumerate(ids)}
                self._data = data
        return self._data


def _text(value: object) -> str:
    """A cell that must be a text for our tables; the package itself gets it as it is."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)
