"""The plugin `ray` of the group `bench.executors`, and its settings (`executor_args`)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.engine.executors import ExecutorEntry
from harness.engine.isolation.spawned import WorkerHost
from harness.settings.resolver import ResolvedRun
from harness.settings.wording import nearest


@dataclass(frozen=True, slots=True)
class RaySettings:
    """Settings of the executor."""

    address: str = ""
    """Address of the cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`; "" starts one on this computer."""
    worker_cpus: float = 1.0
    """CPUs that each process reserves; also decides how many processes a node has room for."""
    runtime_env: str = ""
    """A JSON or TOML file with Ray's runtime environment; "" uses none."""

    def runtime(self) -> JsonDict:
        """Read the runtime environment.

        Raises:
            ConfigError: the file cannot be read, or is not a JSON object or TOML.
        """
        if not self.runtime_env:
            return {}
        try:
            text = Path(self.runtime_env).read_text("utf-8")
            found: object = tomllib.loads(text) if self.runtime_env.endswith(".toml") else json.loads(text)
        except (OSError, ValueError) as error:
            raise ConfigError(f"executor_args.runtime_env: {self.runtime_env} cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"executor_args.runtime_env: {self.runtime_env} must have a JSON object or TOML tables")
        return cast(JsonDict, found)


LEAST_CPUS, MOST_CPUS = 0.01, 1e6

_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "address": ((str,), "a string"), "worker_cpus": ((int, float), "a number"), "runtime_env": ((str,), "a path"),
}  # fmt: skip


def read_settings(args: JsonDict) -> RaySettings:
    """Validate `executor_args`.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or is out of range.
    """
    for name, value in args.items():
        if name not in _TYPES:
            near = nearest(name, _TYPES)
            hint = f"did you mean {near!r}?" if near else f"known are {', '.join(_TYPES)}"
            raise ConfigError(f"executor_args: the executor ray has no setting {name!r}; {hint}")
        types, words = _TYPES[name]
        if not isinstance(value, types) or isinstance(value, bool):
            raise ConfigError(f"executor_args.{name}: must be {words}, not {value!r}")
    settings = RaySettings(**args)
    if not LEAST_CPUS <= settings.worker_cpus <= MOST_CPUS:
        raise ConfigError(
            f"executor_args.worker_cpus: must be from {LEAST_CPUS} to {MOST_CPUS:.0f}, not {settings.worker_cpus:g}"
        )
    return settings


def _open_host(resolved: ResolvedRun) -> WorkerHost:
    settings = read_settings(resolved.settings.env.executor_args)
    from harness.plugins.ray_executor.cluster import open_cluster

    return open_cluster(settings, resolved.settings.env.workers)


EXECUTOR = ExecutorEntry(open_host=_open_host)
