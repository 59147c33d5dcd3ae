"""Equal, different, or cannot tell: verdicts on a margin, and how often they are wrong."""

from __future__ import annotations

import math
import os
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from harness.stats.difference import Scores, scores_of
from harness.stats.equality import equality
from harness.stats.power import POWER, passing_examples

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))
Floats = NDArray[np.float64]


def scored(values: Floats, clusters: int | None = None) -> Scores:
    owners = None if clusters is None else {str(n): str(n % clusters) for n in range(len(values))}
    return scores_of({str(n): [value] for n, value in enumerate(values.tolist())}, (0.0, 1.0), owners)


def shifted(n: int, lost: int, won: int = 0) -> tuple[Scores, Scores]:
    """Passes and failures that differ on some examples."""
    first = np.tile([1.0, 0.0], n // 2)
    second = first.copy()
    second[: 2 * lost : 2] = 0.0
    second[1 : 2 * won : 2] = 1.0
    return scored(first), scored(second)


def test_the_three_verdicts() -> None:
    assert equality(*shifted(2000, 3, 3), 0.02).verdict == "equal"
    assert equality(*shifted(2000, 200), 0.02).verdict == "different"
    assert equality(*shifted(2000, 40), 0.02).verdict == "cannot tell"
    assert equality(*shifted(100, 0), 0.02).verdict == "cannot tell"  # too few to see rare losses


def test_a_difference_that_is_real_and_small_is_equal() -> None:
    """An interval that leaves out 0 and lies within the margin."""
    found = equality(*shifted(4000, 40), 0.02)
    assert found.paired.estimate.low is not None and found.paired.estimate.low > 0
    assert found.verdict == "equal"


def test_the_order_of_the_runs_does_not_matter() -> None:
    for lost, won in ((3, 3), (200, 0), (40, 0), (0, 25)):
        pair = shifted(2000, lost, won)
        there, back = equality(*pair, 0.02), equality(pair[1], pair[0], 0.02)
        assert (there.verdict, there.needed) == (back.verdict, back.needed)
        assert there.cautious[0] == -(back.cautious[1] or 0) and there.cautious[1] == -(back.cautious[0] or 0)


def test_many_examples_give_the_two_one_sided_tests_of_scipy() -> None:
    generator = np.random.default_rng(2)
    for shift in (0.0, 0.01, 0.016, 0.018, 0.02, 0.024, 0.03):
        first = generator.uniform(0.2, 0.8, 3000)
        second = first + shift + generator.normal(0, 0.05, 3000)
        gaps = second - first
        above, below, beyond = (
            float(cast(Any, stats.ttest_1samp(gaps, margin, alternative=side)).pvalue)
            for margin, side in ((-0.02, "greater"), (0.02, "less"), (0.02, "greater"))
        )
        expected = "equal" if max(above, below) < 0.025 else "different" if beyond < 0.025 else "cannot tell"
        assert equality(scored(np.clip(second, 0, 1)), scored(first), 0.02).verdict == expected


def test_several_comparisons_have_wider_intervals() -> None:
    one, many = (equality(*shifted(2000, 26), 0.02, comparisons) for comparisons in (1, 10))
    assert (one.paired.estimate.level, many.paired.estimate.level) == (0.95, 0.995)
    assert one.verdict == "equal" and many.verdict == "cannot tell"
    assert many.needed is not None and many.needed > 2000 and many.truth == 0.013
    assert equality(*shifted(100, 0), 0.02).truth == 0


@pytest.mark.parametrize("few", [0, 1, 2, 5])
def test_few_examples_never_tell(few: int) -> None:
    for values in (np.ones(few), np.zeros(few)):
        assert equality(scored(np.ones(few)), scored(values), 0.5).verdict == "cannot tell"


def test_unknown_limits() -> None:
    same = scores_of({str(n): [1.0] for n in range(50)})
    assert equality(same, same, 0.1).verdict == "cannot tell"
    assert equality(scored(np.ones(50), 1), scored(np.ones(50), 1), 0.1).verdict == "cannot tell"  # one cluster


@pytest.mark.parametrize("margin", [0.0, -0.1, math.nan, math.inf])
def test_a_margin_is_above_zero(margin: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        equality(*shifted(20, 1), margin)


def pair(
    generator: np.random.Generator, n: int, base: float, margin: float, kind: str, units: int
) -> tuple[Floats, Floats]:
    """Two models that differ by exactly the margin: a little everywhere, or all of it at few units; either side."""
    low = np.full(n, base - margin)
    if kind == "few":
        low = np.where((generator.random(units) < margin / base)[np.arange(n) % units], 0.0, base)
    worse = (generator.random(n) < low).astype(float)
    better = (generator.random(n) < base).astype(float)
    return (worse, better) if generator.random() < 0.5 else (better, worse)


CELLS = [
    (50, 0.9, 0.1, None), (100, 1.0, 0.05, None), (200, 1.0, 0.02, None), (200, 0.98, 0.02, None),
    (500, 0.5, 0.1, None), (1000, 0.98, 0.02, None), (100, 0.98, 0.05, 10), (500, 1.0, 0.05, 100),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["everywhere", "few"])
@pytest.mark.parametrize(("n", "base", "margin", "clusters"), CELLS)
def test_models_that_differ_by_the_margin_are_rarely_called_equal_or_different(
    n: int, base: float, margin: float, clusters: int | None, kind: str
) -> None:
    generator, rounds, said = np.random.default_rng(n), 200 * TIMES, list[str]()
    for _ in range(rounds):
        first, second = pair(generator, n, base, margin, kind, clusters or n)
        said.append(equality(scored(first, clusters), scored(second, clusters), margin).verdict)
    error = math.sqrt(0.05 * 0.95 / rounds)
    for verdict in ("equal", "different"):
        rate = said.count(verdict) / rounds
        assert rate <= 0.05 + error, f"{verdict}: {rate:.3f} ± {error:.3f}"


@pytest.mark.slow
@pytest.mark.parametrize(("base", "margin", "agree"), [(0.5, 0.05, 0.8), (0.9, 0.05, 0.5), (0.98, 0.03, 0.0)])
def test_the_examples_that_it_names_settle_it(base: float, margin: float, agree: float) -> None:
    """Of two equal models, four of five comparisons then say `equal`."""
    generator, rounds = np.random.default_rng(7), 60 * TIMES

    def made(n: int) -> tuple[Scores, Scores]:
        first = (generator.random(n) < base).astype(float)
        other = (generator.random(n) < base).astype(float)
        return scored(first), scored(np.where(generator.random(n) < agree, first, other))

    # As `equality` computes it, from a pilot so large that the spread is known.
    needed = passing_examples(equality(*made(20_000), margin).paired, margin, 1.0, power=(1 + POWER) / 2)
    assert needed is not None
    rate = sum(equality(*made(needed), margin).verdict == "equal" for _ in range(rounds)) / rounds
    error = math.sqrt(0.8 * 0.2 / rounds)
    assert 0.7 - error <= rate <= 0.95 + error, f"{rate:.3f} with {needed} examples"
