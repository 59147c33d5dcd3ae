"""The options `--k` and `--cluster` of commands that read finished runs: the numbers of attempts of pass@k and pass^k,
and the key of the examples' clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from harness.core.errors import UsageError
from harness.settings.checks import as_counts, attempts
from harness.settings.values import names
from harness.store.manifest import Manifest

K_HELP = "Show pass@k and pass^k for these k, such as 1,3,5. [as the run; else 1, 2, 4, …]"

CLUSTER_HELP = (
    "Examples with the same value of this key of their `info` (or `task`) resemble each other; none: they do not. "
    "[as the runs declare]"
)


def attempts_option(text: str | None) -> tuple[int, ...]:
    """Parse the value of `--k`; empty without one.

    Raises:
        UsageError: the text is not a list of different positive integers.
    """
    if text is None:
        return ()
    found = cast("tuple[object, ...]", as_counts(names(text)))
    ks = tuple(k for k in found if isinstance(k, int))
    if not ks or len(ks) < len(found):
        raise UsageError(f"--k {text}: must be numbers of attempts, such as 1,3,5")
    try:
        return attempts(ks)
    except ValueError as error:
        raise UsageError(f"--k {text}: {error}") from None


def check_attempts(ks: Sequence[int], manifests: Iterable[Manifest]) -> None:
    """Check that a run has at least as many rollouts of each example as the largest k.

    Args:
        ks: The numbers of attempts.
        manifests: Manifests of the runs.

    Raises:
        UsageError: no run has so many.
    """
    made = max((each.planned.get("rollouts_per_example", 1) for each in manifests), default=1)
    if max(ks, default=0) > made:
        listed = ",".join(map(str, ks))
        raise UsageError(f"--k {listed}: the runs have at most {made} rollouts of each example; use a k up to {made}")
