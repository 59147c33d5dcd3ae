"""Settings of a resumed, replayed or rescored run, made from a recorded run: the commands' common options, the recorded
settings that do not apply, and the notices about runs that cannot be loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeAlias, cast

import typer

from harness.core.errors import EnvironmentNotFound, RunLocked, UsageError
from harness.engine.provenance import IN_PLACE
from harness.settings.built_in import BUILT_INS
from harness.settings.flags import parse_set, typed
from harness.settings.resolver import Origin, Resolution, ResolvedRun, resolve
from harness.settings.wording import shown_path
from harness.store.atomic import translated
from harness.store.finding import find_run
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir
from harness.store.safe_files import read_file

RunName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The run: its folder, its id, the beginning of exactly one id, or `latest`."),
]
Concurrent: TypeAlias = Annotated[
    int | None, typer.Option("--max-concurrent", "-c", metavar="N", min=-1, help="Rollouts in flight; -1 is unlimited.")
]
Registry: TypeAlias = Annotated[
    str | None, typer.Option("--endpoints-path", "-e", metavar="PATH", help="Endpoint registry, for what aliases mean.")
]
KeyVar: TypeAlias = Annotated[
    str | None, typer.Option("--api-key-var", "-k", metavar="NAME", help="Environment variable that holds the key.")
]
Sets: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Any other setting of the new run; repeatable.")
]
OutputDir: TypeAlias = Annotated[str, typer.Option("--output-dir", "-o", metavar="DIR", help="Where the runs are.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
MaxCost: TypeAlias = Annotated[
    str | None, typer.Option("--max-cost", metavar="USD", help="Dollars to spend; what earlier attempts spent counts.")
]
MaxTokensTotal: TypeAlias = Annotated[
    str | None, typer.Option("--max-tokens-total", metavar="N", help="Tokens to use, with those of earlier attempts.")
]
MaxTime: TypeAlias = Annotated[
    str | None, typer.Option("--max-time", metavar="DURATION", help="Time to take from now, such as 90s or 1h30m.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No live display.")]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Log in detail, and show tracebacks.")]

_BOUNDS = ("max_concurrent", "max_concurrent_generation", "max_concurrent_scoring")
_RECORDED = ("num_examples", "rollouts_per_example", "shuffle", "shuffle_seed")
"""Settings of `env` that select the rollouts: a derived run takes them from the recorded run."""

_LIMITS = ("message_limit", "token_limit", "max_failures")
"""Settings of `env` that limit the calls of a model."""

_OF_JUDGES = (*_BOUNDS, "request_timeout", "request_retries")
"""Settings of `model` that apply even if only judges are called."""

_PATHS = "relative paths begin in the folder where the command is typed, so type it where the run was made"


@dataclass(frozen=True, slots=True)
class DerivedRequest:
    """Typed settings of a derived run."""

    model: str | None = None
    base_url: str | None = None
    key_var: str | None = None
    registry: str | None = None
    max_concurrent: int | None = None
    sets: Sequence[str] = ()
    budget: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Budget flags by setting key."""

    def flags(self) -> dict[str, Origin]:
        """The flags in the form of `--set` (which overrides recorded values), each with the typed option as its
        origin."""
        named = (
            ("model.model", "-m", self.model),
            ("model.api_base_url", "-b", self.base_url),
            ("model.api_key_var", "-k", self.key_var),
        )
        texts = {
            f"{path}={_text(value)}": Origin("cli", f"{flag} {typed(value)}")
            for path, flag, value in named
            if value is not None
        }
        if self.max_concurrent is not None:
            if self.max_concurrent == 0:
                raise UsageError("-c 0: must be 1 or more, or -1 for no bound")
            origin = Origin("cli", f"-c {self.max_concurrent}")
            texts |= {f"model.{bound}={self.max_concurrent}": origin for bound in _BOUNDS}
        return texts


def check_derived(sets: Sequence[str], *, asks_model: bool) -> None:
    """Reject settings that have no effect on a run derived from a recorded run.

    Args:
        sets: `--set` texts as typed.
        asks_model: Whether a model is called; False if recorded replies are replayed.

    Raises:
        UsageError: a setting has no effect.
    """
    for text in sets:
        for group, key, *_ in parse_set(text).layer:
            if group == "env" and key in _RECORDED:
                raise UsageError(f"--set {text}: the examples and rollouts are those of the recorded run")
            if group == "env" and key in _LIMITS and not asks_model:
                raise UsageError(f"--set {text}: no model is asked; limits end rollouts where the recorded ones ended")
            if (group, key) == ("model", "model"):
                raise UsageError(f"--set {text}: another model is asked with `bench replay RUN --model`")
            if group == "model" and not asks_model and key not in _OF_JUDGES:
                raise UsageError(f"--set {text}: no model is asked; the replies are the recorded ones")


def found_run(output_dir: str, name: str) -> tuple[RunDir, Manifest]:
    """Find a named run that can be loaded from its folder and is not being written, with its manifest.

    Args:
        output_dir: The output folder.
        name: Name of the run as typed.

    Raises:
        UsageError: no run or several runs match, or the run's rows exist only in a Python program.
        RunLocked: another process is writing the run.
        StoreError: the settings file is a link, or no regular file.
    """
    folder = RunDir(find_run(output_dir, name))
    manifest = folder.read_manifest()
    _check_free(folder)
    _check_rows(folder, manifest)
    if not os.path.lexists(folder.config_path):
        raise UsageError(f"{folder.path} has no config.toml, which says how to load it; restore it from a copy")
    with translated("read", folder.config_path):
        read_file(folder.config_path)  # raises for irregular files, before the settings are parsed
    return folder, manifest


def settings_of(folder: RunDir, asked: DerivedRequest, ours: Mapping[str, Origin]) -> Resolution:
    """Resolve the recorded settings of a run, overridden by the requested ones.

    Args:
        folder: The run's folder.
        asked: Typed settings of the command.
        ours: Further `--set` texts with their origins; typed ones override them.

    Raises:
        ConfigError: a setting is invalid.
        EnvironmentNotFound: the environment no longer exists.
    """
    flags = {"endpoints_path": asked.registry, **asked.budget}
    texts = {**ours, **asked.flags()}
    try:
        resolution = resolve(str(folder.config_path), flags, [*texts, *asked.sets])
    except EnvironmentNotFound as error:
        raise EnvironmentNotFound(placed(str(error))) from None
    truly = {f"--set {text}": origin for text, origin in texts.items() if text not in asked.sets}
    return replace(resolution, runs=tuple(_told(run, truly) for run in resolution.runs))


def _told(run: ResolvedRun, truly: Mapping[str, Origin]) -> ResolvedRun:
    """Replace the origin `--set` of settings that were not typed by their real origin."""
    return replace(run, origins={path: truly.get(each.source, each) for path, each in run.origins.items()})


def notices_of(folder: RunDir, resolution: Resolution) -> list[str]:
    """Notices about these settings. A replaced model needs no notice that the recorded URL and headers are unused,
    since the user asked for the other model.

    Args:
        folder: The run's folder.
        resolution: Result of `settings_of`.
    """
    recorded = f"{shown_path(folder.config_path, Path.cwd())}: "
    return [notice for notice in resolution.notices if not notice.startswith(recorded)]


def placed(words: str) -> str:
    """Extend the message about a missing file of a recorded run by the place where it was searched."""
    return f"{words} ({_PATHS})" if "no such file" in words.lower() else words


def of_new_run(folder: RunDir, output_dir: str) -> dict[str, Origin]:
    """Settings of a new derived run: saved beside its parent, at the parent's present location, and not published
    unless requested.

    Args:
        folder: The recorded run's folder.
        output_dir: Output folder in which the run was searched.
    """
    return {
        **in_place(folder, output_dir),
        "save.save_to_hf_hub=false": Origin("builtin", "made of a recorded run"),
        "save.save_results=true": Origin("builtin", "made of a recorded run"),
    }


def in_place(folder: RunDir, output_dir: str) -> dict[str, Origin]:
    """`--set` text that keeps a run in its folder, since the recorded path may be relative to another working
    directory."""
    return {f"save.output_dir={_text(home_of(folder, output_dir))}": Origin("builtin", IN_PLACE)}


def home_of(folder: RunDir, output_dir: str) -> str:
    """Output folder of a run; for a run outside of any, the folder in which it was searched."""
    parents = folder.path.parents
    if len(parents) > 2 and parents[1].name == "evals":
        return str(parents[2])
    whole = folder.path.resolve().parents
    return str(whole[2]) if len(whole) > 2 and whole[1].name == "evals" else output_dir


def _check_free(folder: RunDir) -> None:
    if folder.is_in_use():
        raise RunLocked(f"run {folder.path} is being written by another process; wait until it ends")


def _check_rows(folder: RunDir, manifest: Manifest) -> None:
    ours = BUILT_INS.get(str(manifest.settings.get("env.env_id", "")))
    arguments = cast("dict[str, object]", manifest.settings.get("env.env_args") or {})
    if ours is not None and not ours.has_rows(arguments):
        raise UsageError(
            f"{folder.path} was made by a Python program, and what it evaluates is in that program: no command can "
            "load it. Run the program again; with resume=True it goes on with this run"
        )


def _text(value: str) -> str:
    """Quote a text for `--set` if it would parse as something else."""
    return json.dumps(value, ensure_ascii=False) if value[:1] in ("[", "{", '"', "'", "") else value
