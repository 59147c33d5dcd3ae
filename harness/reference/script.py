"""Fault scripts for `ReferenceServer`, parsed by the plugin `script` of the group `bench.fault_sources`."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

from harness.core.errors import ConfigError
from harness.core.plugins import load_plugins
from harness.reference.fault_sources import FAULT_SOURCES, FaultSource


def fault_script(
    *faults: str,
    file: str | Path | None = None,
    seed: int | None = None,
    latency: float | None = None,
    sigma: float | None = None,
) -> FaultSource | None:
    """Parse faults for a `ReferenceServer`.

    Args:
        faults: Shorthands such as `429@every=3,retry_after=1`; applied before those of the file.
        file: A TOML file with `[[fault]]` tables.
        seed: Seed of all draws; overrides the file's. 0 by default.
        latency: Median latency of every request, in seconds; overrides the file's.
        sigma: Standard deviation of the logarithm of the latency; overrides the file's.

    Returns:
        The faults; None if there are neither faults nor a latency.

    Raises:
        ConfigError: a fault cannot be parsed; the message says which and why. Or the plugin is not installed.
    """
    plugin = load_plugins(FAULT_SOURCES, FunctionType, name="script").get("script")
    if plugin is None:
        raise ConfigError("fault scripts need the plugin `script` (bench.fault_sources), which is not installed")
    milliseconds = None if latency is None else latency * 1000.0
    return plugin(fault=faults, faults=file, seed=seed, latency=milliseconds, sigma=sigma)
