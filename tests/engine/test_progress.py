"""What the live display sees of rewards: per-example means, and whether they are made of passes and failures."""

from __future__ import annotations

from tables import for_each_row

from harness.core.records import Failed, Generated, Scored
from harness.engine.progress import ExampleSums, RunProgress
from harness.report.live_table import RunWatch
from harness.stats.summary import spread


def test_means_of_examples_and_what_they_are_made_of() -> None:
    sums = ExampleSums()
    for index, reward in ((2, 1.0), (0, 0.0), (2, 0.0)):
        sums.add(index, reward)
    means, single, numbers = sums.means()
    assert (list(means), single, list(numbers), sums.binary) == ([0.0, 0.5], False, [1, 0, 2], True)
    sums.add(1, 0.5)
    assert (list(sums.means()[0]), sums.binary) == ([0.0, 0.5, 0.5], False)


def test_the_first_error_is_kept_in_words() -> None:
    failed = Failed("k", "e", 0, "generation", "timeout", "took over 3 s", retryable=True)
    unscored = Scored("k", "unscored", None, {}, {"right": "ValueError: no (in right, x.py:3)"})
    for first, words in ((failed, "took over 3 s"), (unscored, "right: ValueError: no (in right, x.py:3)")):
        progress = RunProgress("run", "env", "model")
        for record in (first, failed):
            if isinstance(record, Failed):
                progress.count_failed(0, record)
            else:
                progress.count(0, Generated("k", "e", 0, "yes"), record)
        assert (progress.first_error, progress.unscored.total()) == (words, 2)


@for_each_row(
    ("last", "limits", "method"),
    [(0.0, None, "adjusted_t"), (0.5, None, "t"), (0.0, (0.0, 1.0), "adjusted_t"), (-1.0, (0.0, 1.0), "adjusted_t")],
)
def test_the_live_interval_is_that_of_the_summary(last: float, limits: tuple[float, float] | None, method: str) -> None:
    groups = [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, last]]  # the mean of 1 and -1 lies within the limits
    progress = RunProgress("run", "env", "model", limits=limits)
    for index, group in enumerate(groups):
        for reward in group:
            progress.rewards.add(index, reward)
            progress.scored += 1
    live = RunWatch(progress).estimate(1.0)
    assert live == spread(groups, limits).estimate
    assert live.method == method
