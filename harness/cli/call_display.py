"""Progress of an evaluation started from Python: a bar in a notebook, elsewhere the command line's display."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from harness.engine.budget import Budget
from harness.engine.evaluation import Evaluation
from harness.report.live import open_display

logger = logging.getLogger(__name__)


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class CallDisplay:
    """Progress display of an evaluation started from Python."""

    say: Callable[[str], None]
    """Print or log a line for the user."""
    tick: Callable[[], None] = _nothing
    """Update the display."""
    step: Callable[[], None] = _nothing
    """Count a finished rollout."""


@contextmanager
def progress_of(evaluation: Evaluation, budget: Budget, *, shown: bool) -> Generator[CallDisplay]:
    """Show the progress of an evaluation started from Python: as a bar in a notebook, elsewhere as on the command line.
    If `shown` is false, messages are only logged."""
    if not shown:
        yield CallDisplay(partial(logger.info, "%s"))
    elif "ipykernel" not in sys.modules:
        with open_display(evaluation.progress, budget=budget.words) as display:
            yield CallDisplay(display.say, display.tick)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets, the bar is text
            from tqdm.auto import tqdm

        bar = tqdm(unit="rollout", desc="loading")

        def step() -> None:
            runs = evaluation.progress
            bar.total = sum(run.total for run in runs)
            bar.set_description(", ".join(run.name for run in runs), refresh=False)
            bar.n = sum(run.done for run in runs)
            bar.update(0)

        try:
            yield CallDisplay(bar.write, step=step)
        finally:
            bar.refresh()
            bar.close()
