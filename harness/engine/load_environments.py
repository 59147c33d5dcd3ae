"""Load each environment of an invocation once, into this process or into isolated processes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.core.errors import ConfigError
from harness.core.keys import digest
from harness.core.messages import Message
from harness.engine.environment_loader import load_environment, source_identity
from harness.engine.executors import ExecutorEntry, executor_entry
from harness.engine.isolation.process import Worker
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.isolation.spawned import Recipe, WorkerHost
from harness.envs.environment import Environment
from harness.settings.resolver import ResolvedRun
from harness.settings.schema import EnvSettings


@dataclass(slots=True)
class Loader:
    """Loads and caches environments, so that runs that differ only in their model share one."""

    _loaded: dict[str, Environment] = field(default_factory=dict[str, Environment])
    _ahead: dict[str, ResolvedRun] = field(default_factory=dict[str, "ResolvedRun"])
    """Runs whose environments in processes of their own will be loaded next, in order."""
    _started: dict[str, Worker] = field(default_factory=dict[str, Worker])
    """Processes of isolated environments that have already begun to load."""
    _hosts: list[WorkerHost] = field(default_factory=list["WorkerHost"])
    """Where processes of environments run, if not on this computer."""
    _given: dict[tuple[str, str], Environment] = field(default_factory=dict[tuple[str, str], Environment])
    """Environment objects that were passed to `give`, by the name and settings of their run."""
    _hidden: frozenset[str] = frozenset()
    """Names of the environment variables that hold API keys for the runs of the invocation."""

    def give(self, resolved: ResolvedRun, environment: Environment) -> None:
        """Use an existing environment object for a run instead of loading one."""
        self._given[_place(resolved)] = environment

    def is_given(self, resolved: ResolvedRun) -> bool:
        """Whether `give` was called for this run."""
        return _place(resolved) in self._given

    def expect(self, runs: Sequence[ResolvedRun]) -> None:
        """Announce the runs whose environments will be loaded, so that their processes can load in parallel."""
        self._hidden = self._hidden.union(*map(_key_vars, runs))
        self._ahead |= {
            _key(run.settings.env): run for run in runs if _has_processes(run) and _place(run) not in self._given
        }

    def check_executor(self, resolved: ResolvedRun) -> None:
        """Reject settings of an executor that contradict each other.

        Raises:
            ConfigError: it is unknown, cannot do what other settings ask for, or has settings and is not chosen.
        """
        env = resolved.settings.env
        if env.executor is None and env.executor_args and resolved.origins["env.executor_args"].layer == "cli":
            words = f"{resolved.origins['env.executor_args'].source}: is a setting of an executor, and the run has none"
            raise ConfigError(words, remedy="set {executor}, or remove it")
        if env.executor is not None:
            source = resolved.origins["env.executor"].source
            is_host = executor_entry(env.executor, source).open_host is not None
            if not is_host and env.is_isolated:
                words = Message("{source}: an executor cannot be combined with {isolate} or {workers}", source=source)
                raise ConfigError(words, remedy="remove one of them")
            if is_host and self.is_given(resolved):
                words = Message("{source}: an environment object cannot run on other computers", source=source)
                raise ConfigError(words, remedy="give the name of an installed environment, or a path")

    def load(self, resolved: ResolvedRun) -> Environment:
        """Return the run's environment, with its extra arguments applied."""
        given = self._given.get(_place(resolved))
        if given is not None:
            return given
        settings = resolved.settings.env
        key = _key(settings)
        if key not in self._loaded:
            if _has_processes(resolved):
                while self._ahead and len(self._started) < (os.cpu_count() or 1):
                    first = next(iter(self._ahead))
                    self._started[first] = Worker(self._recipe(self._ahead.pop(first)))
                worker = self._started.pop(key, None) or Worker(self._recipe(resolved))
                host = worker.recipe.host
                size = _workers(settings) if host is None else host.size
                try:
                    self._loaded[key] = IsolatedEnvironment(worker.recipe, size, worker)
                except BaseException:
                    if host is not None:
                        host.close()
                    raise
            else:
                self._loaded[key] = load_environment(settings.env_id, **settings.env_args)
                self._loaded[key].set_kwargs(**settings.extra_env_kwargs)
        return self._loaded[key]

    def give_up(self) -> None:
        """End the processes of isolated environments that were loaded but will not be used."""
        for worker in self._started.values():
            worker.kill_and_wait()
        for environment in self._loaded.values():
            if isinstance(environment, IsolatedEnvironment):
                environment.pool.kill()
        for host in self._hosts:
            host.close()

    def _recipe(self, resolved: ResolvedRun) -> Recipe:
        settings = resolved.settings.env
        entry = _executor(resolved)
        host = None if entry is None or entry.open_host is None else entry.open_host(resolved)
        if host is not None:
            self._hosts.append(host)
        found = resolved.found
        path = None if host is None or found is None else found.path
        return Recipe(
            settings.env_id if path is None else str(path.resolve()), settings.env_args, settings.extra_env_kwargs,
            settings.name, memory_bound(resolved),
            allowed=frozenset(settings.worker_vars), hidden=self._hidden | _key_vars(resolved),
            host=host, expected=None if host is None or found is None else source_identity(found),
        )  # fmt: skip


def _executor(resolved: ResolvedRun) -> ExecutorEntry | None:
    name = resolved.settings.env.executor
    return None if name is None else executor_entry(name, resolved.origins["env.executor"].source)


def _workers(settings: EnvSettings) -> int:
    """Number of processes of an environment on this computer."""
    return (os.cpu_count() or 1) if settings.workers < 0 else max(1, settings.workers)


def _has_processes(resolved: ResolvedRun) -> bool:
    """Whether the environment runs in processes of its own, on this computer or others."""
    if resolved.settings.env.is_isolated:
        return True
    with contextlib.suppress(ConfigError):  # raised when the run is prepared
        entry = _executor(resolved)
        return entry is not None and entry.open_host is not None
    return False


def memory_bound(resolved: ResolvedRun, platform: str = sys.platform) -> int:
    """Memory limit in megabytes of each process of a run; -1 for no limit. Other values work only on Linux.

    Raises:
        ConfigError: a limit is set on a system that does not support it.
    """
    megabytes = resolved.settings.env.worker_memory_mb
    if platform == "linux" or megabytes < 0:
        return megabytes
    origin = resolved.origins["env.worker_memory_mb"]
    if origin.layer != "builtin":
        raise ConfigError(
            f"{origin.source}: a memory limit works only on Linux, not on {platform}; remove it, or set it to -1"
        )
    return -1


def _key_vars(resolved: ResolvedRun) -> frozenset[str]:
    """Environment variables with keys of the run's endpoints and of all registry entries, which judges may use."""
    registered = (
        each.values.get(("model", "api_key_var")) for entries in resolved.registry.entries.values() for each in entries
    )
    return frozenset(str(name) for name in (*(each.key_var for each in resolved.endpoints), *registered) if name)


def _place(resolved: ResolvedRun) -> tuple[str, str]:
    return resolved.settings.env.name, _key(resolved.settings.env)


def _key(settings: EnvSettings) -> str:
    apart = [
        settings.is_isolated, settings.workers, settings.worker_memory_mb, settings.worker_vars,
        settings.executor, settings.executor_args,
    ]  # fmt: skip
    return digest([settings.env_id, settings.env_args, settings.extra_env_kwargs, apart])
