"""Checks that installed packages meet the requirements of bench and its extras, and that a target's environments have
their requirements and can be imported. Environments are imported in separate processes; they are not loaded or run."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError
from typing import TYPE_CHECKING

from harness.authoring.child_process import import_problem
from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.settings.packages import FoundEnvironment, comes_with_bench

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OURS = "bench-harness"

PATIENCE = 20.0
"""Timeout in seconds of one import."""

_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

GIVES: Mapping[str, str] = {
    "litellm": "providers whose API is not OpenAI's, such as Bedrock and Vertex AI",
    "mcp": "tools from MCP servers",
    "math": "MathRubric",
    "classic": "classic packages that call the model through openai",
    "polars": "results as polars data frames",
    "report": "figures in `bench report`",
    "prices": "prices of models for which neither endpoint nor registry gives one",
    "gym": "classic environments around gymnasium",
    "reasoning-gym": "classic environments of reasoning-gym",
    "ray": "environments on the nodes of a Ray cluster, `--executor ray`",
    "textarena": "classic environments of textarena",
    "lm-eval": "tasks of lm-eval",
}
"""The feature that each extra adds. The extra `dev` is for work on bench itself."""

SHIMMED = frozenset({"verifiers"})
"""Packages that classic environments require and bench provides itself."""


_ASKS = re.compile(rb"\bfind_sandbox\b|\bharness\.sandbox\b|\bPythonEnv\b|\bSandboxEnv\b|\bsandbox-env\b")

_MODULE = re.compile(r"(?:the module|No module named) '([\w.]+)'")

_MODULES = {"math_verify": "math-verify", "reasoning_gym": "reasoning-gym", "fastmcp": "fastmcp"}
"""Distribution names of modules that are named differently."""


@dataclass(slots=True)
class Installed:
    """Installed distributions, read once.

    Args:
        paths: Search path of distributions; by default the import path.
    """

    paths: Sequence[str] | None = None
    _known: dict[str, Distribution | None] = field(default_factory=dict[str, Distribution | None])

    def get(self, name: str) -> Distribution | None:
        """Return the distribution of this name, or None if it is not installed."""
        key = normal(name)
        if key not in self._known:
            self._known[key] = self._find(name)
        return self._known[key]

    def _find(self, name: str) -> Distribution | None:
        if self.paths is None:
            try:
                return importlib.metadata.distribution(name)
            except PackageNotFoundError:
                return None
        return next(iter(importlib.metadata.distributions(name=name, path=list(self.paths))), None)


def normal(name: str) -> str:
    """Normalize a distribution's name for comparison."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements_of(dist: Distribution, extras: Iterable[str] = ("",)) -> Iterator[Requirement]:
    """Iterate over the requirements of a distribution on this machine, with these extras ("" for none)."""
    from packaging.requirements import InvalidRequirement, Requirement

    wanted = tuple(extras)
    for text in dist.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # an old package's fault; pip would not parse it either
        if requirement.marker is None:
            if "" in wanted:
                yield requirement
        elif any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            yield requirement


def shortfall(requirement: Requirement, installed: Installed) -> str:
    """Describe how the installed packages fail a requirement; "" if it is met."""
    dist = installed.get(requirement.name)
    if dist is None:
        return "not installed"
    if not requirement.specifier.contains(dist.version, prereleases=True):
        return f"{dist.version} is installed"
    return ""


def extra_that_brings(package: str, installed: Installed | None = None) -> str:
    """Return the extra of bench that installs `package` (a distribution or module); "" if no extra does."""
    ours = (installed or Installed()).get(OURS)
    if ours is None:
        return ""
    for extra in GIVES:
        if any(normal(each.name) == normal(package) for each in _only(ours, extra)):
            return extra
    return ""


def install_extra(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"{sys.executable} -m pip install 'bench-harness[{extra}]'"


def _only(dist: Distribution, extra: str) -> list[Requirement]:
    """Return the requirements that one extra adds to those of bench."""
    plain = {str(each) for each in requirements_of(dist)}
    return [each for each in requirements_of(dist, (extra,)) if str(each) not in plain]


def check_packages(installed: Installed | None = None) -> list[Diagnosis]:
    """Check that the requirements of bench are installed, in versions that fit bench and one another."""
    installed = installed or Installed()
    found: list[Diagnosis] = []
    ours = installed.get(OURS)
    if ours is None:
        says = "has no metadata, because it is imported from a folder and not installed"
        return [*found, problem("packages", OURS, says, f"install it: {sys.executable} -m pip install -e FOLDER")]
    needed = list(requirements_of(ours))
    unmet = [(each, why) for each in needed if (why := shortfall(each, installed))]
    for requirement, why in unmet:
        says = f"bench needs {requirement.name}{requirement.specifier}, but {described(why)}"
        found.append(problem("packages", requirement.name, says, install_command(requirement)))
    if not unmet:
        found.append(ok("packages", OURS, f"{ours.version}, and the {len(needed)} packages that it needs"))
    present, extras = _extras(ours, installed)
    return [*found, *extras, *_conflicts(ours, present, installed)]


def described(why: str) -> str:
    """Return the reason why a requirement is not met, as a clause: which version is installed, or that the package is
    not installed."""
    return "it is not installed" if why == "not installed" else why


def install_command(requirement: Requirement) -> str:
    """Return the command that installs a version that meets a requirement."""
    return f"{sys.executable} -m pip install -U '{requirement.name}{requirement.specifier}'"


def _extras(ours: Distribution, installed: Installed) -> tuple[list[str], list[Diagnosis]]:
    """Return the installed extras, and the findings on all extras."""
    present: list[str] = []
    absent: list[str] = []
    found: list[Diagnosis] = []
    for extra, gives in GIVES.items():
        unmet = [(each, why) for each in _only(ours, extra) if (why := shortfall(each, installed))]
        for requirement, why in unmet:
            if why != "not installed":
                says = f"{why}, but the extra {extra} ({gives}) needs {requirement.specifier}"
                found.append(note("packages", requirement.name, says, install_command(requirement)))
        (absent if unmet else present).append(extra)
    if present:
        found.append(ok("packages", "extras", f"installed: {', '.join(present)}"))
    if absent:
        gaps = "; ".join(f"{extra} ({GIVES[extra]})" for extra in absent)
        found.append(ok("packages", "extras", f"not installed: {gaps}; to install one: {install_extra('NAME')}"))
    return present, found


def _conflicts(ours: Distribution, extras: Sequence[str], installed: Installed) -> Iterator[Diagnosis]:
    """Find unmet requirements of the packages that bench requires, recursively."""
    seen = {normal(OURS)}
    todo = [each for each in requirements_of(ours, ("", *extras)) if installed.get(each.name) is not None]
    while todo:
        wanted = todo.pop()
        dist = installed.get(wanted.name)
        if dist is None or normal(dist.name) in seen:
            continue
        seen.add(normal(dist.name))
        for requirement in requirements_of(dist, ("", *wanted.extras)):
            why = shortfall(requirement, installed)
            if why:
                says = f"{dist.version} needs {requirement.name}{requirement.specifier}, but {described(why)}"
                fix = f"{install_command(requirement)} (and check whether pip then reports another conflict)"
                yield note("packages", dist.name, says, fix)
            else:
                todo.append(requirement)


@dataclass(frozen=True, slots=True)
class WantedEnvironment:
    """One environment of the target."""

    env_id: str
    """Id of the environment as typed."""
    name: str
    """Name of the environment in tables."""
    found: FoundEnvironment
    is_built_in: bool = False


def wanting_sandbox(wanted: Sequence[WantedEnvironment]) -> list[str]:
    """Return the names of environments whose code mentions a sandbox. Their arguments may still disable it."""
    return [
        each.name
        for each in wanted
        if not each.is_built_in
        and any(_ASKS.search(file.read_bytes()) for file in each.found.source_files if file.is_file())
    ]


def import_all(names: Sequence[str], patience: float = PATIENCE) -> list[tuple[str, float]]:
    """Import environments without network, each in a separate process.

    Args:
        names: Names or paths, as in settings.
        patience: Timeout of each import in seconds.

    Returns:
        For each environment, the reason why it cannot be imported, or "", and the duration of the import in seconds.
    """
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
        return list(threads.map(partial(import_problem, patience=patience, environ=_OFFLINE), names))


def check_environments(wanted: Sequence[WantedEnvironment], installed: Installed | None = None) -> list[Diagnosis]:
    """Check that each environment can be imported, and that its requirements are installed."""
    installed = installed or Installed()
    imported = iter(import_all([each.env_id for each in wanted if not each.is_built_in]))
    found: list[Diagnosis] = []
    for each in wanted:
        if each.is_built_in:
            found.append(ok("environments", each.name, "is built in"))
            continue
        fault, seconds = next(imported)
        version = f"{each.found.dist_version}, {'part of bench' if comes_with_bench(each.found) else 'installed'}"
        if not each.found.dist_name:
            version = "not installed; used from its files"
        if fault:
            found.append(problem("environments", each.name, fault, _import_advice(each, fault, installed)))
        else:
            found.append(ok("environments", each.name, f"{version}; imported in {seconds:.1f} s"))
        found += _unmet(each, installed)
    return found


def _import_advice(wanted: WantedEnvironment, fault: str, installed: Installed) -> str:
    match = _MODULE.search(fault)
    if not match:
        return f"see where it fails: bench env check {wanted.env_id}"
    missing = match[1].partition(".")[0]
    if extra := extra_that_brings(_MODULES.get(missing, missing), installed):
        return install_extra(extra)
    path = wanted.found.path
    is_project = path is not None and path.is_dir()
    command = f"bench env install {path}" if is_project else f"{sys.executable} -m pip install {missing}"
    return f"install what it needs: {command}"


def _unmet(wanted: WantedEnvironment, installed: Installed) -> list[Diagnosis]:
    """Find unmet requirements of an environment's distribution, including requested extras of bench."""
    dist = installed.get(wanted.found.dist_name) if wanted.found.dist_name else None
    if dist is None:
        return []
    found: list[Diagnosis] = []
    for requirement in requirements_of(dist):
        if normal(requirement.name) in SHIMMED:
            continue
        why = shortfall(requirement, installed)
        if why:
            says = f"needs {requirement.name}{requirement.specifier}, but {described(why)}"
            found.append(note("environments", wanted.name, says, install_command(requirement)))
        elif normal(requirement.name) == OURS and (ours := installed.get(OURS)) is not None:
            for extra in sorted(requirement.extras):
                lacks = [each.name for each in requirements_of(ours, (extra,)) if shortfall(each, installed)]
                if lacks:
                    says = f"needs the extra {extra} of bench, but its requirements are not met: {', '.join(lacks)}"
                    found.append(problem("environments", wanted.name, says, install_extra(extra)))
    return found
