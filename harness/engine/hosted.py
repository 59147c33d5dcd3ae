"""Runs inside an event loop that somebody else drives: prepared in a thread, and let go of whatever happens. Owns no
more than this beginning and end, for every Python API; what lies between is `engine.suite`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from harness.core.errors import StoreError
from harness.engine.loading import Loader
from harness.engine.prepare import FailedRun, Prepared, StartOptions, prepare, progress_of
from harness.settings.resolver import ResolvedRun


@asynccontextmanager
async def hosted(
    resolved: Sequence[ResolvedRun], options: StartOptions, loader: Loader | None = None
) -> AsyncGenerator[list[Prepared]]:
    """The runs, ready for a `Suite`; in the end no lock and no scratch folder is left, also if it was cancelled.

    Args:
        resolved: Their settings.
        options: How they start.
        loader: Where their environments come from; by default each is imported.

    Raises:
        HarnessError: one of them cannot begin, so none does.
    """
    made: list[Prepared | FailedRun] = []
    given_up = threading.Event()

    def make() -> None:
        made.extend(prepare(resolved, [progress_of(each) for each in resolved], options, loader))
        if given_up.is_set():  # cancelled meanwhile, which a thread cannot be
            _release(made)

    try:
        await asyncio.to_thread(make)
        for run in made:
            if isinstance(run, FailedRun):
                raise run.error
        yield [run for run in made if isinstance(run, Prepared)]
    finally:
        given_up.set()
        _release(made)


def _release(runs: Sequence[Prepared | FailedRun]) -> None:
    """Let go of runs that the engine has not ended itself; idempotent."""
    for run in runs:
        if isinstance(run, FailedRun) or run.progress.finished is not None:
            continue
        run.progress.state = "interrupted"
        if run.is_saved:
            with contextlib.suppress(StoreError):  # the journal has everything; this only says how it ended
                run.folder.write_manifest(run.manifest.ended("interrupted"))
        run.lock.release()
        if run.scratch is not None:
            run.scratch.cleanup()
