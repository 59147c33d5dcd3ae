"""Checks of an environment's package: entry point, default settings, README. Nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.authoring.arguments import LoaderFunction
from harness.authoring.findings import Finding, fail, ok, skipped
from harness.authoring.package import FUNCTION, Package, fault_of
from harness.core.messages import COMMANDS
from harness.settings.packages import FoundEnvironment

_NO_PACKAGE = f"a single file: put it into a package (`{COMMANDS['init_command']}`) to publish it"


def package_findings(found: FoundEnvironment, package: Package, loader: LoaderFunction | None) -> Iterable[Finding]:
    """Findings about the package of an environment."""
    fault = fault_of(found, package)
    obstacle = _NO_PACKAGE if package.kind == "file" else ""
    if fault:
        yield fail(
            "pyproject",
            fault,
            "correct this line: otherwise the project cannot be installed, and its settings are ignored",
        )
        obstacle = "not possible: pyproject.toml cannot be read"
    if obstacle:
        yield from (skipped(name, obstacle) for name in ("entry point", "defaults", "README"))
        return
    yield _entry_point(found, package)
    yield _defaults(found, package)
    yield _readme(package, loader)


def _entry_point(found: FoundEnvironment, package: Package) -> Finding:
    ours = {
        name: value
        for name, value in package.entry_points.items()
        if value.partition(":")[0].partition(".")[0].strip() == found.module
    }
    if ours:
        return ok("entry point", ", ".join(f"{name} = {value}" for name, value in ours.items()))
    if package.is_classic:
        return skipped("entry point", f"a classic package: it is found by its module's name, {found.module}")
    return fail("entry point", "no entry point of the group harness.environments",
                f'add to pyproject.toml: [project.entry-points."harness.environments"] and below it '
                f'{package.name} = "{found.module}:{FUNCTION}"')  # fmt: skip


def _defaults(found: FoundEnvironment, package: Package) -> Finding:
    if found.notice:
        return fail("defaults", found.notice, "include the package's own pyproject.toml in its module")
    if found.defaults:
        table = (found.defaults_source or "").rpartition(" [")[2].rstrip("]")
        values = ", ".join(f"{name} = {value}" for name, value in found.defaults.items())
        return ok("defaults", f"[{table}] {values}")
    advice = "add [tool.harness.eval] with num_examples and rollouts_per_example to pyproject.toml"
    if package.kind in ("bundled", "installed"):
        advice += f", and include that file in the wheel, as `{COMMANDS['init_command']}` does"
    return fail("defaults", "no [tool.harness.eval]: a run has 5 examples by default", advice)


def _readme(package: Package, loader: LoaderFunction | None) -> Finding:
    if not package.readme:
        return fail("README", "missing or empty", "describe the task, the source of the data, the arguments and the "
                    "grading; name the file in [project] readme")  # fmt: skip
    unnamed = unmentioned(package.readme, [each.name for each in loader.arguments] if loader else [])
    words = f"{len(package.readme.splitlines())} lines"
    return ok("README", words + (f"; it does not name the argument {', '.join(unnamed)}" if unnamed else ""))


def unmentioned(text: str, names: Sequence[str]) -> list[str]:
    """The names that do not occur as words in a text."""
    return [name for name in names if not re.search(rf"(?<![\w]){re.escape(name.lstrip('*'))}(?![\w])", text)]
