"""The environment source for `harbor` and `harbor/NAME`. Small, because it is imported when such a name is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

from harness.settings.environment_sources import EnvironmentSource, FoundEnvironment

DEFAULTS: dict[str, object] = {"num_examples": -1, "rollouts_per_example": 1}
"""Every task once."""

OWN_TASKS = Path(__file__).with_name("tasks")
"""Folder of the tasks that are part of bench."""


class HarborSource(EnvironmentSource):
    """All tasks in a folder (`harbor`), or one of them (`harbor/NAME`)."""

    summary = "Tasks for agents in a terminal, in the Harbor format (a folder, a git repository, or five own)"

    def names(self) -> Iterable[str]:
        """Names of the tasks that are part of bench."""
        return sorted(folder.name for folder in OWN_TASKS.iterdir() if folder.is_dir())

    def find(self, name: str) -> FoundEnvironment | None:
        """Return the source of this plugin. Whether the task exists is checked when it is loaded, since the argument
        `path` can name other tasks."""
        files = tuple(sorted(Path(__file__).parent.glob("*.py")))
        return FoundEnvironment(
            "harness.plugins.harbor.loader",
            source_files=files,
            defaults=DEFAULTS,
            defaults_source="harbor [built-in]",
            code_args=("agent", "path"),
            trust_args={
                "images": "run programs of the image {}",
                "pass_env": "give the variable {} of this computer to the programs of tasks",
                "logs": "write files to {}",
            },
        )

    def function(self, name: str) -> Callable[..., object]:
        """Return the function that loads tasks."""
        from harness.plugins.harbor.loader import load_environment, load_task

        if not name:
            return load_environment

        @wraps(load_environment)
        def load(**arguments: Any) -> object:
            return load_task(name, arguments)

        return load


SOURCE = HarborSource()
