"""Which runs an invocation made, found again. Owns reading the files under `suites/` and what a name means that may
stand for one run or for all runs of an invocation; single runs are `store.finding`'s."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from harness.caps import read_whole
from harness.errors import StoreError, UsageError
from harness.store.atomic import translated
from harness.store.codec import from_text
from harness.store.finding import find_run, find_runs
from harness.store.rundir import RunDir
from harness.types import JsonDict


@dataclass(slots=True)
class Chosen:
    """The runs that some names mean."""

    paths: list[Path] = field(default_factory=list[Path])
    """Run folders in the order of the names, and of each suite; each once."""
    gone: list[str] = field(default_factory=list[str])
    """Runs of a suite that are not there any more, as its file names them."""
    _places: set[Path] = field(default_factory=set[Path])

    def add(self, path: Path) -> None:
        """Take a run folder, unless it is there already."""
        place = path.resolve()
        if place not in self._places:
            self._places.add(place)
            self.paths.append(path)


def choose(output_dir: Path, names: Sequence[str]) -> Chosen:
    """The runs that `names` mean.

    Args:
        output_dir: Where runs and suites are looked for.
        names: Each a run, as `store.finding.find_run` takes it; or a suite: its id, the beginning of its id where no
            run's id begins like that, or the path of its file. None at all: every run of the newest invocation.

    Raises:
        UsageError: a name means nothing, or more than one thing; or no run of a suite is left.
        StoreError: the output folder or a suite's file cannot be read.
    """
    chosen = Chosen()
    for name in names:
        file = _suite_file(output_dir, name)
        if file is None:
            chosen.add(find_run(output_dir, name))
        else:
            _take(chosen, file)
    if not names:
        _newest(chosen, output_dir)
    return chosen


def _newest(chosen: Chosen, output_dir: Path) -> None:
    [latest] = find_runs(output_dir, ["latest"])
    suite = RunDir(latest).read_manifest().suite
    file = output_dir / "suites" / f"{suite}.json"
    if suite and os.path.basename(suite) == suite and file.is_file():
        _take(chosen, file)
    else:
        chosen.add(latest)


def _suite_file(output_dir: Path, name: str) -> Path | None:
    """The file of the suite that a name means; None if it is for `find_run` to say."""
    path = Path(name)
    if path.suffix == ".json" and os.path.isfile(name) and not os.path.isfile(path.parent / "run.json"):
        return path
    if not name or name == "latest" or os.path.basename(name) != name or os.path.lexists(name):
        return None
    folder = output_dir / "suites"
    with translated("read", folder):
        ids = sorted(file.stem for file in folder.glob("*.json")) if folder.is_dir() else []
    if name in ids:
        return folder / f"{name}.json"
    matches = [each for each in ids if each.startswith(name)]
    if not matches or _some_run(output_dir, name):
        return None
    if len(matches) > 1:
        raise UsageError(f"{name!r} means {len(matches)} suites; write more of the id: {', '.join(matches[-5:])}")
    return folder / f"{matches[0]}.json"


def _some_run(output_dir: Path, beginning: str) -> bool:
    """Whether the id of any run begins like that."""
    return any(path.name.startswith(beginning) for path in (output_dir / "evals").glob("*/*/") if path.is_dir())


def _take(chosen: Chosen, file: Path) -> None:
    """Add a suite's runs, in its order."""
    root, taken = file.absolute().parent.parent, 0
    for said in _paths(file):
        path = root / said  # one that is absolute stays so
        if (path / "run.json").is_file():
            taken += 1
            chosen.add(_as_given(path, file))
        else:
            chosen.gone.append(said)
    if not taken:
        raise UsageError(f"{file}: none of its {len(chosen.gone)} runs is there any more")


def _as_given(path: Path, file: Path) -> Path:
    """The path as a user would write it, who wrote the suite's path like that."""
    if file.is_absolute():
        return path
    return Path(os.path.relpath(path))


def _paths(file: Path) -> list[str]:
    with translated("read", file):
        content = read_whole(file)
    try:
        document = from_text(content)
    except ValueError as error:
        raise StoreError(f"cannot read {file}: not JSON ({error})") from error
    runs = cast(JsonDict, document).get("runs") if isinstance(document, dict) else None
    if not isinstance(runs, list):
        raise StoreError(f"cannot read {file}: not the file of a suite (it has no list `runs`)")
    found = [cast(JsonDict, run).get("path") if isinstance(run, dict) else None for run in cast("list[object]", runs)]
    if not all(isinstance(path, str) and path for path in found):
        raise StoreError(f"cannot read {file}: a run in it has no path")
    return cast("list[str]", found)
