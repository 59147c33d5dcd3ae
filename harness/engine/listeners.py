"""Listeners: callbacks of an evaluation, and those of the plugins of the group `bench.listeners`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.core.errors import HarnessError
from harness.core.plugins import load_plugins
from harness.core.records import Failed, Generated, Scored
from harness.engine.budget import Asking
from harness.engine.prepare import FailedRun, LiveRun
from harness.store.journal_index import Recorded

LISTENERS = "bench.listeners"

logger = logging.getLogger(__name__)


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


def with_plugins(listener: EvaluationListener) -> EvaluationListener:
    """Add the listeners of plugins to an evaluation's own, which is called first.

    An exception of a plugin is logged and otherwise ignored; only a `HarnessError` of `admit` refuses the runs.
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
