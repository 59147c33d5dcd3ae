"""Formatting of numbers: scores, intervals, counts, tokens and durations. Rounding never hides a difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal

from harness.core.types import Usage
from harness.report.text import clean
from harness.stats.intervals import Estimate
from harness.stats.passk import PassRate
from harness.stats.summary import Summary

NONE = "–"
"""Placeholder for an undefined value."""

MOST_DIGITS = 6


def score(value: float | None, digits: int = 3) -> str:
    """Format a reward, metric or rate as text."""
    if value is None or not math.isfinite(value):
        return NONE
    if value and (abs(value) >= 1e6 or abs(value) < 1e-5):
        return f"{value:.3g}"
    return f"{value + 0.0:.{digits}f}"


def interval(estimate: Estimate, form: Callable[[float, int], str] = score) -> str:
    """Format an interval as `[low, high]`, with enough digits to show that its ends differ.

    Args:
        estimate: Mean with its interval.
        form: Function that formats each end with a number of digits.
    """
    if estimate.low is None or estimate.high is None:
        return NONE
    digits = _digits(estimate.high - estimate.low)
    return f"[{form(estimate.low, digits)}, {form(estimate.high, digits)}]"


def plus_minus(estimate: Estimate) -> str:
    """Format an estimate as `mean ±half`, with the larger half of the interval, never `±0`; without an interval, the
    mean alone."""
    half = estimate.half_width
    if half is None:
        return score(estimate.mean)
    digits = _digits(2 * half)
    return f"{score(estimate.mean, digits)} ±{score(half, digits)}"


def signed(value: float | None, digits: int = 3) -> str:
    """Format a difference with its sign, including `+`."""
    words = score(value, digits)
    return f"+{words}" if value is not None and float(words) > 0 else words


def signed_interval(estimate: Estimate) -> str:
    """Format the interval of a difference, with signs."""
    return interval(estimate, signed)


def difference(estimate: Estimate) -> str:
    """Format the mean of a difference with sign and as many digits as its interval; only 0 is shown as 0."""
    mean, digits = estimate.mean, 3
    if estimate.low is not None and estimate.high is not None:
        digits = _digits(estimate.high - estimate.low)
    while mean and digits < MOST_DIGITS and not round(mean, digits):
        digits += 1
    return signed(mean, digits)


def p_value(value: float | None, bound: float = 0.05) -> str:
    """Format a p-value, with enough digits to show on which side of `bound` it is."""
    if value is None:
        return NONE
    digits = max(3, math.ceil(-math.log10(bound)) + 1)
    least = 10.0**-digits
    return f"<{least:.{digits}f}" if value < least else f"{value:.{digits}f}"


LARGE_COUNT = 10**12
"""Counts of at least this size are written as powers of ten."""


def count(value: int) -> str:
    """Format a whole number with thousands separators; a very large one as a power of ten."""
    return f"{value:,}" if abs(value) < LARGE_COUNT else f"{value:.2g}"


def counted(value: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: `1 run`, `2 runs`. Pass `plural` if it is not the noun plus `s`."""
    return f"{count(value)} {noun if value == 1 else plural or noun + 's'}"


def coverage(*summaries: Summary) -> str:
    """Format how many of the planned rollouts of all given runs are scored: `9 of 10`."""
    asked = sum(max(each.planned, each.num_rollouts) for each in summaries)
    return f"{count(sum(each.scored for each in summaries))} of {count(asked)}"


def pass_rate(rate: PassRate | None) -> str:
    """Format pass@k or pass^k; None means not computed."""
    return NONE if rate is None else score(rate.value)


def pass_rate_interval(rate: PassRate | None) -> str:
    """Format pass@k or pass^k with its interval: `0.850 [0.781, 0.901]`; None means not computed."""
    if rate is None or rate.estimate.low is None:
        return pass_rate(rate)
    return f"{pass_rate(rate)} {interval(rate.estimate)}"


def short_count(value: int) -> str:
    """Format a whole number in at most five characters: 999, 12.3k, 1.2M."""
    if value < 1000:
        return str(value)
    for unit in ("k", "M", "G", "T"):
        size = value / 1000
        if size < 999.5:
            return f"{size:.1f}{unit}" if size < 99.95 else f"{size:.0f}{unit}"
        value = round(size)
    return ">999T"


def tokens(usage: Usage, part: int) -> str:
    """Format a token count of `usage`: `unknown` if no reply reported usage, `≥ n` if some did not."""
    if usage.unreported and usage.unreported >= usage.requests:
        return "unknown"
    return f"≥ {count(part)}" if usage.unreported else count(part)


def tokens_in_and_out(usage: Usage) -> str:
    """Format input and output tokens as `40.5k + 81.0k`; with `≥` if some replies did not report usage, or as `unknown`
    if no reply did."""
    if usage.unreported and usage.unreported >= usage.requests:
        return "unknown"
    sign = "≥ " if usage.unreported else ""
    return f"{sign}{short_count(usage.input_tokens)} + {short_count(usage.output_tokens)}"


def token_text(usage: Usage) -> str:
    """Format input and output tokens as `40.5k + 81.0k tokens`."""
    words = tokens_in_and_out(usage)
    return "tokens unknown" if words == "unknown" else f"{words} tokens"


def rate(value: float | None) -> str:
    """Format a rate per second, or per minute if it is slow."""
    if value is None or not math.isfinite(value) or value <= 0:
        return NONE
    if value < 0.1:
        return f"{value * 60:.1f}/min"
    return f"{value:.1f}/s" if value < 100 else f"{value:,.0f}/s"


def dollars(cost: float | None) -> str:
    """Format an amount in dollars as `$1.25`, or as `$0.034` below 10 cents; with at most 9 decimals."""
    if cost is None or cost >= 1e15:
        return NONE if cost is None else f"${cost:.2g}"
    if cost >= 0.1 or cost == 0:
        return f"${cost:,.2f}"
    if cost < 1e-9:
        return "< $0.000000001"
    return f"${Decimal(f'{cost:.2g}'):f}"  # not $2e-05


def duration(seconds: float | None) -> str:
    """Format seconds: 0.4 s, 41 s, 3:05, 2:03:41, 3 d 4 h."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return NONE
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def latency(seconds: float | None) -> str:
    """Format the time that one answer took: 8 ms, 350 ms, 1.2 s, 3:05."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return NONE
    return f"{round(seconds * 1000)} ms" if seconds < 0.9995 else duration(seconds)


def percent(part: float) -> str:
    """Format a share as a percentage; a share near 0 or 1 is `<1 %` or `>99 %`, unless it is exact."""
    if 0 < part < 0.01:
        return "<1 %"
    return ">99 %" if 0.99 < part < 1 else f"{100 * part:.0f} %"


def reasons(unscored: Mapping[str, int], most: int = 4) -> str:
    """Format counts by reason as `timeout 2, judge error 1`: most frequent first; the rarest are combined."""
    ordered = sorted(unscored.items(), key=lambda item: -item[1])
    words = [f"{clean(reason, 60)} {count(number)}" for reason, number in ordered[:most]]
    rest = ordered[most:]
    if rest:
        words.append(f"{len(rest)} other reasons {count(sum(number for _, number in rest))}")
    return ", ".join(words)


def _digits(width: float) -> int:
    """Number of decimals at which the ends of an interval of this width differ by at least two in the last decimal."""
    digits = 3
    while digits < MOST_DIGITS and width < 2 * 10**-digits:
        digits += 1
    return digits
