"""What is installed, against what bench needs; extras and what they would give; releases that are known to be bad. Owns
these tables and checks; reads metadata and imports no package that it looks at."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError
from typing import TYPE_CHECKING

from harness.cli.doctor.findings import Diagnosis, note, ok, problem

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OURS = "bench-harness"

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
    "textarena": "classic environments of textarena",
}
"""What one has of each extra. `dev` is for working on bench itself."""

SHIMMED = frozenset({"verifiers"})
"""What classic packages ask for and bench answers to itself."""


@dataclass(slots=True)
class Installed:
    """What can be imported here, read once.

    Args:
        paths: Where distributions are looked for; by default the import path.
    """

    paths: Sequence[str] | None = None
    _known: dict[str, Distribution | None] = field(default_factory=dict[str, Distribution | None])

    def get(self, name: str) -> Distribution | None:
        """The distribution of this name, if it is installed."""
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
    """A distribution's name as one compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements_of(dist: Distribution, extras: Iterable[str] = ("",)) -> Iterator[Requirement]:
    """What a distribution needs on this machine, with these extras ("" for none)."""
    from packaging.requirements import InvalidRequirement, Requirement

    wanted = tuple(extras)
    for text in dist.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # an old package's own fault; pip would not have read it either
        if requirement.marker is None:
            if "" in wanted:
                yield requirement
        elif any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            yield requirement


def shortfall(requirement: Requirement, installed: Installed) -> str:
    """What is not as a requirement wants it; "" if it is met."""
    dist = installed.get(requirement.name)
    if dist is None:
        return "not installed"
    if not requirement.specifier.contains(dist.version, prereleases=True):
        return f"{dist.version} is installed"
    return ""


def extra_that_brings(package: str, installed: Installed | None = None) -> str:
    """The extra of bench that installs `package` (a distribution's or a module's name); "" if none does."""
    ours = (installed or Installed()).get(OURS)
    if ours is None:
        return ""
    for extra in GIVES:
        if any(normal(each.name) == normal(package) for each in _only(ours, extra)):
            return extra
    return ""


def install_extra(extra: str) -> str:
    """The command that installs an extra."""
    return f"{sys.executable} -m pip install 'bench-harness[{extra}]'"


def _only(dist: Distribution, extra: str) -> list[Requirement]:
    """What an extra adds to the requirements."""
    plain = {str(each) for each in requirements_of(dist)}
    return [each for each in requirements_of(dist, (extra,)) if str(each) not in plain]


def check_packages(installed: Installed | None = None) -> list[Diagnosis]:
    """Whether what bench needs is installed, in releases that fit and that fit one another."""
    installed = installed or Installed()
    found: list[Diagnosis] = []
    ours = installed.get(OURS)
    if ours is None:
        says = "has no metadata: it is imported from a folder that nothing has installed"
        return [*found, problem("packages", OURS, says, f"install it: {sys.executable} -m pip install -e FOLDER")]
    needed = list(requirements_of(ours))
    unmet = [(each, why) for each in needed if (why := shortfall(each, installed))]
    for requirement, why in unmet:
        says = f"bench needs {requirement.name}{requirement.specifier}, and {_is(why)}"
        found.append(problem("packages", requirement.name, says, _install(requirement)))
    if not unmet:
        found.append(ok("packages", OURS, f"{ours.version}, and the {len(needed)} packages that it needs"))
    present, extras = _extras(ours, installed)
    return [*found, *extras, *_conflicts(ours, present, installed)]


def _is(why: str) -> str:
    return "it is not installed" if why == "not installed" else why


def _install(requirement: Requirement) -> str:
    return f"{sys.executable} -m pip install -U '{requirement.name}{requirement.specifier}'"


def _extras(ours: Distribution, installed: Installed) -> tuple[list[str], list[Diagnosis]]:
    """Which extras are here, and what to say of all of them."""
    present: list[str] = []
    absent: list[str] = []
    found: list[Diagnosis] = []
    for extra, gives in GIVES.items():
        unmet = [(each, why) for each in _only(ours, extra) if (why := shortfall(each, installed))]
        for requirement, why in unmet:
            if why != "not installed":
                says = f"{why}, and the extra {extra} ({gives}) wants {requirement.specifier}"
                found.append(note("packages", requirement.name, says, _install(requirement)))
        (absent if unmet else present).append(extra)
    if present:
        found.append(ok("packages", "extras", f"installed: {', '.join(present)}"))
    if absent:
        gaps = "; ".join(f"{extra} ({GIVES[extra]})" for extra in absent)
        found.append(ok("packages", "extras", f"not installed: {gaps}; to have one: {install_extra('NAME')}"))
    return present, found


def _conflicts(ours: Distribution, extras: Sequence[str], installed: Installed) -> Iterator[Diagnosis]:
    """Requirements of what bench needs, and so on, that are not met."""
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
                says = f"{dist.version} wants {requirement.name}{requirement.specifier}, and {_is(why)}"
                fix = f"{_install(requirement)} (and look whether pip then complains of another package)"
                yield note("packages", dist.name, says, fix)
            else:
                todo.append(requirement)
