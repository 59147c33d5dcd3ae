"""Conversion of scores to numpy arrays: validation, numbering of groups, and reduction of rollouts to one value per
example.

numpy is imported inside functions, since the summary and display of a run do not need it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]
    Numbers: TypeAlias = Sequence[float] | NDArray[np.float64]
    Labels: TypeAlias = Sequence[Hashable] | NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """Rollouts reduced to examples: one entry per example with at least one value, in ascending order of `index`."""

    index: Integers
    """Number of the example."""
    means: Floats
    """Mean of the example's values."""
    counts: Integers
    """Number of the example's values; at least 1."""
    variances: Floats
    """Sample variance of the example's values (ddof = 1); NaN for a single value."""


def column(values: Numbers, what: str) -> Floats:
    """Convert `values` to an array.

    Args:
        values: One-dimensional.
        what: Name of the caller, for the error message.

    Raises:
        ValueError: not one-dimensional, or a value is not finite.
    """
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{what}: needs one row of numbers, got {array.ndim} dimensions")
    if not np.isfinite(array).all():
        raise ValueError(f"{what}: a value is not finite; leave out what has no score")
    return array


def number_groups(labels: Labels, length: int, what: str) -> tuple[Integers, int]:
    """Number labels from 0, in the order of first appearance (arrays: in ascending order).

    Args:
        labels: One label per value.
        length: Expected number of labels.
        what: Name of the caller, for the error message.

    Returns:
        One number per label, and the number of distinct labels.

    Raises:
        ValueError: the number of labels is not `length`.
    """
    import numpy as np

    if len(labels) != length:
        raise ValueError(f"{what}: {len(labels)} labels for {length} values")
    if isinstance(labels, np.ndarray):
        unique, codes = np.unique(labels, return_inverse=True)
        return codes.astype(np.int64), len(unique)
    known: dict[Hashable, int] = {}
    codes = np.fromiter((known.setdefault(label, len(known)) for label in labels), np.int64, length)
    return codes, len(known)


def sums_of(values: Floats, codes: Integers, groups: int) -> Floats:
    """Sum the values of each group.

    Args:
        values: Values of all groups.
        codes: Group of each value, from `number_groups`.
        groups: Number of groups.
    """
    import numpy as np

    return np.bincount(codes, weights=values, minlength=groups).astype(np.float64, copy=False)


def reduce_rollouts(values: Numbers, examples: Sequence[int] | Integers) -> Reduced:
    """Reduce each example to the mean and variance of its values.

    Args:
        values: One value per rollout; NaN for unscored rollouts, which are ignored.
        examples: Example number of each value, at least 0.

    Raises:
        ValueError: the lengths differ, a value is infinite, or an example number is negative.
    """
    import numpy as np

    array, owner = np.asarray(values, dtype=np.float64), np.asarray(examples, dtype=np.int64)
    if array.shape != owner.shape or array.ndim != 1:
        raise ValueError(f"reduce_rollouts: {array.shape} values of {owner.shape} examples")
    if np.isinf(array).any() or (owner.size and owner.min() < 0):
        raise ValueError("reduce_rollouts: a value is infinite, or an example's number is below 0")
    scored = ~np.isnan(array)
    array, owner = array[scored], owner[scored]
    counts = np.bincount(owner)
    (index,) = np.nonzero(counts)
    sums = np.bincount(owner, weights=array)
    means = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
    squares = np.bincount(owner, weights=(array - means[owner]) ** 2)
    counts = counts[index].astype(np.int64)
    variances = np.divide(squares[index], counts - 1, out=np.full(len(index), np.nan), where=counts > 1)
    return Reduced(index.astype(np.int64), means[index], counts, variances)


def reduce_groups(groups: Iterable[Sequence[float]]) -> Reduced:
    """Reduce lists of values, one per example, to means and variances; examples without a value are ignored."""
    import numpy as np

    kept = list(groups)
    lengths = np.fromiter((len(group) for group in kept), np.int64, len(kept))
    values = np.fromiter((value for group in kept for value in group), np.float64, int(lengths.sum()))
    return reduce_rollouts(values, np.repeat(np.arange(len(kept), dtype=np.int64), lengths))
