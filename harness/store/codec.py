"""Encoding of records as lines of JSON, and decoding. Removes known secrets. A line is one JSON object that begins with
`"type"`. orjson cannot write, or would change, integers beyond 64 bits, lone surrogates and nesting beyond 254 levels.
Such lines begin with `"wide": true` and use the standard library for encoding and decoding. NaN and infinities become
null."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, TypeVar, cast

import orjson

from harness.core.errors import EnvironmentFault
from harness.core.records import Example, Failed, Generated, Record, Scored, Timing
from harness.core.redact import redactor
from harness.core.types import JsonDict, Usage

_WIDE = b'{"wide"'
_UNUSUAL = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY

_STRUCTURAL = frozenset({"type", "key", "example_key", "rollout_index", "index", "outcome", "stage"})
"""Fields that are compared when a run is resumed; they are not redacted, even if they contain a secret."""

_RECORDS: dict[str, type[Record]] = {cls.kind: cls for cls in (Example, Generated, Scored, Failed)}

_OPTIONAL = ("replies", "calls", "node")
"""Last fields of records, which are omitted if they are None, as they usually are."""

_NAMES = {
    kind: tuple(
        (f.name, "example_key" if cls is Example and f.name == "key" else f.name) for f in dataclasses.fields(cls)
    )
    for kind, cls in _RECORDS.items()
}
"""Fields of each kind of record, each with its name in a journal line. Only an example's key has another name there."""

_FIELDS = {
    kind: (("type", *(alias for _, alias in names)), attrgetter("kind", *(name for name, _ in names)))
    for kind, names in _NAMES.items()
}
"""Names in a journal line of each kind of record, and a function that returns their values."""

_USUAL = {
    kind: (itemgetter(*named), frozenset(("type", *named)))
    for kind, names in _NAMES.items()
    if (named := [alias for name, alias in names if name not in _OPTIONAL])
}
"""Names in a usual journal line of each kind of record, without the last fields, which most lines omit; and a
function that returns the values without the type."""

_TYPES: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "example": {"prompt": (str, list)},
    "generated": {"completion": (str, list), "state": (dict,), "attempts": (int,)},
    "failed": {"completion": (str, list), "attempts": (int,)},
    "scored": {
        "reward": (float, int, NoneType), "metrics": (dict,), "reasons": (dict,), "seconds": (float, int),
        "extra": (dict,),
    },
}  # fmt: skip
"""Types of fields in journal lines without which reports and tables cannot be made."""

_CHECKED = {
    kind: [(named.index(name), frozenset(types)) for name, types in _TYPES[kind].items()]
    for kind, names in _NAMES.items()
    if (named := [alias for name, alias in names if name not in _OPTIONAL])
}
"""Positions and types of these fields among the values of a usual line."""

_PARTS_AT = {kind: [name for name, _ in _NAMES[kind]].index("usage") for kind in ("generated", "failed")}
"""Position of the field `usage` in the records that have one; `timing` follows."""

_PART_NAMES = {cls: tuple(f.name for f in dataclasses.fields(cls)) for cls in (Usage, Timing)}
_PART_FIELDS = {cls: frozenset(names) for cls, names in _PART_NAMES.items()}
_PART_VALUES: dict[type[object], Callable[[JsonDict], tuple[Any, ...]]] = {
    cls: itemgetter(*names) for cls, names in _PART_NAMES.items()
}

T = TypeVar("T", Usage, Timing)


class UnknownType(ValueError):
    """Error for a complete line of a type that this version does not know."""


def encode(record: Record) -> bytes:
    """Encode a record as one line, with newline.

    Raises:
        EnvironmentFault: the record has a value that is not JSON.
    """
    line = to_line(document_of(record))
    # Search for secrets first; only a line that contains one is decoded and rebuilt.
    if redactor.is_clean(line):
        return line
    redact = partial(redactor.text, patterns=False)
    clean = {
        name: value if name in _STRUCTURAL else map_texts(value, redact, redacted_key)
        for name, value in parse(line).items()
    }
    return _encode_unusual(clean)


def to_line(document: JsonDict) -> bytes:
    """Encode a JSON object with a `type`, such as a record, as one journal line. Nothing is redacted.

    Raises:
        EnvironmentFault: the object has a value that is not JSON.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return _encode_unusual(document)


def parse(line: bytes) -> JsonDict:
    """Parse the JSON object of one line.

    Raises:
        ValueError: the line is not a JSON object.
    """
    value = from_text(line) if line.startswith(_WIDE) else orjson.loads(line)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return cast(JsonDict, value)


def from_text(text: bytes) -> object:
    """Parse JSON written by `to_text`, or a line that begins with `"wide": true`, without loss.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        return cast(object, json.loads(text.decode("utf-8"), parse_constant=_refuse))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def record_of(document: JsonDict) -> Record:
    """Build the record of a parsed line. Unknown fields are ignored.

    Raises:
        UnknownType: the line's type is not known to this version.
        ValueError: a field is missing or has the wrong type.
    """
    kind = document.get("type")
    cls = _RECORDS.get(kind) if isinstance(kind, str) else None
    if cls is None or not isinstance(kind, str):
        raise UnknownType(f"line type {kind!r} is not known to this version of bench")
    try:
        if (plain := _plain_record(kind, document)) is not None:
            return plain
        for name, types in _TYPES[kind].items():
            if name in document and not isinstance(document[name], types):
                raise TypeError(f"the field {name} must not be a {type(document[name]).__name__}")
        arguments = {name: document[alias] for name, alias in _NAMES[kind] if alias in document}
        if not isinstance(arguments["key"], str):
            raise TypeError("the field key must be a string")
        if cls is Generated or cls is Failed:
            if not isinstance(arguments["example_key"], str) or not isinstance(arguments["rollout_index"], int):
                raise TypeError("the field example_key must be a string, and rollout_index an integer")
            if "usage" in arguments:
                arguments["usage"] = _part(Usage, arguments["usage"])
            if "timing" in arguments:
                arguments["timing"] = _part(Timing, arguments["timing"])
        if cls is Generated:
            arguments["lost"] = tuple(arguments.get("lost", ()))
        return cls(**arguments)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a {kind} line: {type(error).__name__}: {error}") from error


def _plain_record(kind: str, document: JsonDict) -> Record | None:
    """Build the record of a line with exactly the fields that `encode` writes, quickly; None if it has
    others, or a wrong type."""
    values_of, usual = _USUAL[kind]
    if document.keys() != usual:
        return None
    values = list(values_of(document))
    if type(values[0]) is not str:
        return None
    for place, types in _CHECKED[kind]:
        if type(values[place]) not in types:
            return None
    if kind == "generated" or kind == "failed":
        if type(values[1]) is not str or type(values[2]) is not int:
            return None
        at = _PARTS_AT[kind]
        values[at] = _part(Usage, values[at])
        values[at + 1] = _part(Timing, values[at + 1])
        if kind == "generated":
            values[-1] = tuple(cast("list[str]", values[-1]))
    return _RECORDS[kind](*values)


def decode(line: bytes) -> Record:
    """Decode a line to its record."""
    return record_of(parse(line))


def to_text(value: object) -> str:
    """JSON text of any value, without newlines, for a table cell. Never raises; a value that is not JSON becomes its
    `repr`."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return orjson.dumps(value, option=_UNUSUAL).decode()
    except TypeError:
        pass
    try:
        return json.dumps(_plain(value, repr), ensure_ascii=True, allow_nan=False)
    except RecursionError:
        return '"[nested too deeply]"'


def document_of(record: Record) -> JsonDict:
    """Convert a record to the JSON object of its journal line."""
    names, values = _FIELDS[record.kind]
    document: JsonDict = dict(zip(names, values(record), strict=True))
    for name in _OPTIONAL:
        if document.get(name, ...) is None:
            del document[name]
    return document


def _encode_unusual(document: JsonDict) -> bytes:
    try:
        return orjson.dumps(document, option=_UNUSUAL | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        pass
    wide: JsonDict = {"wide": True, **document}
    try:
        return json.dumps(_plain(wide, _not_json), ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
    except (TypeError, RecursionError) as error:
        what = f"{document['type']} record {document.get('key', document.get('example_key'))}"
        raise EnvironmentFault(f"{what} cannot be recorded: {error}; messages, info and state must be JSON") from error


def _plain(value: object, other: Callable[[object], object]) -> object:
    """Convert `value` to types that `json.dumps` supports; the function `other` converts values of other types."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        return {key if isinstance(key, str) else str(key): _plain(item, other) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, other) for item in cast("list[object]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name), other) for f in dataclasses.fields(value)}
    try:
        # Dates, UUIDs, enums and numpy values, which orjson supports.
        return orjson.loads(orjson.dumps(value, option=_UNUSUAL))
    except TypeError:
        return other(value)


def _not_json(value: object) -> object:
    raise TypeError(f"JSON cannot represent a value of type {type(value).__name__}")


def _refuse(constant: str) -> object:
    raise ValueError(f"JSON does not allow {constant}")


def redacted_key(name: str) -> str:
    """Redact known secrets in a key of a JSON object. A lower-case word is kept: it may be the name of a field."""
    is_word = name.islower() and name.replace("_", "").isalpha()
    return name if is_word else redactor.text(name, patterns=False)


def map_texts(value: object, text: Callable[[str], str], key: Callable[[str], str] = str) -> object:
    """Copy a JSON value, with `text` applied to every string in it, and `key` to every key."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {key(name): map_texts(item, text, key) for name, item in cast(JsonDict, value).items()}
    return [map_texts(item, text, key) for item in cast("list[object]", value)] if isinstance(value, list) else value


def _part(cls: type[T], value: object) -> T:
    known = _PART_FIELDS[cls]
    table = cast(JsonDict, value)
    if table.keys() == known:
        return cls(*_PART_VALUES[cls](table))
    if table.keys() <= known:
        return cls(**table)
    return cls(**{name: item for name, item in table.items() if name in known})
