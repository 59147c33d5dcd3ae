"""Debug traces of rollouts: one file per rollout, with one JSON object per line. Secrets are redacted."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from harness.core.redact import REDACTED, redactor
from harness.core.types import JsonDict
from harness.store.atomic import file_mode, is_closed

logger = logging.getLogger(__name__)

_SECRET_NAMES = frozenset({"authorization", "proxy-authorization", "api_key", "api-key", "apikey", "x-api-key"})
"""Keys whose values are always redacted."""

_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]")


class Trace:
    """Trace of one rollout in the file `{directory}/{rollout_id}.jsonl`. A later attempt or run appends to the file.

    If the file cannot be written, a warning is logged once, and the rollout continues. In a folder closed to other
    users, the file is readable by its owner only.

    Args:
        directory: The folder, which is created if missing; None writes nothing.
        rollout_id: The rollout's id, which is in the file name and in every line.
    """

    def __init__(self, directory: str | Path | None, rollout_id: str) -> None:
        self._directory = directory
        self._rollout_id = rollout_id
        self._file: IO[str] | None = None
        self._is_off = directory is None

    @property
    def path(self) -> Path:
        """The file. Built only when it is needed: most runs have no trace."""
        return Path(self._directory or "", f"{_NOT_IN_FILE_NAMES.sub('_', self._rollout_id)}.jsonl")

    def write(self, event: str, data: Mapping[str, object]) -> None:
        """Append an event to the trace as one line.

        Args:
            event: The kind of event.
            data: Any values. Values that are not JSON are converted with `str`; secrets become `[redacted]`.
        """
        if self._is_off:
            return
        entry: JsonDict = {"event": event, "rollout_id": self._rollout_id, "time": round(time.time(), 3)}
        try:
            line = json.dumps(_safe({**entry, **data}), ensure_ascii=False)
        except (ValueError, RecursionError):  # circular data
            line = json.dumps({**entry, "data": redactor.text(repr(data))})
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # Line-buffered: a killed run keeps its trace, and the lines of two writers do not mix.
                mode = file_mode(private=is_closed(self.path.parent))
                fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
                self._file = os.fdopen(fd, "a", 1, encoding="utf-8", errors="backslashreplace")
            self._file.write(f"{line}\n")
        except OSError as error:
            self._is_off = True
            logger.warning("the trace %s cannot be written: %s", self.path, error)

    def close(self) -> None:
        """Close the trace file. May be called repeatedly."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _safe(value: object) -> object:
    """Convert a value for the trace to JSON values without secrets."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {
            str(name): REDACTED if str(name).lower() in _SECRET_NAMES else _safe(part) for name, part in table.items()
        }
    if isinstance(value, list | tuple):
        return [_safe(part) for part in cast("list[object]", value)]
    return redactor.text(value if isinstance(value, str) else str(value))
