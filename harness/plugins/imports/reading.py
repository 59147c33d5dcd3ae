"""Functions that all importers share: validated JSON from untrusted files, times, and the choice of the metric that
becomes the reward."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from harness.core.errors import UsageError
from harness.core.records import FIXED_COLUMNS
from harness.core.size_limits import LINE, lines_of, size_text
from harness.core.types import JsonDict
from harness.settings.wording import nearest, shown
from harness.stats.scores import LARGEST_SCORE
from harness.store.safe_files import is_file, open_binary, read_file
from harness.store.values import number

M = TypeVar("M", bound=BaseModel)

_HEAD = 1 << 16
"""Number of bytes at the beginning of a document that are read to recognize its format."""

_OBJECT: TypeAdapter[JsonDict] = TypeAdapter(JsonDict)


def validated(model: type[M], text: bytes, where: str) -> M:
    """Parse a JSON document and validate it.

    Args:
        model: Class of the values.
        text: The document.
        where: File and line or member, for error messages.

    Raises:
        UsageError: the text is not JSON, or a key has another type.
    """
    return checked(model, parsed(text, where), where)


def parsed(text: bytes, where: str) -> Any:
    """Parse a JSON document. NaN and infinities are accepted, since some tools write them.

    Raises:
        UsageError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise UsageError(f"{where} is {reason}") from error


def checked(model: type[M], value: object, where: str) -> M:
    """Validate a JSON value.

    Raises:
        UsageError: a key is missing or has another type; the message names it.
    """
    try:
        return model.model_validate(value)
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError):
            raise UsageError(f"{where} is nested too deeply") from error
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}: {key or 'the value'}: {first['msg']}") from error


def json_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Iterate over the lines of a JSON Lines file that are not blank, each with its place for error messages.

    Raises:
        UsageError: the file is not a regular file, or a line is too long.
    """
    number = 0
    try:
        with open_binary(path) as file:
            for number, line in enumerate(lines_of(file), 1):
                if line.strip():
                    yield f"{path}, line {number}", line
    except OSError as error:
        raise unreadable(path, error) from error


def read_document(path: Path) -> bytes:
    """Read a whole file of at most 256 MiB.

    Raises:
        UsageError: the file cannot be read, or is no regular file, or is too large.
    """
    try:
        return read_file(path, LINE)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UsageError:
    """Return the error for a file that cannot be read."""
    return UsageError(f"{path}: {error.strerror or error}")


def first_line(path: Path) -> JsonDict:
    """Return the object in the first line of a JSON Lines file; {} if there is none. For recognizing a format."""
    if not is_file(path):
        return {}
    try:
        with open_binary(path) as file:
            return _OBJECT.validate_json(file.readline(LINE))
    except (OSError, ValueError, RecursionError):
        return {}


def begins_with_keys(path: Path, *keys: str) -> bool:
    """Return whether a file begins with a JSON object whose first keys are these. For recognizing a format."""
    if not is_file(path):
        return False
    pattern = r"\s*\{\s*" + ".*?".join(re.escape(f'"{key}"') + r"\s*:" for key in keys)
    try:
        with open_binary(path) as file:
            return re.match(pattern.encode(), file.read(_HEAD), re.DOTALL) is not None
    except OSError:
        return False


def score(value: object) -> float | None:
    """Return a number that can be a score; None if the value is no number, is NaN, or is beyond 1e100."""
    known = float(value) if isinstance(value, bool) else number(value)
    return known if known is not None and abs(known) <= LARGEST_SCORE else None


def chosen_reward(names: Sequence[str], wanted: str | None, where: str) -> str:
    """Choose the metric that becomes the reward: the one that the user names, or the only one.

    Args:
        names: Names of all metrics.
        wanted: Name that the user gave.
        where: The file, for error messages.

    Raises:
        UsageError: there is no such metric, or there are several and the user named none.
    """
    if wanted is not None:
        if wanted in names:
            return wanted
        found = nearest(wanted, names)
        hint = f'did you mean "{found}"?' if found else f"it has {', '.join(map(shown, names)) or 'none'}"
        raise UsageError(f"{where} has no metric {wanted!r}; {hint}", setting="reward")
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(f"{where} has no metric with a number for each example")
    listed = ", ".join(map(shown, names))
    raise UsageError(f"{where} has several metrics ({listed})", remedy="name the one that becomes the reward: {reward}")


def column_names(metrics: Mapping[str, float | None], taken: Sequence[str] = ()) -> dict[str, float | None]:
    """Rename metrics that have the name of another column of the dataset: `error` becomes `metric_error`."""
    reserved = {*FIXED_COLUMNS, *taken}
    return {f"metric_{name}" if name in reserved else name: value for name, value in metrics.items()}


def moment(text: str | None) -> float:
    """Convert ISO 8601 to Unix time; 0 if the time is unknown."""
    try:
        found = datetime.fromisoformat(text or "")
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def utc(seconds: float) -> str:
    """Convert Unix time to ISO 8601 in UTC; "" if the time is unknown."""
    try:
        known = datetime.fromtimestamp(seconds, UTC) if math.isfinite(seconds) and seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return ""
    return known.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if known else ""


def objects(value: object) -> list[JsonDict]:
    """Return the objects in a list; other items are dropped, and another value gives an empty list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast(JsonDict, item) for item in items if isinstance(item, dict)]


def too_large_archive(path: Path, limit: int) -> UsageError:
    """Return the error for an archive whose members are too large together."""
    return UsageError(f"{path}: the unpacked content is larger than {size_text(limit)}, the maximum size")
