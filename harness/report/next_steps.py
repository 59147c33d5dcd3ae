"""Suggested next steps for a run's results."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import NamedTuple

GO_ON, PUBLISH = "go on", "publish"
"""Purposes that commands check for: resuming an incomplete run, and publishing."""


class Step(NamedTuple):
    """One suggested next step."""

    purpose: str
    command: str
    """A command, or a snippet of Python."""

    def __str__(self) -> str:
        return f"{self.purpose}: {self.command}"


def next_steps(
    path: str,
    *,
    has_data: bool,
    to_publish: bool = True,
    resume: str | None = None,
    compare: str | None = None,
    push: str | None = None,
) -> tuple[Step, ...]:
    """Suggest the next steps for a run.

    Args:
        path: The run's folder.
        has_data: Whether the dataset has rows.
        to_publish: Whether the run may be published: it is not private, and not on the Hub yet.
        resume: The resume command, or None if the run is complete.
        compare: The command that compares it with a similar run; None if there is no such run.
        push: The command that publishes it, if not the default one.
    """
    folder = PurePath(path)
    load = f"load_dataset({str(folder.parent)!r}, {folder.name!r}, split='train')"
    publish = push or f"bench push {shlex.quote(path)}"
    steps = {
        GO_ON: resume,
        "compare": compare,
        "load": load if has_data else None,
        PUBLISH: publish if has_data and to_publish else None,
    }
    return tuple(Step(purpose, command) for purpose, command in steps.items() if command)
