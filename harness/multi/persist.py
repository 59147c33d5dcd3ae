"""Records of evaluations on disk, in the documented layout: one JSON file each, and an index with a line for each. A
record is an export; the journals of the runs remain the source of the data. No key, token or secret header is in a
record: models are stored without keys, and every string passes through the redactor. Storing never raises; reading
does."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from harness.agents.result_document import indented_json
from harness.core.errors import ConfigError, HarnessError, StoreError
from harness.core.redact import hidden, redactor
from harness.core.size_limits import ROWS
from harness.core.types import JsonDict
from harness.multi.models import Model
from harness.multi.options import RECORDS, Options, Persist
from harness.multi.results import EvaluationResult, ModelSummary, PersistStatus, RunEntry, RunRecord
from harness.multi.tasks import Task
from harness.settings.key_hosts import leak
from harness.settings.wording import shown
from harness.store.atomic import (
    atomic_write,
    durable_sync,
    file_mode,
    make_folder,
    sync_folder,
    translated,
    write_all,
)
from harness.store.known_runs import is_known, remember
from harness.store.manifest import without_secrets
from harness.store.rundir import RunLock
from harness.store.safe_files import open_to_append, read_file

INDEX = "index.jsonl"
LATEST = "latest"
"""Id that selects the newest record."""

NO_FOLDER, NOT_STORED = "Failed to prepare run directory", "Persist failed"
"""The documented reasons for a failure to store a record."""


def make_record(
    result: EvaluationResult, tasks: Sequence[Task], models: Sequence[Model], options: Options, persist: Persist
) -> RunRecord:
    """Build the record of an evaluation, without secrets.

    Args:
        result: The evaluation.
        tasks: Its tasks.
        models: Its models.
        options: Its options.
        persist: Selects the parts of the record.
    """
    configs = [cast(JsonDict, without_secrets(hidden(model.to_config()))) for model in models]
    record = RunRecord(
        runId=result["runId"],
        startedAt=result["startedAt"],
        finishedAt=result["finishedAt"],
        durationMs=result["durationMs"],
        totals=result["totals"],
        summary=result["summary"],
        models=result["models"] if persist.include_outputs else [],
        tasks=[_task(task) for task in tasks] if persist.include_inputs else [],
        modelConfigs=configs if persist.include_inputs else [],
        options=cast(JsonDict, hidden(options.stored())) if persist.include_options else {},
        persistedAt=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        meta=result["meta"],
    )
    return cast(RunRecord, _redacted(record))


def _task(task: Task) -> JsonDict:
    document = task.document()
    return {**document, **{name: hidden(document[name]) for name in ("chatOptions",) if name in document}}


def save_record(
    record: RunRecord, persist: Persist, folder: str | Path = RECORDS, *, private: bool = False
) -> PersistStatus:
    """Write the record of an evaluation and its line in the index. Never raises.

    Args:
        record: The record.
        persist: The options of the record, with the path of its file if it is not in `folder`.
        folder: Folder of records and index; created if missing.
        private: Make the record, the index, and created folders readable by their owner only.
    """
    where = Path(folder)
    path = where / f"{record['runId']}.json" if persist.path is None else Path(persist.path).absolute()
    try:
        for parent in (where, path.parent):
            with translated("create", parent):
                make_folder(parent.absolute(), private=private)
    except StoreError as error:
        return _not_stored(path, NO_FOLDER, error)
    try:
        with translated("write", path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        atomic_write(path.absolute(), indented_json(record), private=private)
        _append(where, _entry(record, path), private=private)
        remember(_models_of(record))
    except (StoreError, TypeError, ValueError, RecursionError) as error:  # some options or errors are not JSON
        return _not_stored(path, NOT_STORED, error)
    return PersistStatus(enabled=True, stored=True, path=str(path), reason=None)


def leaks_of(record: RunRecord) -> list[str]:
    """Describe the uses of API keys in a replay that need the user's trust, since a record from another machine may
    name a host that should not get the keys.

    Args:
        record: The record as it was read.
    """
    if is_known(_models_of(record)):
        return []
    configs = cast("Sequence[object]", record.get("modelConfigs") or ())
    keyed = [cast(JsonDict, each) for each in configs if isinstance(each, dict)]
    found = [leak(str(each.get("baseUrl") or ""), str(each["apiKeyVar"])) for each in keyed if each.get("apiKeyVar")]
    return list(dict.fromkeys(filter(None, found)))


def _models_of(record: RunRecord) -> bytes:
    return json.dumps([record["runId"], record.get("modelConfigs")], sort_keys=True).encode()


def list_records(limit: int = 25, folder: str | Path = RECORDS) -> list[RunEntry]:
    """Return the last `limit` entries of the index of records, the oldest first; unreadable lines are skipped.

    Args:
        limit: Maximum number; 0 for all.
        folder: The folder of the index.

    Raises:
        ConfigError: `limit` is negative or not an integer.
        StoreError: the index exists and cannot be read.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"limit = {shown(limit)}: must be 0 (all) or a positive integer")
    path = Path(folder) / INDEX
    try:
        data = read_file(path, ROWS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    entries = [entry for line in data.split(b"\n") if (entry := _read_entry(line)) is not None]
    return entries[-limit:]


def find_entry(run_id: str, folder: str | Path = RECORDS) -> RunEntry | None:
    """Return the newest entry for a run in the index of records; None if no entry matches.

    Args:
        run_id: Its id, a unique prefix of it, or `latest`.
        folder: The folder of the index.
    """
    entries = list_records(0, folder)
    if run_id == LATEST:
        return entries[-1] if entries else None
    exact = [entry for entry in entries if entry["runId"] == run_id]
    if exact:
        return exact[-1]
    begun = {entry["runId"]: entry for entry in entries if run_id and entry["runId"].startswith(run_id)}
    return next(iter(begun.values())) if len(begun) == 1 else None


def load_record(run_id: str, folder: str | Path = RECORDS) -> RunRecord | None:
    """Load a stored evaluation; return None if no evaluation has that id.

    Args:
        run_id: Its id, a unique prefix of it, or `latest`.
        folder: The folder of records and index.

    Raises:
        StoreError: its file exists and cannot be read, or now holds another evaluation.
    """
    entry = find_entry(run_id, folder)
    if entry is not None:
        path = _place(entry, Path(folder))
        record = _read_record(path)
        if record is not None and record["runId"] != entry["runId"]:
            raise StoreError(f"{entry['runId']} is no longer stored: {record['runId']} has replaced it in {path}")
        return record
    # Without an index, use the documented path of a record. An id must not be a path.
    if Path(run_id).name != run_id or not run_id:
        return None
    return _read_record(Path(folder) / f"{run_id}.json")


def _place(entry: RunEntry, folder: Path) -> Path:
    """Return the file of a record from its entry in the index; a file in the index's own folder is found even if that
    folder was moved."""
    path, beside = Path(entry["path"]), folder / Path(entry["path"]).name
    return beside if not path.is_absolute() or (not path.exists() and beside.exists()) else path


def _read_record(path: Path) -> RunRecord | None:
    try:
        value: object = json.loads(read_file(path, ROWS))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"cannot read {path}: not JSON ({error})") from error
    if not isinstance(value, dict) or not isinstance(cast(JsonDict, value).get("runId"), str):
        raise StoreError(f"cannot read {path}: it is not an evaluation record")
    return cast(RunRecord, value)


def _entry(record: RunRecord, path: Path) -> bytes:
    """Return the line of a record for the index."""
    entry = RunEntry(
        runId=record["runId"],
        createdAt=record["persistedAt"],
        path=str(path),
        totals=record["totals"],
        summary=[cast(ModelSummary, {k: v for k, v in each.items() if k != "meta"}) for each in record["summary"]],
    )
    return json.dumps(entry, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def _read_entry(line: bytes) -> RunEntry | None:
    try:
        value: object = json.loads(line) if line.strip() else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    entry = cast(JsonDict, value)
    summary: object = entry.get("summary")
    types = {"runId": str, "createdAt": str, "path": str, "totals": dict, "summary": list}
    is_whole = all(isinstance(entry.get(name), kind) for name, kind in types.items())
    is_whole = is_whole and all(isinstance(each, dict) for each in cast("list[object]", summary))
    return cast(RunEntry, value) if is_whole else None


def _append(folder: Path, line: bytes, *, private: bool) -> None:
    """Append a line to the index of records under a lock, since other processes may append at the same time.

    Raises:
        StoreError: the line could not be written to disk.
    """
    path = folder / INDEX
    with RunLock.take(folder / ".index.lock", f"the index {path}", wait=True), translated("write", path):
        is_new = not path.exists()
        fd = open_to_append(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, file_mode(private=private))
        try:
            if private:  # an index from an earlier evaluation may be readable by others
                os.fchmod(fd, 0o600)
            end = os.lseek(fd, 0, os.SEEK_END)
            torn = end > 0 and os.pread(fd, 1, end - 1) != b"\n"  # a killed process may have left an incomplete line
            write_all(fd, (b"\n" if torn else b"") + line)
            durable_sync(fd)
        finally:
            os.close(fd)
        if is_new:
            sync_folder(folder)


def _not_stored(path: Path, reason: str, error: Exception) -> PersistStatus:
    words = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
    return PersistStatus(enabled=True, stored=False, path=str(path), reason=reason, detail=redactor.text(words))


def _redacted(value: object) -> object:
    """Copy a JSON value without registered secrets. Strings that only look like secrets stay, since prompts and replies
    are data."""
    if isinstance(value, str):
        return redactor.text(value, patterns=False)
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {redactor.text(str(key), patterns=False): _redacted(item) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in cast("Sequence[object]", value)]
    return value
