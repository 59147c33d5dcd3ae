"""Support for `pip_install_packages` of `vf.PythonEnv`. Nothing is downloaded: the packages must be installed in
bench's Python environment, and the sandbox makes them importable. Checks the names and versions of the packages."""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import shlex
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from harness.core.errors import EnvironmentFault
from harness.plugins.classic.packages import top_levels


def modules_of(packages: str, who: str) -> tuple[str, ...]:
    """Return the import names of the modules of the given packages and of all packages that they require.

    Args:
        packages: The packages as on pip's command line.
        who: The environment, for messages.

    Raises:
        EnvironmentFault: a package or its requested version is not installed; the message says what to install.
    """
    wanted = [_requirement(word, who) for word in shlex.split(packages) if not word.startswith("-")]
    missing = [str(requirement) for requirement in wanted if not _is_met(requirement)]
    if missing:
        raise EnvironmentFault(
            f"{who}(pip_install_packages=…): not installed: {', '.join(missing)}. The sandbox has no network and uses "
            f"the packages that are installed with bench; run: pip install {' '.join(map(shlex.quote, missing))}"
        )
    found: dict[str, list[str]] = {}
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and _is_met(requirement):  # a dependency is missing after `pip install --no-deps`
            found[name] = list(_modules(requirement.name))
            waiting.extend(_required(requirement))
    return tuple(sorted({module for modules in found.values() for module in modules}))


def _requirement(word: str, who: str) -> Requirement:
    try:
        return Requirement(word)
    except InvalidRequirement as error:
        raise EnvironmentFault(
            f"{who}(pip_install_packages=…): {word!r} is not a valid package requirement: {error}"
        ) from error


def _is_met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _required(requirement: Requirement) -> Iterator[Requirement]:
    for line in metadata.requires(requirement.name) or ():
        needed = Requirement(line)
        extras = ("", *requirement.extras)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
            yield needed


def _modules(distribution: str) -> Iterator[str]:
    """Find the top-level modules of a distribution that can be imported from files."""
    for name in sorted(top_levels(metadata.distribution(distribution))):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and spec.has_location:
            yield name
