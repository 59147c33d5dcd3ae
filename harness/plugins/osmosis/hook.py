"""Import hook of this plugin: answers `import osmosis_ai` in agents."""

from __future__ import annotations

from harness.envs.import_hooks import ImportHook
from harness.plugins.osmosis.finder import install
from harness.plugins.osmosis.names import NAME


class OsmosisHook(ImportHook):
    """Answers `import osmosis_ai` in agents, from the first agent that is loaded."""

    module = NAME

    def answer_agents(self, *, in_command: bool) -> None:
        """Answer imports from now on; inside a bench command also over an installed release without the agent API."""
        install(over_newer=in_command)


HOOK = OsmosisHook()
