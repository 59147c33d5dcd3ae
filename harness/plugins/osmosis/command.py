"""Entry of the command `bench exec` in the list of commands."""

from __future__ import annotations

from harness.cli.lazy_commands import CommandEntry

EXEC = CommandEntry("harness.plugins.osmosis.exec_command", "app", "Run a script that was written for osmosis_ai.")
