"""Resolution of names of runs and suites to run folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import UsageError
from harness.store.finding import find_run, latest_of
from harness.store.invocations import Invocation, read_invocation, suite_files
from harness.store.safe_files import is_folder


@dataclass(slots=True)
class Chosen:
    """Runs selected by name."""

    paths: list[Path] = field(default_factory=list[Path])
    """Run folders, in the order of the names and within each suite; each once."""
    gone: list[str] = field(default_factory=list[str])
    """Removed runs of a suite, as listed in its file."""
    failed: list[str] = field(default_factory=list[str])
    """Names of environments of a suite that failed to load and have no run."""
    _places: set[Path] = field(default_factory=set[Path])

    def add(self, path: Path) -> None:
        """Add a run folder, unless it is already selected."""
        place = path.resolve()
        if place not in self._places:
            self._places.add(place)
            self.paths.append(path)


def choose(output_dir: Path, names: Sequence[str]) -> Chosen:
    """Find the runs for some names.

    Args:
        output_dir: Folder in which to search for runs and suites.
        names: Each a run, as in `store.finding.find_run`; or a suite: its id, the beginning of its id if no run's id
            begins like that, or the path of its file; or `latest`, or an output folder: every run of the newest
            invocation. Empty means `latest`.

    Raises:
        UsageError: a name matches nothing, or several things; or no run of a suite is left.
        StoreError: the output folder or a suite's file cannot be read.
    """
    chosen = Chosen()
    for name in names or ["latest"]:
        if (latest := latest_of(name, output_dir)) is not None:
            _add(chosen, latest)
        elif (file := _suite_file(output_dir, name)) is not None:
            _take(chosen, file)
        else:
            chosen.add(find_run(output_dir, name))
    return chosen


def _suite_file(output_dir: Path, name: str) -> Path | None:
    """Suite file for a name; None if the name may be a run's."""
    path = Path(name)
    if path.suffix == ".json" and os.path.isfile(name) and not os.path.isfile(path.parent / "run.json"):
        return path
    if not name or name == "latest" or os.path.basename(name) != name or os.path.lexists(name):
        return None
    folder = output_dir / "suites"
    ids = [file.stem for file in suite_files(output_dir)]
    if name in ids:
        return folder / f"{name}.json"
    matches = [each for each in ids if each.startswith(name)]
    if not matches or _some_run(output_dir, name):
        return None
    if len(matches) > 1:
        raise UsageError(f"{name!r} means {len(matches)} suites; write more of the id: {', '.join(matches[-5:])}")
    return folder / f"{matches[0]}.json"


def _some_run(output_dir: Path, beginning: str) -> bool:
    """Whether any run id begins with this text."""
    return any(path.name.startswith(beginning) for path in (output_dir / "evals").glob("*/*") if is_folder(path))


def _take(chosen: Chosen, file: Path) -> None:
    """Add a suite's runs in order."""
    found = read_invocation(file)
    if not found.runs:
        raise UsageError(f"{file}: none of its {len(found.gone)} runs is there any more")
    _add(chosen, found)


def _add(chosen: Chosen, found: Invocation) -> None:
    for path in found.runs:
        chosen.add(path)
    chosen.gone += found.gone
    chosen.failed += found.failed
