"""`evaluate` and related functions: run the same tasks with several models, list, load and replay stored evaluations.
The steps of an evaluation are: read, resolve, start, run, complete, store."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections import ChainMap
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError, HarnessError, StateError, UsageError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.budget import Budget
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.load_environments import Loader
from harness.engine.prepare import LiveRun, StartOptions
from harness.multi.document import REPLAY, Started, meta_of, new_run_id, result_document
from harness.multi.environment import TaskEnv, load_environment
from harness.multi.events import EventFile, Events, listening
from harness.multi.fields import MODEL_LABELS, file_of
from harness.multi.models import Model, read_models
from harness.multi.options import RECORDS, Options, Persist, read_options, storable
from harness.multi.persist import leaks_of, list_records, load_record, make_record, save_record
from harness.multi.results import EvaluationResult, ModelResult, RunEntry, RunRecord
from harness.multi.run_observer import EvaluationWatch
from harness.multi.scoring import SHARED, TaskOptions, changed_options
from harness.multi.scoring_hook import ScoringHook, hook_of
from harness.multi.settings import resolve_models, without_rows
from harness.multi.task_files import load_tasks
from harness.multi.tasks import Task, read_tasks
from harness.settings.resolver import Resolution, missing_keys
from harness.settings.wording import suggestion

logger = logging.getLogger(__name__)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_LABELS = {
    "env.env_id": "the evaluation",
    "env.env_args": "the evaluation's options",
    "model.max_concurrent": "task_concurrency",
    "model.max_concurrent_generation": "task_concurrency",
    "model.max_concurrent_scoring": "task_concurrency",
    "save.save_results": "output_dir",
    "save.output_dir": "output_dir",
    "save.private": "private",
}
"""Names of settings in this API, for messages about the origin of a value."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """A validated multi-model evaluation, ready to run."""

    tasks: Sequence[Task]
    models: Sequence[Model]
    options: Options
    resolution: Resolution
    """The resolved run of each model."""
    keys: Mapping[str, str]
    """API keys that were given by variable name."""
    hook: ScoringHook | None
    started: Started
    is_whole: bool
    """Whether the run's settings fully describe the evaluation: tasks are in a file, and a hook, if any, by name."""


async def evaluate(
    tasks: Sequence[object] | str | Path,
    models: Sequence[object] | str | Path,
    options: Options | Mapping[str, object] | object = None,
    **more: object,
) -> EvaluationResult:
    """Run every task with every model and score the replies.

    Args:
        tasks: Dicts, `Task`s or your own dataclasses; or the path of a task file.
        models: Dicts, `Model`s, names or your own dataclasses; or the path of a models file.
        options: A dict, an `Options` or your own dataclass. Keys of all three may be in camelCase or snake_case.
        **more: Options by keyword; they override `options`.

    Returns:
        The documented result object, as a dict.

    Raises:
        ValidationError: there are no tasks, or no models.
        ConfigError: a task, a model or an option is invalid; nothing was sent.
        HarnessError: a started evaluation cannot be recorded.
    """
    read = read_options(options, more)
    return await _evaluate(await _prepared(tasks, models, read))


async def list_runs(limit: int = 25, *, persist_dir: str | Path = RECORDS) -> list[RunEntry]:
    """List the last `limit` stored evaluations, the oldest first.

    Args:
        limit: Maximum number; 0 for all.
        persist_dir: The folder of the records.
    """
    return await asyncio.to_thread(list_records, limit, persist_dir)


async def load_run(run_id: str, *, persist_dir: str | Path = RECORDS) -> RunRecord | None:
    """Load a stored evaluation; return None if no evaluation has that id.

    Args:
        run_id: Its id, a unique prefix of it, or `latest`.
        persist_dir: The folder of the records.

    Raises:
        StoreError: its file cannot be read.
    """
    return await asyncio.to_thread(load_record, run_id, persist_dir)


async def replay_run(
    run_id: str, /, options: Options | Mapping[str, object] | object = None, *, trust: bool = False, **more: object
) -> EvaluationResult:
    """Evaluate the stored tasks and models of an evaluation again; given options override the stored ones.

    API keys and a scoring hook are not stored: keys are read from their variables or `api_keys`, and a hook must be
    given again. The replay is stored only with `persist`.

    Args:
        run_id: Its id, a unique prefix of it, or `latest`.
        options: As for `evaluate`; a `run_id` among them is that of the replay.
        trust: Also send keys to hosts from a record that was made on another machine.
        **more: Options by keyword.

    Raises:
        StateError: there is no such evaluation, or it was stored without tasks or models.
        HarnessError: see `evaluate`.
    """
    given = read_options(options, more)
    record = await load_run(run_id, persist_dir=given.persist_dir)
    tasks, models, chosen = replayed(run_id, record, given)
    if record is not None and not trust and (leaks := leaks_of(record)):
        raise UsageError(
            f"{record['runId']} was not made on this machine, and its replay would {' and '.join(leaks)}; if you trust "
            "its author, pass trust=True"
        )
    if record is not None and (hook := missing_hook(record, chosen)):
        logger.warning("%s was scored by %s, which is not stored: this replay is scored by the documented formula "
                       "unless score_output is given", record["runId"], hook)  # fmt: skip
    return await _evaluate(await _prepared(tasks, models, chosen))


def replayed(
    run_id: str, record: RunRecord | None, given: Options
) -> tuple[Sequence[JsonDict], Sequence[JsonDict], Options]:
    """Return the tasks, models and options with which a stored evaluation is replayed.

    Args:
        run_id: The requested id.
        record: The stored evaluation; None if there is none.
        given: Options of the replay; they override the stored ones.

    Raises:
        StateError: there is nothing to replay.
    """
    if record is None:
        raise StateError(f"MultiModelEvaluator run not found: {run_id}")
    tasks, models = record.get("tasks"), record.get("modelConfigs")
    if not (isinstance(tasks, list) and tasks and isinstance(models, list) and models):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StateError(f"MultiModelEvaluator replay missing inputs: {record['runId']}")
    stored = storable(record.get("options", {}))
    own: JsonDict = {"run_id": new_run_id(REPLAY), **{name: getattr(given, name) for name in given.given}}
    options = read_options(stored, own)
    return tasks, models, options


def missing_hook(record: RunRecord, options: Options) -> str | None:
    """Return the name of the hook that scored a record, if a replay would use the documented formula; else None."""
    hook = (record.get("meta") or {}).get("scoreOutput")
    return str(hook) if hook and options.score_output is None else None


async def _prepared(tasks: object, models: object, options: Options) -> _Evaluation:
    try:
        return await asyncio.to_thread(_job, tasks, models, options)
    except HarnessError as error:  # the message may contain an address with a password
        error.labels = error.labels or MODEL_LABELS
        error.args = (redactor.text(str(error), patterns=False),)
        error.place = error.setting = ""
        error.remedy = None
        raise


def _job(tasks: object, models: object, options: Options) -> _Evaluation:
    """Read, validate and resolve the tasks, models and options of an evaluation, without sending a request."""
    file = file_of(tasks)
    read = read_tasks(tasks) if file is None else load_tasks(file)
    asked, others = _with_keys(read_models(models), options.api_keys)
    hook = hook_of(options.score_output)
    named = {} if hook is None else {"score_output": hook.name}
    is_whole = file is not None and (hook is None or isinstance(options.score_output, str))
    flags: dict[str, object] = {
        **options.settings,
        "env_args": {"tasks": str(file or "tasks"), **changed_options(options), **named},
        "max_concurrent": options.task_concurrency,
        "save_results": options.output_dir is not None,
        "output_dir": options.output_dir,
        "private": options.private or None,
    }
    environ = ChainMap(others, cast("dict[str, str]", os.environ))
    found = resolve_models(asked, flags, labels=_LABELS, environ=environ)
    if not is_whole:
        found = replace(found, runs=tuple(map(without_rows, found.runs)))
    missing_keys(found, environ)
    for notice in found.notices:
        logger.warning("%s", notice)
    started = Started(options.run_id or new_run_id(), len(read), len(asked))
    return _Evaluation(read, asked, options, found, others, hook, started, is_whole)


def _with_keys(models: Sequence[Model], given: Mapping[str, str]) -> tuple[tuple[Model, ...], dict[str, str]]:
    """Return the models with the API keys that were given by model id, and the keys given by variable name."""
    labels = {model.label for model in models}
    others: dict[str, str] = {}
    for name, key in given.items():
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"options: apiKeys: {name}: must be a string")
        redactor.add(key)
        if name not in labels and not _VARIABLE.fullmatch(name):
            known = suggestion(name, labels)
            raise ConfigError(f"options: apiKeys: {name!r} is neither the id of a model nor a variable name; {known}")
        if name not in labels:
            others[name] = key
    keyed = [replace(model, api_key=given.get(model.label, model.api_key)) for model in models]
    return tuple(keyed), others


async def _evaluate(job: _Evaluation) -> EvaluationResult:
    async with _open_events(job) as events:
        watch = EvaluationWatch(job.models, events)
        models, versions = await _run(job, watch, events)
        extra: JsonDict = {"versions": versions, "scoreOutput": None if job.hook is None else job.hook.name}
        meta = meta_of(job.models, job.resolution.runs, models, extra)
        result = result_document(job.started, models, meta)
        events.complete(result["durationMs"], result["summary"])
    if job.options.persist is not False:
        persist = job.options.persist if isinstance(job.options.persist, Persist) else Persist()
        record = make_record(result, job.tasks, job.models, job.options, persist)
        save = partial(save_record, private=job.options.private)
        result["persist"] = await asyncio.to_thread(save, record, persist, job.options.persist_dir)
    return result


@asynccontextmanager
async def _open_events(job: _Evaluation) -> AsyncGenerator[Events]:
    """Context manager of the receivers of events, open until the last event has been delivered."""
    async with AsyncExitStack() as stack:
        sinks = await stack.enter_async_context(listening(job.options.on_event))
        if job.options.events is not None:
            file = EventFile(job.options.events, private=job.options.private)
            sinks = [stack.enter_context(closing(file)).write, *sinks]
        yield Events(job.started, sinks)


async def _run(job: _Evaluation, watch: EvaluationWatch, events: Events) -> tuple[list[ModelResult], JsonDict]:
    """Run all models; return their results, and the versions of the software."""
    options = job.options
    start = StartOptions(
        " ".join(sys.argv), resume=options.resume, retry_failed=options.retry_failed, fail_fast=options.abort_on_error
    )
    try:
        loader = await asyncio.to_thread(_environments, job)
        at_once = options.model_concurrency

        def begin(runs: Sequence[LiveRun]) -> None:
            watch.attach(runs)
            events.start()

        listener = EvaluationListener(begin=begin, finished=watch.finished, recorded=watch.recorded)
        budget = Budget(job.resolution.limits)
        runs = await Evaluation(
            job.resolution.runs, loader, keys=job.keys, budget=budget, listener=listener, start=start, at_once=at_once
        ).run()
    except UsageError as error:
        error.labels = MODEL_LABELS
        raise
    for run in runs:
        if run.progress.state != "done":
            logger.warning("%s: %s: %s", run.progress.name, run.progress.state, run.progress.note)
    return await asyncio.to_thread(watch.results, runs), runs[0].manifest.versions


def _environments(job: _Evaluation) -> Loader:
    """Build the environment of each model's run. Each model has its own, since a scoring hook gets the model's name."""
    options = job.options
    loader = Loader()
    for model, run in zip(job.models, job.resolution.runs, strict=True):
        if job.is_whole:  # loaded from its settings, so that a command can resume the run
            loader.give(run, load_environment(**run.settings.env.env_args))
            continue
        shared = {name: getattr(options, name) for name in SHARED}
        how = TaskOptions(**shared, score_output=job.hook, model_id=model.label)
        loader.give(run, TaskEnv(job.tasks, options=how))
    return loader
