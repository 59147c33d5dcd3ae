"""What parent and child say to each other: one JSON object a line, in both directions, and the form in which replies of
models and errors travel. Owns no pipe and no meaning of an order; records travel as lines of a journal do."""

from __future__ import annotations

from typing import cast

from harness.core import errors
from harness.core.errors import EnvironmentFault, EnvironmentLoadError, HarnessError, ModelError
from harness.core.types import JsonDict, ModelResponse, Usage
from harness.store.codec import parse, to_line
from harness.usercode.exceptions import describe

MAX_FRAME = 1 << 30
"""Bytes. No record is as long; what is longer is not from us."""


OUT_OF_MEMORY = 86
"""The exit code of a child that could not go on without more memory."""


class FrameReader:
    """Cuts what a pipe gives into frames."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[JsonDict]:
        """The frames that `data` completes.

        Raises:
            ValueError: it is none of ours.
        """
        if b"\n" not in data:
            self._rest.append(data)
            self._size += len(data)
            if self._size > MAX_FRAME:
                raise ValueError("a line without an end")
            return []
        *whole, rest = b"".join((*self._rest, data)).split(b"\n")
        self._rest, self._size = [rest] if rest else [], len(rest)
        return [parse(line) for line in whole]


def pack(frame: JsonDict) -> bytes:
    """A frame, which has a `type`, as it goes into a pipe.

    Raises:
        EnvironmentFault: it holds a value that is not JSON.
    """
    return to_line(frame)


def response_to_json(response: ModelResponse) -> JsonDict:
    """A model's reply on its way to the child."""
    return {name: getattr(response, name) for name in ModelResponse.__slots__}


def response_from_json(document: JsonDict) -> ModelResponse:
    """What `response_to_json` gave."""
    wasted = document["wasted"]
    values: JsonDict = {**document, "usage": Usage(**document["usage"])}
    values["wasted"] = None if wasted is None else Usage(**wasted)
    return ModelResponse(**values)


def error_to_json(error: BaseException) -> JsonDict:
    """An error on its way across; of one that is not of our tree, `describe` says what it was."""
    if not isinstance(error, HarnessError):
        return {"kind": EnvironmentFault.__name__, "words": describe(error), "exit_code": 1}
    document: JsonDict = {"kind": type(error).__name__, "words": str(error), "exit_code": error.exit_code}
    if isinstance(error, ModelError):
        document |= {"status": error.status, "retryable": error.retryable, "reason": error.reason}
        document["wasted"] = error.wasted
    return document


def error_from_json(document: JsonDict) -> HarnessError:
    """What `error_to_json` gave: an error of the same type, or of the nearest one that words alone make."""
    kind: object = getattr(errors, document["kind"], EnvironmentFault)
    words = str(document["words"])
    if isinstance(kind, type) and issubclass(kind, ModelError):
        error = kind(words, status=document["status"], retryable=document["retryable"], reason=document["reason"])
        if document["wasted"] is not None:
            error.wasted = Usage(**document["wasted"])
        return error
    if not isinstance(kind, type) or not issubclass(kind, HarnessError) or kind.__init__ is not Exception.__init__:
        kind = EnvironmentLoadError
    other = cast("type[HarnessError]", kind)(words)
    other.exit_code = int(document["exit_code"])
    return other
