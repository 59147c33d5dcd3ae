"""The t quantile against scipy's."""

from __future__ import annotations

import subprocess
import sys

import pytest
from late import Late

from harness.stats.distributions import EXPANSION_FROM, normal_quantile, t_quantile

special = Late("scipy.special")


@pytest.mark.parametrize("probability", [0.025, 0.5, 0.6, 0.9, 0.95, 0.975, 0.995, 0.9995])
def test_t_agrees_with_scipy(probability: float) -> None:
    for df in [
        *range(1, 60),
        *range(60, EXPANSION_FROM + 5, 17),
        EXPANSION_FROM,
        EXPANSION_FROM + 1,
        1_000,
        10_000,
        10**7,
    ]:
        assert t_quantile(probability, df) == pytest.approx(
            float(special.stdtrit(df, probability)), rel=1e-11, abs=1e-12
        )


def test_t_has_the_values_of_the_printed_tables() -> None:
    assert t_quantile(0.975, 1) == pytest.approx(12.7062, abs=5e-5)
    assert t_quantile(0.975, 9) == pytest.approx(2.262157, abs=5e-7)
    assert t_quantile(0.975, 30) == pytest.approx(2.042272, abs=5e-7)


def test_t_tends_to_the_normal() -> None:
    assert normal_quantile(0.975) == pytest.approx(float(special.ndtri(0.975)), rel=1e-14)
    assert t_quantile(0.975, 10**9) == pytest.approx(normal_quantile(0.975), rel=1e-8)


@pytest.mark.parametrize(("probability", "df"), [(0.975, 0), (0.0, 5), (1.0, 5), (1.5, 5)])
def test_arguments_out_of_range_are_refused(probability: float, df: int) -> None:
    with pytest.raises(ValueError, match="t_quantile"):
        t_quantile(probability, df)


def test_numbers_and_displays_load_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys, harness.stats.summary, harness.report.live, harness.report.final_table\n"
        "from harness.stats.intervals import mean_interval\n"
        "mean_interval([0.1, 0.4, 0.9], single_rollout=True)\n"
        "assert not {'numpy', 'scipy', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
