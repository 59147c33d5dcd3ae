"""The SDK's register of agents by name, which agent files fill as they are imported. Owns the register; bench finds
agents by `-m module:attribute` and never looks here."""

from __future__ import annotations

from harness.agents.loop import RolloutAgentLoop
from harness.plugins.osmosis.exceptions import AgentLoopNotFoundError


class AgentLoopRegistry:
    """Agents by their `name`. Each operation is one of a dict's own, so threads may share it."""

    def __init__(self) -> None:
        self._loops: dict[str, RolloutAgentLoop] = {}

    def register(self, loop: RolloutAgentLoop) -> None:
        """Add an agent.

        Args:
            loop: The agent.

        Raises:
            ValueError: there is one of its name.
        """
        if self._loops.setdefault(loop.name, loop) is not loop:
            raise ValueError(
                f"an agent {loop.name!r} is registered already: unregister it, or give this one another name"
            )

    def unregister(self, name: str) -> bool:
        """Take an agent out; whether there was one."""
        return self._loops.pop(name, None) is not None

    def get(self, name: str) -> RolloutAgentLoop | None:
        """The agent of that name; None if there is none."""
        return self._loops.get(name)

    def list_names(self) -> list[str]:
        """The names, in the order of registration."""
        return list(self._loops)

    def clear(self) -> None:
        """Take all out."""
        self._loops.clear()


_registry = AgentLoopRegistry()


def register_agent_loop(loop: RolloutAgentLoop) -> None:
    """Add an agent to the register of this process; `ValueError` if there is one of its name."""
    _registry.register(loop)


def unregister_agent_loop(name: str) -> bool:
    """Take an agent out of the register of this process; whether there was one."""
    return _registry.unregister(name)


def get_agent_loop(name: str) -> RolloutAgentLoop:
    """The registered agent of that name.

    Raises:
        AgentLoopNotFoundError: there is none.
    """
    found = _registry.get(name)
    if found is None:
        raise AgentLoopNotFoundError(name, _registry.list_names())
    return found


def list_agent_loops() -> list[str]:
    """The names of the registered agents."""
    return _registry.list_names()
