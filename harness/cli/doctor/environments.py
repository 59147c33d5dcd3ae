"""Checks of the environments of a target: found, requirements installed, importable. Environments are imported in a
separate process, and neither built nor run."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.cli.doctor.imports import Imported, import_all
from harness.cli.doctor.packages import (
    OURS,
    SHIMMED,
    Installed,
    described,
    extra_that_brings,
    install_command,
    install_extra,
    normal,
    requirements_of,
    shortfall,
)
from harness.cli.doctor.sandboxes import asks_for_sandbox
from harness.settings.packages import FoundEnvironment

_MODULE = re.compile(r"(?:the module|No module named) '([\w.]+)'")

_MODULES = {"math_verify": "math-verify", "reasoning_gym": "reasoning-gym", "fastmcp": "fastmcp"}
"""Distribution names of modules where they differ."""


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
    """Names of the environments whose code mentions a sandbox."""
    return [each.name for each in wanted if not each.is_built_in and asks_for_sandbox(each.found.source_files)]


def check_environments(wanted: Sequence[WantedEnvironment], installed: Installed | None = None) -> list[Diagnosis]:
    """Check that each environment can be imported, and that its requirements are installed."""
    installed = installed or Installed()
    others = [each for each in wanted if not each.is_built_in]
    imported = dict(zip([each.env_id for each in others], import_all([each.env_id for each in others]), strict=True))
    found: list[Diagnosis] = []
    for each in wanted:
        if each.is_built_in:
            found.append(ok("environments", each.name, "is built in"))
            continue
        found.append(_import_finding(each, imported[each.env_id], installed))
        found += _unmet(each, installed)
    return found


def _import_finding(wanted: WantedEnvironment, imported: Imported, installed: Installed) -> Diagnosis:
    found = wanted.found
    version = f"{found.dist_version}, installed" if found.dist_name else "not installed, and run from its files"
    if not imported.problem:
        return ok("environments", wanted.name, f"{version}; imported in {imported.seconds:.1f} s")
    match = _MODULE.search(imported.problem)
    missing = match[1].partition(".")[0] if match else ""
    extra = extra_that_brings(_MODULES.get(missing, missing), installed) if missing else ""
    if extra:
        fix = install_extra(extra)
    elif missing:
        what = f"bench env install {found.path}" if found.path and found.path.is_dir() else (
            f"{sys.executable} -m pip install {missing}")  # fmt: skip
        fix = f"install what it needs: {what}"
    else:
        fix = f"see where it fails: bench env check {wanted.env_id}"
    return problem("environments", wanted.name, imported.problem, fix)


def _unmet(wanted: WantedEnvironment, installed: Installed) -> list[Diagnosis]:
    """Unmet requirements of the environment's distribution, including requested extras of bench."""
    dist = installed.get(wanted.found.dist_name) if wanted.found.dist_name else None
    if dist is None:
        return []
    found: list[Diagnosis] = []
    for requirement in requirements_of(dist):
        if normal(requirement.name) in SHIMMED:
            continue
        why = shortfall(requirement, installed)
        if why:
            says = f"wants {requirement.name}{requirement.specifier}, and {described(why)}"
            found.append(note("environments", wanted.name, says, install_command(requirement)))
        elif normal(requirement.name) == OURS and (ours := installed.get(OURS)) is not None:
            for extra in sorted(requirement.extras):
                lacks = [each.name for each in requirements_of(ours, (extra,)) if shortfall(each, installed)]
                if lacks:
                    says = f"wants the extra {extra} of bench, and {', '.join(lacks)} is not as that asks for"
                    found.append(problem("environments", wanted.name, says, install_extra(extra)))
    return found
