"""Clusters of a run's examples, as the setting `cluster_key` or the environment declares them."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.messages import Message
from harness.core.records import Example
from harness.envs.environment import Environment
from harness.settings.resolver import ResolvedRun
from harness.store.clusters import ClusterLabels


def declared_clusters(
    resolved: ResolvedRun, environment: Environment, examples: Iterable[Example], *, is_derived: bool
) -> tuple[str, dict[int, str]]:
    """Return the key of the clusters of a run, and the label of each example by its index; "" and no labels without
    clusters.

    Args:
        resolved: Settings of the run.
        environment: Its environment.
        examples: The planned examples; read only if there is a key.
        is_derived: Whether the run is made from a recorded one, whose examples may lack a key that was declared later.

    Raises:
        ConfigError: no example has the key of the setting, or the run would stop early, which assumes independent
            examples.
        EnvironmentFault: no example has the key of the environment, or that is not a string.
    """
    key, source = resolved.settings.env.cluster_key, resolved.origins["env.cluster_key"].source
    if key is None:
        key, source = environment.cluster_key, f"cluster_key of {resolved.env_id}"
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - assigned by an author's code
            raise EnvironmentFault(f"{source} must be a string, not {key!r}")
    if not key:
        return "", {}
    for name in ("until_ci", "gate"):
        if is_derived or getattr(resolved.settings.env, name) is None:
            continue
        words = Message(
            "{rule} assumes that examples are independent, but by {source} those with the same {key} resemble each "
            "other",
            rule=resolved.origins[f"env.{name}"].source,
            source=source,
            key=key,
        )
        raise ConfigError(words, remedy=f"remove {{{name}}}, or add {{cluster_key}}=none")
    labels = ClusterLabels(key)
    found = {example.index: labels.add(example, example.key) for example in examples}
    if not is_derived and (fault := labels.fault(resolved.env_id)):
        kind = EnvironmentFault if resolved.settings.env.cluster_key is None else ConfigError
        raise kind(f"{source}: {fault}")
    return key, found
