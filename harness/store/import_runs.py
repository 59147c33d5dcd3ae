"""Write results of other tools as run folders. Plugins of the group `bench.importers` read the files; journal, summary
and dataset are as in every other run. An imported run has no settings, so it cannot be resumed or rescored."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.keys import ExampleKeys, RolloutKeys, digest
from harness.core.plugins import load_plugins
from harness.core.records import Example, Failed, Generated, Row, Score, Scored, Timing
from harness.core.types import JsonDict, Prompt, Usage
from harness.settings.wording import suggestion
from harness.stats.summary import Summary, summarize
from harness.store.atomic import file_mode, translated
from harness.store.card import rebuild_card
from harness.store.codec import encode
from harness.store.dataset import DatasetWriter
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcome_kinds import scored
from harness.store.rows import RowShape
from harness.store.rundir import RunDir, timestamp
from harness.store.safe_files import open_to_append
from harness.store.score_table import tally

IMPORTERS = "bench.importers"


@dataclass(frozen=True, slots=True)
class ImportedRollout:
    """One rollout as another tool recorded it."""

    row: Row
    """Dataset row of the rollout's example. Rollouts with equal rows belong to one example."""
    completion: Prompt = ""
    """The messages after the prompt, or the completed text."""
    reward: float | None = None
    """Reward; None if the rollout has no score, as `error` then explains."""
    metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])
    error: str = ""
    """Reason why the reward is missing."""
    is_complete: bool = True
    """Whether the generation was completed; if not, the rollout counts as failed."""
    stop_condition: str | None = None
    is_truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    state: JsonDict = field(default_factory=dict[str, object])
    """Further values by name; those named in `ImportedRun.state_columns` become columns of the dataset."""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """One run as another tool recorded it."""

    env_id: str
    """Name of the environment or task."""
    model: str
    rollouts: Iterable[ImportedRollout]
    """The rollouts; iterated once, so they need not all be in memory."""
    created: str = ""
    """Start time as ISO 8601; "" if unknown."""
    settings: JsonDict = field(default_factory=dict[str, object])
    """Known settings by dotted path, such as `model.sampling_args`."""
    state_columns: tuple[str, ...] = ()
    reward_range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest possible reward; infinite if unknown."""
    pass_threshold: float = 1.0
    wall_s: float | None = None
    """Wall time in seconds; None if unknown."""
    versions: JsonDict = field(default_factory=dict[str, object])
    """Versions of the tool and of packages that affect results, by name."""


class Importer:
    """Base class of importers. The entry point's name is the value of `--format`."""

    def accepts(self, path: Path) -> bool:
        """Return whether a file or folder looks like results in this format, without reading all of it."""
        raise NotImplementedError

    def read(self, path: Path) -> Iterable[ImportedRun]:
        """Read the runs in a file or folder.

        Raises:
            UsageError: the content is not in this format; the message names file and line.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Import:
    """An imported run on disk."""

    folder: RunDir
    manifest: Manifest
    summary: Summary


def importer_for(path: Path, name: str | None = None) -> tuple[str, Importer]:
    """Find the importer of a file or folder.

    Args:
        path: The results.
        name: Name of the format; None to recognize it.

    Raises:
        UsageError: the path does not exist, the format is unknown, or not exactly one format accepts the path.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    importers = load_plugins(IMPORTERS, Importer)
    if name is not None:
        if name not in importers:
            raise UsageError(f"unknown import format {name!r}; {suggestion(name, importers)}", setting="format")
        return name, importers[name]
    accepting = [each for each, importer in importers.items() if importer.accepts(path)]
    if len(accepting) != 1:
        found = f"looks like several formats: {', '.join(accepting)}" if accepting else "is in no known format"
        raise UsageError(f"{path} {found}", remedy="name its format with {format} {names}", names="|".join(importers))
    return accepting[0], importers[accepting[0]]


def import_run(run: ImportedRun, tool: str, source: Path, output_dir: Path | str, command: str = "") -> Import:
    """Write a run folder for an imported run.

    Args:
        run: The run; its rollouts are read once.
        tool: Name of the format.
        source: File or folder that was read.
        output_dir: The output folder.
        command: The command line as typed.

    Raises:
        UsageError: the run has no rollouts, or a value that is not JSON.
        StoreError: the folder cannot be written.
    """
    folder = RunDir.create(output_dir, run.env_id, run.model)
    lock = folder.lock()
    try:
        manifest = Manifest(
            folder.id, run.env_id, run.model, name=run.env_id, created=run.created or timestamp(), command=command,
            settings=run.settings, identity={"imported": {"format": tool, "env_id": run.env_id, "model": run.model}},
            versions=run.versions, state_columns=run.state_columns, reward_range=run.reward_range,
            derived={"how": "import", "format": tool, "path": str(source.resolve())},
        )  # fmt: skip
        names, attempts, examples = _write_journal(folder, run, manifest.identity)
        manifest = replace(
            manifest, metric_names=names, planned={"num_examples": examples, "rollouts_per_example": attempts}
        )
        folder.write_manifest(manifest)
        recorded = Recorded.load(folder.journal_path)
        summary = summarize(
            tally(recorded), pass_threshold=run.pass_threshold, rollouts_per_example=attempts, planned=len(recorded),
            reward_range=run.reward_range, wall_s=run.wall_s,
        )  # fmt: skip
        folder.write_summary(summary.to_json())
        DatasetWriter(folder.path, RowShape.of(manifest)).complete()
        manifest = manifest.ended("done")
        folder.write_manifest(manifest)
        rebuild_card(folder.parent)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(folder.path)
            folder.parent.rmdir()  # if it is empty
        raise
    finally:
        lock.release()
    return Import(folder, manifest, summary)


def _write_journal(folder: RunDir, run: ImportedRun, identity: JsonDict) -> tuple[tuple[str, ...], int, int]:
    """Write the journal; return the metric names, the maximum number of rollouts per example, and the examples."""
    keys, rollout_keys = ExampleKeys(), RolloutKeys(identity)
    examples: dict[str, Example] = {}
    counts: dict[str, int] = {}
    names: dict[str, None] = {}
    path = folder.journal_path
    with translated("write", path):
        fd = open_to_append(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, file_mode(private=False))
        with os.fdopen(fd, "wb") as file:
            for rollout in run.rollouts:
                row = digest([rollout.row.example_id, rollout.row.prompt, rollout.row.answer, rollout.row.info])
                if row not in examples:
                    examples[row] = keys.example(rollout.row, len(examples))
                    file.write(encode(examples[row]))
                example = examples[row]
                number = counts[row] = counts.get(row, 0) + 1
                for record in _records(rollout, example, rollout_keys.key(example.key, number - 1), number - 1):
                    file.write(encode(record))
                names |= dict.fromkeys(rollout.metrics)
            file.flush()
            os.fsync(file.fileno())
    if not examples:
        raise UsageError("the imported run has no rollouts")
    return tuple(names), max(counts.values()), len(examples)


def _records(rollout: ImportedRollout, example: Example, key: str, index: int) -> Iterable[Generated | Failed | Scored]:
    if not rollout.is_complete:
        yield Failed(
            key, example.key, index, "generation", "error", rollout.error or "no reason is recorded", retryable=False,
            completion=rollout.completion, usage=rollout.usage, timing=rollout.timing,
        )  # fmt: skip
        return
    yield Generated(
        key, example.key, index, rollout.completion, rollout.stop_condition, rollout.is_truncated, rollout.usage,
        rollout.timing, state=rollout.state,
    )  # fmt: skip
    reasons = {} if rollout.reward is not None else {"*": rollout.error or "no reason is recorded"}
    yield scored(key, Score(rollout.reward, rollout.metrics, reasons))
