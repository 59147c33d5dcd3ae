"""Progress of an evaluation started from Python: a bar in a notebook, elsewhere the command line's display."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from harness.engine.budget import Budget
from harness.engine.evaluation import Evaluation
from harness.report.live import Display, open_display

logger = logging.getLogger(__name__)


class CallDisplay(Protocol):
    """Progress display of an evaluation started from Python."""

    def say(self, text: str) -> None:
        """Print a line for the user."""
        ...

    def tick(self) -> None:
        """Update the display."""
        ...

    def step(self) -> None:
        """Count a finished rollout."""
        ...


@contextmanager
def progress_of(evaluation: Evaluation, budget: Budget, *, shown: bool) -> Generator[CallDisplay]:
    """Show the progress of an evaluation started from Python: as a bar in a notebook, elsewhere as on the command line.
    If `shown` is false, messages are only logged."""
    if not shown:
        yield _Log()
    elif "ipykernel" in sys.modules:
        bar = _Bar(evaluation)
        try:
            yield bar
        finally:
            bar.close()
    else:
        with open_display(evaluation.progress, budget=budget.words) as display:
            yield _CommandDisplay(display)


class _Log:
    """Replacement for a progress display that only logs its messages."""

    def say(self, text: str) -> None:
        """Log a line."""
        logger.info("%s", text)

    def tick(self) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""


class _CommandDisplay(_Log):
    """The command line's progress display, updated by polling."""

    def __init__(self, display: Display) -> None:
        self._display = display

    def say(self, text: str) -> None:
        """Print a line."""
        self._display.say(text)

    def tick(self) -> None:
        """Update the display."""
        self._display.tick()


class _Bar(_Log):
    """A progress bar in a notebook."""

    def __init__(self, evaluation: Evaluation) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets, the bar is text
            from tqdm.auto import tqdm

        self._evaluation = evaluation
        self._bar = tqdm(unit="rollout", desc="loading")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.write(text)

    def step(self) -> None:
        """Show how many rollouts are finished."""
        runs = self._evaluation.progress
        self._bar.total = sum(run.total for run in runs)
        self._bar.set_description(", ".join(run.name for run in runs), refresh=False)
        self._bar.n = sum(run.done for run in runs)
        self._bar.update(0)

    def close(self) -> None:
        """Stop updating the bar; it stays visible."""
        self._bar.refresh()
        self._bar.close()
