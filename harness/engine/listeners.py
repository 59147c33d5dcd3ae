"""Listeners: callbacks of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.core.records import Failed, Generated, Scored
from harness.engine.budget import Asking
from harness.engine.prepare import FailedRun, LiveRun
from harness.store.journal_index import Recorded


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class EvaluationListener:
    """Callbacks of an evaluation, in the order in which they are called."""

    admit: Callable[[Sequence[LiveRun | FailedRun], Sequence[Asking]], None] = _nothing
    """Called before the first request and before any folder is made, with every run and the models that each loaded run
    may call. Raises an error to refuse the runs."""
    begin: Callable[[Sequence[LiveRun]], None] = _nothing
    """Called with the runs that are about to start."""
    finished: Callable[[LiveRun, Generated | Failed, Scored | None], None] = _nothing
    """Called with each rollout that finishes, once its line is on disk. Must not raise."""
    recorded: Callable[[LiveRun, Recorded], object] = _nothing
    """Called with the whole journal of an ended run, before that of an unsaved run is deleted. Runs in a thread."""
