"""Convert the options of `bench eval` and `bench test` to runs. Loads the agent, then the dataset and the eval
functions, finds each model's endpoint and key, and resolves the settings. Sends no request."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.cli import labels
from harness.cli.agent import AgentFlags, EvalOptions
from harness.cli.stdout import own_stdout
from harness.core.errors import ConfigError, DatasetValidationError, EnvironmentLoadError, HarnessError, UsageError
from harness.core.keys import digest
from harness.core.loopback import is_loopback_url
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.environment_loader import load_environment
from harness.engine.load_environments import Loader
from harness.settings.budget import BudgetLimits
from harness.settings.built_in import AGENT_EVAL
from harness.settings.command_line import parse_set
from harness.settings.endpoint_selection import is_reference
from harness.settings.endpoints import Registry, load_registry
from harness.settings.layers import Origin
from harness.settings.providers import BARE_NAMES_GO_TO, BASELINE_KEY_VAR, LITERAL_KEY_VAR, Route, route
from harness.settings.resolved_run import ResolvedRun
from harness.settings.resolver import Resolution, resolve
from harness.settings.schema import SHORTCUTS
from harness.settings.wording import suggestion

if TYPE_CHECKING:
    from harness.agents.environment import AgentEnv

PRIMARY, BASELINE = "primary", "baseline"

_OWN = {"model.model": "model", "model.api_base_url": "base-url", "model.api_key_var": "api-key-var"}
"""Settings that `--set` may not change, such as a model's name, each with the option that sets it instead."""

ISOLATION = frozenset({"env.isolate", "env.workers", "env.worker_memory_mb", "env.worker_vars"})
"""Settings of process isolation, which only `bench run` supports."""

_ENV_ARGS = {
    "dataset": "-d",
    "agent": "-m",
    "mcp": "--mcp",
    "eval_fns": "--eval-fn",
    "max_turns": "--max-turns",
    "offset": "--offset",
    "debug_dir": "--debug-dir",
}
"""Arguments of the environment, each with the option that sets it. `--set` may not change them, because the header and
the report show the values of these options."""

MOST_RUNS = 10_000_000
"""Maximum number of rollouts of one model, since each takes some memory and a line on disk."""

_FLAGS = {
    "env.env_id": "the command",
    "env.name": "--baseline-model",
    "env.env_args": "options of the agent and its rows",
    "env.num_examples": "--limit",
    "env.rollouts_per_example": "--n",
    "model.sampling_args": "--temperature, --max-tokens, -S",
    "model.max_concurrent": "--batch-size",
    "model.max_concurrent_generation": "--batch-size",
    "model.max_concurrent_scoring": "--batch-size",
    "save.output_dir": "--output-dir",
}
"""Labels for settings that these commands set with other options than `bench run`."""


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """A model that the user requested for an evaluation."""

    model: str
    tag: str | None = None
    """`primary` or `baseline`; None for a single model."""
    base_url: str | None = None
    key_var: str | None = None
    """Name of the variable that holds the API key; for a literal key, a generated name."""
    has_key: bool = False
    """Whether a literal API key was given."""

    @property
    def is_baseline(self) -> bool:
        """Whether this model is the baseline of the comparison."""
        return self.tag == BASELINE


@dataclass(frozen=True, slots=True)
class AgentInvocation:
    """Validated arguments of a `bench eval` or `bench test` command, with its environments and settings."""

    sides: tuple[RequestedModel, ...]
    environments: tuple[AgentEnv, ...]
    """Environment of each model: the same agent and rows, loaded separately."""
    resolution: Resolution
    """Settings of one run per model, in the same order."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Literal API keys by variable name."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the evaluation reads: the dataset, and the source code of agent, tools and eval functions."""
        environment = self.environments[0]
        return (*environment.options.files, Path(environment.env_args["dataset"]))

    @property
    def loader(self) -> Loader:
        """A loader that reuses the loaded environments, except those whose arguments `--set` changed."""
        loader, ready = Loader(), {digest(each.env_args): each for each in self.environments}
        for run in self.resolution.runs:
            environment = ready.get(digest(run.settings.env.env_args))
            if environment is not None and not run.settings.env.extra_env_kwargs:
                loader.give(run, environment)
        return loader


def requested_models(options: AgentFlags) -> tuple[RequestedModel, ...]:
    """Return the requested models: one, or the primary model and the baseline."""
    literal = options.literal_keys

    def requested(
        model: str, tag: str | None, url: str | None, literal_var: str, key_var: str | None
    ) -> RequestedModel:
        has_key = literal_var in literal
        return RequestedModel(model, tag, url, literal_var if has_key else key_var, has_key)

    baseline = options.baseline_model if isinstance(options, EvalOptions) else None
    tag = None if baseline is None else PRIMARY
    primary = requested(options.model, tag, options.base_url, LITERAL_KEY_VAR, options.api_key_var)
    if baseline is None or not isinstance(options, EvalOptions):
        return (primary,)
    url, key_var = options.baseline_base_url, options.baseline_api_key_var
    return (primary, requested(baseline, BASELINE, url, BASELINE_KEY_VAR, key_var))


def make_job(options: AgentFlags, mode: str, flags: Mapping[str, object]) -> AgentInvocation:
    """Load the agent, find the models' endpoints and resolve the settings.

    Args:
        options: Validated options.
        mode: Mode that the agent sees: `eval` or `test`.
        flags: Settings of this command only, by setting key.

    Raises:
        HarnessError: an option, file or setting is invalid; nothing was sent.
    """
    for key in options.literal_keys.values():
        redactor.add(key)
    sides = requested_models(options)
    with own_stdout():  # keep output of the agent's module off our stdout
        environments = [_load(env_args(options, mode, side.tag)) for side in sides]
    row_count = environments[0].row_count
    if row_count == 0:
        rest = f": --offset {options.offset} skips all rows" if options.offset else f": {options.dataset} has no rows"
        raise DatasetValidationError(f"No rows to evaluate{rest}")
    environ = ChainMap(options.literal_keys, os.environ)
    registry = load_registry(None, Path.cwd())
    _refuse_unplaced_baseline(sides, registry)
    runs: list[ResolvedRun] = []
    notices: list[str] = []
    limits = BudgetLimits()
    for side, environment in zip(sides, environments, strict=True):
        # A limit above the row count selects all rows.
        rows = None if options.limit is None else min(options.limit, environment.row_count)
        given = {**flags, "env_args": environment.env_args, "num_examples": rows}
        found = _resolve(options, side, given, environ, registry)
        runs += found.runs
        limits = found.limits  # of the invocation: equal for all models
        notices += [*found.notices, *_keyless(side, found.runs[0])]
    resolution = Resolution(tuple(runs), tuple(dict.fromkeys(notices)), limits=limits)
    for env in (run.settings.env for run in runs):
        rows = row_count if env.num_examples == -1 else min(env.num_examples, row_count)
        if rows * env.rollouts_per_example > MOST_RUNS:
            raise UsageError(
                f"--n {env.rollouts_per_example} requires {rows * env.rollouts_per_example} runs for {rows} rows, "
                f"but the maximum is {MOST_RUNS}; reduce --n or --limit"
            )
    return AgentInvocation(sides, tuple(environments), resolution, options.literal_keys)


def env_args(options: AgentFlags, mode: str, tag: str | None) -> JsonDict:
    """Build the arguments of `agent-eval` that differ from its defaults, so that equal runs get equal names."""
    given: JsonDict = {"dataset": options.dataset, "agent": options.module, "mcp": options.mcp}
    if isinstance(options, EvalOptions):
        given["eval_fns"] = options.eval_fn
    given |= {
        "max_turns": None if options.max_turns == 10 else options.max_turns,
        "offset": options.offset or None,
        "mode": None if mode == "eval" else mode,
        "model_tag": tag if tag == BASELINE else None,
        "has_baseline": True if tag == PRIMARY else None,  # part of request ids only, not of the run's identity
        "debug_dir": options.traces,
    }
    return {name: value for name, value in given.items() if value is not None}


def _load(args: JsonDict) -> AgentEnv:
    from harness.agents.environment import AgentEnv

    try:
        environment = load_environment(AGENT_EVAL, **args)
    except EnvironmentLoadError as error:
        if isinstance(error.__cause__, HarnessError):
            raise error.__cause__ from None  # the cause is complete; the built-in environment is a detail
        raise
    assert isinstance(environment, AgentEnv), environment
    return environment


def _refuse_unplaced_baseline(sides: Sequence[RequestedModel], registry: Registry) -> None:
    """Reject a baseline model whose name has no provider, since its requests would go to OpenAI by mistake."""
    primary, baseline = sides[0], sides[-1]
    if not baseline.is_baseline or primary.base_url is None or baseline.base_url is not None:
        return
    if "/" not in baseline.model and baseline.model.strip() and baseline.model not in registry.entries:
        raise ConfigError(
            f"--baseline-model {baseline.model}: --base-url applies only to the other model. To send this model's "
            f"requests to the same address, add --baseline-base-url {primary.base_url}; to send them to "
            f"{BARE_NAMES_GO_TO}, use --baseline-model {BARE_NAMES_GO_TO}/{baseline.model}"
        )


def _resolve(
    options: AgentFlags,
    side: RequestedModel,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    registry: Registry,
) -> Resolution:
    """Resolve the settings of one model's run."""
    way: Route | None = None  # the registry or the reference players have it
    is_known = side.base_url is None and side.key_var is None and side.model in registry.entries
    if not (is_known or (side.base_url is None and is_reference(side.model))):
        try:
            way = route(side.model, side.base_url, environ=environ, key_var=side.key_var, has_key=side.has_key)
        except ConfigError as error:
            error.labels = labels.BASELINE if side.is_baseline else labels.EVAL
            raise
    merged: dict[str, object] = {
        **flags,
        **options.settings,
        "model": side.model,
        "temperature": options.temperature,
        "max_tokens": options.max_tokens,
        "name": side.tag,
    }
    if way is not None:
        merged |= {"model": way.model, "api_base_url": way.url, "api_key_var": way.key_var or ""}
    known = Registry() if side.base_url is not None else registry
    found = resolve(AGENT_EVAL, merged, _sets_for(options, side), registry=known)
    [run] = found.runs
    return replace(found, runs=(replace(run, origins=_with_labels(run.origins, _route_origins(side, way))),))


def _route_origins(side: RequestedModel, way: Route | None) -> dict[str, str]:
    """Return the origins of a model's name, address and key, by setting."""
    dash = "--baseline-" if side.is_baseline else "--"
    provider = f"provider {way.provider}" if way is not None else ""
    moved = f", moved by {way.moved_by}" if way is not None and way.moved_by else ""
    key = f"{dash}api-key" if side.has_key else f"{dash}api-key-var"
    keyless = "none, because no key was given for the base URL" if side.base_url else provider
    return {
        "model.model": f"{dash}model",
        "model.api_base_url": f"{dash}base-url" if side.base_url else provider + moved,
        "model.api_key_var": key if side.key_var else keyless,
    }


def _sets_for(options: AgentFlags, side: RequestedModel) -> list[str]:
    """Return the `--set` values for one model: `baseline:model.rpm=60` applies only to the baseline."""
    names = [PRIMARY, BASELINE] if side.tag else []
    chosen: list[str] = []
    for text in options.set or ():
        override = parse_set(text)
        for path in override.layer:
            _refuse_own(text.partition("=")[0], path)
        if override.env_id in (None, AGENT_EVAL):
            chosen.append(text)
        elif override.env_id not in names:
            known = suggestion(str(override.env_id), [*names, AGENT_EVAL])
            raise ConfigError(f"--set {text}: there is no run named {override.env_id!r}; {known}")
        elif override.env_id == side.tag:
            chosen.append(text.partition(":")[2])
    return chosen


def _refuse_own(name: str, path: Sequence[str]) -> None:
    """Reject a `--set` of a setting that this command sets with another option."""
    setting = ".".join(path[:2])
    if setting in ISOLATION:
        raise ConfigError(
            f"--set {name}: this command cannot run the agent in isolated processes; to do so, use `bench run` with an "
            f'[[eval]] table that has env_id = "{AGENT_EVAL}"'
        )
    if option := _OWN.get(setting):
        raise ConfigError(f"--set cannot change {name} here; use --{option} or --baseline-{option}")
    if setting == "env.env_args":
        known = _ENV_ARGS.get(path[2]) if len(path) > 2 else None
        raise ConfigError(f"--set cannot change {name} here; use {known or 'options for agent, rows and functions'}")
    if setting == "env.name":
        raise ConfigError(f"--set {name}: this command sets the names of its runs itself; remove the option")


def _with_labels(origins: Mapping[str, Origin], labels: Mapping[str, str]) -> dict[str, Origin]:
    """Rename the origins of settings to the options of `bench eval` and `bench test`."""
    names = {**_FLAGS, **labels}
    names |= {f"model.sampling_args.{each.key}": each.flags[0] for each in SHORTCUTS if len(each.path) > 2}
    labelled = dict(origins)
    for path, origin in origins.items():
        name = names.get(path) or (_FLAGS["env.env_args"] if path.startswith("env.env_args.") else None)
        if name is not None and origin.layer == "cli":
            labelled[path] = Origin("cli", name)
    return labelled


def _keyless(side: RequestedModel, run: ResolvedRun) -> list[str]:
    """Return notices about remote hosts to which no API key is sent."""
    url = side.base_url
    if url is None or is_loopback_url(url) or any(each.key_var for each in run.endpoints):
        return []
    option = "--baseline-api-key-var" if side.is_baseline else "--api-key-var"
    return [f"no API key is sent to {urlsplit(url).netloc}; to send one, give its environment variable with {option}"]
