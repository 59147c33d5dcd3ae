"""Registry of agents by name, to which agent files add their agent on import. bench itself finds agents by `-m
module:attribute` and does not read the registry."""

from __future__ import annotations

from harness.agents.loop import RolloutAgentLoop
from harness.plugins.osmosis.exceptions import AgentLoopNotFoundError


class AgentLoopRegistry:
    """Registry of agents by name. Thread-safe, because each operation is a single dict operation."""

    def __init__(self) -> None:
        self._loops: dict[str, RolloutAgentLoop] = {}

    def register(self, loop: RolloutAgentLoop) -> None:
        """Add an agent.

        Args:
            loop: The agent.

        Raises:
            ValueError: another agent has the same name.
        """
        if self._loops.setdefault(loop.name, loop) is not loop:
            raise ValueError(
                f"an agent {loop.name!r} is already registered: unregister it, or give this agent another name"
            )

    def unregister(self, name: str) -> bool:
        """Remove the agent with this name from the registry; return whether it was registered."""
        return self._loops.pop(name, None) is not None

    def get(self, name: str) -> RolloutAgentLoop | None:
        """Return the agent with this name; None if it is not registered."""
        return self._loops.get(name)

    def list_names(self) -> list[str]:
        """Return the names of all agents, in order of registration."""
        return list(self._loops)

    def clear(self) -> None:
        """Remove all agents from the registry."""
        self._loops.clear()


_registry = AgentLoopRegistry()


def register_agent_loop(loop: RolloutAgentLoop) -> None:
    """Add an agent to the registry of this process; raise `ValueError` if another has the same name."""
    _registry.register(loop)


def unregister_agent_loop(name: str) -> bool:
    """Remove an agent from the registry of this process; return whether it was registered."""
    return _registry.unregister(name)


def get_agent_loop(name: str) -> RolloutAgentLoop:
    """Return the registered agent with this name.

    Raises:
        AgentLoopNotFoundError: no agent of that name is registered.
    """
    found = _registry.get(name)
    if found is None:
        raise AgentLoopNotFoundError(name, _registry.list_names())
    return found


def list_agent_loops() -> list[str]:
    """Return the names of the registered agents."""
    return _registry.list_names()
