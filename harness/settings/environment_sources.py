"""Plugins of the group `bench.environment_sources`: collections of environments with a common prefix. The entry point's
name is the prefix, such as `acme` in `acme/chemistry`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from harness.core.errors import EnvironmentLoadError, EnvironmentNotFound, HarnessError
from harness.core.plugins import load_plugins

ENVIRONMENT_SOURCES = "bench.environment_sources"

_SHOWN = 5
"""Maximum number of names in a message."""


@dataclass(frozen=True, slots=True)
class FoundEnvironment:
    """An importable environment, and facts known without importing it."""

    module: str
    dist_name: str | None = None
    """Name of the distribution that contains the module; None if no distribution contains it."""
    dist_version: str | None = None
    source_files: tuple[Path, ...] = ()
    """The environment's own Python files, sorted. If they change, the run's identity changes."""
    defaults: dict[str, object] = field(default_factory=dict[str, object])
    """The table `[tool.harness.eval]` of the environment's project, or else `[tool.verifiers.eval]`; not validated."""
    defaults_source: str | None = None
    """File and table of the defaults."""
    notice: str | None = None
    """Reason why existing defaults were not used."""
    path: Path | None = None
    """File or folder that the user named; None if the user gave a name."""
    code: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Hashes of classes and functions that are not defined in a file, such as those of a notebook."""
    code_args: tuple[str, ...] = ()
    """Names of arguments that are code which the environment runs: files, folders, addresses, `module:attribute`. A run
    from another machine that has one asks first, unless it is installed or in the user's own folder."""
    trust_args: dict[str, str] = field(default_factory=dict[str, str])
    """Names of other arguments for which a run from another machine asks first, with the action to confirm. `{}` in it
    is replaced by each text in the value: `{"pass_env": "read the variable {}"}`."""


class EnvironmentSource:
    """Base class of environment sources."""

    summary: ClassVar[str] = ""
    """Summary of the environment whose id is the prefix alone, such as `acme`; its name is then "". Without a summary,
    there is no such environment."""

    def names(self) -> Iterable[str]:
        """Names of all environments, without the prefix; used to suggest a name."""
        return ()

    def find(self, name: str) -> FoundEnvironment | None:
        """Return facts about an environment without importing it; None if no environment has this name.

        Args:
            name: The name without the prefix.
        """
        raise NotImplementedError

    def function(self, name: str) -> Callable[..., object]:
        """Return the function that creates an environment from the keyword arguments in `env_args`.

        Args:
            name: A name for which `find` returned facts.
        """
        raise NotImplementedError


def source_of(env_id: str) -> tuple[EnvironmentSource, str] | None:
    """Split an id such as `acme/chemistry` into the source of its prefix and the name; None if no source has it."""
    prefix, _, name = env_id.partition("/")
    if not prefix:
        return None
    source = load_plugins(ENVIRONMENT_SOURCES, EnvironmentSource, name=prefix).get(prefix)
    return None if source is None or not (name or source.summary) else (source, name)


def find_in_source(source: EnvironmentSource, name: str, env_id: str) -> FoundEnvironment:
    """Return facts about an environment that a plugin provides, without importing the environment.

    Raises:
        EnvironmentNotFound: the source has no environment of this name; the message suggests a similar one.
        EnvironmentLoadError: code of the source failed.
    """
    try:
        found = source.find(name)
        names = [] if found is not None else sorted(source.names())
    except HarnessError:
        raise
    except Exception as error:  # code of other people
        prefix = env_id.partition("/")[0]
        problem = f"the plugin {prefix!r} ({ENVIRONMENT_SOURCES}) failed: {type(error).__name__}: {error}"
        raise EnvironmentLoadError(f"environment {env_id!r}: {problem}") from error
    if found is not None:
        return found
    close = difflib.get_close_matches(name, names, 1)
    known = f"did you mean {close[0]!r}?" if close else f"its environments are {', '.join(names[:_SHOWN]) or 'none'}"
    more = f" and {len(names) - _SHOWN} more" if not close and len(names) > _SHOWN else ""
    raise EnvironmentNotFound(f"{env_id.partition('/')[0]!r} has no environment {name!r}; {known}{more}")
