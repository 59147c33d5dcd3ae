"""Import hook of this plugin: makes `import osmosis_ai` in agents and environments import bench's implementation."""

from __future__ import annotations

from contextlib import AbstractContextManager as Context
from contextlib import nullcontext
from pathlib import Path

from harness.envs.import_hooks import ImportHook, PrepareModule
from harness.plugins.osmosis.finder import install
from harness.plugins.osmosis.names import NAME
from harness.settings.packages import FoundEnvironment


class OsmosisHook(ImportHook):
    """Makes `import osmosis_ai` get the implementation of bench, as soon as an agent is loaded, or an environment that
    names the SDK, for example in a reward function that calls `evaluate_rubric`."""

    module = NAME

    def may_ask(self, source: Path) -> bool:
        """Return whether the source of an environment contains `osmosis_ai`."""
        files = sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
        return any(NAME.encode() in path.read_bytes() for path in files if path.is_file())

    def loading(self, found: FoundEnvironment) -> Context[PrepareModule | None]:
        """Make `import osmosis_ai` get the implementation of bench from now on."""
        install()
        return nullcontext()

    def answer_agents(self, *, in_command: bool) -> None:
        """Make `import osmosis_ai` get the implementation of bench from now on. In a command of bench, this also
        replaces an installed release without the agent API."""
        install(over_newer=in_command)


HOOK = OsmosisHook()
