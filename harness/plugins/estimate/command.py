"""Entry of the command `bench estimate` in the list of commands."""

from __future__ import annotations

from harness.cli.lazy_commands import CommandEntry
from harness.cli.main import RESULTS

ESTIMATE = CommandEntry(
    "harness.plugins.estimate.estimate_command",
    "estimate",
    "Narrow a small sample's interval by runs of other models.",
    RESULTS,
)
