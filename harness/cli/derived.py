"""Implement `bench replay` and `bench rescore`, which derive a new run from a recorded one; and for `bench resume` too:
common options, settings taken from the recorded run, checks for options without effect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness.cli.grouped import argument, command_of, option, switch
from harness.cli.options import SHARED, TRUST_HELP, RunOptions
from harness.cli.stdout import print_notices
from harness.cli.trust import check_trust
from harness.core.errors import EnvironmentNotFound, RunLocked, UsageError
from harness.engine.provenance import IN_PLACE
from harness.report.runs import has_rows
from harness.settings.command_line import Override, command_line, parse_set
from harness.settings.layers import LayerName, LayerValue
from harness.settings.resolver import Origin, Resolution, resolve
from harness.settings.schema import BY_FLAT_NAME, ROLLOUT_LIMITS, SHORTCUT_BY_KEY
from harness.settings.wording import shown_path
from harness.store.atomic import translated
from harness.store.find_runs import find_run
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir
from harness.store.safe_files import read_file

RUN, OUTPUT = "New run", "Output"
GROUPS = (RUN, OUTPUT)
SETTINGS = {RUN: ("endpoints_path", "max_concurrent", *SHARED)}
"""Keys of the settings that are options of all three commands, by help group."""


@dataclass(frozen=True, kw_only=True)
class DerivedOptions(RunOptions):
    """Options of `bench resume`, `replay` and `rescore`."""

    run: str = argument("RUN", "The run: its folder, its id, the beginning of exactly one id, or `latest`.")
    settings: Mapping[str, object]
    """Values of the given options that are settings, by setting key."""
    sets: list[str] | None = option(RUN, "--set PATH=VALUE", "Any other setting of the run; repeatable.")
    trust: bool = switch(RUN, "--trust", TRUST_HELP)
    output_dir: str = option(OUTPUT, "--output-dir -o DIR", "Where the runs are. [default: outputs]", "outputs")
    json: bool = switch(OUTPUT, "--json", "Print the result as JSON on stdout.")
    quiet: bool = switch(OUTPUT, "--quiet -q", "No live display.")
    verbose: bool = switch(OUTPUT, "--verbose -v", "Log in detail, and show tracebacks.")


_BOUNDS = ("max_concurrent", "max_concurrent_generation", "max_concurrent_scoring")
_RECORDED = ("num_examples", "example_ids", "rollouts_per_example", "shuffle", "shuffle_seed")
"""Settings of `env` that select the rollouts: a derived run takes them from the recorded run."""

_LIMITS = (*ROLLOUT_LIMITS, "max_failures")
"""Settings of `env` that limit the calls of a model."""

_OF_JUDGES = (*_BOUNDS, "request_timeout", "request_retries")
"""Settings of `model` that apply even if only judges are called."""

_PATHS = "relative paths start in the working directory, so run the command where the run was made"


def overrides(given: Mapping[str, object]) -> list[Override]:
    """Convert the given options to overrides, which take precedence over recorded settings. Budgets and the endpoint
    registry are not recorded, so they are left out.

    Raises:
        ConfigError: a value is invalid.
    """
    found: list[Override] = []
    for key, value in given.items():
        if key not in SHORTCUT_BY_KEY:
            group, _ = path = BY_FLAT_NAME[key].path
            entry = command_line({key: value})[path]
            keys = _BOUNDS if key == "max_concurrent" else (key,)
            found += [override((group, name), entry.value, entry.origin.source) for name in keys]
    return found


def override(path: tuple[str, str], value: object, source: str) -> Override:
    """Return the override of one setting, with the origin of its value."""
    return Override(source, {path: LayerValue(path, value, Origin("set", source))})


def check_derived(options: DerivedOptions, *, asks_model: bool) -> None:
    """Reject settings that have no effect on a run derived from a recorded run.

    Args:
        options: Options as typed.
        asks_model: Whether a model is called; False if recorded replies are replayed.

    Raises:
        UsageError: a setting has no effect.
    """
    limits = {f"{BY_FLAT_NAME[key].flag} {value}": key for key, value in options.settings.items() if key in _LIMITS}
    typed = {text: ("env", key) for text, key in limits.items()}
    for text in options.sets or ():
        typed |= {f"--set {text}": (path[0], path[1]) for path in parse_set(text).layer}
    for text, (group, key) in typed.items():
        if group == "env" and key in _RECORDED:
            raise UsageError(f"{text} cannot be set here, because the recorded run determines the rollouts")
        if group == "env" and key in _LIMITS and not asks_model:
            raise UsageError(
                f"{text} has no effect, because no model is called: the recorded replies are used, with the "
                "limits of the recorded run"
            )
        if (group, key) == ("model", "model"):
            raise UsageError(f"{text} has no effect here; to call another model, use `bench replay RUN --model`")
        if group == "model" and not asks_model and key not in _OF_JUDGES:
            raise UsageError(f"{text} has no effect, because no model is called: the recorded replies are used")


def found_run(output_dir: str, name: str) -> tuple[RunDir, Manifest]:
    """Find a run by name, check that it can be loaded and is not being written, and return it with its manifest.

    Args:
        output_dir: The output folder.
        name: Name of the run as typed.

    Raises:
        UsageError: no run or several runs match, the run was imported, or its rows exist only in a Python program.
        RunLocked: another process is writing the run.
        StoreError: the settings file is a link, or not a regular file.
    """
    folder = RunDir(find_run(output_dir, name))
    manifest = folder.read_manifest()
    if folder.is_in_use():
        raise RunLocked(f"run {folder.path} is being written by another process; wait until that process ends")
    if manifest.is_imported:
        raise UsageError(
            f"{folder.path} was imported and has no settings, so it cannot be resumed, replayed or rescored"
        )
    if not has_rows(manifest):
        raise UsageError(
            f"{folder.path} was created by a Python program, and its rows exist only in that program, so this command "
            "cannot load them. To resume the run, start the program again with resume=True"
        )
    if not os.path.lexists(folder.config_path):
        raise UsageError(f"{folder.path} lacks config.toml, the file with its settings; restore it from a copy")
    with translated("read", folder.config_path):
        read_file(folder.config_path)  # raises for irregular files, before the settings are parsed
    return folder, manifest


def settings_of(folder: RunDir, options: DerivedOptions, ours: Sequence[Override]) -> Resolution:
    """Resolve the recorded settings of a run, overridden by the requested ones.

    Args:
        folder: The run's folder.
        options: Options as typed.
        ours: Further overrides, of lower precedence than the typed options.

    Raises:
        ConfigError: a setting is invalid.
        EnvironmentNotFound: the environment no longer exists.
    """
    flags = {key: value for key, value in options.settings.items() if key in SHORTCUT_BY_KEY}
    typed = overrides(options.settings)
    try:
        resolution = resolve(str(folder.config_path), flags, [*ours, *typed, *(options.sets or ())])
    except EnvironmentNotFound as error:
        raise EnvironmentNotFound(placed(str(error))) from None
    layers: dict[str, LayerName] = {entry.origin.source: "cli" for each in typed for entry in each.layer.values()}
    layers |= {entry.origin.source: "builtin" for each in ours for entry in each.layer.values()}
    runs = [
        replace(
            run,
            origins={path: replace(at, layer=layers.get(at.source, at.layer)) for path, at in run.origins.items()},
        )
        for run in resolution.runs
    ]
    return replace(resolution, runs=tuple(runs))


def placed(words: str) -> str:
    """Add a hint about relative paths to an error about a missing file of a recorded run."""
    is_missing = any(each in words.lower() for each in ("no such file", "does not exist"))
    return f"{words} ({_PATHS})" if is_missing else words


def of_new_run(folder: RunDir, output_dir: str) -> list[Override]:
    """Return the overrides for a new derived run: it is saved next to the present folder of its parent run, and
    published only on request.

    Args:
        folder: The recorded run's folder.
        output_dir: Output folder in which the recorded run was looked up.
    """
    made = "derived from a recorded run"
    return [
        *in_place(folder, output_dir),
        override(("save", "save_to_hf_hub"), False, made),
        override(("save", "save_results"), True, made),
    ]


def in_place(folder: RunDir, output_dir: str) -> list[Override]:
    """Return the override that keeps a run in its folder, since the recorded path may be relative to another working
    directory."""
    return [override(("save", "output_dir"), home_of(folder, output_dir), IN_PLACE)]


def home_of(folder: RunDir, output_dir: str) -> str:
    """Return the output folder that contains a run; for a run outside of any output folder, `output_dir`."""
    parents = folder.path.parents
    if len(parents) > 2 and parents[1].name == "evals":
        return str(parents[2])
    whole = folder.path.resolve().parents
    return str(whole[2]) if len(whole) > 2 and whole[1].name == "evals" else output_dir


def replay(options: DerivedOptions) -> int:
    """Repeat a recorded run, and compare the new run with it.

    Without --model, the recorded replies are used: no model is called, and no key is needed. With --model, the same
    examples are sent to another model, with the planned number of rollouts. Both make a new run next to the old one.
    """
    given = options.settings
    model = str(given["model"]) if "model" in given else None
    for flag, key in (("-b", "api_base_url"), ("-k", "api_key_var")):
        if key in given and model is None:
            raise UsageError(f"{flag} requires --model: without it no model is called")
    return _derive(options, "replay", model=model)


@dataclass(frozen=True, kw_only=True)
class RescoreOptions(DerivedOptions):
    """Options of `bench rescore`."""

    only: str | None = option(
        RUN,
        "--only unscored|FUNCTION",
        "`unscored`: keep existing scores. Name of a reward function: run that one alone.",
    )

    def check(self) -> None:
        """Reject an empty name.

        Raises:
            UsageError: the name is empty.
        """
        if self.only is not None and not self.only.strip():
            raise UsageError("--only is empty: give `unscored`, or the name of a reward function")


def rescore(options: RescoreOptions) -> int:
    """Score the recorded rollouts of a run with the current rubric, and compare new and old scores.

    Only judges are called. The rollouts are copied unchanged to a new run next to the old one. With --only FUNCTION,
    the recorded values of the other functions are kept.
    """
    return _derive(options, "rescore", only=options.only)


def _derive(
    options: DerivedOptions, how: Literal["replay", "rescore"], *, only: str | None = None, model: str | None = None
) -> int:
    """Derive a new run from the recorded one, and execute it."""
    from harness.cli.derived_view import execute_derived
    from harness.engine.derived import Derivation
    from harness.store.outcomes import read_journal

    check_derived(options, asks_model=model is not None)
    parent, _ = found_run(options.output_dir, options.run)
    resolution = settings_of(parent, options, of_new_run(parent, options.output_dir))
    if model is not None:  # which replaces the recorded model, so that its unused URL and headers need no notice
        recorded = f"{shown_path(parent.config_path, Path.cwd())}: "
        print_notices(notice for notice in resolution.notices if not notice.startswith(recorded))
    is_ours = check_trust(parent, resolution, trusted=options.trust, asks_model=model is not None)
    derivation = Derivation(how, parent, read_journal(parent), only=only, model=model)
    return execute_derived(resolution, replace(options, is_ours=is_ours), derivation)


replay_app = command_of(
    DerivedOptions, replay, GROUPS, settings={RUN: ("model", "api_base_url", "api_key_var", *SETTINGS[RUN])}
)
rescore_app = command_of(RescoreOptions, rescore, GROUPS, settings=SETTINGS)
