"""One run in the live display: rate, time left and interval, as table cells and as a plain line."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from harness.core.types import Usage
from harness.engine.progress import RunProgress
from harness.report import numerals
from harness.report.text import clean
from harness.stats.intervals import Estimate, mean_interval

WINDOW = 20.0
"""Window of the displayed rate in seconds: long enough to be steady, short enough to show a stall."""

SETTLED = 5.0
"""Seconds of window needed before the windowed rate replaces the average since the start."""

SHARE = 0.01
"""Maximum share of one core for recomputing intervals: 100,000 examples are refreshed every few seconds."""

OPEN = frozenset({"loading", "waiting", "running", "scoring"})
"""States of a run that has not ended."""


class RunWatch:
    """A run observed over time.

    Args:
        progress: The run's counters; only read.
    """

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress
        self._samples: deque[tuple[float, int]] = deque()
        self._estimate = Estimate()
        self._seen = -1
        self._due = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.progress.state in OPEN

    @property
    def is_preliminary(self) -> bool:
        """Whether the mean is of the rollouts that finished first, which may be the easy ones. False for a run with a
        target interval, which takes examples in order."""
        return self.is_open and self.progress.target is None and self.progress.done < self.progress.total

    def observe(self, now: float) -> None:
        """Take a sample for the rate; at any interval."""
        if not self.progress.started or not self.is_open:
            return
        self._samples.append((now, self.progress.done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW:
            self._samples.popleft()

    def estimate(self, now: float) -> Estimate:
        """The mean so far with its interval, by the method of the final table."""
        scored = self.progress.scored
        if scored != self._seen and (now >= self._due or not self.is_open):
            started = time.perf_counter()
            rewards = self.progress.rewards
            means, single = rewards.means()
            limits = rewards.widened(self.progress.limits)
            self._estimate = mean_interval(means, single_rollout=single, binary=rewards.binary, limits=limits)
            target = self.progress.target
            if target is not None and (self.is_open or target.ended_early):
                # An interval that remains valid when it is watched during the run.
                watched = target.estimate
                self._estimate = Estimate(self._estimate.mean) if watched.mean is None else watched
            self._seen = scored
            self._due = now + (time.perf_counter() - started) / SHARE
        return self._estimate

    def rate(self, now: float) -> float | None:
        """Recent rollouts per second; after the end, the average of the run. None before it can be computed."""
        progress = self.progress
        if not progress.started:
            return None
        if self.is_open and self._samples and now - self._samples[0][0] >= SETTLED:
            then, done = self._samples[0]
            return (progress.done - done) / (now - then)
        elapsed = self.elapsed(now)
        return (progress.done - progress.resumed) / elapsed if elapsed > 0 else None

    def elapsed(self, now: float) -> float:
        """Seconds since the first rollout was dispatched."""
        progress = self.progress
        if not progress.started:
            return 0.0
        return max(0.0, (now if progress.finished is None else progress.finished) - progress.started)

    def left(self, now: float) -> float | None:
        """Estimated seconds until the end; None if unknown."""
        rate = self.rate(now)
        remaining = self.progress.total - self.progress.done
        return remaining / rate if rate and remaining > 0 else None

    def status(self, now: float) -> str:
        """Time left, or how the run ended."""
        progress = self.progress
        if progress.state == "running" or (progress.state == "scoring" and progress.done):
            return numerals.duration(self.left(now))
        if progress.state == "done":
            return f"in {numerals.duration(self.elapsed(now))}"
        return progress.state

    def note(self) -> str:
        """Reason for waiting, or for an early end; "" without one."""
        return clean(self.progress.backing_off() if self.is_open else self.progress.note)

    def busy(self) -> str:
        """Number of rollouts generating + scoring; the latter includes those waiting for scoring."""
        progress = self.progress
        if not self.is_open or not progress.started:
            return ""
        return f"{progress.generating}+{progress.backlog + progress.scoring}"


def title(progress: RunProgress, *, with_model: bool) -> str:
    """Label of a run among others."""
    name, model = clean(progress.name, 80), clean(progress.model, 80)
    return f"{name} · {model}" if with_model and name != model else name


def done_of(progress: RunProgress) -> str:
    """Rollouts done of the total, such as `120/200`; without the total if it is unknown."""
    return f"{progress.done}/{progress.total}" if progress.total else str(progress.done)


def all_tokens(progress: RunProgress) -> str:
    """Input and output tokens together, in short form."""
    usage = progress.usage
    if usage.unreported and usage.unreported >= usage.requests:
        return "?"
    return numerals.short_count(usage.input_tokens + usage.output_tokens)


def start_line(progress: RunProgress) -> str:
    """Line for the start of a run."""
    held = max(progress.held, progress.resumed)  # `resumed` is still being counted
    resumed = f", {numerals.count(held)} of them done before" if held else ""
    return f"{title(progress, with_model=True)}: {numerals.count(progress.total)} rollouts{resumed}"


def progress_line(watch: RunWatch, now: float, *, with_model: bool) -> str:
    """Line for the progress of a run."""
    progress = watch.progress
    share = f" ({numerals.percent(progress.done / progress.total)})" if progress.total else ""
    parts = [
        f"{done_of(progress)}{share}",
        *_score_parts(watch, now),
        numerals.rate(watch.rate(now)),
        f"{numerals.duration(watch.left(now))} left",
        f"{progress.generating} generating, {progress.backlog + progress.scoring} in scoring",
        token_words(progress.usage),
    ]
    return _line(watch, parts, with_model=with_model)


def _line(watch: RunWatch, parts: Sequence[str], *, with_model: bool) -> str:
    note = watch.note()
    return f"{title(watch.progress, with_model=with_model)}: {', '.join(parts)}" + (f"; {note}" if note else "")


def end_line(watch: RunWatch, now: float, *, with_model: bool) -> str:
    """Line for the end of a run."""
    progress = watch.progress
    words = [progress.state if not watch.is_open else "interrupted"]
    if progress.total:
        words += [done_of(progress), *_score_parts(watch, now), token_words(progress.usage)]
        words.append(f"in {numerals.duration(watch.elapsed(now))} ({numerals.rate(watch.rate(now))})")
    return _line(watch, words, with_model=with_model)


def _score_parts(watch: RunWatch, now: float) -> list[str]:
    progress = watch.progress
    parts: list[str] = []
    if progress.scored:
        mean = numerals.plus_minus(watch.estimate(now))
        parts.append(f"mean so far {mean} (quick rollouts end first)" if watch.is_preliminary else f"mean {mean}")
    if progress.unscored:
        unscored = dict(progress.unscored)
        parts.append(f"{numerals.count(sum(unscored.values()))} unscored ({numerals.reasons(unscored)})")
    return parts


def token_words(usage: Usage) -> str:
    """`40.5k + 81.0k tokens`, for input and output."""
    words = numerals.tokens_in_and_out(usage)
    return "tokens unknown" if words == "unknown" else f"{words} tokens"
