"""Callbacks for events of an evaluation, including those of plugins in the entry-point group `bench.listeners`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.core.errors import HarnessError
from harness.core.plugins import load_plugins
from harness.core.records import Failed, Generated, Scored
from harness.engine.budget import BudgetedRun
from harness.engine.prepare import FailedRun, LiveRun
from harness.store.journal_index import Recorded

LISTENERS = "bench.listeners"

logger = logging.getLogger(__name__)


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class EvaluationListener:
    """Callbacks of an evaluation, in the order in which they are called."""

    admit: Callable[[Sequence[LiveRun | FailedRun], Sequence[BudgetedRun]], None] = _nothing
    """Called before the first request and before any folder is created, with every run and the models that each loaded
    run may call. May raise an error to refuse the runs."""
    begin: Callable[[Sequence[LiveRun]], None] = _nothing
    """Called with the runs that are about to start."""
    finished: Callable[[LiveRun, Generated | Failed, Scored | None], None] = _nothing
    """Called with each finished rollout, once its journal line is on disk. Must not raise."""
    recorded: Callable[[LiveRun, Recorded], object] = _nothing
    """Called in a thread with the index of an ended run's journal, before the journal of an unsaved run is deleted."""


def with_plugins(listener: EvaluationListener) -> EvaluationListener:
    """Return a listener that calls the given listener and then those of plugins.

    An exception of a plugin is logged and otherwise ignored, except that a `HarnessError` of `admit` refuses the runs.
    """
    plugins = load_plugins(LISTENERS, EvaluationListener)
    if not plugins:
        return listener

    def call(name: str, *args: object) -> None:
        getattr(listener, name)(*args)
        for plugin, each in plugins.items():
            try:
                getattr(each, name)(*args)
            except Exception as error:  # code of other people
                if name == "admit" and isinstance(error, HarnessError):
                    raise
                words = "the plugin %r (%s) failed in %s: %s: %s"
                logger.warning(words, plugin, LISTENERS, name, type(error).__name__, error)

    return EvaluationListener(*(partial(call, name) for name in ("admit", "begin", "finished", "recorded")))
