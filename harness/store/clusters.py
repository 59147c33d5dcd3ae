"""Clusters of a run's examples, by a key of their `info` or by `task`. The key is declared once, by the environment or
a setting, and recorded in the manifest; every number of the run then uses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from harness.core.errors import UsageError
from harness.core.messages import Message
from harness.core.records import Example, Row
from harness.settings.wording import listed, nearest
from harness.stats.summary import Clusters
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest

TASK = "task"
"""Key that stands for the example's task instead of a key of its `info`."""

NO_KEY = frozenset({"", "none"})
"""Values of an option that mean no clusters."""


def label_of(example: Example | Row, key: str) -> str | None:
    """Label of an example's cluster; None if the example does not have the key, or has no value for it.

    Args:
        example: The example.
        key: `task`, a key of `info`, or a path such as `source.document` in nested tables of `info`.
    """
    if key == TASK:
        return example.task or None
    value: object = example.info
    for part in [key] if key in example.info else key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, object]", value).get(part)
    return None if value is None else str(value)


class ClusterLabels:
    """Labels of examples, one after the other; an example without the key is a cluster of its own.

    Args:
        key: As in `label_of`.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.alone = 0
        """Number of examples without the key so far."""
        self.count = 0
        """Number of examples so far."""
        self._names: dict[str, None] = {}

    def add(self, example: Example | Row, own: str) -> str:
        """Return the label of the next example.

        Args:
            example: The example.
            own: A text that no other example has, from which the label is made if the example has no key.
        """
        self.count += 1
        label = label_of(example, self.key)
        if label is not None:
            return label
        self.alone += 1
        if len(self._names) < 100:  # for the message; names of a hostile run have no end
            self._names.update(dict.fromkeys([*([TASK] if example.task else []), *example.info]))
        return f"\0{own}"

    def fault(self, where: str) -> str:
        """Return that no example has the key, and which keys there are; "" if an example has it.

        Args:
            where: The run or the environment, for the message.
        """
        if self.alone < self.count or not self.count:
            return ""
        near, names = nearest(self.key, list(self._names)), listed(list(self._names))
        guess = f"did you mean {near!r}? " if near else ""
        has = f"its examples have {names}" if self._names else "its examples have neither info nor task"
        return f"no example of {where} has {self.key!r} in its info; {guess}{has}"


def clusters_of(recorded: Recorded, key: str, source: str = "") -> Clusters | None:
    """Clusters of the examples in a journal; None if there is no key.

    Args:
        recorded: The journal's content.
        key: As in `label_of`; "" for no clusters.
        source: The option by which a user chose the key, for the message; "" if it was declared, so that a run in which
            no example with the key has been recorded yet can be read.

    Raises:
        UsageError: no example has the key that a user chose.
        StoreError: the journal cannot be read.
    """
    if not key:
        return None
    labels, found = ClusterLabels(key), dict[int, str]()
    for example in recorded.examples() if recorded.example_count else ():
        found[recorded.example_index(example.key) or 0] = labels.add(example, example.key)
    if source and (fault := labels.fault(recorded.path.parent.name)):
        raise UsageError(f"{source}: {fault}")
    return Clusters(key, found, labels.alone)


def chosen_key(option: str | None) -> str | None:
    """The key that an option gives: None without the option, "" if it switches clusters off."""
    return "" if option is not None and option.lower() in NO_KEY else option


def shared_key(manifests: Iterable[Manifest], option: str | None = None) -> str:
    """The key by which runs are compared: that of the option, else the one that any of them declares; "" for none.

    Args:
        manifests: Manifests of runs of one environment.
        option: Value of `--cluster`; None if it was not given.

    Raises:
        UsageError: the runs declare different keys.
    """
    if (chosen := chosen_key(option)) is not None:
        return chosen
    declared: dict[str, str] = {}
    for manifest in manifests:
        if manifest.cluster_key:
            declared.setdefault(manifest.cluster_key, manifest.id)
    if len(declared) > 1:
        words = " and ".join(f"{key!r} ({run})" for key, run in declared.items())
        raise UsageError(
            Message("the runs declare different clusters: {words}; choose one with {cluster} KEY", words=words)
        )
    return next(iter(declared), "")


def cluster_words(clusters: Clusters) -> str:
    """Sentence about the clusters of a run, without a full stop."""
    count = len({*clusters.labels.values()})
    words = (
        f"{count:,} {'cluster' if count == 1 else 'clusters'} of {len(clusters.labels):,} examples, by {clusters.key}"
    )
    if clusters.alone:
        is_one = clusters.alone == 1
        words += f"; {clusters.alone:,} {'example has' if is_one else 'examples have'} no {clusters.key} and "
        words += "is a cluster of its own" if is_one else "are clusters of their own"
    return words
