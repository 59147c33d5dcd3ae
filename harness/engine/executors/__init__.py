"""Interface of executors, which execute items (planned rollouts) and return their records. An executor neither writes
the journal nor decides what runs next, so that it can also be implemented with worker processes or other machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.plugins import load_plugins
from harness.core.records import Example, Failed, Generated, Item, Scored
from harness.core.types import value_class

if TYPE_CHECKING:  # these import all settings, which an isolated process does not need
    from harness.engine.isolation.spawned import WorkerHost
    from harness.engine.model_source import ModelSource
    from harness.engine.prepare import RunPlan
    from harness.engine.rollout_limits import RolloutLimits
    from harness.settings.resolver import ResolvedRun

EXECUTORS = "bench.executors"


@value_class
class Finished:
    """A generated rollout with its example: the input of scoring."""

    example: Example
    record: Generated


class Executor(Protocol):
    """Executes the rollouts of one run. One that runs them in several processes may also have `holder_of(key)`, which
    returns the process that a generated rollout is scored in: rollouts of different processes take turns."""

    async def generate(self, item: Item) -> Generated | Failed:
        """Generate one rollout, and return its record.

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
        """Delete the live state of a rollout that will be scored from the journal."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """The data that an executor needs to execute the rollouts of one run."""

    plan: RunPlan
    """Settings and loaded environment of the run."""
    model: ModelSource
    """Source of model replies. The executor calls `chat` for each rollout, and `close` when the rollout has ended.
    Keys, rate limits, the budget and recorded replies are handled by this object."""
    limits: RolloutLimits
    """Call and token limits of each attempt at a rollout."""
    max_retries: int
    """Maximum number of attempts at a rollout after the first, if a failure is retryable; 0 in a replay."""


@dataclass(frozen=True, slots=True)
class ExecutorEntry:
    """A plugin of the group `bench.executors`. The entry point's name is the value of the setting `executor`."""

    create: Callable[[Execution], AbstractAsyncContextManager[Executor]] | None = None
    """Returns a context manager that starts and releases the executor of one run, in the run's event loop."""
    open_host: Callable[[ResolvedRun], WorkerHost] | None = None
    """In place of `create`: returns where the processes of the run's environment are to run. Called before the
    environment is loaded. bench then executes the run as with `isolate`."""


def executor_entry(name: str, source: str) -> ExecutorEntry:
    """Return the plugin of an executor.

    Args:
        name: Value of the setting `executor`.
        source: Where the setting was given (an option, or a file and a key), for the message.

    Raises:
        ConfigError: no installed package provides this executor.
    """
    found = load_plugins(EXECUTORS, ExecutorEntry, name=name).get(name)
    if found is None:
        raise ConfigError(
            f"{source}: the executor {name!r} is not installed",
            remedy=f"install the package that provides it (entry-point group {EXECUTORS}), or remove the setting",
        )
    return found


def unwritable(record: Generated | Failed, error: EnvironmentFault) -> Failed:
    """Return the failure with which to replace a record that cannot be written as JSON.

    Args:
        record: The record; its usage is kept.
        error: The error that describes the value that JSON cannot represent.
    """
    return Failed(
        record.key, record.example_key, record.rollout_index, "generation", "environment_error", str(error),
        retryable=False, attempts=record.attempts, usage=record.usage, timing=record.timing,
    )  # fmt: skip
