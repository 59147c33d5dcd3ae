"""Python values as JSON, between the examiner and the solver. Owns the format: plain data both ways, by value.

The examiner must be able to read whatever the solver's side makes up without running anything of it: so exact built-in
types come out, never a subclass with methods of its own, and what has no form here becomes something that equals
nothing. A subclass of a built-in type goes over as that type; an iterator as its items, up to a bound.
"""

# Of a value that comes from outside nothing is known; finding out what it is, is what this module does.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set, ValuesView
from itertools import islice
from typing import Any, TypeAlias

MAX_ITEMS = 1_000_000
MAX_DEPTH = 200

Json: TypeAlias = Any
"""None, a bool, a text, or a list that begins with the name of a kind."""


class Unreadable:
    """A value that cannot be sent. Equal to nothing, itself included, and neither true nor false.

    Args:
        kind: The name of its type.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        raise TypeError(f"a value of type {self.kind} cannot be compared")

    def __repr__(self) -> str:
        return f"<a {self.kind}>"


_SINGLE: tuple[tuple[type | tuple[type, ...], Callable[[Any], Json]], ...] = (
    (int, lambda value: ["int", format(int(value), "x")]),
    (float, lambda value: ["float", float(value).hex()]),
    (complex, lambda value: ["complex", complex(value).real.hex(), complex(value).imag.hex()]),
    (str, lambda value: str.__str__(value)),
    (bytes, lambda value: ["bytes", bytes(value).hex()]),
    (bytearray, lambda value: ["bytearray", bytes(value).hex()]),
    (range, lambda value: ["range", value.start, value.stop, value.step]),
)
_MANY: tuple[tuple[type | tuple[type, ...], str, Callable[[Any], Iterable[Any]]], ...] = (
    (dict, "dict", dict.items),
    (list, "list", list.__iter__),
    (tuple, "tuple", tuple.__iter__),
    (set, "set", set.__iter__),
    (frozenset, "frozenset", frozenset.__iter__),
    (Set, "set", iter),
    ((Iterator, ValuesView), "iterator", lambda value: islice(value, MAX_ITEMS)),
)

_READ_SINGLE: dict[str, Callable[..., object]] = {
    "int": lambda text: int(str(text), 16),
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(str(real)), float.fromhex(str(imaginary))),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "range": range,
    "unreadable": lambda kind: Unreadable(str(kind)),
}
_READ_MANY: dict[str, Callable[[list[Any]], object]] = {
    "dict": dict,
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "iterator": iter,
}


def encode(value: object, depth: int = 0) -> Json:
    """A value as JSON."""
    if value is None or value is True or value is False:
        return value
    for kind, write in _SINGLE:
        if isinstance(value, kind):
            return write(value)
    if depth > MAX_DEPTH:
        return ["unreadable", "value nested too deeply"]
    for kind, name, items in _MANY:
        if isinstance(value, kind):
            return [name, [encode(one, depth + 1) for one in items(value)]]
    return ["unreadable", type(value).__name__]


def decode(data: Json) -> Any:
    """A value from JSON.

    Raises:
        ValueError, TypeError, OverflowError, RecursionError: it is nothing that `encode` writes.
    """
    if data is None or data is True or data is False or type(data) is str:
        return data
    if type(data) is not list or not data or type(data[0]) is not str:
        raise ValueError("not a value")
    name: str = data[0]
    if name in _READ_SINGLE:
        return _READ_SINGLE[name](*data[1:])
    if name in _READ_MANY and len(data) == 2:
        return _READ_MANY[name]([decode(one) for one in data[1]])
    raise ValueError("not a value")
