"""Descriptions of the statistical methods used on a page. The wording is that of `stats`."""

from __future__ import annotations

from collections.abc import Iterator

from harness.report.page.gather import Page
from harness.report.table import threshold_words
from harness.stats.intervals import Estimate
from harness.stats.methods import INTERVALS, SUMMARY, describe
from harness.stats.paired import METHODS as PAIRED


def passing(page: Page) -> str:
    """Sentence about the reward from which a rollout passes."""
    named = [
        (environment.name, run.summary.pass_threshold) for environment in page.environments for run in environment.runs
    ]
    return f"A rollout passes with a reward of at least {threshold_words(named)}."


def methods_of(page: Page, *, in_short: bool = False) -> list[tuple[str, str]]:
    """List of (figure or method, description): figures first, then each kind of interval on the page.

    Args:
        page: The page.
        in_short: Whether the output has neither metrics nor figures.
    """
    told = [(name, words) for name, words in SUMMARY.items() if name not in INTERVALS]
    differences = [each for environment in page.environments for each in environment.differences]
    if differences:
        tests = {each.paired.test for each in differences if each.unpaired is None and each.paired.test is not None}
        told.append(("difference", PAIRED["difference"]))
        told += [(name, PAIRED[name]) for name in ("p_value", *sorted(tests)) if tests]
        if any(each.unpaired is not None for each in differences):
            told.append(("two samples", "runs with fewer than two examples in common: two-sided t test of the means"))
        told.append(("adjusted", "Holm 1979, over all pairs of the page"))
    used = {estimate.method for estimate in _estimates(page, in_short=in_short) if estimate.method is not None}
    return [*told, *((f"interval: {method}", describe(method)) for method in INTERVALS if method in used)]


def _estimates(page: Page, *, in_short: bool) -> Iterator[Estimate]:
    """All means on the page that may have an interval."""
    yield from (each.estimate for each in page.overall)
    for environment in page.environments:
        yield from (each.estimate for each in environment.differences)
        for run in environment.runs:
            yield run.estimate
            if in_short:
                continue
            yield from (metric.estimate for metric in run.summary.metrics.values())
            for rates in (run.summary.pass_at_k, run.summary.pass_hat_k):
                yield from (rate.estimate for rate in rates.values())
            for groups in run.relations.values():
                yield from (group.reward for group in groups)
