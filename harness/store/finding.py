"""Search for run folders: all of an output folder, or the one that a name refers to. Manifests are read only if names
are not sufficient."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.store.atomic import translated
from harness.store.codec import from_text
from harness.store.invocations import Invocation, is_run, newest_invocation
from harness.store.safe_files import is_folder, link_error, read_file

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[a-z0-9]{4}")

_SECOND = 16
"""Length of the time in a run id, to the second."""

_LISTED = 5
"""Maximum number of runs in a message."""


def runs_in(parent: Path) -> list[Path]:
    """Run folders in `parent`, oldest first. Skipped: folders without `run.json`, links, and names that begin with a
    dot, which are being removed."""
    if parent.parent.name == "evals" and parent.is_symlink():
        return []  # links in an output folder are not followed
    return newest(_runs(parent), None)


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
    """Find the run with an exact id. The id may be untrusted: it is never used as a path.

    Raises:
        UsageError: there is no such run.
        StoreError: the output folder cannot be read.
    """
    runs = _under(output_dir)
    found = next((run for run in runs if run.name == run_id), None)
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
        if path is None and (named := _latest(name, output_dir, under)) is not None:
            path = _only(name, named)
        elif path is None:
            path = _named(name, Path(output_dir) / "evals", under(Path(output_dir)))
        found.append(path)
    return found


def latest_of(name: str, output_dir: Path | str) -> Invocation | None:
    """The newest invocation if `name` is `latest` or the path of an output folder; otherwise None.

    Raises:
        UsageError: there is no run.
        StoreError: the output folder cannot be read.
    """
    return _latest(name, output_dir, _under)


def _latest(name: str, output_dir: Path | str, under: Callable[[Path], list[Path]]) -> Invocation | None:
    """The newest invocation, as in `latest_of`; `under` lists the run folders of an output folder."""
    if name == "latest" and not os.path.exists(name):
        root = Path(output_dir)
    elif os.path.isdir(os.path.join(name, "evals")) and not is_run(Path(name)):
        root = Path(name)
    else:
        return None
    runs = under(root)
    return newest_invocation(root, newest(runs, 1)[-1] if runs else None, runs)


def _only(name: str, found: Invocation) -> Path:
    """The only run of an invocation; raises if it has several."""
    if len(found.runs) + len(found.failed) == 1:
        return found.runs[0]
    listing = "".join(f"\n  {run}" for run in found.runs)
    raise UsageError(f"{name} is a suite of {_counted(found.runs)} ({found.id}), and one is needed: name it{listing}")


def _at(name: str) -> Path | None:
    """The run folder if `name` is a path of one; otherwise None."""
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
        raise UsageError(f"no runs under {root}; name the output folder with --output-dir")
    matches = [run for run in runs if run.name == name] or [run for run in runs if name and run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = "write more of the id" if len({run.name for run in matches}) > 1 else "name one by its path"
        raise UsageError(f"{name!r} means {_counted(matches)}; {more}: {_listing(matches)}")
    raise UsageError(f"no run {name!r} under {root}; the newest are {_listing(runs)}")


def _under(output_dir: Path | str) -> list[Path]:
    """All run folders under an output folder, unsorted."""
    root = Path(output_dir) / "evals"
    with translated("read", root):
        if root.is_symlink():
            raise link_error(root)
        parents = [path for path in _entries(root) if is_folder(path)]
    found: list[Path] = []
    for parent in parents:
        with contextlib.suppress(OSError):  # one unreadable folder must not hide the others
            found += _runs(parent)
    return found


def _runs(parent: Path) -> list[Path]:
    return [path for path in _entries(parent) if is_folder(path) and is_run(path)]


def _entries(folder: Path) -> list[Path]:
    """Entries of a folder, without names that begin with a dot; empty if it is not a folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [folder / name for name in os.listdir(folder) if not name.startswith(".")]
    return []


def _counted(runs: Sequence[Path]) -> str:
    return f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}"


def _listing(runs: Sequence[Path]) -> str:
    """List the newest runs by name, and count the others."""
    named = [f"{run.name} ({run.resolve().parent.name})" for run in reversed(newest(runs, _LISTED))]
    more = len(runs) - len(named)
    return ", ".join([*named, *([f"and {more:,} older"] if more else [])])


def newest(runs: Iterable[Path], most: int | None) -> list[Path]:
    """The newest `most` of `runs`, oldest first; all if `most` is None. Sorted by the second in the id. Runs of the
    same second, such as those of a suite, are sorted by the microseconds in their manifests."""
    seconds: dict[str, list[Path]] = {}
    for run in runs:
        seconds.setdefault(run.name[:_SECOND] if _RUN_ID.fullmatch(run.name) else "", []).append(run)
    ordered: list[Path] = []
    for second in sorted(seconds, reverse=True):
        same = seconds[second]
        ordered += same if len(same) == 1 else sorted(same, key=_began, reverse=True)
        if most is not None and len(ordered) >= most:
            break
    return ordered[:most][::-1]


def _began(run: Path) -> tuple[str, str]:
    """Start time of a run from its manifest, and its id."""
    created: object = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        created = cast(JsonDict, from_text(read_file(run / "run.json"))).get("created")
    return (created if isinstance(created, str) else "", run.name)
