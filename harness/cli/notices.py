"""What a command has to remark before it begins, on stderr. Owns that form; what there is to remark is its finder's."""

from __future__ import annotations

from collections.abc import Iterable

import typer

LONGEST = 5000
"""Characters of one notice."""


def print_notices(notices: Iterable[str]) -> None:
    """Print each as a line. It may repeat what a file of somebody else says."""
    for notice in notices:
        from harness.report.text import clean  # slow to import, and mostly there is nothing to say

        typer.echo(f"note: {clean(notice, LONGEST)}", err=True)
