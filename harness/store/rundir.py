"""The run folder: names, files, lock, and atomic replacement of its small files."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import logging
import os
import re
import secrets
import string
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import orjson

from harness.core.errors import RunLocked, StoreError
from harness.core.redact import redactor
from harness.core.safe_text import HIDDEN
from harness.core.types import JsonDict
from harness.store.atomic import (
    atomic_write,
    close_to_others,
    file_mode,
    is_closed,
    make_folder,
    new_folder,
    store_error,
    sync_folder,
    translated,
)
from harness.store.codec import from_text, to_text
from harness.store.known_runs import remember
from harness.store.manifest import Manifest, without_secrets
from harness.store.safe_files import files_in, has_other_names, open_regular, read_file, refuse_links

NAME_LIMIT = 100
"""Maximum characters of one part of a folder name. Two parts and `--` stay below the 255 bytes allowed for a file name,
with room for additions by sync tools or the Hub."""

MOST_TRIES = 20
"""Maximum number of attempts to create a folder that other processes remove at the same time."""

_UNSEEN = re.compile(f"[\x7f-\x9f\u2028\u2029{HIDDEN}]")
"""Control and invisible characters that TOML allows."""


def safe_name(text: str) -> str:
    """Convert text to one part of a file name: `/` becomes `--`, other characters outside `[A-Za-z0-9._-]` become `-`.
    The result is never empty, never begins with a dot, and has at most `NAME_LIMIT` characters: a longer name is cut
    and ends in eight characters of its SHA-256."""
    name = re.sub(r"^\.|[^A-Za-z0-9._-]", "-", text.replace("/", "--"))
    if len(name) > NAME_LIMIT:
        mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: NAME_LIMIT - 9]}-{mark}"
    return name or "-"


def folder_name(stem: str, model: str) -> str:
    """Return the name of the folder of all runs of one environment (or dataset) with one model."""
    return f"{safe_name(stem)}--{safe_name(model)}"


def new_run_id(now: datetime | None = None) -> str:
    """Create a run id such as `20261121T091503Z-k3f9`: the UTC time to the second, and four random characters."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    letters = string.ascii_lowercase + string.digits
    return f"{moment:%Y%m%dT%H%M%SZ}-" + "".join(secrets.choice(letters) for _ in range(4))


def timestamp(now: datetime | None = None) -> str:
    """Return the UTC time as ISO 8601 with microseconds, the format of `Manifest.created`."""
    return (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run. The constructor touches no file; `create` makes the folder."""

    path: Path

    @classmethod
    def create(cls, output_dir: Path | str, stem: str, model: str, *, private: bool = False) -> RunDir:
        """Create a new, empty run folder under `{output_dir}/evals/{stem}--{model}/`.

        Args:
            output_dir: The output folder; created if missing.
            stem: The environment's id, or the stem of a dataset or task file.
            model: The model's name as requested.
            private: Whether only its owner may access the run folder, missing parent folders that are created, and
                files written into the run folder.

        Raises:
            StoreError: the folder cannot be created.
        """
        parent = Path(output_dir) / "evals" / folder_name(stem, model)
        for tries in itertools.count(1):
            with translated("create", parent):
                refuse_links(Path(output_dir), parent)
                make_folder(parent, private=private)
            path = parent / new_run_id()
            with translated("create", path):
                try:
                    new_folder(path, private=private)
                except FileExistsError:
                    continue  # another process chose the same id in the same second
                except FileNotFoundError:
                    # The last run of this parent was removed, and the parent with it. A dangling link stays.
                    if tries > MOST_TRIES:
                        raise
                    continue
                sync_folder(parent)
            return cls(path)
        raise AssertionError("unreachable")

    @property
    def id(self) -> str:
        """Id of the run: the folder's name."""
        return self.path.name

    @property
    def parent(self) -> Path:
        """The folder of all runs of this environment and model: a Hugging Face dataset."""
        return self.path.parent

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest, `run.json`."""
        return self.path / "run.json"

    @property
    def config_path(self) -> Path:
        """Path of `config.toml`, the settings that repeat the run."""
        return self.path / "config.toml"

    @property
    def journal_path(self) -> Path:
        """Path of `journal.jsonl`, from which the other results are built."""
        return self.path / "journal.jsonl"

    @property
    def summary_path(self) -> Path:
        """Path of `summary.json`: statistics, which can be rebuilt from the journal."""
        return self.path / "summary.json"

    @property
    def data_path(self) -> Path:
        """Path of `data/`: parquet files, one row per rollout."""
        return self.path / "data"

    @property
    def is_closed(self) -> bool:
        """Whether only its owner may enter the folder, in which case files created in it are private."""
        return is_closed(self.path)

    def close_to_others(self) -> None:
        """Make the folder and its content private to the owner.

        Raises:
            StoreError: the permissions cannot be changed.
        """
        with translated("make private", self.path):
            close_to_others(self.path)

    def lock(self) -> RunLock:
        """Lock the run for writing, until the lock is released or the process ends.

        Raises:
            RunLocked: another process holds the lock.
            StoreError: the folder cannot be written.
        """
        return RunLock.take(self.path / ".lock", f"run {self.path}")

    def is_in_use(self) -> bool:
        """Return whether a process is writing the run now."""
        return RunLock.is_held(self.path / ".lock")

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest: replace `run.json`."""
        atomic_write(self.manifest_path, _pretty(manifest.to_json()), private=self.is_closed)

    def read_manifest(self) -> Manifest:
        """Read `run.json`.

        Raises:
            StoreError: the file is missing, damaged or from a newer version.
        """
        value = _read_json(self.manifest_path)
        try:
            return Manifest.from_json(value)
        except StoreError as error:
            raise StoreError(f"cannot read {self.manifest_path}: {error}") from None

    def write_schema(self, name: str, make: Callable[[], JsonDict]) -> str:
        """Write the JSON Schema of `config.toml`, for editors, into the folder of the runs, unless it exists.

        Args:
            name: Name of the schema's file.
            make: Function that returns the schema; called if the file does not exist.

        Returns:
            The first line of `config.toml`, which names the file; "" if the file cannot be written.
        """
        root = self.path.parents[2]
        file = root / "schemas" / name
        try:
            if not file.exists():
                refuse_links(root, file.parent)
                make_folder(file.parent, private=self.is_closed)
                atomic_write(file, _pretty(make()), private=self.is_closed)
        except (OSError, StoreError) as error:  # a run does not depend on it, so this is no notice
            logging.getLogger(__name__).info("%s names no JSON Schema for editors: %s", self.config_path, error)
            return ""
        return f"#:schema ../../../schemas/{name}\n"

    def write_config(self, toml: str, *, is_ours: bool = False) -> None:
        """Replace `config.toml`, with secrets redacted and invisible characters escaped. With `is_ours`, also record
        outside the run folder that this machine made the run."""
        clean = redactor.text(toml)
        try:
            tomllib.loads(clean)
        except tomllib.TOMLDecodeError:
            clean = redactor.text(toml, patterns=False)  # patterns damaged the syntax; known secrets are removed
        clean = _UNSEEN.sub(lambda found: f"\\U{ord(found.group()):08X}", clean)  # occurs only in strings
        data = clean.encode("utf-8", "replace")
        atomic_write(self.config_path, data, private=self.is_closed)
        if is_ours:
            remember(data)

    def write_summary(self, summary: JsonDict) -> None:
        """Write the summary: replace `summary.json`."""
        atomic_write(self.summary_path, _pretty(summary), private=self.is_closed)

    def read_summary(self) -> JsonDict | None:
        """Read `summary.json`; None if the run has none yet.

        Raises:
            StoreError: the file cannot be read, or is not a JSON object.
        """
        try:
            summary = _read_json(self.summary_path)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        if not isinstance(summary, dict):
            raise StoreError(f"cannot read {self.summary_path}: not a JSON object")
        return cast(JsonDict, summary)

    def known_summary(self) -> JsonDict | None:
        """The summary; None if missing or damaged, since it can be rebuilt from the journal."""
        try:
            return self.read_summary()
        except StoreError:
            return None

    def row_files(self) -> list[Path]:
        """The parquet files of `data/`, sorted by name."""
        return files_in(self.data_path, ".parquet")

    def has_data(self) -> bool:
        """Return whether the run has rows that can be loaded."""
        return bool(self.row_files())


class RunLock:
    """Advisory lock on a file. Released by `release`, at the end of a `with` block, on garbage collection, or at
    process exit."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    def take(cls, path: Path, what: str, *, wait: bool = False) -> RunLock:
        """Lock a file, which is created if missing and never removed; private if its folder is.

        Args:
            path: The lock file.
            what: The locked object, for messages.
            wait: Whether to wait until the lock is released, instead of raising an error.

        Raises:
            RunLocked: another process holds the lock; the message has the pid of that process.
            StoreError: the file cannot be opened or locked.
        """
        with translated("open", path):
            fd = open_regular(path, os.O_RDWR | os.O_CREAT, file_mode(private=is_closed(path.parent)))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not has_other_names(fd):  # a hard link may be another file's name
                os.truncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise RunLocked(f"{what} is being written by another process (pid {holder}); wait until it ends") from None
        except OSError as error:
            os.close(fd)
            raise store_error("lock", path, error) from error
        return cls(fd)

    @staticmethod
    def is_held(path: Path) -> bool:
        """Return whether a process holds the lock of a file now; False for a missing file, True for an unreadable
        one."""
        try:
            fd = open_regular(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            return error.errno not in (errno.ELOOP, errno.EINVAL)  # not a lockable file; `take` reports it
        try:
            # A shared lock, so that two concurrent checks do not see each other as the run.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def is_at(self, path: Path) -> bool:
        """Return whether the locked file still has this path; false if a former holder removed it meanwhile."""
        return self._fd is not None and path.exists() and os.path.samestat(os.fstat(self._fd), os.stat(path))

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._fd is not None:
            # The file stays: after a removal, two processes could lock different files of the same name.
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.release()  # a run that failed to start is not locked until the process ends

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def write_suite(
    output_dir: Path | str, suite_id: str, *, file: str | None, command: str, runs: Sequence[tuple[RunDir, Manifest]],
    failed: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Write `{output_dir}/suites/{suite_id}.json`, the list of runs of one invocation. Private if any run is private.

    Args:
        output_dir: The output folder.
        suite_id: Id from `new_run_id`.
        file: The suite file given by the user, if any.
        command: The command line as typed.
        runs: The runs in order.
        failed: Names of environments that failed to load.

    Returns:
        The file's path.
    """
    root = Path(output_dir)
    folder = root / "suites"
    private = any(manifest.is_private for _, manifest in runs)
    with translated("create", folder):
        refuse_links(root, folder)
        make_folder(folder, private=private)
    entries: list[JsonDict] = []
    for run, manifest in runs:
        path, home = run.path.resolve(), root.resolve()
        shown = path.relative_to(home) if path.is_relative_to(home) else path
        names = {"env_id": manifest.env_id, "name": manifest.name, "model": manifest.model}
        entries.append({"path": shown.as_posix(), **names})
    content = {"schema_version": 1, "id": suite_id, "file": file, "command": command, "runs": entries}
    content |= {"failed": list(failed)} if failed else {}
    path = folder / f"{safe_name(suite_id)}.json"
    atomic_write(path, _pretty(cast(JsonDict, without_secrets(content))), private=private)
    return path


def _pretty(value: JsonDict) -> bytes:
    # Indented JSON, for people. Integers beyond 64 bits in env_args need the slow path.
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return to_text(value).encode("ascii") + b"\n"


def _read_json(path: Path) -> object:
    try:
        return from_text(read_file(path))
    except OSError as error:
        raise store_error("read", path, error) from error
    except ValueError as error:
        raise StoreError(f"cannot read {path}: not JSON ({error})") from error
