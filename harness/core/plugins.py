"""Find and load plugins, which are objects that installed distributions declare in the entry-point groups `bench.…`,
and find the entry points of installed environments. See docs/concepts/plugins.md.

Entry points are parsed here, because `bench --help` needs them and importing `importlib.metadata` takes long."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger(__name__)

COMMANDS = "bench.commands"
EXPORTERS = "bench.exporters"
IMPORT_HOOKS = "bench.import_hooks"
PROVIDERS = "bench.providers"
ENVIRONMENTS = "harness.environments"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One entry point, declared by an installed distribution, for a plugin or an environment."""

    package: str
    """Name of the distribution that declares the entry point."""
    group: str
    name: str
    module: str
    attribute: str
    """Name of the object in the module. May be dotted or empty."""

    def __str__(self) -> str:
        return f"the plugin {self.name!r} of the package {self.package} ({self.group})"


def load_plugins(
    group: str,
    kind: type[T],
    *,
    name: str | None = None,
    taken: Container[str] = (),
    problem_of: Callable[[T], str] = lambda _: "",
) -> dict[str, T]:
    """Load the plugins of an entry-point group. A plugin that cannot be used is logged and left out.

    Args:
        group: The entry-point group.
        kind: Required type of each plugin.
        name: Load only the plugin with this name; None loads all plugins.
        taken: Names that plugins must not have.
        problem_of: Returns the reason why an object cannot be used; "" if it can.

    Returns:
        The objects by name, sorted by name.
    """
    found: dict[str, T] = {}
    for entry in entries_of(group):
        if name not in (None, entry.name):
            continue
        if entry.name in taken or entry.name in found:
            _warn_once(entry, "another plugin or a built-in feature has the same name")
            continue
        value, problem = _load(entry)
        if not isinstance(value, kind):
            _warn_once(
                entry,
                problem or f"{entry.module}:{entry.attribute} must be a {kind.__name__}, not a {type(value).__name__}",
            )
        elif problem := problem_of(value):
            _warn_once(entry, problem)
        else:
            found[entry.name] = value
    return found


def entries_of(group: str) -> list[PluginEntry]:
    """Return a group's entry points, sorted by name. Of a distribution that is installed twice, the first counts."""
    entries: dict[str, tuple[PluginEntry, ...]] = {}
    for folder in sys.path:
        for package, declared in _declared(folder or ".", _changed(folder)).items():
            entries.setdefault(package, declared)
    found = (entry for declared in entries.values() for entry in declared if entry.group == group)
    return sorted(found, key=lambda entry: entry.name)


@lru_cache(maxsize=64)
def _declared(folder: str, changed: int) -> dict[str, tuple[PluginEntry, ...]]:
    """Return the entry points of the distributions in a folder that changed at this time, by distribution."""
    entries: dict[str, tuple[PluginEntry, ...]] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            package = name.partition("-")[0].removesuffix(".egg").lower()
            if name.endswith((".dist-info", ".egg-info")) and package not in entries:
                entries[package] = tuple(_read(Path(folder, name), package))
    return entries


def _read(path: Path, package: str) -> Iterator[PluginEntry]:
    try:
        text = (path / "entry_points.txt").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    group = ""
    for line in text.splitlines() if "[bench." in text or ENVIRONMENTS in text else ():
        if line.startswith("["):
            group = line.strip().strip("[]").strip()
        elif group.startswith(("bench.", ENVIRONMENTS)) and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            module, _, attribute = value.partition("[")[0].strip().partition(":")
            yield PluginEntry(package, group, name.strip(), module.strip(), attribute.strip())


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=256)
def _load(entry: PluginEntry) -> tuple[object, str]:
    """Return the object of an entry point, or the reason why it cannot be loaded, as a string."""
    try:
        value: object = importlib.import_module(entry.module)
        for name in filter(None, entry.attribute.split(".")):
            value = getattr(value, name)
    except (Exception, SystemExit) as error:  # code of other people
        return None, f"{type(error).__name__}: {error}"
    return value, ""


@lru_cache(maxsize=256)
def _warn_once(entry: PluginEntry, problem: str) -> None:
    logger.warning("%s is not used: %s", entry, problem)
