"""Import hook of this plugin: makes `import osmosis_ai` in agents import bench's implementation."""

from __future__ import annotations

from harness.envs.import_hooks import ImportHook
from harness.plugins.osmosis.finder import install
from harness.plugins.osmosis.names import NAME


class OsmosisHook(ImportHook):
    """Makes `import osmosis_ai` get the implementation of bench, as soon as the first agent is loaded."""

    module = NAME

    def answer_agents(self, *, in_command: bool) -> None:
        """Make `import osmosis_ai` get the implementation of bench from now on. In a command of bench, this also
        replaces an installed release without the agent API."""
        install(over_newer=in_command)


HOOK = OsmosisHook()
