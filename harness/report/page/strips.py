"""A mean with its interval as a small plot in a table cell. All cells of a column use the environment's axis."""

from __future__ import annotations

from harness.report import numerals
from harness.report.page.markup import Html, tag
from harness.report.page.plots import colour
from harness.stats.intervals import Estimate

WIDTH, HEIGHT, EDGE = 170, 18, 7


def strip(
    estimate: Estimate, limits: tuple[float, float], number: int, bounds: tuple[float, float] | None = None
) -> Html:
    """Draw the plot of one mean.

    Args:
        estimate: The mean and its interval.
        limits: Minimum and maximum of the axis.
        number: Number of the run's colour.
        bounds: The mean if all unscored rollouts had the worst, or the best, reward; None without unscored rollouts.
    """
    middle = f"{HEIGHT / 2:g}"
    shapes = [tag("line", x1=EDGE, x2=WIDTH - EDGE, y1=middle, y2=middle, class_="s-grid")]
    name = colour(number)
    if bounds is not None:
        low, high = (_place(value, limits) for value in bounds)
        shapes.append(
            tag("rect", x=low, y="2", width=f"{float(high) - float(low):.1f}", height=HEIGHT - 4, class_="pale")
        )
    if estimate.low is not None and estimate.high is not None:
        low, high = _place(estimate.low, limits), _place(estimate.high, limits)
        shapes.append(tag("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"bar s-{name}"))
    if estimate.mean is not None:
        shapes.append(tag("circle", cx=_place(estimate.mean, limits), cy=middle, r="4.5", class_=f"f-{name}"))
    words = f"mean {numerals.score(estimate.mean)}, 95 % interval {numerals.interval(estimate)}"
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *shapes, viewBox=box, width=WIDTH, height=HEIGHT, role="img", aria_label=words, class_="strip")


def _place(value: float, limits: tuple[float, float]) -> str:
    low, high = limits
    part = min(1.0, max(0.0, (value - low) / (high - low)))
    return f"{EDGE + part * (WIDTH - 2 * EDGE):.1f}"
