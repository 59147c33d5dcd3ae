"""Where rollouts are carried out. An executor turns items into records; it never writes the journal and never decides
what runs next, so that worker processes or other machines can take its place behind the same two calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.core.errors import EnvironmentFault
from harness.core.records import Example, Failed, Generated, Item, Scored


@dataclass(frozen=True, slots=True)
class Finished:
    """A generated rollout together with its example: what scoring needs."""

    example: Example
    record: Generated


class Executor(Protocol):
    """Carries out the rollouts of one run."""

    async def generate(self, item: Item) -> Generated | Failed:
        """Make one rollout.

        Raises:
            SystemicError: no further call to the endpoint would succeed.
        """
        ...

    async def score(self, rollouts: Sequence[Finished]) -> list[Scored]:
        """Score one rollout, or all rollouts of an example where the rubric has group rewards.

        Raises:
            SystemicError: no further call to a judge would succeed; nothing is said of these rollouts.
        """
        ...

    def forget(self, key: str) -> None:
        """Drop what is kept in memory for a rollout that will be scored from the journal."""
        ...


def unwritable(record: Generated | Failed, error: EnvironmentFault) -> Failed:
    """What becomes of a rollout whose record holds something that is no JSON.

    Args:
        record: It; its cost is kept.
        error: What no journal can hold.
    """
    return Failed(
        record.key, record.example_key, record.rollout_index, "generation", "environment_error", str(error),
        retryable=False, attempts=record.attempts, usage=record.usage, timing=record.timing,
    )  # fmt: skip
