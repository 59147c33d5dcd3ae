"""What to do with a run's results. Owns the wording of the usual next steps."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import NamedTuple

GO_ON, PUBLISH = "go on", "publish"
"""What some steps are for that commands look for: with what was cut off, and on the Hub."""


class Step(NamedTuple):
    """Something to do next."""

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
    """What can be done with one run's folder.

    Args:
        path: The run's folder.
        has_data: Whether the dataset has rows.
        to_publish: Whether it may be published: it is not private, and not on the Hub already.
        resume: The command that goes on with the run; None if nothing is left to do.
        compare: The command that compares it with another one; None if there is none like it.
        push: The command that publishes it, if that says more than what to push.
    """
    steps: list[Step] = []
    folder = PurePath(path)
    if resume:
        steps.append(Step(GO_ON, resume))
    if compare:
        steps.append(Step("compare", compare))
    if has_data:
        steps.append(Step("load", f"load_dataset({str(folder.parent)!r}, {folder.name!r}, split='train')"))
    if has_data and to_publish:
        steps.append(Step(PUBLISH, push or f"bench push {shlex.quote(path)}"))
    return tuple(steps)
