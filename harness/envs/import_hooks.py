"""Plugins of the group `bench.import_hooks`, which provide the modules of another SDK when an environment or an agent
imports them."""

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

PrepareModule: TypeAlias = Callable[[ModuleSpec], None]
"""Function that prepares a module before it is imported from its path."""


class ImportHook:
    """Base class of import hooks. A plugin overrides the methods that it needs; the defaults do nothing."""

    module: str = ""
    """Name of the top-level module that the hook provides, such as `verifiers`."""

    unsupported: str = ""
    """End of the error message if `load_environment` returns an object of the installed SDK, which is unusable."""

    datasets: ClassVar[Mapping[str, str]] = {}
    """Ids of Hub datasets, by the SDK's short names for them."""

    def may_ask(self, source: Path) -> bool:
        """Return whether an environment may need the hook, judged by its `__init__.py` or single file."""
        return False

    def asks(self, text: str) -> bool:
        """Return whether the source code of a Python file imports the SDK."""
        return False

    def loading(self, found: FoundEnvironment) -> Context[PrepareModule | None]:
        """Return a context in which an environment that may need the hook is imported and built."""
        return nullcontext()

    def settle(self, environment: Environment) -> None:
        """Check an environment after it was built.

        Raises:
            EnvironmentFault: the environment cannot be used.
        """

    def answer_agents(self, *, in_command: bool) -> None:
        """Make the SDK's modules importable for agents from now on.

        Args:
            in_command: Whether this process is a command of bench, so that an installed package may be replaced.
        """


def import_hooks() -> Sequence[ImportHook]:
    """Load the import hooks, in the order of their names."""
    return tuple(load_plugins(IMPORT_HOOKS, ImportHook).values())


def answer_agents(*, in_command: bool = False) -> None:
    """Make the modules of all import hooks importable for agents from now on."""
    for hook in import_hooks():
        hook.answer_agents(in_command=in_command)


@contextmanager
def loading(source: Path | None, find: Callable[[], FoundEnvironment | None]) -> Generator[PrepareModule]:
    """Return a context in which an environment is imported and built and can import the modules of the import hooks.

    Args:
        source: The environment's `__init__.py` or single file; None if unknown.
        find: Looks up the environment; called only if a hook may be needed.
    """
    hooks = [hook for hook in import_hooks() if source is not None and hook.may_ask(source)]
    found = find() if hooks else None
    with ExitStack() as stack:
        entered = [] if found is None else [stack.enter_context(hook.loading(found)) for hook in hooks]

        def prepare_module(spec: ModuleSpec) -> None:
            for each in entered:
                if each is not None:
                    each(spec)

        yield prepare_module
