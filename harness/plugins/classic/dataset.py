"""Datasets of classic environments: converts an author's rows to the form that `harness.envs` reads, and to the form
that the classic API returns (`env.dataset`, `env.get_dataset()`). A prompt is formatted when its row is read, by the
rules of the classic API. Values that bench does not record, such as numeric answers and extra columns, stay in the
author's row, which `Rows.columns` looks up by the example's id."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, overload

from harness.core.errors import EnvironmentFault
from harness.core.keys import digest
from harness.core.types import JsonDict, Message, Messages, MessageType, Prompt, without_gaps
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.records import plain
from harness.plugins.classic.state import as_text


@dataclass(frozen=True, slots=True)
class Format:
    """Settings for converting a dataset row to a prompt."""

    generation: Generation
    message_type: MessageType
    system_prompt: str | None
    few_shot: Messages
    task: str
    """Task name for rows without one."""

    def prompt(self, cells: Mapping[str, Any], where: str) -> Prompt:
        """Return the formatted prompt of a row.

        Raises:
            EnvironmentFault: the row has neither a prompt nor a question.
        """
        prompt, question = cells.get("prompt"), cells.get("question")
        if prompt is None and question is None:
            raise EnvironmentFault(
                f"{where}: the row has neither a 'prompt' nor a 'question' column; its columns are "
                f"{', '.join(str(name) for name in cells)}"
            )
        if self.message_type == "completion":
            return str(question if prompt is None else prompt)
        if prompt is None:
            head: Messages = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
            return [*head, *self.few_shot, {"role": "user", "content": plain(question)}]
        given: Any = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        messages = [_without_gaps(message) for message in cast("Sequence[object]", given)]
        if self.system_prompt and (not messages or messages[0].get("role") != "system"):
            return [{"role": "system", "content": self.system_prompt}, *messages]
        return messages


class Rows(Sequence[JsonDict]):
    """An author's dataset as a sequence of rows in the format of `harness.envs`, opened on first use.

    Args:
        given: A `datasets.Dataset`, any sequence of mappings, or a function that returns one.
        form: Function that returns the rules for formatting rows.
        name: `dataset` or `eval_dataset`, for messages.
    """

    def __init__(self, given: Any, form: Callable[[], Format], name: str) -> None:
        self._given, self._form, self._name = given, form, name
        self._index: dict[object, int] | None = None

    @property
    def is_built(self) -> bool:
        """Whether the rows are already loaded. Rows that a function supplies are loaded on first use."""
        return "source" in vars(self) or not callable(self._given)

    @cached_property
    def source(self) -> Any:
        """The author's rows.

        Raises:
            EnvironmentFault: they are no sequence.
        """
        source: Any = self._given() if callable(self._given) else self._given
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")) or isinstance(source, str | Mapping):
            kind = type(cast(object, source)).__name__
            raise EnvironmentFault(f"{self._name} must be a datasets.Dataset or a list of rows, not {kind}")
        return source

    @cached_property
    def form(self) -> Format:
        """The rules for formatting rows, as they are when the first row is read."""
        return self._form()

    def supply(self) -> Rows:
        """Return this object. `harness.envs` calls this method to get the dataset when it is first used."""
        return self

    @cached_property
    def shown(self) -> Any:
        """The formatted rows as a `datasets.Dataset`."""
        return to_dataset(self)

    @property
    def known_columns(self) -> Collection[str] | None:
        """The names of the dataset's columns; None if it is not loaded yet."""
        if not self.is_built or not len(self):
            return None
        return list(getattr(self.source, "column_names", None) or self.source[0])

    def __len__(self) -> int:
        return len(self.source)

    @overload
    def __getitem__(self, index: int) -> JsonDict: ...
    @overload
    def __getitem__(self, index: slice) -> list[JsonDict]: ...
    def __getitem__(self, index: int | slice) -> JsonDict | list[JsonDict]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        cells = self._cells(index)
        row: JsonDict = {
            "prompt": self.form.prompt(cells, f"{self._name} row {index}"),
            "answer": as_text(cells.get("answer")),
            "info": _jsonable(_info(cells.get("info"))),
            "example_id": self._ids[index] if self._ids else index,
        }
        task = cells.get("task")
        if self.form.generation == "B" or isinstance(task, str):
            row["task"] = as_text(task) or self.form.task
        return row

    def columns(self, example_id: object, prompt: Prompt) -> JsonDict | None:
        """Return the author's own row for an example; None if the dataset has changed since the rollout.

        Args:
            example_id: Id of the example.
            prompt: Prompt of the rollout, to check that the row is unchanged.
        """
        if self._ids:
            self._index = self._index or {value: number for number, value in enumerate(self._ids)}
            index = self._index.get(example_id, -1)
        else:
            index = example_id if isinstance(example_id, int) else -1
        if not 0 <= index < len(self):
            return None
        cells = self._cells(index)
        if digest(plain(self.form.prompt(cells, self._name))) != digest(plain(prompt)):
            return None
        columns = {name: value for name, value in cells.items() if name not in ("prompt", "example_id")}
        if "info" in columns:
            columns["info"] = _info(columns["info"])
        return columns

    def _cells(self, index: int) -> JsonDict:
        cells = self.source[index]
        if not isinstance(cells, Mapping):
            raise EnvironmentFault(f"{self._name} row {index} must be a dict, not {type(cells).__name__}")
        return dict(cast("Mapping[str, Any]", cells))

    @cached_property
    def _ids(self) -> list[int]:
        """Return the ids in the dataset's column `example_id` if they are unique integers; otherwise row numbers."""
        if len(self.source) == 0:
            return []
        names: Any = getattr(self.source, "column_names", None)
        if names is not None:
            values: list[object] = list(self.source["example_id"]) if "example_id" in names else []
        else:
            values = [cast("Mapping[str, object]", row).get("example_id") for row in self.source]
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        tell_apart = len(numbers) == len(values) == len(set(numbers))
        return numbers if tell_apart else []


def selected(dataset: Any, n: int, seed: int | None) -> Any:
    """Return a new dataset with the first `n` rows, or all rows if `n` is 0 or less. If a seed is given, the rows are
    shuffled first."""
    shuffled = dataset if seed is None else dataset.shuffle(seed=seed)
    return shuffled.select(range(min(n, len(shuffled)))) if n > 0 else shuffled


def to_dataset(rows: Rows) -> Any:
    """Convert formatted rows to a `datasets.Dataset`, including the author's other columns."""
    formatted: list[JsonDict] = []
    for index in range(len(rows)):
        own = rows[index]
        cells = dict(rows.source[index])
        kept = {name: value for name, value in cells.items() if name not in ("prompt", "example_id", "task")}
        if "example_id" in cells and cells["example_id"] != own["example_id"]:
            kept["src_id"] = cells["example_id"]
        named = {name: own[name] for name in ("prompt", "example_id", "task") if name in own}
        formatted.append({**kept, **named})
    made: Any = importlib.import_module("datasets").Dataset.from_list(formatted)
    return made


def _info(value: object) -> Any:
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return {"info": value}
    return value


def _jsonable(value: Any) -> JsonDict:
    """Convert an author's `info` to JSON; a value without a JSON form is replaced by the name of its type."""
    shown = json.loads(json.dumps(plain(value), default=lambda item: f"<{type(item).__name__}>"))
    return cast(JsonDict, shown) if isinstance(shown, dict) else {"info": shown}


def _without_gaps(message: object) -> Message:
    """Copy a message without None values, which the `datasets` library adds to every row."""
    fields = plain(message)
    if not isinstance(fields, dict):
        raise EnvironmentFault(f"each message in a prompt must be a dict, not {type(message).__name__}")
    given = cast(Message, fields)
    content: Any = given.get("content")
    if isinstance(content, list):
        parts = cast("list[object]", content)
        given["content"] = [without_gaps(cast(Message, part)) if isinstance(part, dict) else part for part in parts]
    return without_gaps(given)
