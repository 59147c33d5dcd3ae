"""Convert the options of `bench multi` to runs: find the models and their endpoints, resolve the settings, load tasks
and scoring function. Sends nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.cli import labels
from harness.cli.multi import EvaluationOptions, MultiOptions, ReplayOptions
from harness.cli.stdout import own_stdout
from harness.core.errors import ConfigError, EnvironmentLoadError, HarnessError, UsageError
from harness.core.types import JsonDict
from harness.engine.load_environments import Loader
from harness.multi.evaluation import missing_hook, replayed
from harness.multi.fields import FILES
from harness.multi.models import Model, load_models, read_model, read_models
from harness.multi.options import Options, Persist, read_options
from harness.multi.results import RunRecord
from harness.multi.settings import resolve_models
from harness.settings.built_in import MULTI_EVAL
from harness.settings.endpoints import Registry, load_registry
from harness.settings.resolved_run import ResolvedRun
from harness.settings.resolver import Resolution
from harness.settings.wording import suggestion

_SCORING = ("match_mode", "length_target", "score_output", "schema_mode", "timeout_ms")
"""Options that are arguments of the environment."""

NAMED = "-m"
"""Origin of models that were given on the command line."""

_ORIGINS = {f"{NAMED}.baseUrl": "-b", f"{NAMED}.apiKeyVar": "-k"}
"""Options that set the fields of models given on the command line."""

_LABELS = {
    "env.env_id": "the command",
    "env.env_args": "TASKS and the options of scoring",
    "env.env_args.tasks": "TASKS",
    **{f"env.env_args.{name}": f"--{name.replace('_', '-')}" for name in _SCORING},
    "env.env_args.model_id": "the model's id",
    "model.max_concurrent": "--task-concurrency",
    "model.max_concurrent_generation": "--task-concurrency",
    "model.max_concurrent_scoring": "--task-concurrency",
}
"""Labels for settings that this command sets with other options than `bench run`."""


@dataclass(frozen=True, slots=True)
class MultiJob:
    """One validated invocation of `bench multi`, ready to execute."""

    models: Sequence[Model]
    resolution: Resolution
    """The resolved run of each model."""
    options: Options
    """The documented options, as stored in a record."""
    loader: Loader
    """Loader with the environments of all runs."""
    tasks: str
    """Path of the task file."""
    files: tuple[Path, ...]
    """Files that the evaluation reads, except code."""
    notices: tuple[str, ...] = ()
    """Notices to print before the start, besides those of the settings."""


def make_job(options: MultiOptions) -> MultiJob:
    """Find the models and their endpoints, resolve the settings and load the tasks.

    Args:
        options: Validated options.

    Raises:
        HarnessError: an option, file or setting is invalid; nothing was sent.
    """
    registry = load_registry(Path(options.endpoints_path) if options.endpoints_path else None, Path.cwd())
    models, registry = _models(options, registry)
    job = job_of(options, options.tasks, models, registry, documented(options))
    return job if options.models is None else replace(job, files=(*job.files, Path(options.models)))


def job_of(
    options: EvaluationOptions, tasks: str, models: Sequence[Model], registry: Registry, chosen: Options
) -> MultiJob:
    """Build a job from tasks and models.

    Args:
        options: Typed options.
        tasks: Path of the task file.
        models: The models, in the order of the result.
        registry: Registry that resolves the models' names.
        chosen: The documented options.

    Raises:
        HarnessError: an option, file or setting is invalid; nothing was sent.
    """
    flags = flags_of(options, tasks, chosen)
    try:
        found = resolve_models(models, flags, options.set or (), registry=registry, labels=_LABELS)
    except ConfigError as error:
        error.labels = labels.MULTI if error.place.startswith(f"{NAMED} (") else labels.MULTI_FILE
        raise
    if any(run.settings.env.rollouts_per_example != 1 for run in found.runs):
        raise UsageError(
            "--set env.rollouts_per_example: each model gets each task once; to repeat a task, list it several times"
        )
    if any(run.settings.env.is_isolated or run.settings.env.executor is not None for run in found.runs):
        raise UsageError(
            "--set env.isolate, env.workers, env.executor: this command cannot score in other processes; to do so, use "
            f'`bench run` with an [[eval]] table that has env_id = "{MULTI_EVAL}"'
        )
    found = replace(found, runs=tuple(map(_with_labels, found.runs)))
    loader = Loader()
    with own_stdout():  # keep output of the scoring function's module off our stdout
        for run in found.runs:
            try:
                loader.load(run)
            except EnvironmentLoadError as error:
                if isinstance(error.__cause__, HarnessError):
                    raise error.__cause__ from None  # the cause is complete; the built-in environment is a detail
                raise
    return MultiJob(models, found, chosen, loader, tasks, (Path(tasks),))


def _with_labels(run: ResolvedRun) -> ResolvedRun:
    """Rename the origins of a run's settings to option names."""
    origins = {path: replace(at, source=_ORIGINS.get(at.source, at.source)) for path, at in run.origins.items()}
    return replace(run, origins=origins)


def documented(options: EvaluationOptions) -> Options:
    """Collect the documented options that were given.

    Raises:
        ConfigError: an option is out of range.
    """
    return read_options(None, documented_values(options))


def documented_values(options: EvaluationOptions) -> dict[str, object]:
    """Return the given documented options as keyword arguments of the Python API."""
    given: dict[str, object] = {name: getattr(options, name) for name in _SCORING}
    given |= {"model_concurrency": options.model_concurrency, "task_concurrency": options.task_concurrency}
    if options.abort_on_error:
        given["abort_on_error"] = True
    if options.is_persisting:
        given["persist"] = Persist(
            include_inputs=not options.no_include_inputs,
            include_outputs=not options.no_include_outputs,
            include_options=not options.no_include_options,
        )
        given["persist_dir"] = options.persist_dir
    return {name: value for name, value in given.items() if value is not None}


def flags_of(options: EvaluationOptions, tasks: str, chosen: Options) -> dict[str, object]:
    """Return the settings shared by all models, by setting key; None selects the default."""
    args: JsonDict = {name: getattr(chosen, name) for name in _SCORING if name in chosen.given}
    if chosen.chat_options:
        args["chat_options"] = dict(chosen.chat_options)
    return {
        **options.settings,
        "env_args": {"tasks": tasks, **args},
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "max_concurrent": chosen.task_concurrency,
    }


def named_models(options: EvaluationOptions) -> list[Model]:
    """Return the models given with `-m`."""
    names = options.model or ()
    urls, keys = (_for_each(given, len(names)) for given in (options.api_base_url, options.api_key_var))
    ways = (
        {"id": name.strip(), "base_url": url, "api_key_var": key}
        for name, url, key in zip(names, urls, keys, strict=True)
    )
    return [read_model({field: value for field, value in way.items() if value is not None}, NAMED) for way in ways]


def _for_each(given: Sequence[str] | None, models: int) -> Sequence[str | None]:
    """Repeat an option given once for all models; values given for each model stay as they are."""
    values = given or [None]
    return values if len(values) == models else [values[0]] * models


def _models(options: MultiOptions, registry: Registry) -> tuple[list[Model], Registry]:
    """Return the models of the file, then those of `-m`, with the registry that resolves their names."""
    found: list[Model] = []
    if options.models is not None:
        path = Path(options.models)
        _refuse_name(options.models, path, registry)
        if _is_registry(path):
            own = load_registry(path, Path.cwd())
            registry = own.over(registry)
            found = [read_model(alias, f"{own.file}: {alias}") for alias in own.entries]
        else:
            found = list(load_models(path))
    return [*found, *named_models(options)], registry


def _refuse_name(text: str, path: Path, registry: Registry) -> None:
    """Reject a model name given as a file, and suggest the option for model names."""
    if path.is_file():
        return
    if path.is_dir():
        raise UsageError(f"{text} is a folder; MODELS must be a file that defines models")
    if path.suffix.lower() not in (*FILES, ".py") or text in registry.entries:
        raise UsageError(f"{text}: no such models file; to give a model by name, use -m {text}")
    beside = (
        [each.name for each in path.parent.iterdir() if each.suffix.lower() in FILES] if path.parent.is_dir() else []
    )
    near = f"; {suggestion(path.name, sorted(beside))}" if beside else ""
    raise ConfigError(f"{text}: no such models file{near}")


def _is_registry(path: Path) -> bool:
    """Return whether a file is a registry of endpoints, and not a list of models."""
    if path.suffix.lower() == ".py":
        return True
    if path.suffix.lower() != ".toml":
        return False
    try:
        return "endpoint" in tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False  # the reader of the models reports the error


def replay_job(options: ReplayOptions, record: RunRecord, file: Path) -> MultiJob:
    """Build a job from a record: its tasks, its models or others, and its options overridden by typed ones.

    Args:
        options: Validated options.
        record: The stored record.
        file: Path of the record, from which the tasks are read.

    Raises:
        HarnessError: an option, file or setting is invalid; nothing was sent.
    """
    registry = load_registry(Path(options.endpoints_path) if options.endpoints_path else None, Path.cwd())
    _tasks, configs, chosen = replayed(record["runId"], record, documented(options))
    models = named_models(options) or list(read_models(configs, f"{file}: modelConfigs"))
    job = job_of(options, str(file), models, registry, chosen)
    if hook := missing_hook(record, chosen):
        scored = f"{record['runId']} was scored by {hook}, this replay is scored by the documented formula"
        job = replace(job, notices=(f"{scored}; to score the replay in the same way, add --score-output {hook}",))
    return job
