"""From the results of an evaluation to what its screen shows: the models side by side, of a run that has just ended and
of a record alike. Owns how the run of a model is said to have ended; numbers and layout are made below."""

from __future__ import annotations

from collections.abc import Sequence

from harness.multi.results import ModelResult
from harness.report import numerals
from harness.report.side_by_side import Ending, side_by_side
from harness.report.text import PlainConsole
from harness.stats.standings import Standings


def show_models(models: Sequence[ModelResult], found: Standings, console: PlainConsole) -> None:
    """Print the models side by side.

    Args:
        models: What each came to.
        found: Their numbers.
        console: Where.
    """
    ends = [ending_of(model) for model in models]
    lines = side_by_side(found, console.width, endings=ends, ascii_only=console.options.ascii_only)
    for line in lines:
        console.print(line, soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{numerals.count(number)} {noun}{'' if number == 1 else 's'}"


def ending_of(model: ModelResult) -> Ending:
    """How the run of a model ended."""
    summary = model["summary"]
    state = str(summary["meta"].get("state") or "done") if "meta" in summary else "done"
    return Ending(state, summary.get("stopReason") or "")
