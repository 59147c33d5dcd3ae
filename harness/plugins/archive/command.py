"""Entries of the commands `bench items` and `bench trend` in the list of commands."""

from __future__ import annotations

from harness.cli.lazy_commands import CommandEntry
from harness.cli.main import RESULTS

ITEMS = CommandEntry(
    "harness.plugins.archive.items_command", "items", "Find bad examples, and the few that rank models.", RESULTS
)
TREND = CommandEntry(
    "harness.plugins.archive.trend_command", "trend", "Tell drift of a model from noise, over dated runs.", RESULTS
)
