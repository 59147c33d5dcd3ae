"""Write results of other tools as run folders. Plugins of the group `bench.importers` read the files; journal, summary
and dataset are as in every other run. An imported run has no settings, so it cannot be resumed or rescored."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar, Literal

from harness.core.errors import EnvironmentFault, StoreError, UsageError
from harness.core.keys import ExampleKeys, KeyIndex, RolloutKeys, digest, example_of
from harness.core.plugins import load_plugins
from harness.core.records import Failed, Generated, Row, Score, Scored, Timing
from harness.core.types import JsonDict, Prompt, Usage
from harness.settings.wording import shown, suggestion
from harness.stats.summary import Summary, summarize
from harness.store.atomic import file_mode, translated
from harness.store.card import rebuild_card
from harness.store.codec import encode
from harness.store.dataset import DatasetWriter
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest, RunStatus
from harness.store.outcome_kinds import scored
from harness.store.removal import remove_runs
from harness.store.rows import RowShape
from harness.store.rundir import RunDir, timestamp
from harness.store.safe_files import is_file, is_folder, open_to_append
from harness.store.score_table import tally
from harness.store.values import number

IMPORTERS = "bench.importers"

_LARGEST_INDEX = 99_999
"""Largest number of a rollout among those of its example."""

_LARGEST_COUNT = 2**53
"""Largest count of tokens or requests of a rollout."""

_PLANNED = 1_000_000
"""Maximum number of planned rollouts, unless there are more rollouts: comparisons take memory for each."""

_GAPS = 4
"""Maximum ratio of planned to existing rollouts beyond `_PLANNED`."""

_LONGEST_NAME = 300
"""Maximum number of characters in the name of an environment or model."""

_NO_REASON = "no reason is recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Choices of the user for an import. A format takes those that its importer names in `takes`."""

    reward: str | None = None
    """Metric that becomes the reward; None for the one that the results mark as the main metric, or the only one."""
    columns: Mapping[str, str] | None = None
    """Column of a table for each field of a rollout (`--map`)."""
    data: Path | None = None
    """Dataset file with the rows that were evaluated, for results that do not contain them."""

    def given(self) -> list[str]:
        """Return the names of the options that have a value."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]


@dataclass(frozen=True, slots=True)
class ImportedRollout:
    """One rollout as another tool recorded it."""

    row: Row
    """Dataset row of the rollout's example. Rollouts with equal rows belong to one example."""
    completion: Prompt | None = None
    """The messages after the prompt, or the completed text; None if they are not recorded."""
    reward: float | None = None
    """Reward; None if the rollout has no score, as `error` or `reasons` then explain."""
    metrics: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    error: str = ""
    """Full reason why the reward is missing."""
    failure: str = ""
    """Short reason of a failed generation (`timeout`, `error`, …); "" if the generation was completed."""
    index: int | None = None
    """Number of the rollout among those of its example, counted from 0; None to count in the order of the rollouts."""
    stop_condition: str | None = None
    is_truncated: bool = False
    usage: Usage | None = None
    """Tokens and cost; None if unknown."""
    timing: Timing = field(default_factory=Timing)
    """Times in seconds; 0 means unknown."""
    scoring_s: float = 0.0
    """Duration of scoring in seconds; 0 if unknown."""
    state: JsonDict = field(default_factory=dict[str, object])
    """Further values by name; those named in `ImportedRun.state_columns` become columns of the dataset."""
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reason for each missing metric, by name."""
    extra: JsonDict = field(default_factory=dict[str, object])
    """Values that scoring added, such as explanations and replies of judges."""
    retryable: bool = False
    """Whether a failed generation could have been retried."""
    attempts: int = 1
    place: str = ""
    """File and line or member, for error messages."""


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
    reward_range: tuple[float, float] = (-math.inf, math.inf)
    """Lowest and highest possible reward; infinite if unknown."""
    pass_threshold: float = 1.0
    wall_s: float | None = None
    """Wall time in seconds; None if unknown."""
    versions: JsonDict = field(default_factory=dict[str, object])
    """Versions of the tool and of packages that affect results, by name."""
    reward: str = ""
    """Metric that is the reward; "" if the source has a reward."""
    planned: tuple[int, int] | None = None
    """Planned examples and rollouts per example, if more may have been planned than there are; None if unknown."""
    status: RunStatus = "done"
    kind: Literal["run", "eval"] = "run"
    """`eval` for an agent evaluation, whose functions are separate scores."""
    name: str = ""
    """Label of the run; "" for the name of the environment."""


class Importer:
    """Base class of importers. The entry point's name is the value of `--format`."""

    takes: ClassVar[tuple[str, ...]] = ()
    """Names of the fields of `ImportOptions` that the format takes."""

    def accepts(self, path: Path) -> bool:
        """Return whether a file or folder looks like results in this format, without reading all of it."""
        raise NotImplementedError

    def read(self, path: Path, options: ImportOptions) -> Iterable[ImportedRun]:
        """Read the runs in a file or folder.

        Args:
            path: The file or folder.
            options: Choices of the user; only those in `takes` have a value.

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
    if not (is_file(path) or is_folder(path)):
        reason = (
            "a symbolic link, which is not followed"
            if path.is_symlink()
            else "not a file or folder"
            if path.exists()
            else "no such file or folder"
        )
        raise UsageError(f"{path}: {reason}")
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


def import_runs(
    runs: Iterable[tuple[ImportedRun, str, Path]], output_dir: Path | str, command: str = "", *, by_id: bool = False
) -> list[Import]:
    """Write a run folder for each imported run: for all of them or, after an error, for none.

    Args:
        runs: The runs, each with the name of its format and the file or folder that was read. Their rollouts are read
            once.
        output_dir: The output folder.
        command: The command line as typed.
        by_id: Whether examples are paired with those of other such runs by their id instead of their content.

    Raises:
        UsageError: the results cannot be read, a run has no rollouts, or one rollout twice.
        StoreError: a folder cannot be written.
    """
    made: list[Import] = []
    source: Path | None = None
    try:
        for run, tool, source in runs:
            identity: JsonDict = {"format": tool, "env_id": run.env_id, "model": run.model}
            identity |= {"by_id": True} if by_id else {}
            made.append(_import_run(run, identity, source, output_dir, command))
    except BaseException as error:
        with suppress(StoreError):
            remove_runs([each.folder for each in made])
        if isinstance(error, RecursionError):
            raise UsageError(f"{source or 'the results'}: a value is nested too deeply") from error
        if isinstance(error, EnvironmentFault):
            raise UsageError(f"{source}: {error}") from error
        if isinstance(error, OSError):
            raise UsageError(f"{error.filename or 'the results'}: {error.strerror or error}") from error
        raise
    return made


def _import_run(run: ImportedRun, identity: JsonDict, source: Path, output_dir: Path | str, command: str) -> Import:
    for name in (run.env_id, run.model, run.name or run.env_id):
        if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
            raise UsageError(f"{source}: the name {shown(name)} of an environment or model is not usable")
    folder = RunDir.create(output_dir, run.env_id, run.model)
    lock = folder.lock()
    origin = {"how": "import", "format": identity["format"], "path": str(source.resolve())}
    try:
        manifest = Manifest(
            folder.id, run.env_id, run.model, name=run.name or run.env_id, created=run.created or timestamp(),
            command=command, settings=run.settings, identity={"imported": identity}, versions=run.versions,
            state_columns=run.state_columns, reward_range=run.reward_range, kind=run.kind,
            derived=origin | ({"reward": run.reward} if run.reward else {}),
        )  # fmt: skip
        names, attempts, examples = _write_journal(folder, run, manifest.identity, by_id="by_id" in identity)
        recorded = Recorded.load(folder.journal_path)
        total = len(recorded)
        if examples * attempts > max(_PLANNED, _GAPS * total):
            raise UsageError(f"{source}: {total} rollouts are numbered up to {attempts - 1}, with too many gaps")
        if run.planned is not None:
            planned = max(examples, run.planned[0]), max(attempts, run.planned[1])
            if planned[0] * planned[1] <= max(_PLANNED, total):  # a larger plan cannot be true
                (examples, attempts), total = planned, planned[0] * planned[1]
        manifest = replace(
            manifest, metric_names=names, planned={"num_examples": examples, "rollouts_per_example": attempts}
        )
        folder.write_manifest(manifest)
        summary = summarize(
            tally(recorded), pass_threshold=run.pass_threshold, rollouts_per_example=attempts, planned=total,
            reward_range=run.reward_range, wall_s=run.wall_s,
        )  # fmt: skip
        folder.write_summary(summary.to_json())
        DatasetWriter(folder.path, RowShape.of(manifest)).complete()
        manifest = manifest.ended(run.status)
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


def _write_journal(
    folder: RunDir, run: ImportedRun, identity: JsonDict, *, by_id: bool
) -> tuple[tuple[str, ...], int, int]:
    """Write the journal; return the metric names, the number of rollouts per example, and the number of examples."""
    keys, rollout_keys, seen = ExampleKeys(), RolloutKeys(identity), KeyIndex()
    examples: dict[str, str] = {}  # their keys
    counts: dict[str, int] = {}
    names: dict[str, None] = {}
    path = folder.journal_path
    with translated("write", path):
        fd = open_to_append(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, file_mode(private=False))
    with os.fdopen(fd, "wb") as file:
        for rollout in run.rollouts:
            own = rollout.row
            row = digest(str(own.example_id) if by_id else [own.example_id, own.prompt, own.answer, own.info])
            if row not in examples:
                place = len(examples)
                example = example_of(own, row, place) if by_id else keys.example(own, place)
                examples[row] = example.key
                file.write(encode(example))
            example_key = examples[row]
            index = counts.get(row, 0) if rollout.index is None else rollout.index
            key = rollout_keys.key(example_key, index)
            _check_index(rollout, index, is_new=seen.find(key) < 0)
            seen.add(key)
            counts[row] = max(counts.get(row, 0), index + 1)
            for record in _records(rollout, example_key, key, index):
                file.write(encode(record))
            names |= dict.fromkeys(rollout.metrics)
        file.flush()
        os.fsync(file.fileno())
    if not examples:
        raise UsageError("the imported run has no rollouts")
    return tuple(names), max(counts.values()), len(examples)


def _check_index(rollout: ImportedRollout, index: int, *, is_new: bool) -> None:
    if not 0 <= index <= _LARGEST_INDEX:
        raise UsageError(f"{rollout.place}: the rollout number {index} is not between 0 and {_LARGEST_INDEX}")
    if not is_new:
        example = shown(rollout.row.example_id)
        raise UsageError(f"{rollout.place}: rollout {index} of example {example} is there twice")


def _usage(usage: Usage | None, completion: Prompt) -> Usage:
    """Return the usage of a rollout, without token counts if they are unknown or no possible numbers."""
    if usage is not None:
        counts = (getattr(usage, each.name) for each in fields(Usage) if each.name != "cost")
        if all(0 <= count <= _LARGEST_COUNT for count in counts):
            return replace(usage, cost=number(usage.cost))
    replies = sum(message.get("role") == "assistant" for message in completion if isinstance(message, dict))
    requests = max(1, replies)
    return Usage(requests=requests, unreported=requests, cost=None if usage is None else number(usage.cost))


def _records(rollout: ImportedRollout, example_key: str, key: str, index: int) -> Iterable[Generated | Failed | Scored]:
    lost = ("completion",) if rollout.completion is None else ()
    completion = rollout.completion or []
    usage, times = _usage(rollout.usage, completion), rollout.timing
    # NaN and infinity become 0, which means unknown.
    timing = Timing(*(number(each) or 0.0 for each in (times.started_at, times.generation, times.model, times.waiting)))
    if rollout.failure:
        yield Failed(
            key, example_key, index, "generation", rollout.failure, rollout.error or _NO_REASON, rollout.retryable,
            rollout.attempts, completion, usage, timing,
        )  # fmt: skip
        return
    yield Generated(
        key, example_key, index, completion, rollout.stop_condition, rollout.is_truncated, usage, timing,
        rollout.attempts, rollout.state, lost,
    )  # fmt: skip
    reasons, metrics = dict(rollout.reasons), dict(rollout.metrics)
    if rollout.reward is None and not reasons:
        name, colon, words = rollout.error.partition(": ")
        # Some tools write the reason of one metric as `metric: reason`.
        is_named = bool(colon) and name in metrics and metrics[name] is None
        reasons = {name: words} if is_named else {"*": rollout.error or _NO_REASON}
    yield scored(key, Score(rollout.reward, metrics, reasons), number(rollout.scoring_s) or 0.0, rollout.extra)
