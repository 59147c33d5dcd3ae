"""Small subsets of examples that rank models as all examples do, with their error on models that had no part in the
choice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from harness.stats.bootstrap import SEED
from harness.stats.items import item_rest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.stats.arrays import Floats, Integers

LEAST_MODELS = 4
"""Minimum number of models: three choose the examples and fit the line, and one is left out."""

MOST_FOLDS = 10
"""Maximum number of groups of models, of which each is left out once."""

CLEAR = 2.0
"""Number of standard errors by which two models clearly differ."""

TOLERATED = 0.05
"""Share of clear pairs that a sufficient subset may miss."""

RANDOM_DRAWS = 10
"""Number of random subsets of each size, for comparison."""

Choice: TypeAlias = Literal["discriminating", "even"]
"""How examples are chosen. They are sorted by difficulty and cut into parts of equal size. Of each part one is taken:
`discriminating` takes the one with the highest item-rest correlation, leaving out examples on which all models are
equal, and is better with many models; `even` takes the one in the middle, and is better with few."""

CHOICES: tuple[Choice, ...] = get_args(Choice)

_STEPS = (1, 1.5, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class SubsetError:
    """Error of subsets of one size, on models that were left out of their choice."""

    size: int
    choice: Choice
    """The better of the two ways to choose."""
    tau: float | None
    """Kendall's rank correlation over pairs of a left-out model and another one; None if no pair differs."""
    clear: int
    """Number of such pairs that differ by more than two standard errors on all examples."""
    missed: int
    """Number of clear pairs that have the opposite order, or are equal, in the subset."""
    error: float
    """Root mean square error of the score on all examples, predicted from that of the subset."""
    random_tau: float | None
    """`tau` of random subsets of the same size."""
    random_error: float

    @property
    def is_sufficient(self) -> bool:
        """Whether at most one clear pair in twenty is missed."""
        return self.clear > 0 and self.missed <= TOLERATED * self.clear


@dataclass(frozen=True, slots=True)
class Line:
    """Prediction of the score on all examples from that of a subset: intercept + slope · score."""

    intercept: float
    slope: float


def subset_of(means: Floats, size: int, choice: Choice) -> Integers:
    """Choose examples.

    Args:
        means: Mean score of each model (row) on each example (column), without missing cells.
        size: Number of examples.
        choice: How to choose.

    Returns:
        Column numbers, ascending.
    """
    return next(_chosen(means, [size], choice))


def fit_line(part: Floats, whole: Floats) -> Line:
    """Fit the line that predicts scores on all examples from those on some, by least squares.

    Args:
        part: Score of each model on some examples.
        whole: Score of each model on all examples.
    """
    spread = float(((part - part.mean()) ** 2).sum())
    slope = float(((part - part.mean()) * (whole - whole.mean())).sum()) / spread if spread > 1e-12 else 0.0
    return Line(float(whole.mean()) - slope * float(part.mean()), slope)


def sizes_below(examples: int) -> list[int]:
    """The sizes that are tried: 5, 10, 15, 20, 30, 40, 60, 80, 100, 150, … below the number of examples."""
    sizes = [5, *(round(step * 10**power) for power in range(1, 7) for step in _STEPS)]
    return [size for size in sizes if size < examples]


def subset_errors(means: Floats, sizes: Sequence[int], seed: int = SEED) -> list[SubsetError]:
    """Estimate the errors of subsets of several sizes by cross-validation over models: each group of models is left out
    once, the others choose the examples and fit the line.

    Args:
        means: As for `subset_of`; at least four models.
        sizes: Numbers of examples.
        seed: Random seed of the groups and of the random subsets.

    Raises:
        ValueError: there are fewer than four models.

    Source: Vivek et al. 2024, arXiv 2309.08638, and Polo et al. 2024, arXiv 2402.14992 (few examples that stand for
    all); arXiv 2510.08730 (why to show random subsets beside them).
    """
    import numpy as np

    models, examples = means.shape
    if models < LEAST_MODELS:
        raise ValueError(f"subset_errors: needs at least {LEAST_MODELS} models, not {models}")
    generator = np.random.default_rng(seed)
    whole = _averages(means, 1)
    clear = np.abs(whole[:, None] - whole[None, :]) > CLEAR * _standard_errors(means)
    ours: dict[Choice, list[_Counts]] = {choice: [_Counts() for _ in sizes] for choice in CHOICES}
    theirs = [_Counts() for _ in sizes]
    group = generator.permutation(models) % min(models, MOST_FOLDS)
    for number in range(min(models, MOST_FOLDS)):
        left_out, others = np.flatnonzero(group == number), np.flatnonzero(group != number)
        for choice, counts in ours.items():
            for each, chosen in zip(counts, _chosen(means[others], sizes, choice), strict=True):
                each.add(means, clear, left_out, chosen)
        for each, size in zip(theirs, sizes, strict=True):
            for _ in range(RANDOM_DRAWS):
                each.add(means, clear, left_out, generator.choice(examples, size, replace=False))
    found: list[SubsetError] = []
    for place, size in enumerate(sizes):
        choice = min(CHOICES, key=lambda each: (ours[each][place].missed, ours[each][place].error))
        own, drawn = ours[choice][place], theirs[place]
        found.append(SubsetError(size, choice, own.tau, own.clear, own.missed, own.error, drawn.tau, drawn.error))
    return found


def smallest_sufficient(errors: Sequence[SubsetError]) -> int | None:
    """The smallest size that is sufficient, as are all larger ones; None if there is none."""
    found = None
    for each in sorted(errors, key=lambda error: -error.size):
        if not each.is_sufficient:
            break
        found = each.size
    return found


class _Counts:
    """Sums over left-out models."""

    def __init__(self) -> None:
        self.clear = self.missed = 0
        self._agreeing = self._pairs = 0
        self._squares, self._models = 0.0, 0

    def add(self, means: Floats, clear: NDArray[np.bool_], left_out: Integers, chosen: Integers) -> None:
        """Add the left-out models, given the examples that were chosen without them."""
        import numpy as np

        whole, part = _averages(means, 1), _averages(means[:, chosen], 1)
        others = np.flatnonzero(~np.isin(np.arange(len(means)), left_out))
        line = fit_line(part[others], whole[others])
        self._squares += float(((line.intercept + line.slope * part[left_out] - whole[left_out]) ** 2).sum())
        self._models += len(left_out)
        signs = np.sign(np.round(whole[left_out, None] - whole[None, others], 12))
        found = np.sign(np.round(part[left_out, None] - part[None, others], 12))
        self._agreeing += int((signs * found).sum())
        self._pairs += int((signs != 0).sum())
        here = clear[np.ix_(left_out, others)]
        self.clear += int(here.sum())
        self.missed += int((here & (signs * found <= 0)).sum())

    @property
    def tau(self) -> float | None:
        return self._agreeing / self._pairs if self._pairs else None

    @property
    def error(self) -> float:
        return math.sqrt(self._squares / self._models)


def _chosen(means: Floats, sizes: Sequence[int], choice: Choice) -> Iterator[Integers]:
    """Choose subsets of several sizes; see `subset_of`."""
    import numpy as np

    rating: Floats = np.nan_to_num(item_rest(means).correlation, nan=-2.0)
    level = np.round(_averages(means, 0), 9)
    if choice == "even":  # equally difficult ones are sorted by correlation
        order = np.lexsort((rating, level))
        for size in sizes:
            yield np.sort(np.array([part[len(part) // 2] for part in np.array_split(order, size)]))
        return
    varies: NDArray[np.bool_] = means.max(axis=0) - means.min(axis=0) > 1e-12
    order = np.argsort(level, kind="stable")
    useful, useless = order[varies[order]], order[~varies[order]]
    for size in sizes:
        parts = np.array_split(useful, max(1, min(size, len(useful))))
        picked = [int(part[rating[part].argmax()]) for part in parts if len(part)]
        missing = size - len(picked)
        yield np.sort(np.array([*picked, *useless[:missing]] if missing > 0 else picked, dtype=np.int64))


def _averages(means: Floats, axis: int) -> Floats:
    """Means of the rows (1) or columns (0)."""
    import numpy as np

    return np.asarray(means.mean(axis=axis), dtype=np.float64)


def _standard_errors(means: Floats) -> Floats:
    """Standard error of the mean difference of each pair of models, over examples."""
    import numpy as np

    centred = means - means.mean(axis=1, keepdims=True)
    products = centred @ centred.T
    own = np.diag(products)
    examples = means.shape[1]
    squares = np.maximum(own[:, None] + own[None, :] - 2 * products, 0.0)
    return np.sqrt(squares / max(1, examples - 1) / examples)
