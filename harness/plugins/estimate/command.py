"""Entry of the command `bench estimate` in the list of commands."""

from __future__ import annotations

from harness.cli.lazy_commands import CommandEntry
from harness.cli.main import RUNS

ESTIMATE = CommandEntry(
    "harness.plugins.estimate.estimate_command",
    "estimate",
    "Narrow the interval of a small random sample by finished runs of other models.",
    RUNS,
)
