"""Settings that end a run early, `until_ci` and `gate`: the defaults that follow from them, and settings that exclude
them."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.errors import ConfigError
from harness.settings.layers import KeyPath, LayerValue, Origin


def derive_sampling(derived: dict[KeyPath, LayerValue]) -> None:
    """Defaults for `until_ci`: all examples once, in random order; explicit settings win."""
    until = derived["env", "until_ci"]
    if until.value is None:
        return
    source = f"env.until_ci ({until.origin.source})"
    for key, value in (("shuffle", True), ("num_examples", -1), ("rollouts_per_example", 1)):
        if derived["env", key].origin.layer in ("builtin", "package"):
            derived["env", key] = LayerValue(("env", key), value, Origin("builtin", source))
    if not derived["env", "shuffle"].value:
        raise ConfigError(
            f"{source} needs examples in random order, but {derived['env', 'shuffle'].origin.source} takes the first "
            "ones; remove one of the two settings"
        )
    _check_scores(derived, source)


def _check_scores(derived: Mapping[KeyPath, LayerValue], source: str) -> None:
    """Raise an error if a setting that needs the scores during a run has them only at its end."""
    if not derived["env", "interleave_scoring"].value:
        raise ConfigError(
            f"{source} needs scores during the run, but "
            f"{derived['env', 'interleave_scoring'].origin.source} scores at the end of the run; remove one "
            "of the two settings"
        )


def check_gate(derived: Mapping[KeyPath, LayerValue]) -> None:
    """Raise an error if a run with a sequential gate lacks a margin, or has a setting that excludes the gate."""
    gate, margin, until = (derived["env", key] for key in ("gate", "margin", "until_ci"))
    if gate.value is None:
        return
    source = f"env.gate ({gate.origin.source})"
    if margin.value is None:
        raise ConfigError(
            f"{source} needs a margin, which is the acceptable loss of mean reward",
            remedy="add {margin}, such as 0.05",
        )
    if until.value is not None:
        raise ConfigError(
            f"{source} and {until.origin.source} are two rules for ending a run early; remove one of the two settings"
        )
    if not derived["save", "save_results"].value:
        kept = derived["save", "save_results"].origin.source
        raise ConfigError(
            f"{source} needs the journal of the run, but {kept} saves none; remove one of the two settings"
        )
    _check_scores(derived, source)
