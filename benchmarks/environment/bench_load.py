"""The environment that the measurements run: single-turn, rows made on demand, graded by a plain function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from harness import Environment, MultiTurnEnv, Rubric, SingleTurnEnv
from harness.core.state import State
from harness.core.types import JsonDict, Messages, Prompt


class Rows(Sequence[JsonDict]):
    """`count` questions that exist only while they are looked at, so that the dataset's own memory is not measured."""

    def __init__(self, count: int) -> None:
        self._count = count

    @overload
    def __getitem__(self, index: int) -> JsonDict: ...
    @overload
    def __getitem__(self, index: slice) -> list[JsonDict]: ...
    def __getitem__(self, index: int | slice) -> JsonDict | list[JsonDict]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        question = f"Question {index}: a farmer has {index} apples and buys as many again. How many are there now?"
        return {"question": question, "answer": str(2 * index)}

    def __len__(self) -> int:
        return self._count


def is_right(completion: Messages, answer: str) -> float:
    """Whether the answer stands in the reply."""
    return float(answer in str(completion[-1]["content"]))


class Turns(MultiTurnEnv):
    """A conversation whose other side always says the same."""

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Ask for the answer again."""
        return [{"role": "user", "content": "Are you sure? Say it again."}]


def load_environment(rows: int = 2000, turns: int = 1) -> Environment:
    """`rows` questions, each a conversation of so many turns."""
    rubric = Rubric([is_right])
    if turns > 1:
        return Turns(max_turns=turns, dataset=Rows(rows), rubric=rubric)
    return SingleTurnEnv(dataset=Rows(rows), rubric=rubric)
