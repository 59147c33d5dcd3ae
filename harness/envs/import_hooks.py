"""Plugins of the group `bench.import_hooks`: what answers an environment's or agent's imports of another SDK."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager as Context
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import ClassVar, TypeAlias

from harness.core.plugins import IMPORT_HOOKS, load_plugins
from harness.envs.environment import Environment
from harness.settings.packages import FoundEnvironment

Adopt: TypeAlias = Callable[[ModuleSpec], None]
"""Prepare a module that is about to be imported by its path."""


class ImportHook:
    """An import hook; a plugin overrides what it needs, and the defaults do nothing."""

    module: str = ""
    """The top-level module that it answers for, such as `verifiers`."""

    unsupported: str = ""
    """The reason why an object of an installed package of that name is not an environment."""

    datasets: ClassVar[Mapping[str, str]] = {}
    """The Hub datasets that the SDK knows by a short name."""

    def may_ask(self, source: Path) -> bool:
        """Whether an environment may need the hook: a quick look at its `__init__.py` or single file."""
        return False

    def asks(self, text: str) -> bool:
        """Whether the text of a Python file imports the SDK."""
        return False

    def loading(self, found: FoundEnvironment) -> Context[Adopt | None]:
        """Answer imports while an environment that may need the hook is imported and built."""
        return nullcontext()

    def settle(self, environment: Environment) -> None:
        """Check an environment that was built.

        Raises:
            EnvironmentFault: it cannot be used.
        """

    def answer_agents(self, *, in_command: bool) -> None:
        """Answer imports of agents from now on.

        Args:
            in_command: Whether the process is ours, so that an installed package may be replaced.
        """


def import_hooks() -> Sequence[ImportHook]:
    """Load the import hooks, in the order of their names."""
    return tuple(load_plugins(IMPORT_HOOKS, ImportHook).values())


def answer_agents(*, in_command: bool = False) -> None:
    """Let every import hook answer the imports of agents; see `ImportHook.answer_agents`."""
    for hook in import_hooks():
        hook.answer_agents(in_command=in_command)


@contextmanager
def loading(source: Path | None, find: Callable[[], FoundEnvironment | None]) -> Generator[Adopt]:
    """Let import hooks answer while an environment is imported and built.

    Args:
        source: Its `__init__.py` or single file; None if unknown.
        find: Looks up what is known of it; called only if a hook may be needed.
    """
    hooks = [hook for hook in import_hooks() if source is not None and hook.may_ask(source)]
    found = find() if hooks else None
    with ExitStack() as stack:
        entered = [] if found is None else [stack.enter_context(hook.loading(found)) for hook in hooks]

        def adopt(spec: ModuleSpec) -> None:
            for each in entered:
                if each is not None:
                    each(spec)

        yield adopt
