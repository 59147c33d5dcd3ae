"""Scope of the current task: the run and the rollout that it belongs to. Authors' code calls this package from any
depth, without an argument that names the rollout; tasks and threads inherit the scope."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.core.types import value_class

if TYPE_CHECKING:
    from harness.usercode.deadline import Deadline


@value_class
class Scope:
    """Run and rollout of a task."""

    run: str = ""
    """Id of the run. Hung calls are counted per run, so that a broken environment does not stop the other runs."""
    rollout: str = ""
    """The `trajectory_id` of the rollout."""
    deadline: Deadline | None = None
    """Timeout of the rollout."""
    held: tuple[object, ...] = ()
    """Objects that the rollout has reserved. For a nested evaluation, also those of the rollout that started it."""


CURRENT: ContextVar[Scope] = ContextVar("scope", default=Scope())  # noqa: B039 - frozen


def scope(context: Context | None = None) -> Scope:
    """Scope of the current task, or of `context`."""
    return CURRENT.get() if context is None else context.get(CURRENT, Scope())


def enter_run(run: str) -> None:
    """Set the run of the current task and of all tasks that it starts."""
    CURRENT.set(replace(CURRENT.get(), run=run))


@contextmanager
def scoped(**changes: Any) -> Generator[None]:
    """Change fields of the scope inside the block."""
    token = CURRENT.set(replace(CURRENT.get(), **changes))
    try:
        yield
    finally:
        CURRENT.reset(token)
