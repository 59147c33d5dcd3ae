"""Running reward functions on finished rollouts. If a function raises an exception, its value is missing and the
exception is recorded as the reason.

Functions run in the order in which they were added, so a later one may read state set by an earlier one. Consecutive
sync functions share one call in the thread pool; an async function is awaited for all rollouts concurrently."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from harness.core.errors import ThreadsHung
from harness.core.state import State
from harness.rubrics.functions import (
    GROUP_NAMES,
    ROLLOUT_NAMES,
    RewardFunction,
    Value,
    exception_reason,
    read,
    read_group,
)
from harness.usercode.exceptions import should_propagate
from harness.usercode.threads import offload

_ROLLOUT_FIELDS = dict(zip(ROLLOUT_NAMES, ROLLOUT_NAMES, strict=True))
_GROUP_FIELDS = dict(zip(GROUP_NAMES, ROLLOUT_NAMES, strict=True))
"""Field of the state by the parameter of a reward function, for one rollout and for a group."""


@dataclass(slots=True)
class _FunctionCall:
    """A call of a reward function for one rollout or for the whole group, and its result."""

    planned: RewardFunction
    index: int | None
    """Index of the rollout; None for the group."""
    value: Any = None
    error: BaseException | None = None


class Scoring:
    """Rollouts that are scored together, and their values so far.

    Args:
        states: One rollout, or those of a group.
        common: The parser and the class objects, by name.
    """

    def __init__(self, states: Sequence[State], common: Mapping[str, object]) -> None:
        self.values: list[dict[str, Value]] = [{} for _ in states]
        """Values by function name, one dict for each rollout."""
        self._states = states
        self._common = common

    async def run(self, functions: Sequence[RewardFunction]) -> None:
        """Run `functions` in order.

        Raises:
            ThreadsHung: sync functions of earlier rollouts hang.
        """
        for is_async, neighbours in groupby(functions, key=attrgetter("is_async")):
            if is_async:
                for planned in neighbours:
                    await self._run_async(self._calls(planned))
                continue
            batch = _SyncBatch(self, [call for planned in neighbours for call in self._calls(planned)])
            try:
                await offload.run(batch)
            finally:
                batch.is_over = True
            for call in batch.calls:
                await self._finish(call)

    def invoke(self, call: _FunctionCall) -> None:
        """Call a function, and store its return value or its exception in `call`."""
        try:
            call.value = call.planned.function(**self._arguments(call))
        except BaseException as error:
            # The exception becomes the reason for a missing value; it does not stop the run.
            if isinstance(error, KeyboardInterrupt) and should_propagate(error):
                raise
            call.error = error

    def _calls(self, planned: RewardFunction) -> list[_FunctionCall]:
        """Return the calls of a function: one for the group, or one for each rollout."""
        indices = [None] if planned.is_group else range(len(self._states))
        return [_FunctionCall(planned, index) for index in indices]

    async def _run_async(self, calls: Sequence[_FunctionCall]) -> None:
        for call in calls:
            self.invoke(call)
        if len(calls) == 1:
            await self._finish(calls[0])
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for call in calls:
                    tasks.create_task(self._finish(call))
        except BaseExceptionGroup as group:
            raise _hung(group) or group from None

    async def _finish(self, call: _FunctionCall) -> None:
        """Await the value if necessary, and store it."""
        if type(call.value) is not float and inspect.isawaitable(call.value):
            try:
                call.value = await cast("Awaitable[object]", call.value)
            except BaseException as error:  # becomes the reason for a missing value
                if hung := _hung(error):
                    raise hung from None
                if should_propagate(error):
                    raise
                call.error = error
        name, error = call.planned.name, call.error
        if call.index is not None:
            self.values[call.index][name] = read(call.value) if error is None else (None, exception_reason(error))
            return
        size = len(self._states)
        group = read_group(call.value, size) if error is None else [(None, exception_reason(error))] * size
        for values, value in zip(self.values, group, strict=True):
            values[name] = value

    def _arguments(self, call: _FunctionCall) -> dict[str, Any]:
        """Return the arguments of a call: values of the rollout's state (for a group function one list for each name),
        the parser and class objects."""
        planned, common = call.planned, self._common
        states = self._states if call.index is None else [self._states[call.index]]
        fields = _GROUP_FIELDS if planned.is_group else _ROLLOUT_FIELDS
        arguments: dict[str, Any] = {}
        for name in (*fields, *common) if planned.takes is None else planned.takes:
            if name not in fields:
                arguments[name] = common[name]
                continue
            values = list(states) if fields[name] == "state" else [state[fields[name]] for state in states]
            arguments[name] = values if planned.is_group else values[0]
        return arguments


@dataclass(slots=True)
class _SyncBatch:
    """Sync calls that share one call in the thread pool."""

    scoring: Scoring
    calls: Sequence[_FunctionCall]
    current: _FunctionCall | None = None
    is_over: bool = False
    """Set when the result is no longer needed, so that an abandoned thread ends after its current call."""

    def __call__(self) -> None:
        for call in self.calls:
            if self.is_over:
                return
            self.current = call
            self.scoring.invoke(call)

    def running(self) -> str:
        """Name the function that is being called, for the message about hung calls."""
        return f"reward function {(self.current or self.calls[0]).planned.name}"


def _hung(error: BaseException) -> ThreadsHung | None:
    """Find a `ThreadsHung` error, also in an exception group."""
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next((hung for hung in map(_hung, inner) if hung is not None), None)
    return error if isinstance(error, ThreadsHung) else None
