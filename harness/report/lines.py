"""One run as the display sees it: its counters and what only time tells (rate, time left, interval so far), as cells
of a table row and as a plain line. Owns those words; prints nothing."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from harness.core.types import Usage
from harness.engine.progress import RunProgress
from harness.report import numerals
from harness.report.text import clean
from harness.stats.intervals import Estimate, mean_interval

WINDOW = 20.0
"""Seconds that the shown rate looks back: long enough to be steady, short enough to notice a stall."""

SETTLED = 5.0
"""Seconds of window before it is preferred to the average since the start."""

SHARE = 0.01
"""Of one core: what recomputing intervals may cost. A run of 100,000 examples is then refreshed every few seconds."""

OPEN = frozenset({"loading", "waiting", "running", "scoring"})
"""States in which a run is still to end."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters outside ASCII, with what stands for them where the terminal has none."""

    filled: str = "━"
    empty: str = "─"
    plus_minus: str = "±"
    dot: str = "·"


UNICODE = Glyphs()
ASCII = Glyphs("#", "-", "+/-", "-")


class RunWatch:
    """A run over time.

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
        """Whether the run is still to end."""
        return self.progress.state in OPEN

    @property
    def is_of_early_ones(self) -> bool:
        """Whether the mean is of the rollouts that happened to end first, which may be the easy ones. (That of a run
        with a target takes examples in their order.)"""
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
                # Who watches an ordinary interval is misled: this one may be watched.
                watched = target.estimate
                self._estimate = Estimate(self._estimate.mean) if watched.mean is None else watched
            self._seen = scored
            self._due = now + (time.perf_counter() - started) / SHARE
        return self._estimate

    def rate(self, now: float) -> float | None:
        """Rollouts per second lately, or over the whole run once it has ended; None before there is one."""
        progress = self.progress
        if not progress.started:
            return None
        if self.is_open and self._samples and now - self._samples[0][0] >= SETTLED:
            then, done = self._samples[0]
            return (progress.done - done) / (now - then)
        elapsed = self.elapsed(now)
        return (progress.done - progress.resumed) / elapsed if elapsed > 0 else None

    def elapsed(self, now: float) -> float:
        """Seconds since the first item was dispatched."""
        progress = self.progress
        if not progress.started:
            return 0.0
        return max(0.0, (now if progress.finished is None else progress.finished) - progress.started)

    def left(self, now: float) -> float | None:
        """Seconds until the end at the present rate; None if nobody can tell."""
        rate = self.rate(now)
        remaining = self.progress.total - self.progress.done
        return remaining / rate if rate and remaining > 0 else None

    def status(self, now: float) -> str:
        """How much longer, or how it ended."""
        progress = self.progress
        if progress.state == "running" or (progress.state == "scoring" and progress.done):
            return numerals.duration(self.left(now))
        if progress.state == "done":
            return f"in {numerals.duration(self.elapsed(now))}"
        return progress.state

    def note(self) -> str:
        """What holds the run up, or why it ended early."""
        return clean(self.progress.backing_off() if self.is_open else self.progress.note)

    def busy(self) -> str:
        """Rollouts being generated + being scored, those that wait for scoring with the latter."""
        progress = self.progress
        return (
            f"{progress.generating}+{progress.backlog + progress.scoring}" if self.is_open and progress.started else ""
        )


def title(progress: RunProgress, *, with_model: bool) -> str:
    """What a run is called where several stand together."""
    name, model = clean(progress.name, 80), clean(progress.model, 80)
    return f"{name} · {model}" if with_model and name != model else name


def done_of(progress: RunProgress) -> str:
    """`120/200`; without the total while it is unknown."""
    return f"{progress.done}/{progress.total}" if progress.total else str(progress.done)


def all_tokens(progress: RunProgress) -> str:
    """Tokens in and out together, short."""
    usage = progress.usage
    if usage.unreported and usage.unreported >= usage.requests:
        return "?"
    return numerals.short_count(usage.input_tokens + usage.output_tokens)


def start_line(progress: RunProgress) -> str:
    """A run begins."""
    held = max(progress.held, progress.resumed)  # which is still being counted
    resumed = f", {numerals.count(held)} of them done before" if held else ""
    return f"{title(progress, with_model=True)}: {numerals.count(progress.total)} rollouts{resumed}"


def progress_line(watch: RunWatch, now: float, *, with_model: bool) -> str:
    """Where a run is."""
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
    note = watch.note()
    return f"{title(progress, with_model=with_model)}: {', '.join(parts)}" + (f"; {note}" if note else "")


def end_line(watch: RunWatch, now: float, *, with_model: bool) -> str:
    """How a run ended."""
    progress = watch.progress
    words = [progress.state if not watch.is_open else "interrupted"]
    if progress.total:
        words += [done_of(progress), *_score_parts(watch, now), token_words(progress.usage)]
        words.append(f"in {numerals.duration(watch.elapsed(now))} ({numerals.rate(watch.rate(now))})")
    note = watch.note()
    return f"{title(progress, with_model=with_model)}: {', '.join(words)}" + (f"; {note}" if note else "")


def _score_parts(watch: RunWatch, now: float) -> list[str]:
    progress = watch.progress
    parts: list[str] = []
    if progress.scored:
        mean = numerals.plus_minus(watch.estimate(now))
        parts.append(f"mean so far {mean} (quick rollouts end first)" if watch.is_of_early_ones else f"mean {mean}")
    if progress.unscored:
        unscored = dict(progress.unscored)
        parts.append(f"{numerals.count(sum(unscored.values()))} unscored ({numerals.reasons(unscored)})")
    return parts


def token_words(usage: Usage) -> str:
    """`40.5k + 81.0k tokens`: in and out; `≥` if some replies did not report theirs."""
    if usage.unreported and usage.unreported >= usage.requests:
        return "tokens unknown"
    sign = "≥ " if usage.unreported else ""
    return f"{sign}{numerals.short_count(usage.input_tokens)} + {numerals.short_count(usage.output_tokens)} tokens"
