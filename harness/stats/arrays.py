"""Conversion of scores and cluster labels to numpy arrays, with validation.

numpy is imported inside functions, since the summary and display of a run do not need it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]
    Numbers: TypeAlias = Sequence[float] | NDArray[np.float64]
    Labels: TypeAlias = Sequence[Hashable] | NDArray[np.int64]


def column(values: Numbers, what: str) -> Floats:
    """Convert `values` to an array.

    Args:
        values: Numbers in one dimension.
        what: Name of the caller, for the error message.

    Raises:
        ValueError: `values` is not one-dimensional, or a value is not finite.
    """
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{what}: needs a one-dimensional array, not one with {array.ndim} dimensions")
    if not np.isfinite(array).all():
        raise ValueError(f"{what}: a value is not finite; omit examples without a score")
    return array


def number_groups(labels: Labels, length: int, what: str) -> tuple[Integers, int]:
    """Replace labels by numbers from 0, in the order of first appearance (for arrays: in ascending order).

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
        raise ValueError(f"{what}: needs one label per value, not {len(labels)} labels for {length} values")
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
