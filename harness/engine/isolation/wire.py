"""Wire format between a parent process and an isolated environment's process: one JSON object per line in both
directions, for settings, model replies, errors and results. Records are encoded as in the journal."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import cast

from harness.core import errors
from harness.core.errors import EnvironmentFault, EnvironmentLoadError, HarnessError, ModelError
from harness.core.types import JsonDict, ModelResponse, Usage
from harness.engine.rollout_limits import RolloutLimits
from harness.store.codec import parse, to_line
from harness.usercode.exceptions import describe

MAX_FRAME = 1 << 30
"""Maximum length of a frame (one message) in bytes; a longer line is an error."""

OUT_OF_MEMORY = 86
"""Exit code of a child process that ran out of memory."""


class ParentChannel:
    """Message channel from a child process to its parent process; thread-safe.

    Args:
        fd: File descriptor of the pipe.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, frame: JsonDict) -> None:
        """Send a message to the parent process."""
        self.send_packed(pack(frame))

    def send_packed(self, line: bytes) -> None:
        """Send a message that is already encoded as a frame to the parent process."""
        rest = memoryview(line)
        with self._lock:
            while rest:
                rest = rest[os.write(self._fd, rest) :]


@dataclass(frozen=True, slots=True)
class IsolatedJudge:
    """The model that answers as a judge of an isolated environment."""

    model: str
    """Name of the model at its endpoint."""
    plays: Sequence[str] = ()
    """Names of the environment's methods that compute the replies if the embedded reference server is this judge."""


@dataclass(frozen=True, slots=True)
class IsolatedRunConfig:
    """Settings for executing a run's rollouts in an isolated process; see `executors.local`."""

    timeout: float | None = None
    max_retries: int = 0
    scoring_timeout: float | None = None
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    function: str | None = None
    """Name of the only reward function to run; None for the whole rubric."""
    plays: Sequence[str] = ()
    """Names of the environment's methods that compute the replies if the embedded server is the run's model."""
    judges: Sequence[IsolatedJudge | None] = ()
    """The judges in the order of the rubric; None in place of a judge that the run does not call."""

    @classmethod
    def from_json(cls, document: JsonDict) -> IsolatedRunConfig:
        """Rebuild the settings from the JSON that the parent process sent."""
        values: JsonDict = {**document, "limits": RolloutLimits(**document["limits"])}
        values["judges"] = [None if each is None else IsolatedJudge(**each) for each in document["judges"]]
        return cls(**values)


class FrameReader:
    """Splits the bytes of a pipe into frames (messages)."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[JsonDict]:
        """Return the frames that `data` completes.

        Raises:
            ValueError: a line is too long or is not a valid frame.
        """
        if b"\n" not in data:
            self._rest.append(data)
            self._size += len(data)
            if self._size > MAX_FRAME:
                raise ValueError(f"a line from an isolated process is longer than {MAX_FRAME} bytes")
            return []
        *whole, rest = b"".join((*self._rest, data)).split(b"\n")
        self._rest, self._size = [rest] if rest else [], len(rest)
        return [parse(line) for line in whole]


def pack(frame: JsonDict) -> bytes:
    """Encode a frame (a message with a `type`) as a line.

    Raises:
        EnvironmentFault: the frame contains a value that JSON cannot represent.
    """
    return to_line(frame)


def response_to_json(response: ModelResponse) -> JsonDict:
    """Convert a model's reply to JSON for an isolated process."""
    return {each.name: getattr(response, each.name) for each in fields(ModelResponse)}


def response_from_json(document: JsonDict) -> ModelResponse:
    """Rebuild a model's reply from the JSON that the other process sent."""
    wasted = document["wasted"]
    values: JsonDict = {**document, "usage": Usage(**document["usage"])}
    values["wasted"] = None if wasted is None else Usage(**wasted)
    return ModelResponse(**values)


def error_to_json(error: BaseException) -> JsonDict:
    """Convert an error to JSON; an error that is not a `HarnessError` is reduced to a message."""
    if not isinstance(error, HarnessError):
        return {"kind": EnvironmentFault.__name__, "words": describe(error), "exit_code": 1}
    document: JsonDict = {"kind": type(error).__name__, "words": str(error), "exit_code": error.exit_code}
    if isinstance(error, ModelError):
        document |= {"status": error.status, "retryable": error.retryable, "reason": error.reason}
        document["wasted"] = error.wasted
    return document


def error_from_json(document: JsonDict) -> HarnessError:
    """Rebuild an error from the JSON that the other process sent. The error has the same type or, if that needs more
    than a message, the nearest base type."""
    kind: object = getattr(errors, document["kind"], EnvironmentFault)
    words = str(document["words"])
    if isinstance(kind, type) and issubclass(kind, ModelError):
        error = kind(words, status=document["status"], retryable=document["retryable"], reason=document["reason"])
        if document["wasted"] is not None:
            error.wasted = Usage(**document["wasted"])
        return error
    if not isinstance(kind, type) or not issubclass(kind, HarnessError) or kind.__init__ is not HarnessError.__init__:
        kind = EnvironmentLoadError
    other = cast("type[HarnessError]", kind)(words)
    other.exit_code = int(document["exit_code"])
    return other
