"""The environment source for the prefix `lm-eval/`. Small, because it is imported when the first such name is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.settings.environment_sources import EnvironmentSource, FoundEnvironment

DEFAULTS: dict[str, object] = {"num_examples": -1, "rollouts_per_example": 1}
"""Every document once, as lm-eval does."""


class LmEvalSource(EnvironmentSource):
    """All tasks, groups and tags of the installed `lm_eval`, and those of the argument `include_path`."""

    def find(self, name: str) -> FoundEnvironment | None:
        """Return the distribution of the task. Whether the task exists is checked when it is loaded, since the list of
        all tasks takes several seconds to read and `include_path` can add others."""
        try:
            release = version("lm_eval")
        except PackageNotFoundError:
            release = None  # reported, with the remedy, when the task is loaded
        files = tuple(sorted(Path(__file__).parent.glob("*.py")))
        return FoundEnvironment(
            "harness.plugins.lm_eval_tasks.loader", "lm_eval", release, files, DEFAULTS, "lm-eval",
            code_args=("include_path",),
        )  # fmt: skip

    def function(self, name: str) -> Callable[..., object]:
        """Return the function that loads a task.

        Raises:
            EnvironmentLoadError: `lm_eval` is not installed.
        """
        from harness.plugins.lm_eval_tasks.library import part
        from harness.plugins.lm_eval_tasks.loader import load_environment

        part("tasks")

        @wraps(load_environment)
        def load(**arguments: Any) -> object:
            return load_environment(**arguments).load(name)

        return load


SOURCE = LmEvalSource()
