"""Find the baseline of a run with a sequential gate, check that both have the same examples, and read the baseline's
scores. `stats.paired_target` decides when the run may end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.errors import ConfigError, UsageError
from harness.core.messages import Message
from harness.core.types import JsonDict
from harness.engine.plan import PlannedRollouts, gate_seed
from harness.engine.privacy import stay_private
from harness.settings.resolver import ResolvedRun
from harness.stats.target import finite_limits, mean_within
from harness.store.find_runs import choose
from harness.store.manifest import Manifest
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of

LEAST_COMMON = 0.98
"""Minimum share of the examples that both runs must have, and of the baseline's rollouts that must have a score."""


def with_gate(resolved: ResolvedRun, manifest: Manifest, rollouts: PlannedRollouts) -> tuple[ResolvedRun, Manifest]:
    """Return the settings and the manifest of a run with a sequential gate, which then name the baseline's folder and
    contain its scores. Both are private if the baseline is.

    Args:
        resolved: The run's settings.
        manifest: Manifest created from these settings.
        rollouts: The run's plan.

    Raises:
        UsageError: the baseline is unknown or cannot be compared with the run.
        ConfigError: the rewards have no range, or the margin is too large.
        StoreError: the baseline cannot be read.
    """
    env, origins = resolved.settings.env, resolved.origins
    assert env.gate is not None and env.margin is not None, "the resolver checks both"
    limits = finite_limits(manifest.reward_range)
    if limits is None:
        raise ConfigError(
            f"{origins['env.gate'].source}: rewards of {resolved.env_id} have no range, so it cannot be decided early "
            "whether a run is worse",
            remedy="pass reward_range=(lowest, highest) to the environment's Rubric, or run without {gate} and compare "
            "the whole runs",
        )
    low, high = limits
    if env.margin >= high - low:
        raise ConfigError(
            f"{origins['env.margin'].source}: rewards of {resolved.env_id} lie between {low:g} and {high:g}, so no two "
            "runs differ by more; give a value in units of the reward, such as 0.01"
        )
    folder, its = _baseline_of(resolved, env.gate)
    scores = _scores(folder, its, resolved, limits, list(rollouts.example_keys()))
    found = folder.path.resolve()
    resolved, manifest = stay_private(resolved, manifest, folder)
    settings = resolved.settings.model_copy(update={"env": env.model_copy(update={"gate": str(found)})})
    gate: JsonDict = {
        "baseline": its.id,
        "path": str(found),
        "model": its.model,
        "margin": env.margin,
        "order": gate_seed(resolved, manifest.identity),
        "scores": scores,
    }
    recorded = {**manifest.settings, "env.gate": str(found)}
    return replace(resolved, settings=settings), replace(manifest, settings=recorded, gate=gate)


def _baseline_of(resolved: ResolvedRun, name: str) -> tuple[RunDir, Manifest]:
    """Find the baseline: the named run, or the run of the named suite with the same name as this run and, if there are
    several, the same model."""
    # A recorded path may be of a folder that was moved: its last part is the id.
    sought = name if os.path.sep not in name or os.path.exists(name) else os.path.basename(name.rstrip(os.path.sep))
    source = resolved.origins["env.gate"].source
    try:
        chosen = choose(Path(resolved.settings.save.output_dir), [sought])
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    runs = [(RunDir(path), RunDir(path).read_manifest()) for path in chosen.runs]
    if len(runs) == 1:
        return runs[0]
    mine = resolved.settings.env.name
    named = [each for each in runs if (each[1].name or each[1].env_id) == mine]
    alike = [each for each in named if each[1].model == resolved.settings.model.model] if len(named) > 1 else named
    if len(alike) != 1:
        count = f"{len(named)} runs" if named else "no run"
        raise UsageError(f"{source}: {sought} has {count} called {mine!r}; name the run to compare {mine} with")
    return alike[0]


def _scores(
    folder: RunDir, its: Manifest, resolved: ResolvedRun, limits: tuple[float, float], keys: Sequence[str]
) -> list[object]:
    """Return the baseline's mean of each planned example: a number or, where scores are missing, the lowest and highest
    possible mean."""
    source, mine = resolved.origins["env.gate"].source, resolved.settings.env.name
    recorded = read_journal(folder)
    if summary_of(its, recorded).target is not None:
        raise UsageError(
            f"{source}: {folder.path} ended early, but a baseline needs the scores of all its examples",
            remedy="repeat it without early stopping, or name another run",
        )
    planned = max(1, its.planned.get("rollouts_per_example", 1))
    values: dict[str, list[float]] = {}
    for outcome in outcomes(recorded):
        cell = values.setdefault(outcome.example.key, [])
        if outcome.reward is not None:
            cell.append(outcome.reward)
    examples = max(len(values), its.planned.get("num_examples", 0))
    common = [key for key in keys if key in values]
    if values and not common and its.env_id != resolved.env_id:
        raise UsageError(f"{source}: {folder.path} is a run of {its.env_id}, but {mine} is one of {resolved.env_id}")
    scored = sum(map(len, values.values()))
    if scored < LEAST_COMMON * examples * planned:
        raise UsageError(
            Message(
                "{source}: {scored} of the {all} rollouts of the baseline {path} have a score, but a gate requires "
                "{least:.0%}",
                source=source, scored=f"{scored:,}", all=f"{examples * planned:,}", path=folder.path,
                least=LEAST_COMMON,
            ),
            remedy="complete it: {resume_command} RUN {retry_failed}",
        )  # fmt: skip
    if len(common) < LEAST_COMMON * max(examples, len(keys)):
        raise UsageError(
            f"{source}: {mine} would have {len(keys):,} examples and the baseline {folder.path} has {examples:,}, but "
            f"only {len(common):,} are the same",
            remedy="use the settings of the baseline: {num_examples}, {example_ids}, {shuffle}, {shuffle_seed} and "
            "{env_args}",
        )
    low, high = _widened(limits, values.values())
    found: list[object] = []
    for key in keys:
        known = values.get(key, [])
        lack = max(0, planned - len(known))
        ends = [mean_within([*known, *[end] * lack], (low, high)) for end in (low, high)]
        found.append(ends if lack else ends[0])
    return found


def _widened(limits: tuple[float, float], values: Iterable[Sequence[float]]) -> tuple[float, float]:
    seen = [value for each in values for value in each]
    return min([limits[0], *seen]), max([limits[1], *seen])
