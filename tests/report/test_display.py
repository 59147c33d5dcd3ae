"""The live table and the plain lines, drawn by hand-moved clocks onto recorded consoles."""

from __future__ import annotations

import io
import re
import threading
from collections import Counter

import pytest
from rich.cells import cell_len
from rich.console import Console
from tables import for_each_row

from harness.core.types import Usage
from harness.engine.progress import RunProgress
from harness.models.delays import Delay
from harness.report.live import Display, wants_live
from harness.report.live_table import SHARE, Frame, RunWatch, draw
from harness.report.text import make_console


class Clock:
    """Monotonic seconds that move when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(
    name: str = "gsm8k", *, done: int = 0, total: int = 200, state: str = "running", model: str = "m"
) -> RunProgress:
    progress = RunProgress(name, name, model, total=total)
    progress.state = state  # pyright: ignore[reportAttributeAccessIssue]
    if state != "loading" and total:
        progress.started = 90.0
    for index in range(done):
        score(progress, index, float(index % 4 > 0))
    return progress


def score(progress: RunProgress, index: int, reward: float) -> None:
    progress.scored += 1
    progress.rewards.add(index, reward)
    progress.usage += Usage(100, 50, requests=1)


def picture(runs: list[RunProgress], width: int, height: int = 30, *, ascii_only: bool = False) -> list[str]:
    """What stands on the terminal."""
    text = draw([RunWatch(progress) for progress in runs], Frame(width, height, ascii_only), 100.0, 10.0)
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, record=True)
    console.print(text)
    return console.export_text().rstrip("\n").split("\n")


def plain(runs: list[RunProgress], clock: Clock, *, quiet: bool = False) -> tuple[Display, io.StringIO]:
    file = io.StringIO()
    return Display(runs, make_console(file=file, width=80), live=False, quiet=quiet, clock=clock), file


@for_each_row("width", [80, 120, 200])
def test_one_line_a_run_with_everything_on_it(width: int) -> None:
    progress = run(done=120)
    progress.generating, progress.backlog, progress.scoring = 32, 1, 3
    lines = picture([progress, run("wordle", done=50)], width)
    assert len(lines) == 4
    assert lines[0] == "m · 2 of 2 running · 10 s · 17.0k + 8.5k tokens"
    assert lines[1].split() == ["done", "mean", "so", "far", "tokens", "rate", "left", "busy"]
    row = lines[2]
    assert row.startswith("gsm8k ")
    for cell in ("━", "─", "120/200", "0.750 ±0.084", "18.0k", "12.0/s", "6.7 s", "32+4"):
        assert cell in row
    assert all(cell_len(line) <= width for line in lines)


def test_what_is_unscored_or_holds_a_run_up_is_said() -> None:
    first, second = run(done=20), run("wordle", done=20)
    first.unscored = Counter(timeout=3)
    first.delays = second.delays = lambda: [Delay("\x1b[31mwaiting 12 s: 429 from localhost")]
    failed = run("broken", total=0, state="failed")
    failed.note = "no module named nltk"
    lines = picture([first, second, failed], 100)
    assert "unscored" in lines[1]
    assert "23/200" in lines[2] and " 3 " in lines[2]
    assert lines[4].split() == ["broken", "─" * lines[4].count("─"), "0", "failed"]
    assert lines[5:] == ["gsm8k and 1 more: waiting 12 s: 429 from localhost", "broken: no module named nltk"]


@for_each_row("width", [40, 60, 80, 120])
def test_a_narrow_terminal_loses_columns_never_digits(width: int) -> None:
    progress = run("environment-with-a-long-name", done=120)
    progress.unscored = Counter(timeout=30)
    lines = picture([progress], width)
    assert all(cell_len(line) <= width for line in lines)
    row = re.sub(r"^\S+\s+[━─]*\s*", "", lines[2])
    figures = ["150/200", "0.750 ±0.084", "30", "18.0k", "15.0/s", "3.3 s", "0+0"]
    shown = re.split(r"\s{2,}", row)
    assert shown[:2] == figures[:2]
    assert [figure for figure in figures if figure in shown] == shown


def test_names_that_differ_look_different() -> None:
    runs = [run(f"ablation-of-a-long-name-temperature-0.{i}-again", done=20, model=f"model-{i % 2}") for i in range(6)]
    rows = picture(runs, 80)[2:]
    assert len({row.split("  ")[0] for row in rows}) == 6


@for_each_row("height", [10, 24])
def test_many_runs_fit_and_show_what_moves_first(height: int) -> None:
    runs = [run(f"done-{i}", done=4, total=4, state="done") for i in range(10)]
    runs += [run(f"waiting-{i}", total=0, state="loading") for i in range(10)]
    runs += [run(f"running-{i}", done=5) for i in range(4)]
    lines = picture(runs, 80, height)
    assert len(lines) < height
    assert all(f"running-{i}" in "\n".join(lines) for i in range(4))
    folded = {10: "and 19 more: 10 done, 9 waiting", 24: "and 5 more: 5 done"}
    assert lines[-1] == folded[height]
    assert len(picture(runs, 80, 60)) == 2 + 24


def test_a_terminal_without_unicode_gets_ascii() -> None:
    lines = picture([run(done=120)], 80, ascii_only=True)
    assert lines[1].isascii() and lines[2].isascii()
    assert "0.750 +/-0.084" in lines[2] and "###" in lines[2]


def test_a_log_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    progress = run(done=8, total=8, state="done")
    progress.usage += Usage(unreported=1, requests=1)
    file = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    with Display([progress], make_console(file=file, width=80), live=False):
        pass
    assert "gsm8k - m: 8 rollouts" in raw.getvalue().decode()
    assert "mean 0.750 +/-0." in raw.getvalue().decode() and "> 800 + 400 tokens" in raw.getvalue().decode()


def test_all_right_so_far_is_not_plus_minus_zero() -> None:
    progress = run()
    for index in range(10):
        score(progress, index, 1.0)
    row = picture([progress], 80)[2]
    assert "1.000 ±0.296" in row


def test_the_rate_looks_back_over_a_window_and_the_end_over_everything() -> None:
    progress = run()
    watch = RunWatch(progress)
    watch.observe(90.0)
    for second in range(91, 101):
        score(progress, second, 1.0)
        watch.observe(float(second))
    assert watch.rate(100.0) == pytest.approx(1.0)
    for second in range(101, 131):
        for attempt in range(5):
            score(progress, 10 * second + attempt, 1.0)
        watch.observe(float(second))
    assert watch.rate(130.0) == pytest.approx(5.0, rel=0.1)
    assert watch.left(130.0) == pytest.approx(40 / (watch.rate(130.0) or 0))
    progress.state, progress.finished = "done", 130.0
    assert watch.rate(500.0) == pytest.approx(160 / 40)


def test_what_a_resume_found_is_not_speed() -> None:
    progress = run(done=100)
    progress.resumed = 90
    assert RunWatch(progress).rate(100.0) == pytest.approx(1.0)


def test_large_runs_are_estimated_less_often() -> None:
    progress = run(done=20_000, total=10**6)
    watch = RunWatch(progress)
    first = watch.estimate(100.0)
    score(progress, 10**6, 1.0)
    assert watch.estimate(100.0 + 1e-6) is first
    assert watch.estimate(100.0 + 60 / SHARE) != first
    score(progress, 10**6 + 1, 1.0)
    progress.state = "done"
    assert watch.estimate(100.0).examples == 20_002


def test_the_first_line_of_a_resume_says_what_was_done_and_not_what_is_counted_by_now() -> None:
    clock, progress = Clock(), run(total=100)
    progress.started, progress.held, progress.resumed = 100.0, 90, 32
    display, file = plain([progress], clock)
    with display:
        display.tick()
    assert file.getvalue().splitlines()[0] == "gsm8k · m: 100 rollouts, 90 of them done before"


def test_plain_lines_at_start_at_ten_percent_and_at_the_end() -> None:
    clock, progress = Clock(), run(total=100)
    progress.started, progress.resumed = 100.0, 0
    display, file = plain([progress], clock)
    with display:
        display.tick()
        for index in range(100):
            clock.now += 0.5
            score(progress, index, 1.0)
            display.tick()
        progress.state, progress.finished = "done", clock.now
    lines = file.getvalue().splitlines()
    assert lines[0] == "gsm8k · m: 100 rollouts"
    assert [line.split(",")[0] for line in lines[1:-1]] == [f"gsm8k: {n}0/100 ({n}0 %)" for n in range(1, 10)], (
        "and not 100 %, which the last line says"
    )
    assert lines[-1] == "gsm8k: done, 100/100, mean 1.000 ±0.037, 10.0k + 5.0k tokens, in 50 s (2.0/s)"
    assert "\x1b" not in file.getvalue()


def test_plain_lines_of_a_slow_run_get_rarer() -> None:
    clock, progress = Clock(), run(total=10**6)
    progress.started = 100.0
    display, file = plain([progress], clock)
    with display:
        for _ in range(3600):
            clock.now += 1.0
            display.tick()
    assert 20 < len(file.getvalue().splitlines()) < 70


def test_a_run_shorter_than_a_look_is_not_missed() -> None:
    clock, progress = Clock(), run(state="loading", total=0)
    display, file = plain([progress], clock)
    with display:
        progress.total, progress.started, progress.state = 4, 100.0, "running"
        for index in range(4):
            score(progress, index, 1.0)
        progress.state, progress.finished = "done", 100.01
    assert [line.split(",")[0] for line in file.getvalue().splitlines()] == ["gsm8k · m: 4 rollouts", "gsm8k: done"]


def test_quiet_says_only_how_each_run_ended() -> None:
    clock = Clock()
    good, bad = run(total=10), run("broken", total=0, state="loading")
    display, file = plain([good, bad], clock, quiet=True)
    with display:
        clock.now += 100
        display.tick()
        bad.state, bad.note = "failed", "no module\nnamed nltk"
    assert file.getvalue().splitlines() == [
        "broken: failed; no module named nltk",
        "gsm8k: interrupted, 0/10, 0 + 0 tokens, in 1:50 (–)",
    ]


def test_the_display_ends_alone_and_the_run_goes_on() -> None:
    def broken() -> list[Delay]:
        raise RuntimeError("limiter \x1b[31mis gone")

    progress = run(done=3)
    file = io.StringIO()
    with Display([progress], make_console(file=file, width=80), live=True, clock=Clock()) as display:
        progress.delays = broken
        display.tick()
        display.tick()
    assert file.getvalue().count("the display stopped (RuntimeError: limiter is gone); the run continues") == 1


def test_a_closed_stream_is_no_error() -> None:
    file = io.StringIO()
    with Display([run(done=3)], make_console(file=file, width=80), live=False, clock=Clock()) as display:
        file.close()
        display.tick()
        display.say("more")
    assert file.closed, "and leaving it raised nothing"


def test_the_clock_ends_with_the_display() -> None:
    def clocks() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "bench-display"]

    with Display([run()], make_console(file=io.StringIO(), width=80), live=False):
        assert clocks()
    assert not clocks()


@for_each_row("environ", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_live_table_without_a_terminal(environ: dict[str, str]) -> None:
    assert not wants_live(environ, quiet=False)


def test_what_is_spent_of_a_budget_stands_in_the_first_line_in_place_of_the_cost() -> None:
    progress = run(done=50)
    progress.usage += Usage(cost=0.12)
    frame = Frame(100, 30, budget="$0.12 of $5.00")
    [first, *_] = draw([RunWatch(progress)], frame, 100.0, 10.0).plain.split("\n")
    assert first.count("$0.12") == 1 and first.endswith("$0.12 of $5.00")


def test_plain_lines_say_what_is_spent_of_a_budget() -> None:
    clock, file = Clock(), io.StringIO()
    progress = run(done=10)
    console = make_console(file=file, width=80)
    display = Display([progress], console, live=False, clock=clock, budget=lambda: "$0.12 of $5.00")
    display.tick()
    clock.now += 20
    progress.scored += 100
    display.tick()
    start, line = file.getvalue().splitlines()
    assert "budget" not in start and line.endswith(", budget: $0.12 of $5.00")
