"""Executor interface: turns items into records. An executor never writes the journal and never decides what runs next,
so that worker processes or other machines can implement the same two calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.core.errors import EnvironmentFault
from harness.core.records import Example, Failed, Generated, Item, Scored


@dataclass(frozen=True, slots=True)
class Finished:
    """A generated rollout with its example: the input of scoring."""

    example: Example
    record: Generated


class Executor(Protocol):
    """Executes the rollouts of one run."""

    async def generate(self, item: Item) -> Generated | Failed:
        """Generate one rollout.

        Raises:
            SystemicError: all further calls to the endpoint would fail.
        """
        ...

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        """Score one rollout, or all rollouts of an example if the rubric has group rewards.

        Raises:
            SystemicError: all further calls to a judge would fail; these rollouts stay without a result.
        """
        ...

    def forget(self, key: str) -> None:
        """Drop the live state of a rollout that will be scored from the journal."""
        ...


def unwritable(record: Generated | Failed, error: EnvironmentFault) -> Failed:
    """Replace a record that cannot be written as JSON by a failure.

    Args:
        record: The record; its usage is kept.
        error: Describes the value that is no JSON.
    """
    return Failed(
        record.key, record.example_key, record.rollout_index, "generation", "environment_error", str(error),
        retryable=False, attempts=record.attempts, usage=record.usage, timing=record.timing,
    )  # fmt: skip
