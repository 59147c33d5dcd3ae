"""The import hook of this plugin: `import osmosis_ai` in agents."""

from __future__ import annotations

from harness.envs.import_hooks import ImportHook
from harness.plugins.osmosis.finder import install
from harness.plugins.osmosis.names import NAME


class OsmosisHook(ImportHook):
    """Answers `import osmosis_ai` in agents, once one is to be loaded."""

    module = NAME

    def answer_agents(self, *, in_command: bool) -> None:
        """Answer imports from now on; in a command of ours also where a release without the agent API is installed."""
        install(over_newer=in_command)


HOOK = OsmosisHook()
