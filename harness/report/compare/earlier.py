"""Search for a previous run to compare a finished run with. Reads manifests, not results."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.core.errors import StoreError
from harness.stats.difference import ALPHA
from harness.stats.paired import fewest_pairs
from harness.store.find_runs import newest, runs_in
from harness.store.invocations import read_invocation, suite_files
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir, safe_name
from harness.store.values import table

LOOKED_AT = 20
"""Maximum number of earlier runs to read, newest first."""


def previous_run(folder: RunDir, manifest: Manifest) -> RunDir | None:
    """The newest earlier run of the same examples with another model or sampling; None without one.

    Args:
        folder: Folder of the finished run.
        manifest: Its manifest.
    """
    if manifest.derived or not _has_pairs(manifest):
        return None
    with contextlib.suppress(OSError):  # only a suggestion: errors are ignored
        for other in _others(folder, manifest):
            with contextlib.suppress(StoreError):  # damaged, or written by a later version
                its = other.read_manifest()
                if its.status == "done" and not its.derived and _has_pairs(its) and _differs_in_model(manifest, its):
                    return other
    return None


def earlier_suite(output_dir: Path | str, suite: str) -> str | None:
    """Id of the newest earlier suite with runs of the same names; None without one.

    Args:
        output_dir: Output folder of the suites.
        suite: Id of the finished suite.
    """
    with contextlib.suppress(KeyError, OSError, StoreError):  # only a suggestion: errors are ignored
        files = {file.stem: file for file in suite_files(output_dir)}
        names = Counter(read_invocation(files[suite]).names)
        before = [*itertools.takewhile(lambda stem: stem != suite, files)]
        for file in (files[stem] for stem in reversed(before[-LOOKED_AT:])):
            with contextlib.suppress(StoreError):
                other = read_invocation(file)
                if Counter(other.names) == names and len(other.runs) == len(other.names):
                    return other.id
    return None


def has_several_models(manifests: Sequence[Manifest]) -> bool:
    """Whether an invocation has several models on one environment, which `bench compare` can compare."""
    ran = {(each.name or each.env_id, each.model) for each in manifests}
    return len(ran) > len({name for name, _ in ran})


def _others(folder: RunDir, manifest: Manifest) -> Iterator[RunDir]:
    """Other runs of the environment, with any model, newest first."""
    root = folder.parent.parent
    beginning = f"{safe_name(manifest.env_id)}--"
    found = [run for parent in root.glob("*") if parent.name.startswith(beginning) for run in runs_in(parent)]
    yield from (RunDir(path) for path in reversed(newest(found, LOOKED_AT)) if path.name != folder.id)


def _has_pairs(manifest: Manifest) -> bool:
    """Whether a run has enough examples for a significant difference."""
    return manifest.planned.get("num_examples", 0) >= fewest_pairs(ALPHA)


def _differs_in_model(ours: Manifest, theirs: Manifest) -> bool:
    """Whether two runs have the same examples and differ in the model."""

    def examples(manifest: Manifest) -> tuple[object, ...]:
        env = table(manifest.identity.get("env"))
        return (*(env.get(name) for name in ("env_id", "env_args", "extra_env_kwargs")), manifest.identity.get("order"))

    return examples(ours) == examples(theirs) and ours.identity.get("model") != theirs.identity.get("model")
