"""Conversion of Arrow tables to data frames; imports pandas or polars."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from harness.core.errors import UsageError
from harness.settings.wording import suggestion
from harness.store.arrow import arrow

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    Frame: TypeAlias = pandas.DataFrame | polars.DataFrame

Backend: TypeAlias = Literal["pandas", "polars"]

BACKENDS: dict[str, str] = {"pandas": "pandas", "polars": "bench-harness[polars]"}
"""Package to install for each backend."""


def library(backend: str) -> ModuleType:
    """Import the backend. Call it before reading any run, so that a missing package is reported at once.

    Args:
        backend: `pandas` or `polars`.

    Raises:
        UsageError: there is no such backend, or it is not installed.
    """
    if backend not in BACKENDS:
        raise UsageError(f"backend: {backend!r} is not known; {suggestion(str(backend), BACKENDS)}")
    try:
        return importlib.import_module(backend)
    except ImportError as error:
        install = f"pip install '{BACKENDS[backend]}'"
        raise UsageError(f"backend: {backend} cannot be imported ({error}); {install}") from error


def framed(table: Any, made_by: ModuleType) -> Frame:
    """Convert an Arrow table to a data frame.

    Args:
        table: A `pyarrow.Table`.
        made_by: The backend from `library`.
    """
    if made_by.__name__ == "polars":
        return cast("polars.DataFrame", made_by.from_arrow(table))
    pa = arrow()
    # Nullable types: otherwise a missing value would turn integers into floats and booleans into objects.
    types = {pa.int64(): made_by.Int64Dtype(), pa.bool_(): made_by.BooleanDtype()}
    return cast("pandas.DataFrame", table.to_pandas(types_mapper=types.get))
