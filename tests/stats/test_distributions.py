"""Our distributions against scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from late import Late

from harness.stats.distributions import beta_cdf, beta_quantile, normal_cdf, t_quantile, t_two_sided

stats = Late("scipy.stats")

SHAPE = st.floats(0.05, 5_000)


@given(st.floats(0.0, 1.0), SHAPE, SHAPE)
def test_the_beta_distribution_is_scipys(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(float(stats.beta.cdf(x, a, b)), rel=1e-8, abs=1e-12)


@given(st.floats(0.001, 0.999), st.floats(0.5, 2_000), st.floats(0.5, 2_000))
def test_its_quantile_inverts_it(part: float, a: float, b: float) -> None:
    assert beta_quantile(part, a, b) == pytest.approx(float(stats.beta.ppf(part, a, b)), rel=1e-8, abs=1e-12)


@given(st.floats(-60, 60), st.floats(0.5, 1e6))
def test_the_two_sided_p_value_is_scipys(t: float, df: float) -> None:
    assert t_two_sided(t, df) == pytest.approx(2 * float(stats.t.sf(abs(t), df)), rel=1e-6, abs=1e-14)


def test_far_tails_do_not_vanish() -> None:
    assert t_two_sided(40.0, 30.0) == pytest.approx(2 * float(stats.t.sf(40, 30)), rel=1e-8)
    assert 0.0 < t_two_sided(math.inf, 3) < 1e-300
    assert 0.0 < t_two_sided(50.0, 1e9) < 1e-300  # of a p-value that is too small for a number nobody says 0
    assert t_two_sided(2.0, 1e9) == pytest.approx(2 * float(stats.norm.sf(2)))


@given(st.floats(0.5, 0.9999), st.floats(0.7, 1e5))
def test_quantiles_of_fractional_degrees_of_freedom_are_scipys(part: float, df: float) -> None:
    assert t_quantile(part, df) == pytest.approx(float(stats.t.ppf(part, df)), rel=1e-7, abs=1e-7)
    assert t_quantile(1 - part, df) == pytest.approx(float(stats.t.ppf(1 - part, df)), rel=1e-7, abs=1e-7)


def test_endless_degrees_of_freedom_have_the_normal_quantile() -> None:
    assert t_quantile(0.975, 1e9) == pytest.approx(1.959963984540054)
    assert normal_cdf(1.959963984540054) == pytest.approx(0.975)


def test_arguments_out_of_range_are_refused() -> None:
    for wrong in (
        lambda: beta_cdf(0.5, 0.0, 1.0),
        lambda: beta_quantile(1.0, 1.0, 1.0),
        lambda: t_two_sided(1.0, 0.0),
        lambda: t_quantile(0.0, 3.0),
    ):
        with pytest.raises(ValueError, match="needs"):
            wrong()


@pytest.mark.parametrize(("t", "df"), [(12.0, 200), (12.0, 180.5), (30.0, 1e6), (0.3, 5), (1.6, 3), (37.0, 1500)])
def test_a_small_p_value_does_not_cancel(t: float, df: float) -> None:
    assert t_two_sided(t, df) == pytest.approx(2 * float(stats.t.sf(t, df)), rel=1e-6)
