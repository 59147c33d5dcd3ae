"""Entry of the command `bench view` in the list of commands."""

from __future__ import annotations

from harness.cli.lazy_commands import CommandEntry
from harness.cli.main import RUNS

VIEW = CommandEntry("harness.plugins.view.view_command", "view", "Read runs and their transcripts in a browser.", RUNS)
