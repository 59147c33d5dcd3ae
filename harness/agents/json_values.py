"""Conversion of values in rows and messages, such as dates, Decimals and bytes, to JSON values."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import uuid
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, cast


def json_value(value: object) -> Any:
    """Convert a value to JSON values; JSON values are copied.

    Dates and times are converted to ISO 8601 text, durations to seconds, Decimal, UUID and paths to text, bytes to
    their UTF-8 text or else to base64, tuples and sets to lists, numbers and arrays of numpy to numbers and lists,
    pydantic models and dataclasses to dicts.

    Raises:
        TypeError: the value has no JSON form. The message names the value's type.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {name if isinstance(name, str) else str(name): json_value(part) for name, part in table.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in cast("list[object]", value)]
    if isinstance(value, set | frozenset):
        return [json_value(part) for part in sorted(cast("set[object]", value), key=str)]
    return _scalar(value)


def _scalar(value: object) -> Any:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal | uuid.UUID | PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    for name in ("model_dump", "tolist"):  # pydantic; numpy, including its scalars
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return json_value(method(exclude_none=True) if name == "model_dump" else method())
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(cast(Any, value))]
        return {name: json_value(cast(object, getattr(value, name))) for name in names}
    raise TypeError(f"a value of type {type(value).__name__} cannot be converted to JSON")
