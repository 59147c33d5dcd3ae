"""What is left to do of a run, piece by piece. Owns the pieces, and the order in which they are taken; what they are is
`worklist`'s to find out, what becomes of them `scheduler`'s."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from harness.core.records import Generated, Item
from harness.engine.executors import Finished


@dataclass(slots=True)
class RolloutGroup:
    """The rollouts of one example that must be scored together."""

    size: int
    finished: list[Finished] = field(default_factory=list[Finished])
    lost: int = 0
    """Members that failed: a group reward over the rest would be about another group."""

    @property
    def is_closed(self) -> bool:
        """Whether every member has come to its end."""
        return len(self.finished) + self.lost == self.size


@dataclass(frozen=True, slots=True)
class Todo:
    """One item that still needs work."""

    item: Item
    introduce: bool = False
    """Whether the journal does not know the item's example yet."""
    recorded: Generated | None = None
    """What the journal already holds: the item is only scored."""
    group: RolloutGroup | None = None


Aside: TypeAlias = Callable[[], None]
"""Counts some rollouts that need nothing any more; takes a millisecond or two."""


class Todos(Iterator[Todo]):
    """What is left to do of a run that goes on.

    An iterator that counts, on the way, what needs nothing any more. A schedule takes single steps instead: of a large
    run, counting takes seconds, in which the first request could long be under way.

    Args:
        steps: The work in its order, and what is to be counted.
    """

    def __init__(self, steps: Iterator[Todo | Aside]) -> None:
        self._steps = steps

    def __next__(self) -> Todo:
        for step in self._steps:
            if isinstance(step, Todo):
                return step
            step()
        raise StopIteration

    def step(self) -> Todo | Aside | None:
        """The next piece of work, or something to be counted; None at the end."""
        return next(self._steps, None)
