"""The list of runs that a server shows. Manifests and summaries are read again only if their files have changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import StoreError
from harness.core.types import JsonDict
from harness.plugins.view.run_status import read_status
from harness.report.runs import recorded_estimate
from harness.store.catalogue import ListedRun, read_entry
from harness.store.find_runs import all_runs
from harness.store.invocations import is_run
from harness.store.values import number, table

MOST_COMPARED = 8
"""Maximum number of runs to compare with one another."""

_Stamp = tuple[tuple[int, int, int] | None, ...]


class RunNotFound(Exception):
    """Error for a run that does not exist or was removed."""


class RunRemoved(RunNotFound):
    """The run existed while this server was running, and was removed."""


class RunList:
    """The runs of an output folder, or some of them, newest first. May be used by several threads.

    Args:
        output_dir: The output folder.
        paths: The only runs to list; None for all runs of the folder, including later ones.
    """

    def __init__(self, output_dir: Path, paths: Sequence[Path] | None = None) -> None:
        self.output_dir = output_dir
        self._paths = None if paths is None else list(paths)
        self._read: dict[Path, tuple[_Stamp, ListedRun]] = {}
        self._known: dict[str, Path] = {}
        self._lock = threading.Lock()

    def entries(self) -> list[ListedRun]:
        """The runs, newest first.

        Raises:
            StoreError: the output folder cannot be read.
        """
        found = all_runs(self.output_dir)[::-1] if self._paths is None else filter(is_run, self._paths)
        with self._lock:
            entries = [self._entry(path) for path in found]
            if self._paths is not None:
                entries.sort(key=lambda entry: entry.id, reverse=True)
            for entry in reversed(entries):
                self._known[entry.id] = entry.run.path
        return entries

    def find(self, run_id: str) -> ListedRun:
        """The run with this id. The id may be untrusted, since it is never used as a path.

        Raises:
            RunRemoved: the run was removed.
            RunNotFound: there is no such run.
            StoreError: the output folder cannot be read.
        """
        with self._lock:
            path = self._known.get(run_id)
        if path is None:
            self.entries()
            path = self._known.get(run_id)
        if path is None:
            raise RunNotFound(f"There is no run {run_id}.")
        if not is_run(path):
            raise RunRemoved(f"The run {run_id} was removed.")
        with self._lock:
            return self._entry(path)

    def _entry(self, path: Path) -> ListedRun:
        stamp = tuple(_stamp(path / name) for name in ("run.json", "summary.json"))
        known = self._read.get(path)
        # Whether a process holds the lock of a run is not visible in the files.
        if known is None or known[0] != stamp or known[1].state in ("running", "died"):
            known = self._read[path] = (stamp, read_entry(path))
        return known[1]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def run_json(entry: ListedRun) -> JsonDict:
    """A run as JSON for the list; the keys are documented in docs/reference/view.md. Counts of a run in progress are
    null."""
    manifest, final = entry.manifest, entry.final or {}
    estimate = recorded_estimate(entry.final)
    scored, made = number(final.get("scored")), number(final.get("num_rollouts"))
    usage = table(final.get("usage"))
    tokens = [number(usage.get(name)) for name in ("input_tokens", "output_tokens")]
    created = entry.created
    planned = number(final.get("planned"))
    return {
        "id": entry.id,
        "env": entry.env_id,
        "name": entry.name,
        "model": entry.model,
        "kind": entry.kind,
        "state": entry.state,
        "note": entry.note,
        "created": None if created is None else created.isoformat(),
        "seconds": number(final.get("wall_s")),
        "suite": (manifest.suite if manifest else None) or "",
        "mean": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "scored": None if scored is None else int(scored),
        "planned": entry.planned if planned is None else int(planned),
        "failed": None if scored is None or made is None else int(made - scored),
        "cost": number(usage.get("cost")),
        "tokens": None if None in tokens else sum(int(each or 0) for each in tokens),
        "private": manifest is not None and manifest.is_private,
        "problems": list(entry.problems),
        "parent": (manifest.parent if manifest else None) or "",
        "path": str(entry.run.path),
        "status": read_status(entry.run) if entry.state == "running" else None,
    }


def listed(runs: RunList) -> JsonDict:
    """The list of runs as JSON."""
    try:
        entries, problem = runs.entries(), ""
    except StoreError as error:
        entries, problem = [], str(error)
    return {"root": str(runs.output_dir), "runs": [run_json(entry) for entry in entries], "problem": problem}
