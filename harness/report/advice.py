"""What to do with a run's results. Owns the wording of the usual next steps."""

from __future__ import annotations

import shlex
from pathlib import PurePath


def next_steps(path: str, *, has_data: bool, is_pushed: bool = False, resume: str | None = None) -> tuple[str, ...]:
    """Commands and snippets for one run's folder.

    Args:
        path: The run's folder.
        has_data: Whether the dataset has rows.
        is_pushed: Whether the run is on the Hub already.
        resume: The command that goes on with the run; None if nothing is left to do.
    """
    steps: list[str] = []
    folder = PurePath(path)
    if resume:
        steps.append(f"go on: {resume}")
    if has_data:
        steps.append(f"load: load_dataset({str(folder.parent)!r}, {folder.name!r}, split='train')")
    if has_data and not is_pushed:
        steps.append(f"publish: bench push {shlex.quote(path)}")
    return tuple(steps)
