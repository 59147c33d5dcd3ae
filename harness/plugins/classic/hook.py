"""Import hook that makes `import verifiers` in environments import bench's implementation of the classic API."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from harness.envs.environment import Environment
from harness.envs.import_hooks import ImportHook, PrepareModule
from harness.plugins.classic import imports
from harness.plugins.classic.example_sets import SETS
from harness.plugins.classic.packages import read_package
from harness.plugins.classic.source_text import NAME, asks
from harness.settings.packages import FoundEnvironment


class ClassicHook(ImportHook):
    """Provides `import verifiers` to packages that were written for its classic API."""

    module = NAME
    unsupported = imports.NO_V1
    datasets: ClassVar[Mapping[str, str]] = {name: known.repository for name, known in SETS.items()}

    def may_ask(self, source: Path) -> bool:
        """Return whether an environment might use the classic API: its source contains `verifiers` or lacks
        `harness`."""
        files = sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
        texts = [path.read_bytes() for path in files if path.is_file()]
        return any(NAME.encode() in text for text in texts) or not any(b"harness" in text for text in texts)

    def asks(self, text: str) -> bool:
        """Return whether the text of a Python file imports `verifiers`."""
        return asks(text)

    @contextmanager
    def loading(self, found: FoundEnvironment) -> Generator[PrepareModule | None]:
        """Return a context in which an environment is loaded. If its package uses the classic API, `import verifiers`
        works there."""
        package = read_package(found)
        if package is None:
            yield None
            return
        with imports.answering(package):
            yield partial(imports.set_generation, generation=package.generation)

    def settle(self, environment: Environment) -> None:
        """Validate the reward functions of a classic environment.

        Raises:
            EnvironmentFault: a reward function has a parameter that cannot be supplied.
        """
        if any(base.__module__.startswith("harness.plugins.classic") for base in type(environment).__mro__):
            check = getattr(environment, "settle", None)
            if callable(check):
                cast(Any, check)()


HOOK = ClassicHook()
