"""Notices about settings without effect, and about runs with the same name and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback_url
from harness.settings.command_line import typed
from harness.settings.endpoint_selection import Layers, RunEndpoints
from harness.settings.layers import KeyPath, Layer, LayerValue, dotted, fold
from harness.settings.resolved_run import ResolvedRun
from harness.settings.wording import MASK, is_secret_header, listed, shown, use_set

_FILE_LAYERS = ("defaults", "eval")


@dataclass(frozen=True, slots=True)
class RunDraft:
    """A resolved run, with its notices and with data from which more notices are computed."""

    run: ResolvedRun
    layers: Layers
    served: RunEndpoints
    notices: list[str]
    place: str
    """Location of the run in the suite file, for messages."""

    @property
    def name(self) -> str:
        """Name of the run in tables."""
        return self.run.settings.env.name


def shadowed(runs: Sequence[RunDraft]) -> list[str]:
    """Return notices about command-line options that a suite file overrides, with the names of the affected runs."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        for path, entry in run.layers.cli.items():
            winner = _winner(path, entry, run.served.asked)
            if winner is not None:
                file, _, key = winner.origin.source.partition(": ")
                why = f"{file} sets {key} = {MASK if _is_secret(winner) else shown(winner.value)}"
                instead = "change the sweep" if fold(winner.path) in run.layers.swept else _instead(entry)
                names.setdefault((entry.origin.source, why, instead), []).append(run.name)
    return [
        f"{flag} has no effect on {listed(which)}: {why}; {instead}" for (flag, why, instead), which in names.items()
    ]


def _winner(path: KeyPath, entry: LayerValue, merged: Layer) -> LayerValue | None:
    """Return the value in a suite file that overrides a command-line option; None if the option applies.

    Args:
        path: Path of the option's setting.
        entry: Value of the option.
        merged: Merged settings of the run.
    """
    for key, other in merged.items():
        if (key[: len(path)] == path or path[: len(key)] == key) and other.origin.layer in _FILE_LAYERS:
            return None if other.value == entry.value or other.value == {} else other
    return None


def not_used(runs: Sequence[RunDraft]) -> list[str]:
    """Return notices about URLs, key variables and headers in files that are not used, with the affected runs."""
    names: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        reasons: dict[str, list[str]] = {}
        for each in run.served.left_out:
            reasons.setdefault(each.why, []).append(each.source)
        for why, sources in reasons.items():
            names.setdefault((", ".join(dict.fromkeys(sources)), why), []).append(run.name)
    return [f"{fields} is not used for {listed(which)}: {why}" for (fields, why), which in names.items()]


def unset_key_notices(runs: Sequence[ResolvedRun], environ: Mapping[str, str]) -> list[str]:
    """Notices about servers of this machine that get no API key because its variable is not set, each with the setting
    that names the variable. Other hosts are refused without a key."""
    notices: dict[str, None] = {}
    for run in runs:
        source = run.origins["model.api_key_var"].source
        for endpoint in run.endpoints:
            name = endpoint.key_var
            if name and not endpoint.key and is_loopback_url(endpoint.url) and not environ.get(name, "").strip():
                notices[f"{source}: {name} is not set, so no API key is sent to {endpoint.url}"] = None
    return list(notices)


def _is_secret(entry: LayerValue) -> bool:
    return entry.path[:2] == ("model", "extra_headers") and is_secret_header(entry.path[-1])


def _instead(entry: LayerValue) -> str:
    value = "…" if _is_secret(entry) else typed(entry.value)
    return use_set(dotted(entry.path), value)


def duplicate_run_notices(runs: Sequence[ResolvedRun]) -> list[str]:
    """Return notices about runs with the same name and model, which cannot be distinguished in tables."""
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        label = (run.settings.env.name, run.settings.model.model)
        counts[label] = counts.get(label, 0) + 1
    return [
        f"{count} runs have the name {name!r} and the model {model}; give each a unique `name`"
        for (name, model), count in counts.items()
        if count > 1
    ]


def refuse_hub_clashes(drafts: Sequence[RunDraft]) -> None:
    """Raise an error if two runs would be pushed to the same Hub repository under the same name.

    Raises:
        ConfigError: the message names both runs and a remedy.
    """
    taken: dict[tuple[str, str], RunDraft] = {}
    for draft in drafts:
        settings = draft.run.settings
        if not settings.save.save_to_hf_hub:
            continue
        repository = settings.save.hf_hub_dataset_name or f"{draft.run.env_id}_{settings.model.model}"
        first = taken.setdefault((repository.casefold(), draft.name), draft)
        if first is not draft:
            raise ConfigError(
                f"{draft.place}: would be pushed to the Hub as {draft.name!r} in {repository}, like {first.place}; "
                "give each its own `name` or `hf_hub_dataset_name`"
            )
