"""What a user is told about settings that do not do what they seem to. Owns the search for flags that a file beats and
for runs that look alike; changes no setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.core.errors import ConfigError
from harness.settings.flags import typed
from harness.settings.layers import KeyPath, Layer, LayerValue, dotted, fold
from harness.settings.runs import ResolvedRun
from harness.settings.serving import Layers, LeftOut
from harness.settings.wording import MASK, is_secret_header, listed, shown

_FILE_LAYERS = ("defaults", "eval")


@dataclass(frozen=True, slots=True)
class Shadows:
    """One run, as far as flags and files may disagree about it."""

    name: str
    layers: Layers
    merged: Layer
    swept: Layer
    left_out: Sequence[LeftOut] = ()


def shadowed(runs: Sequence[Shadows]) -> list[str]:
    """One line for every flag that a file beats, naming the runs in which it does."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        for path, entry in run.layers.cli.items():
            winner = _winner(path, entry, run.merged)
            if winner is not None:
                file, _, key = winner.origin.source.partition(": ")
                told = f"{file} sets {key} = {_masked(winner)}"
                instead = "change the sweep" if fold(winner.path) in run.swept else f"use {_instead(entry)}"
                names.setdefault((entry.origin.source, told, instead), []).append(run.name)
    return [
        f"{flag} has no effect on {listed(which)}: {told}; {instead}" for (flag, told, instead), which in names.items()
    ]


def _winner(path: KeyPath, entry: LayerValue, merged: Layer) -> LayerValue | None:
    """The file's entry that stands where the flag's would."""
    for key, other in merged.items():
        if (key[: len(path)] == path or path[: len(key)] == key) and other.origin.layer in _FILE_LAYERS:
            return None if other.value == entry.value or other.value == {} else other
    return None


def not_used(runs: Sequence[Shadows]) -> list[str]:
    """A line for a file's url, key variable or headers that were left out, with the runs in which they were."""
    names: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        reasons: dict[str, list[str]] = {}
        for each in run.left_out:
            reasons.setdefault(each.why, []).append(each.source)
        for why, sources in reasons.items():
            names.setdefault((", ".join(dict.fromkeys(sources)), why), []).append(run.name)
    return [f"{fields} is not used for {listed(which)}: {why}" for (fields, why), which in names.items()]


def _masked(entry: LayerValue) -> str:
    return MASK if _is_secret(entry) else shown(entry.value)


def _is_secret(entry: LayerValue) -> bool:
    return entry.path[:2] == ("model", "extra_headers") and is_secret_header(entry.path[-1])


def _instead(entry: LayerValue) -> str:
    value = "…" if _is_secret(entry) else typed(entry.value)
    return f"--set {dotted(entry.path)}={value}"


def duplicate_run_notices(runs: Sequence[ResolvedRun]) -> list[str]:
    """A line for runs that tables cannot tell apart."""
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        label = (run.settings.env.name, run.settings.model.model)
        counts[label] = counts.get(label, 0) + 1
    return [
        f"{count} runs are called {name!r} with model {model}; give each a `name` to tell them apart"
        for (name, model), count in counts.items()
        if count > 1
    ]


def refuse_hub_clashes(runs: Sequence[ResolvedRun], places: Mapping[int, str]) -> None:
    """Stop when two runs would be the same dataset on the Hub: same repository, same name.

    Args:
        runs: All runs.
        places: What to call each run in the message, by index.

    Raises:
        ConfigError: names both and what to change.
    """
    taken: dict[tuple[str, str], int] = {}
    for index, run in enumerate(runs):
        if not run.settings.save.save_to_hf_hub:
            continue
        env, model = run.settings.env, run.settings.model.model
        repository = run.settings.save.hf_hub_dataset_name or f"{run.env_id}_{model}"
        first = taken.setdefault((repository.casefold(), env.name), index)
        if first != index:
            raise ConfigError(
                f"{places[index]}: would be pushed to the Hub as {env.name!r} in {repository}, like {places[first]}; "
                "give each its own `name` or `hf_hub_dataset_name`"
            )
