"""Runs that belong to one invocation: suite files under `suites/`, and the newest invocation of an output folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from harness.core.errors import StoreError, UsageError
from harness.core.types import JsonDict
from harness.store.atomic import translated
from harness.store.codec import from_text
from harness.store.safe_files import files_in, is_file, is_folder, read_file, refuse_links

SECOND = 16
"""Number of characters in an id that give the time, to the second."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """The runs that one command started or resumed."""

    id: str
    """Id of the suite; empty for a run without a suite."""
    runs: list[Path]
    """Existing run folders, in the order of the suite."""
    gone: list[str] = field(default_factory=list[str])
    """Paths of removed runs, as listed in the suite's file."""
    failed: list[str] = field(default_factory=list[str])
    """Names of environments that failed to load and have no run."""
    names: list[str] = field(default_factory=list[str])
    """Names of all runs, including removed ones."""


def read_invocation(file: Path) -> Invocation:
    """Read the invocation from a suite's file.

    Raises:
        StoreError: the file cannot be read, or is not a suite file.
    """
    with translated("read", file):
        content = read_file(file)
    try:
        document = from_text(content)
    except ValueError as error:
        raise StoreError(f"cannot read {file}: not JSON ({error})") from error
    whole = cast(JsonDict, document) if isinstance(document, dict) else {}
    runs, failed = whole.get("runs"), whole.get("failed", [])
    if not isinstance(runs, list) or not isinstance(failed, list):
        raise StoreError(f"cannot read {file}: not a suite file (it has no list `runs`)")
    entries = [cast(JsonDict, run) if isinstance(run, dict) else {} for run in cast("list[object]", runs)]
    root = file.absolute().parent.parent
    found = Invocation(file.stem, [], failed=[str(name) for name in cast("list[object]", failed)])
    for entry in entries:
        listed = entry.get("path")
        if not isinstance(listed, str) or not listed:
            raise StoreError(f"cannot read {file}: a run in it has no path")
        path = root / listed  # an absolute path is not changed
        found.names.append(str(entry.get("name") or entry.get("env_id")))
        if is_run(path) and _is_its_own(path, root, file.stem):
            found.runs.append(path if file.is_absolute() else Path(os.path.relpath(path)))
        else:
            found.gone.append(listed)
    return found


def is_run(path: Path) -> bool:
    """Return whether a folder is a run folder: it contains a `run.json`, readable or not, that is not a folder."""
    try:
        return not stat.S_ISDIR(os.lstat(path / "run.json").st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # it exists; reading it will report the error


def newest_invocation(output_dir: Path | str, newest: Path | None, runs: Sequence[Path]) -> Invocation:
    """The newest invocation of an output folder: the suite whose runs were started or resumed last, or a single run.

    A resumed run belongs to the invocation that first started it; the file that resume writes to `suites/` is ignored.

    Args:
        output_dir: The output folder.
        newest: The run that began last; None if there are no runs.
        runs: All run folders.

    Raises:
        UsageError: none of its environments could be loaded, or all of its runs were removed.
        StoreError: a suite's file cannot be read.
    """
    found = _newest_suite(Path(output_dir) / "suites")
    if newest is not None and not _is_newer(found, newest):
        suite = _suite_of(newest)
        file = Path(output_dir) / "suites" / f"{suite}.json"
        if suite and is_folder(file.parent) and is_file(file):  # for another suite of the same second
            named = read_invocation(file)
            if newest.resolve() in {path.resolve() for path in named.runs}:
                return named
        same = [path for path in runs if suite and _suite_of(path) == suite]  # suite files may be missing
        return Invocation(suite, sorted(same, key=lambda path: path.name)) if same else Invocation("", [newest])
    if found is None:
        raise UsageError(f"no runs under {Path(output_dir) / 'evals'}", remedy="name the output folder with {runs_dir}")
    if not found.runs:
        why = f"could not load {', '.join(found.failed)}" if found.failed else "has no runs left"
        raise UsageError(
            f"latest is the invocation {found.id}, which {why}", remedy="name a run or a suite: see {runs_command}"
        )
    return found


def suite_of(run: Path, output_dir: Path | str) -> Invocation | None:
    """The recorded suite, with several runs, that a run belongs to; None if it was started alone."""
    suite = _suite_of(run)
    parents = run.resolve().parents
    home = parents[2] if len(parents) > 2 and parents[1].name == "evals" else Path(output_dir)
    with contextlib.suppress(StoreError):
        if suite and is_file(file := home / "suites" / f"{suite}.json") and is_folder(file.parent):
            found = read_invocation(file)
            return found if len(found.names) + len(found.failed) > 1 else None
    return None


def suite_files(output_dir: Path | str) -> list[Path]:
    """Suite files in an output folder, oldest first; within the same second by modification time.

    Raises:
        StoreError: the folder cannot be read.
    """
    folder = Path(output_dir) / "suites"
    with translated("read", folder):
        return sorted(files_in(folder, ".json"), key=lambda file: (file.name[:SECOND], file.lstat().st_mtime_ns))


def _is_its_own(path: Path, root: Path, suite: str) -> bool:
    """Return whether a run listed in a suite's file belongs to the suite, as its location or manifest shows. Without
    this check, a suite file from another person could cause any run on this machine to be listed, or even published."""
    if ".." not in path.parts and path.is_relative_to(root):
        with contextlib.suppress(OSError):
            refuse_links(root, path)
            return True
    return _suite_of(path) == suite


def _newest_suite(folder: Path) -> Invocation | None:
    """The newest suite that is named in the manifest of one of its runs, or that has no run left."""
    for file in reversed(suite_files(folder.parent)):
        found = read_invocation(file)
        if not found.runs and not found.failed:
            continue  # all of it was removed by the user
        if not found.runs or any(_suite_of(path) == found.id for path in found.runs):
            return found
    return None


def _is_newer(suite: Invocation | None, run: Path) -> bool:
    """Return whether `suite` began after `run`, or contains it."""
    if suite is None:
        return False
    if not suite.runs:  # within a second the order is unknown; a gate must not use an older run
        return suite.id[:SECOND] >= run.name[:SECOND]
    return run.resolve() in {path.resolve() for path in suite.runs} or suite.id[:SECOND] > run.name[:SECOND]


def _suite_of(run: Path) -> str:
    """Id of the suite from a run's manifest; empty if the run has no suite or the manifest cannot be read."""
    suite = manifest_text(run, "suite")
    return suite if os.path.basename(suite) == suite else ""


def manifest_text(run: Path, name: str) -> str:
    """A string field of a run's manifest, without validating the manifest; empty if missing or unreadable."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        value = cast(JsonDict, from_text(read_file(run / "run.json"))).get(name)
        return value if isinstance(value, str) else ""
    return ""
