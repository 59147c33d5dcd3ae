"""Where the environments of an invocation come from: imported here, or started in processes of their own. Owns that
choice, and that each is loaded once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.core.errors import ConfigError
from harness.core.keys import digest
from harness.engine.isolation.process import Worker
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.isolation.spawned import Recipe
from harness.engine.loader import load_environment
from harness.envs.environment import Environment
from harness.settings.resolver import ResolvedRun
from harness.settings.schema import EnvSettings


@dataclass(slots=True)
class Loader:
    """Loads environments, each once: runs that differ only in their model share one."""

    _loaded: dict[str, Environment] = field(default_factory=dict[str, Environment])
    _ahead: dict[str, Recipe] = field(default_factory=dict[str, Recipe])
    """Isolated environments that will be asked for, in that order."""
    _started: dict[str, Worker] = field(default_factory=dict[str, Worker])
    """Their processes, where they load already."""
    _given: dict[tuple[str, str], Environment] = field(default_factory=dict[tuple[str, str], Environment])
    """Environments that exist already, by name and settings of their run."""
    _hidden: frozenset[str] = frozenset()
    """Variables that hold keys of any run of the invocation."""

    def give(self, resolved: ResolvedRun, environment: Environment) -> None:
        """Use an existing environment for a run instead of loading one."""
        self._given[_place(resolved)] = environment

    def expect(self, runs: Sequence[ResolvedRun]) -> None:
        """Know what will be loaded: environments in processes of their own can load side by side."""
        self._hidden = self._hidden.union(*map(_key_vars, runs))
        isolated = [run for run in runs if run.settings.env.is_isolated]
        if isolated:
            self._ahead |= {_key(run.settings.env): self._recipe(run) for run in isolated}

    def load(self, resolved: ResolvedRun) -> Environment:
        """The run's environment, with its extra arguments applied."""
        given = self._given.get(_place(resolved))
        if given is not None:
            return given
        settings = resolved.settings.env
        key = _key(settings)
        if key not in self._loaded:
            if settings.is_isolated:
                recipe = self._recipe(resolved)
                self._loaded[key] = IsolatedEnvironment(recipe, max(1, settings.workers), self._worker(key, recipe))
            else:
                self._loaded[key] = _here(settings)
        return self._loaded[key]

    def give_up(self) -> None:
        """End the processes of environments that nobody will play."""
        for worker in self._started.values():
            worker.kill_and_wait()
        for environment in self._loaded.values():
            if isinstance(environment, IsolatedEnvironment):
                environment.pool.kill()

    def _worker(self, key: str, recipe: Recipe) -> Worker:
        while self._ahead and len(self._started) < (os.cpu_count() or 1):
            first = next(iter(self._ahead))
            self._started[first] = Worker(self._ahead.pop(first))
        return self._started.pop(key, None) or Worker(recipe)

    def _recipe(self, resolved: ResolvedRun) -> Recipe:
        settings = resolved.settings.env
        return Recipe(
            settings.env_id, settings.env_args, settings.extra_env_kwargs, settings.name, memory_bound(resolved),
            allowed=frozenset(settings.worker_vars), hidden=self._hidden | _key_vars(resolved),
        )  # fmt: skip


def memory_bound(resolved: ResolvedRun, platform: str = sys.platform) -> int:
    """Megabytes that each process of a run may hold; -1 is no bound, which is all that there is outside Linux.

    Raises:
        ConfigError: somebody has asked for a bound where there is none.
    """
    megabytes = resolved.settings.env.worker_memory_mb
    if platform == "linux" or megabytes < 0:
        return megabytes
    origin = resolved.origins["env.worker_memory_mb"]
    if origin.layer != "builtin":
        raise ConfigError(
            f"{origin.source}: only Linux bounds a process's memory, and this is {platform}; leave it out, or set -1"
        )
    return -1


def _key_vars(resolved: ResolvedRun) -> frozenset[str]:
    """Variables that hold keys: of the run's endpoints, and of all in the registry, which its judges may be at."""
    registered = (
        each.values.get(("model", "api_key_var")) for entries in resolved.registry.entries.values() for each in entries
    )
    return frozenset(str(name) for name in (*(each.key_var for each in resolved.endpoints), *registered) if name)


def _place(resolved: ResolvedRun) -> tuple[str, str]:
    return resolved.settings.env.name, _key(resolved.settings.env)


def _key(settings: EnvSettings) -> str:
    apart = [settings.is_isolated, settings.workers, settings.worker_memory_mb, settings.worker_vars]
    return digest([settings.env_id, settings.env_args, settings.extra_env_kwargs, apart])


def _here(settings: EnvSettings) -> Environment:
    environment = load_environment(settings.env_id, **settings.env_args)
    environment.set_kwargs(**settings.extra_env_kwargs)
    return environment
