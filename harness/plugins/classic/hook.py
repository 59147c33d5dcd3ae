"""Import hook of this plugin: answers `import verifiers` in environments."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from harness.envs.environment import Environment
from harness.envs.import_hooks import Adopt, ImportHook
from harness.plugins.classic import imports
from harness.plugins.classic.example_sets import SETS
from harness.plugins.classic.source_text import asks
from harness.settings.packages import FoundEnvironment


class ClassicHook(ImportHook):
    """Answers `import verifiers` in packages written for its classic API."""

    module = imports.NAME
    unsupported = imports.NO_V1
    datasets: ClassVar[Mapping[str, str]] = {name: known.repository for name, known in SETS.items()}

    def may_ask(self, source: Path) -> bool:
        """Whether an environment might use the classic API."""
        return imports.may_ask(source)

    def asks(self, text: str) -> bool:
        """Whether the text of a Python file imports `verifiers`."""
        return asks(text)

    @contextmanager
    def loading(self, found: FoundEnvironment) -> Generator[Adopt | None]:
        """Answer the imports of a classic environment while it is loaded."""
        with imports.answering(found) as generation:
            yield None if generation is None else lambda spec: imports.adopt(spec, generation)

    def settle(self, environment: Environment) -> None:
        """Validate the reward functions of a classic environment."""
        imports.settle(environment)


HOOK = ClassicHook()
