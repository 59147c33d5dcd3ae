"""Arrow tables as data frames. Owns which backends there are, the only imports of pandas and polars, and what a missing
one says; what is in the tables is `fields`'s business."""

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
"""What to install for each."""


def library(backend: str) -> ModuleType:
    """The library that makes the frames. Ask before anything is read: a missing one should not cost a minute.

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
    """A data frame with the columns and values of an Arrow table.

    Args:
        table: A `pyarrow.Table`.
        made_by: From `library`.
    """
    if made_by.__name__ == "polars":
        return cast("polars.DataFrame", made_by.from_arrow(table))
    pa = arrow()
    # Without these, a column of integers would become one of floats, and one of flags one of objects, as soon as a
    # value is missing: the type would hang on the values.
    types = {pa.int64(): made_by.Int64Dtype(), pa.bool_(): made_by.BooleanDtype()}
    return cast("pandas.DataFrame", table.to_pandas(types_mapper=types.get))
