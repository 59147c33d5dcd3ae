"""Search for run folders: all runs in an output folder, or those to which a name given by the user refers. Manifests
are read only if the folders' names are not sufficient."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness.core.errors import UsageError
from harness.store.atomic import translated
from harness.store.invocations import (
    SECOND,
    Invocation,
    is_run,
    manifest_text,
    newest_invocation,
    read_invocation,
    suite_files,
)
from harness.store.safe_files import is_folder, link_error

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9]{4}")

_LISTED = 5
"""Maximum number of runs in a message."""


def runs_in(parent: Path) -> list[Path]:
    """Run folders in `parent`, oldest first, without links and without folders that are being removed, whose names
    begin with a dot."""
    if parent.parent.name == "evals" and parent.is_symlink():
        return []  # links in an output folder are not followed
    return newest(filter(is_run, _folders(parent)), None)


def all_runs(output_dir: Path | str) -> list[Path]:
    """All run folders under `output_dir`, oldest first.

    Raises:
        StoreError: the output folder cannot be read.
    """
    return newest(_under(output_dir), None)


def find_run(output_dir: Path | str, name: str) -> Path:
    """Find the run folder for a name.

    Args:
        output_dir: The output folder to search.
        name: A path of a run folder (or of a file in it), a run id, the beginning of exactly one id, `latest`, or an
            output folder: the only run of the newest invocation.

    Raises:
        UsageError: no run matches, or more than one.
        StoreError: the output folder cannot be read.
    """
    return find_runs(output_dir, [name])[0]


def find_sibling(output_dir: Path | str, run_id: str) -> Path:
    """Find the run with exactly this id. The id may be untrusted, since it is never used as a path.

    Raises:
        UsageError: there is no such run.
        StoreError: the output folder cannot be read.
    """
    found = next((run for run in _under(output_dir) if run.name == run_id), None)
    if found is None:
        raise UsageError(f"no run {run_id!r} under {Path(output_dir) / 'evals'}")
    return found


def find_runs(output_dir: Path | str, names: Iterable[str]) -> list[Path]:
    """Find the run folders for several names, in their order.

    Args:
        output_dir: The output folder to search; it is read at most once.
        names: Names as in `find_run`.

    Raises:
        UsageError: as in `find_run`.
        StoreError: as in `find_run`.
    """
    under = functools.cache(_under)
    found: list[Path] = []
    for name in names:
        path = _at(name)
        if path is None and (named := latest_of(name, output_dir, under)) is not None:
            if len(named.runs) + len(named.failed) != 1:
                listing = "".join(f"\n  {run}" for run in named.runs)
                suite = f"a suite of {_counted(named.runs)} ({named.id})"
                raise UsageError(f"{name} is {suite}, but only one run is allowed here; name one of them:{listing}")
            path = named.runs[0]
        elif path is None:
            path = _named(name, Path(output_dir) / "evals", under(Path(output_dir)))
        found.append(path)
    return found


def latest_of(
    name: str, output_dir: Path | str, under: Callable[[Path], list[Path]] | None = None
) -> Invocation | None:
    """The newest invocation if `name` is `latest` or the path of an output folder; otherwise None.

    Args:
        name: Name given by the user.
        output_dir: The output folder for `latest`.
        under: Function that lists the run folders of an output folder; default: read them now.

    Raises:
        UsageError: there is no run.
        StoreError: the output folder cannot be read.
    """
    if name == "latest" and not os.path.exists(name):
        root = Path(output_dir)
    elif os.path.isdir(os.path.join(name, "evals")) and not is_run(Path(name)):
        root = Path(name)
    else:
        return None
    runs = _under(root) if under is None else under(root)
    return newest_invocation(root, newest(runs, 1)[-1] if runs else None, runs)


def _at(name: str) -> Path | None:
    """The run folder if `name` is the path of one; otherwise None."""
    if os.path.exists(name):
        for candidate in (Path(name), Path(name).parent):
            if is_run(candidate):
                return candidate if candidate.name else candidate.resolve()
        if held := runs_in(Path(name)):
            raise UsageError(f"{name} is the folder of {_counted(held)}; name one of them: {_listing(held)}")
    return None


def _named(name: str, root: Path, runs: Sequence[Path]) -> Path:
    """The run whose id is, or begins with, `name`."""
    if not runs:
        raise UsageError(f"no runs under {root}", remedy="name the output folder with {runs_dir}")
    matches = [run for run in runs if run.name == name] or [run for run in runs if name and run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = "give more of the id" if len({run.name for run in matches}) > 1 else "name one by its path"
        raise UsageError(f"{name!r} matches {_counted(matches)}; {more}: {_listing(matches)}")
    raise UsageError(f"no run {name!r} under {root}; the newest are {_listing(runs)}")


def _under(output_dir: Path | str) -> list[Path]:
    """All run folders under an output folder, unsorted."""
    root = Path(output_dir) / "evals"
    with translated("read", root):
        if root.is_symlink():
            raise link_error(root)
        parents = _folders(root)
    found: list[Path] = []
    for parent in parents:
        with contextlib.suppress(OSError):  # one unreadable folder must not hide the others
            found += filter(is_run, _folders(parent))
    return found


def _folders(parent: Path) -> list[Path]:
    """Folders in `parent`, without links and names that begin with a dot; empty if `parent` is not a folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        paths = [parent / name for name in os.listdir(parent) if not name.startswith(".")]
        return [path for path in paths if is_folder(path)]
    return []


def _counted(runs: Sequence[Path]) -> str:
    return f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}"


def _listing(runs: Sequence[Path]) -> str:
    """List the newest runs by name, and count the others."""
    named = [f"{run.name} ({run.resolve().parent.name})" for run in reversed(newest(runs, _LISTED))]
    more = len(runs) - len(named)
    return ", ".join([*named, *([f"and {more:,} older"] if more else [])])


def newest(runs: Iterable[Path], most: int | None) -> list[Path]:
    """Return the newest runs, oldest first: at most `most`, or all if `most` is None. Sorted by the time in the id;
    runs of the same second, such as those of a suite, by the microseconds in their manifests."""
    seconds: dict[str, list[Path]] = {}
    for run in runs:
        seconds.setdefault(run.name[:SECOND] if _RUN_ID.fullmatch(run.name) else "", []).append(run)
    ordered: list[Path] = []
    for second in sorted(seconds, reverse=True):
        same = seconds[second]
        ordered += (
            same
            if len(same) == 1
            else sorted(same, key=lambda run: (manifest_text(run, "created"), run.name), reverse=True)
        )
        if most is not None and len(ordered) >= most:
            break
    return ordered[:most][::-1]


def choose(output_dir: Path, names: Sequence[str]) -> Invocation:
    """Find the runs that several names of runs or suites refer to.

    Args:
        output_dir: Folder in which to search for runs and suites.
        names: Each a run, as in `find_run`; or a suite: its id, the beginning of its id if no run's id
            begins like that, or the path of its file; or `latest`, or an output folder: every run of the newest
            invocation. Empty means `latest`.

    Returns:
        The runs, without duplicates, in the order of the names and within each suite.

    Raises:
        UsageError: a name matches nothing, or more than one run or suite; or all runs of a suite were removed.
        StoreError: the output folder or a suite's file cannot be read.
    """
    runs: dict[Path, Path] = {}
    gone: list[str] = []
    failed: list[str] = []
    for name in names or ["latest"]:
        found = latest_of(name, output_dir)
        if found is None and (file := _suite_file(output_dir, name)) is not None:
            found = read_invocation(file)
            if not found.runs:
                raise UsageError(f"{file}: none of the {len(found.gone)} runs of this suite exists any more")
        found = found or Invocation("", [find_run(output_dir, name)])
        for path in found.runs:
            runs.setdefault(path.resolve(), path)
        gone += found.gone
        failed += found.failed
    return Invocation("", list(runs.values()), gone, failed)


def _suite_file(output_dir: Path, name: str) -> Path | None:
    """Find the suite file that a user's name refers to; None if it may be the name of a run."""
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
    runs = (path for path in (output_dir / "evals").glob("*/*") if is_folder(path))
    if not matches or any(path.name.startswith(name) for path in runs):
        return None
    if len(matches) > 1:
        raise UsageError(f"{name!r} matches {len(matches)} suites; give more of the id: {', '.join(matches[-5:])}")
    return folder / f"{matches[0]}.json"
