"""Conversion of Python values to Arrow arrays, through buffers. `pyarrow.array` is not used, since its first call
imports pandas if that is installed: 1.3 s of CPU and 60 MB during a run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, cast


def arrow() -> Any:
    """Import the module `pyarrow`."""
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    return cast(Any, pyarrow)


def parquet() -> Any:
    """Import the module `pyarrow.parquet`."""
    import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

    return cast(Any, pyarrow.parquet)


def column(values: Sequence[object], kind: Any) -> Any:
    """Build an Arrow array.

    Args:
        values: Values of the type, or None.
        kind: `string`, `float64`, `int64` or `bool`, as a `pyarrow.DataType`.
    """
    pa = arrow()
    if kind == pa.string():
        return _strings(cast("Sequence[str | None]", values))
    if kind == pa.bool_():
        content = _bits(bool(value) for value in values)
    else:
        code, empty = ("d", 0.0) if kind == pa.float64() else ("q", 0)
        content = array(code, cast(Any, [empty if value is None else value for value in values]))
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(content)])


def integers(values: Sequence[int]) -> Any:
    """Build an Arrow array of 32-bit integers, as used for list offsets."""
    pa = arrow()
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(array("i", values))])


def _strings(values: Sequence[str | None]) -> Any:
    pa = arrow()
    texts = [b"" if value is None else _utf8(value) for value in values]
    offsets = array("i", accumulate(map(len, texts), initial=0))
    buffers = [_validity(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # UTF-8 cannot encode a lone surrogate, which is replaced; a pair of surrogates becomes its character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _validity(values: Sequence[object]) -> Any:
    """Validity bitmap of an array; None if no value is missing."""
    return arrow().py_buffer(_bits(value is not None for value in values)) if None in values else None


def _bits(flags: Iterable[bool]) -> bytes:
    """Pack flags into bits, lowest bit first."""
    text = "".join("1" if flag else "0" for flag in flags)
    return int(text[::-1] or "0", 2).to_bytes((len(text) + 7) // 8, "little")
