"""Write a run's dataset from its journal, during the run and at its end. At the end, also write summary, manifest and
card, and release the run's lock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import cast

from harness.core.errors import StoreError
from harness.core.records import Generated, Scored
from harness.engine.prepare import LiveRun
from harness.envs.environment import Environment
from harness.stats.scores import ScoreTable
from harness.stats.summary import summarize
from harness.store.card import rebuild_card
from harness.store.clusters import clusters_of
from harness.store.dataset import DatasetWriter
from harness.store.journal import JournalReader
from harness.store.journal_index import NOWHERE, Recorded
from harness.store.manifest import RunStatus
from harness.store.outcomes import Outcome
from harness.store.rows import RowShape
from harness.store.score_table import aim_of, enter, pass_k_of, tally
from harness.usercode.exceptions import describe

logger = logging.getLogger(__name__)

PAUSE = 49
"""Minimum time between two writes of many rows during a run, as a multiple of the time that the first one took."""

FEW_ROWS = 100
"""Number of rows that are written without a pause afterwards."""

COLUMN_SAMPLE = 50
"""Number of rollouts searched for a state column before it is reported as empty."""


@asynccontextmanager
async def checkpoints(writer: DatasetWriter | None, every: int) -> AsyncGenerator[Callable[[], None]]:
    """Context manager that writes the dataset during a run, so that it is at most `every` rollouts behind the journal;
    more if rollouts end so fast that writing would take over a fiftieth of the time. It writes in a thread, so that the
    event loop never waits for the disk.

    Args:
        writer: Writer of the run's dataset; None writes nothing.
        every: Number of rollouts between two checkpoints; −1 for no checkpoint before the run ends.

    Yields:
        A function to call for each finished rollout.
    """
    if writer is None or every <= 0:
        yield lambda: None
        return
    waiting, due, closing = 0, asyncio.Event(), asyncio.Event()

    def count() -> None:
        nonlocal waiting
        waiting += 1
        if waiting >= every:
            due.set()

    async def write() -> None:
        nonlocal waiting
        while await due.wait() and not closing.is_set():
            due.clear()
            waiting, began, rows = 0, time.monotonic(), 0
            try:
                rows = await asyncio.to_thread(writer.checkpoint)
            except StoreError as error:  # the journal is complete; the end of the run rebuilds the dataset from it
                logger.warning("the dataset could not be updated; the next checkpoint tries again: %s", error)
            if rows < FEW_ROWS:
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(closing.wait(), PAUSE * (time.monotonic() - began))

    failure: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        try:
            yield count
        except BaseException as error:  # the group would cancel a write in progress, and wrap the error
            failure = error
        closing.set()
        due.set()
    if failure is not None:
        raise failure


def finalize(run: LiveRun, status: RunStatus, on_recorded: Callable[[Recorded], object]) -> None:
    """Rebuild summary and dataset from the journal, and record the final status in the manifest. Blocking.

    Args:
        run: The ended run.
        status: How the run ended.
        on_recorded: Called with the index of the whole journal.

    Raises:
        StoreError: the folder cannot be written.
    """
    progress, manifest = run.progress, run.manifest
    wall, resumed = (progress.finished or progress.started) - progress.started, progress.resumed
    earlier = run.folder.known_summary() if run.recorded is not None else None
    if earlier is not None and resumed == progress.done:
        wall, resumed = earlier["wall_s"], earlier["resumed"]  # all rollouts were complete: keep the recorded time
    try:
        recorded = run.writer.catch_up() if run.writer else Recorded.load(run.folder.journal_path)
        table, failure = _write_rows(run, recorded)
        run.summary = summarize(
            table,
            pass_threshold=run.plan.resolved.settings.env.pass_threshold,
            rollouts_per_example=run.plan.rollouts.rollouts_per_example,
            planned=progress.total,
            reward_range=manifest.reward_range,
            wall_s=wall,
            resumed=resumed,
            aim=aim_of(manifest),
            pass_k=pass_k_of(manifest),
            clusters=clusters_of(recorded, manifest.cluster_key),
        )
        run.summary = replace(run.summary, figures=_figures(run.plan.environment, recorded))
        on_recorded(recorded)
        if run.is_saved:
            run.folder.write_summary(run.summary.to_json())
            if failure is not None:
                raise failure
            # Write the manifest after the rows: if it says `done`, all of them must be on disk.
            run.folder.write_manifest(manifest.ended(status, progress.note))
            rebuild_card(run.folder.path.parent)
            progress.note = progress.note or _absent_columns(recorded, manifest.state_columns)
    finally:
        run.release()
        if run.scratch is not None:
            run.scratch.cleanup()


def _write_rows(run: LiveRun, recorded: Recorded) -> tuple[ScoreTable, StoreError | None]:
    """Write the dataset, if the run has one, and return the table of scores and the error that kept it from being
    written. Both are made in one pass, because reading the journal takes longest."""
    table, failure = ScoreTable(), None

    def on_row(number: int, outcome: Outcome) -> None:
        enter(table, recorded.place(number), outcome.base, outcome.score)

    if run.is_saved:
        writer = run.writer or DatasetWriter(run.folder.path, RowShape.of(run.manifest))
        try:
            writer.complete(on_row)
        except StoreError as error:
            failure = error
    return (table if len(table) == len(recorded) else tally(recorded)), failure


def _figures(environment: Environment, recorded: Recorded) -> dict[str, float]:
    """Compute the figures of a run that its environment defines; an exception of its code is logged."""
    name = environment.figures_of
    values: list[object] = []
    with JournalReader(recorded.path) as reader:
        for lines in map(recorded.lines, range(len(recorded)) if name else ()):
            score = None if lines.score == NOWHERE else cast(Scored, reader.record(lines.score))
            if score is not None and name in score.extra:
                values.append(score.extra[name])
    try:
        return environment.figures(values) if values else {}
    except Exception as error:  # the boundary around the author's code
        logger.warning("%s: the figures of the run could not be computed: %s", environment.env_id, describe(error))
        return {}


def _absent_columns(recorded: Recorded, names: Sequence[str]) -> str:
    """Message that names the state columns that are empty; "" if none is. Only the first few rollouts are searched."""
    looked_at = range(min(len(recorded), COLUMN_SAMPLE)) if names else range(0)
    held: set[str] = set()
    with JournalReader(recorded.path) as reader:
        for lines in map(recorded.lines, looked_at):
            base = reader.record(lines.base)
            held.update(base.state if isinstance(base, Generated) else ())
            if lines.score != NOWHERE:
                held.update(cast(Scored, reader.record(lines.score)).extra)
    absent = [name for name in names if name not in held]
    if not absent or not looked_at:
        return ""
    known = f"these states have {', '.join(sorted(held))}" if held else "these states have no other values"
    return (
        f"state column{'s' if len(absent) > 1 else ''} {', '.join(absent)}: empty, since the states of the first "
        f"{len(looked_at)} rollouts have no JSON value of that name ({known})"
    )
