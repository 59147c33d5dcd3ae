"""Resolve a target and command-line options to runs: read files, merge layers, and decide every setting. Uses no
network and no environment variables, and imports no environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url
from harness.core.messages import COMMANDS, Message
from harness.settings import budget
from harness.settings.built_in import BUILT_INS, built_in
from harness.settings.classic_keys import usable
from harness.settings.command_line import ENDPOINTS_PATH, ENV_DIR_PATH, Override, command_line, parse_set
from harness.settings.early_stopping import check_gate, derive_sampling
from harness.settings.endpoint_selection import Layers, RunEndpoints, serve, serving_notices
from harness.settings.endpoints import Registry, load_registry
from harness.settings.environment_lookup import require_environment
from harness.settings.layers import KeyPath, Layer, LayerName, LayerValue, Origin, below, dotted, merge, value_at
from harness.settings.notices import RunDraft, duplicate_run_notices, not_used, refuse_hub_clashes, shadowed
from harness.settings.packages import FoundEnvironment
from harness.settings.paths import path_name
from harness.settings.providers import refuse_default_host, require_provider
from harness.settings.resolved_run import Resolution, ResolvedRun
from harness.settings.schema import BY_FLAT_NAME, BY_PATH, GROUPS, SETTINGS, SHORTCUT_BY_KEY, RunSettings
from harness.settings.sections import Place, Rules, builtins, entry_for, read_section
from harness.settings.suite import ENV_ID, SuiteRequest, read_target
from harness.settings.suite import SuiteEntry as SuiteEntry
from harness.settings.wording import listed, shown_path, suggestion, use_set

__all__ = ["Origin", "Resolution", "ResolvedRun", "missing_keys", "resolve"]

_RANK: tuple[LayerName, ...] = ("builtin", "package", "registry", "cli", "defaults", "eval", "set")
NAME = BY_PATH["env", "name"]
ENV_ARGS = BY_PATH["env", "env_args"]
OUTPUT_DIR = BY_PATH["save", "output_dir"]
_PLACE = ("api_base_url", "api_key_var")
_DERIVED_BOUNDS = (("model", "max_concurrent_generation"), ("model", "max_concurrent_scoring"))
_NEEDS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("hf_hub_dataset_name", "hf_public"), ("save_to_hf_hub",), "nothing is pushed"),
    (("shuffle_seed",), ("shuffle", "gate"), "examples are taken in order"),
    (("margin",), ("gate",), "there is no baseline"),
    (
        ("worker_memory_mb", "worker_vars"),
        ("workers", "isolate", "executor"),
        "no environment runs in a process of its own",
    ),
)
"""Settings that have no effect unless another setting is on: these settings, those that they need, and the reason."""
_NOT_A_DEFAULT = "the default settings of an environment cannot set the environment or the name of a run"
_PACKAGE = Rules(
    "package", groups=("env",), grouped=False, barred={key: _NOT_A_DEFAULT for key in ("env_id", "id", "name")}
)


def resolve(
    target: str,
    flags: Mapping[str, object],
    sets: Sequence[str | Override] = (),
    endpoints_path: str | None = None,
    cwd: Path | None = None,
    registry: Registry | None = None,
    given: Mapping[str, FoundEnvironment] | None = None,
) -> Resolution:
    """Resolve every setting of every run of `target`.

    Args:
        target: A suite file (`.toml`), or environments separated by commas.
        flags: Command-line values by setting key, dotted path or shortcut key; see `command_line.command_line`.
        sets: `--set` texts, each `PATH=VALUE` or `ENV_ID:PATH=VALUE`, or parsed ones.
        endpoints_path: Endpoint registry; default: `configs/endpoints.toml` or `configs/endpoints.py`, if it exists.
        cwd: Base of relative paths; default: the working directory.
        registry: Aliases of models; None reads the registry's file.
        given: Facts about environments that a Python caller has as objects, by name; None for a command.

    Returns:
        The runs, in the order of the file or list, with notices for the user.

    Raises:
        ConfigError: a setting, file or flag is invalid.
        EnvironmentNotFound: an environment is not installed.
    """
    overrides = [each if isinstance(each, Override) else parse_set(each) for each in sets]
    job = _Resolution(target, flags, overrides, endpoints_path, cwd or Path.cwd(), registry, given)
    return job.resolution()


def missing_keys(resolution: Resolution, environ: Mapping[str, str]) -> None:
    """Raise an error before the first call if a key variable is not set, or litellm is needed but not installed.

    Loopback and the reference server need no key.

    Args:
        resolution: The runs.
        environ: Environment variables.

    Raises:
        ConfigError: the message names each missing variable and its runs, or the install command of litellm.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for run in resolution.runs:
        model, origins = run.settings.model, run.origins
        url, key = (LayerValue(("model", name), getattr(model, name), origins[f"model.{name}"]) for name in _PLACE)
        who = f"{origins['model.model'].source}: {model.model}, the model of {run.settings.env.name},"
        remedy = "give the model's URL (api_base_url in a file, or {api_base_url} for all models)"
        refuse_default_host(who, url, key, run.named, remedy)
        for endpoint in run.endpoints:
            require_provider(endpoint.url)
            name = endpoint.key_var
            has_key = endpoint.key or not name or is_loopback_url(endpoint.url)
            if name and not has_key and not environ.get(name, "").strip():
                missing.setdefault((name, endpoint.url), []).append(run.settings.env.name)
    if missing:
        lines = [f"{name} is not set, but {listed(runs)} at {url} needs this API key"
                 for (name, url), runs in missing.items()]  # fmt: skip
        raise ConfigError(
            f"{'; '.join(lines)}.",
            remedy="Export it or put it in .env, name another variable with {api_key_var}, use another endpoint with "
            "{api_base_url}, or try `{model} reference/oracle`, which needs no key",
        )


@dataclass(frozen=True, slots=True)
class _Resolution:
    """State of one call of the function `resolve`."""

    target: str
    flags: Mapping[str, object]
    overrides: Sequence[Override]
    endpoints_path: str | None
    cwd: Path
    known: Registry | None = None
    given: Mapping[str, FoundEnvironment] | None = None

    @property
    def is_call(self) -> bool:
        """Whether a Python program resolves its settings, not a command."""
        return self.given is not None

    @property
    def command(self) -> str:
        """Beginning of messages about environments that no file names: the command, or the argument of the call."""
        return "environments" if self.is_call else COMMANDS["run_command"]

    def resolution(self) -> Resolution:
        cli = command_line(self.flags, is_call=self.is_call)
        suite = read_target(self.target, self.cwd, self.command)
        if NAME.path in cli and len(suite.entries) > 1:
            raise ConfigError(
                Message(
                    "{name} sets the name of one run, but {target} has {count} runs",
                    target=self.target,
                    count=len(suite.entries),
                ),
                remedy="set `name` for each run in a suite file",
            )
        registry, notices = self._registry(suite)
        notices += suite.notes
        self._check_overrides(suite)
        drafts = [self._draft(entry, suite, cli, registry) for entry in suite.entries]
        runs = tuple(draft.run for draft in drafts)
        refuse_hub_clashes(drafts)
        notices += [*shadowed(drafts), *not_used(drafts)]
        notices += [notice for draft in drafts for notice in draft.notices]
        notices += [*duplicate_run_notices(runs), *self._idle_flags(runs)]
        limits, idle = budget.settle(
            budget.read_flags(self.flags, is_call=self.is_call), suite.budget, [o.budget for o in self.overrides]
        )
        return Resolution(runs, tuple(dict.fromkeys([*notices, *idle])), suite.path, limits)

    def _registry(self, suite: SuiteRequest) -> tuple[Registry, list[str]]:
        if self.known is not None:
            return suite.endpoints.over(self.known), []
        typed = self.endpoints_path or cast("str | None", self.flags.get(ENDPOINTS_PATH))
        override = next((each.endpoints_path for each in reversed(self.overrides) if each.endpoints_path), None)
        notices: list[str] = []
        path = self.cwd / override if override else suite.endpoints_path or (self.cwd / typed if typed else None)
        if typed and suite.endpoints_path and not override:
            file = shown_path(cast("Path", suite.path), self.cwd)
            flag = SHORTCUT_BY_KEY[ENDPOINTS_PATH].flag
            notices.append(
                f"{flag} {typed} has no effect: {file} sets endpoints_path; {use_set(ENDPOINTS_PATH, typed)}"
            )
        return suite.endpoints.over(load_registry(path, self.cwd)), notices

    def _registry_of(self, entry: SuiteEntry, suite: SuiteRequest, registry: Registry) -> Registry:
        """Endpoint registry of one run: the file that the run's own table sets, unless `--set` selects another one;
        otherwise the registry of the whole suite."""
        if entry.endpoints_path is None or self.known is not None or any(o.endpoints_path for o in self.overrides):
            return registry
        return suite.endpoints.over(load_registry(entry.endpoints_path, self.cwd))

    def _check_overrides(self, suite: SuiteRequest) -> None:
        names: list[str] = []
        for entry in suite.entries:
            merged = merge(suite.defaults, entry.layer, entry.swept)
            names += sorted(filter(None, _called(merged)))
            for override in self._overrides_for(merged):
                if any(_overlap(path, swept) for path in override.layer for swept in entry.swept):
                    raise ConfigError(
                        f"--set {override.text}: this setting is already varied by {entry.place.of('sweep')}"
                    )
        for override in self.overrides:
            if override.env_id and not any(override.applies_to(name, name) for name in names):
                raise ConfigError(
                    f"--set {override.text}: no run has the environment or name {override.env_id!r}; "
                    f"{suggestion(override.env_id, names)}"
                )

    def _overrides_for(self, merged: Layer) -> list[Override]:
        env_id, name = _called(merged)
        return [override for override in self.overrides if override.applies_to(env_id, name)]

    def _draft(self, entry: SuiteEntry, suite: SuiteRequest, cli: Layer, registry: Registry) -> RunDraft:
        asked = merge(suite.defaults, entry.layer, entry.swept)
        if ENV_ID.path not in asked:
            raise ConfigError(f'{entry.place.of()}: the environment is missing; add env_id = "…" here or in [env]')
        named = asked[ENV_ID.path]
        where = named.origin.source if named.origin.layer != "cli" else self.command
        ours = BUILT_INS.get(str(named.value))
        found = ours.found if ours is not None else (self.given or {}).get(str(named.value))
        found = found or require_environment(str(named.value), where, self.cwd)
        registry = self._registry_of(entry, suite, registry)
        cli, notices = self._with_output_dir(_in_env_dir(cli, entry, found, self.cwd), found)
        package, unused = _package_layer(found, self.cwd)
        override = merge(*(each.layer for each in self._overrides_for(asked)))
        layers = Layers(builtins(), package, cli, suite.defaults, entry.layer, override, entry.swept)
        served = serve(layers, registry)
        run = _run(_derive(served.merged, entry, found), served, found, registry)
        if ours is not None:
            ours.require_rows(run.settings.env.env_args, where)
        notices += [
            *([found.notice] if found.notice else []),
            *unused,
            *serving_notices(served, registry),
        ]
        return RunDraft(run, layers, served, notices, entry.place.of())

    def _with_output_dir(self, cli: Layer, found: FoundEnvironment) -> tuple[Layer, list[str]]:
        """Apply `-p DIR`: results are written to DIR for environments that have a folder there."""
        folder = cast("str | None", self.flags.get(ENV_DIR_PATH))
        if not folder:
            return cli, []
        if not (self.cwd / folder).is_dir():
            raise ConfigError(f"-p {folder}: this folder does not exist")
        if OUTPUT_DIR.path in cli:
            return cli, [f"-p {folder} has no effect: {cli[OUTPUT_DIR.path].origin.source} sets the output folder"]
        inside = Path(folder) / found.module
        if not (self.cwd / inside).is_dir():
            return cli, [f"-p {folder} has no effect on {found.module}: there is no folder {inside}"]
        return {**cli, **entry_for(OUTPUT_DIR, str(inside / "outputs"), Origin("cli", f"-p {folder}"))}, []

    def _idle_flags(self, runs: Sequence[ResolvedRun]) -> list[str]:
        """Return notices about options that have no effect because no run has another setting that they need."""
        notices: list[str] = []
        for keys, needed, why in _NEEDS:
            if any(_is_on(run, needed) for run in runs):
                continue
            for key in keys:
                if (value := self.flags.get(key)) not in (None, False):
                    flag = BY_FLAT_NAME[key].flag + (
                        f" {value}" if isinstance(value, str | int) and value is not True else ""
                    )
                    needs = " or ".join(BY_FLAT_NAME[name].flag for name in needed)
                    notices.append(f"{flag} has no effect: {why} without {needs}")
        return notices


def _is_on(run: ResolvedRun, keys: Sequence[str]) -> bool:
    return any(getattr(getattr(run.settings, BY_FLAT_NAME[key].group), key) for key in keys)


def _called(merged: Layer) -> tuple[str, str]:
    """Return the environment id and the name of a run; `--set NAME:PATH=VALUE` may use either as NAME."""
    env_id = str(merged[ENV_ID.path].value) if ENV_ID.path in merged else ""
    if NAME.path in merged:
        return env_id, str(merged[NAME.path].value)
    if (ours := BUILT_INS.get(env_id)) is not None and below(merged, ENV_ARGS.path):
        return env_id, ours.name_of(cast("dict[str, object]", value_at(merged, ENV_ARGS.path)))
    return env_id, env_id


def _overlap(one: KeyPath, other: KeyPath) -> bool:
    return one[: len(other)] == other[: len(one)]


def _in_env_dir(cli: Layer, entry: SuiteEntry, found: FoundEnvironment, cwd: Path) -> Layer:
    """Add to the layer of flags the output folder that follows from a suite's `env_dir_path`."""
    named = entry.env_dir_path
    if named is None or OUTPUT_DIR.path in cli or not (cwd / str(named.value) / found.module).is_dir():
        return cli
    return {**cli, **entry_for(OUTPUT_DIR, str(Path(str(named.value)) / found.module / "outputs"), named.origin)}


def _package_layer(found: FoundEnvironment, cwd: Path) -> tuple[Layer, list[str]]:
    """Return the layer of a package's defaults, and notices about unknown keys of `[tool.verifiers.eval]`. That table
    was written for another program, so unknown keys are not errors."""
    if found.defaults_source is None:
        return {}, []
    path, _, table = found.defaults_source.rpartition(" [")
    place = Place(shown_path(Path(path), cwd), table.rstrip("]"))
    if place.at.startswith("tool.verifiers."):
        kept, notes = usable(found.defaults, place, _PACKAGE)
        return read_section(kept, place, _PACKAGE), notes
    return read_section(found.defaults, place, _PACKAGE), []


def _derive(merged: Layer, entry: SuiteEntry, found: FoundEnvironment) -> Layer:
    """Add settings whose default is derived from another setting."""
    derived: dict[KeyPath, LayerValue] = dict(merged)
    env_id = merged[ENV_ID.path]
    name = merged.get(NAME.path)
    if name is None:
        called = path_name(found.path) if found.path else env_id.value
        if (ours := built_in(found)) is not None:
            called = ours.name_of(cast("dict[str, object]", value_at(merged, ENV_ARGS.path)))
        name = LayerValue(NAME.path, called, Origin("builtin", "env.env_id"))
    if entry.label:
        name = LayerValue(NAME.path, f"{name.value}[{entry.label}]", Origin("eval", entry.place.of("sweep")))
    derived[NAME.path] = name
    derive_sampling(derived)
    chosen, number = derived["env", "example_ids"], derived["env", "num_examples"]
    if chosen.value and number.origin.layer in ("builtin", "package"):
        source = f"env.example_ids ({chosen.origin.source})"
        derived["env", "num_examples"] = LayerValue(number.path, -1, Origin("builtin", source))
    check_gate(derived)
    bound = merged["model", "max_concurrent"]
    for path in _DERIVED_BOUNDS:
        source = f"model.max_concurrent ({bound.origin.source})"
        derived.setdefault(path, LayerValue(path, bound.value, Origin(bound.origin.layer, source)))
    return derived


def settings_of(merged: Layer) -> tuple[RunSettings, dict[str, Origin]]:
    """Return all settings of merged layers, and the origin of each by its dotted path.

    Raises:
        ConfigError: a table that was merged from several layers is invalid.
    """
    tables: dict[str, dict[str, object]] = {group: {} for group in GROUPS}
    origins: dict[str, Origin] = {}
    for setting in SETTINGS:
        tables[setting.group][setting.key] = value_at(merged, setting.path)
        entries = below(merged, setting.path)
        origins[setting.dotted] = max((entry.origin for entry in entries), key=lambda origin: _RANK.index(origin.layer))
        origins.update((dotted(entry.path), entry.origin) for entry in entries if len(entry.path) > len(setting.path))
    try:
        return RunSettings.model_validate(tables), origins
    except ValidationError as exc:  # only a table merged from several layers can fail here
        error = exc.errors(include_url=False)[0]
        path = ".".join(str(part) for part in error["loc"])
        raise ConfigError(f"{origins[path].source}: {error['msg']}") from None


def _run(merged: Layer, served: RunEndpoints, found: FoundEnvironment, registry: Registry) -> ResolvedRun:
    settings, origins = settings_of(merged)
    attempts, made = max(settings.env.pass_k, default=0), settings.env.rollouts_per_example
    if attempts > made:
        asks, makes = origins["env.pass_k"].source, origins["env.rollouts_per_example"].source
        raise ConfigError(
            f"{asks}: pass@{attempts} needs {attempts} rollouts of each example, but {makes} makes {made}; use a "
            "smaller k or more rollouts"
        )
    if settings.save.save_to_hf_hub and not settings.save.save_results:
        push, keep = origins["save.save_to_hf_hub"].source, origins["save.save_results"].source
        raise ConfigError(
            f"{push} cannot push the run, because {keep} does not save it; remove one of the two settings"
        )
    if settings.save.save_to_hf_hub and settings.save.private:
        push, keep = origins["save.save_to_hf_hub"].source, origins["save.private"].source
        raise ConfigError(
            f"{push} would publish a run that {keep} makes private",
            remedy="remove one of the two settings; a private run can be published later with "
            "`{push_command} RUN {allow_private}`",
        )
    return ResolvedRun(settings, origins, served.endpoints, served.alias, found, registry, served.named)
