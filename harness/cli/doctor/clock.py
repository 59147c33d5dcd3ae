"""This machine's time: against the `Date` of the endpoints' replies, and against what it has itself recorded. Owns
these checks; asks nobody.

A clock that is wrong makes run ids lie about their order, certificates look expired, and the dates of `Retry-After`
mean minutes too much or too little."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.store.rundir import new_run_id

NOTICED = 10.0
"""Seconds: less is the network's and the server's doing."""

WRONG = 120.0
"""Seconds from which certificates and rate limits suffer."""

_FIX = "let the system set its clock: timedatectl set-ntp true (a container has its host's clock)"

_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9]{4}")


@dataclass(frozen=True, slots=True)
class Told:
    """The time that somebody else says it is."""

    who: str
    date: str
    """As the header has it."""
    sent: float
    """When we asked, by our clock; seconds since 1970."""
    received: float


def seconds_off(told: Told) -> float | None:
    """How far our clock is ahead (positive) or behind, at least; None if the date cannot be read."""
    try:
        moment = parsedate_to_datetime(told.date)
        theirs = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):  # the latter for a time zone of a thousand digits
        return None
    # The header has whole seconds, cut off: it stands for any moment of the second that it names.
    if theirs > told.received:
        return told.received - theirs
    return max(0.0, told.sent - (theirs + 1.0))


def check_clock(told: Sequence[Told], output_dirs: Iterable[Path] = (), now: float | None = None) -> list[Diagnosis]:
    """Whether this machine's time can be right.

    Args:
        told: What others say.
        output_dirs: Where runs lie, whose ids are times.
        now: Seconds since 1970, by our clock; by default what it is.
    """
    now = time.time() if now is None else now
    return [*_against_others(told, now), *_against_runs(output_dirs, now)]


def _against_others(told: Sequence[Told], now: float) -> list[Diagnosis]:
    shown = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"
    off = [(seconds, each.who) for each in told if (seconds := seconds_off(each)) is not None]
    if not off:
        return [ok("clock", "time", f"{shown}; no reply said what time it is elsewhere")]
    seconds, who = max(off, key=lambda pair: abs(pair[0]))
    if abs(seconds) < NOTICED:
        return [ok("clock", "time", f"{shown}; agrees with {who}")]
    way = "ahead of" if seconds > 0 else "behind"
    says = f"{shown} is {_span(abs(seconds))} {way} the time of {who}"
    return [(problem if abs(seconds) >= WRONG else note)("clock", "time", says, _FIX)]


def _against_runs(output_dirs: Iterable[Path], now: float) -> list[Diagnosis]:
    limit = new_run_id(datetime.fromtimestamp(now + NOTICED, UTC))[:16]
    late = sorted(path for folder in output_dirs for path in _runs(folder) if path.name[:16] > limit)
    if not late:
        return []
    says = f"the run {late[-1].name} was begun later than now: the clock has gone back since, or was ahead then"
    return [note("clock", "runs", says, f"`latest` and --resume take the newest id for the newest run; {_FIX}")]


def _runs(output_dir: Path) -> list[Path]:
    try:
        return [path for path in (output_dir / "evals").glob("*/*") if _ID.fullmatch(path.name)]
    except OSError:
        return []


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
