"""Convert rows to Arrow tables with Arrow's JSON reader. `pyarrow.array` is not used, since its first call imports
pandas if that is installed: 1.3 s of CPU and 60 MB during a run."""

from __future__ import annotations

from typing import Any, cast

import orjson

from harness.core.types import JsonDict
from harness.store.codec import map_texts


def arrow() -> Any:
    """Import the module `pyarrow`."""
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    return cast(Any, pyarrow)


def parquet() -> Any:
    """Import the module `pyarrow.parquet`."""
    import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

    return cast(Any, pyarrow.parquet)


def json_line(row: JsonDict) -> bytes:
    """Encode a row for `table_from`. Lone surrogates, which UTF-8 cannot encode, are replaced."""
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return orjson.dumps(map_texts(row, unbroken), option=orjson.OPT_APPEND_NEWLINE)


def table_from(lines: bytes | bytearray, schema: Any) -> Any:
    """Build an Arrow table (a `pyarrow.Table`) from joined results of `json_line`; missing values become null."""
    import pyarrow.json  # pyright: ignore[reportMissingTypeStubs]

    pa, reader = arrow(), cast(Any, pyarrow.json)
    if not lines:
        return pa.Table.from_batches([], schema)
    read = reader.ReadOptions(use_threads=False, block_size=len(lines) + 1)  # one block: a row must not be split
    parse = reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return reader.read_json(pa.BufferReader(lines), read, parse)


def unbroken(text: str) -> str:
    """Replace lone surrogates; a surrogate pair becomes the character that it encodes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
