"""One test over a table of rows, for rows so cheap that a test of each would cost more than what it checks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def for_each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test with every row, and fail with each row that failed.

    Args:
        names: Parameters of the test, as for `pytest.mark.parametrize`.
        rows: A value for each name; of one name, the value itself.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = len(columns) == 1 and isinstance(names, str)
    every = list(rows)

    def fold(test: Test) -> Test:
        @functools.wraps(test)
        def all_rows(**others: Any) -> None:
            failed: list[BaseException] = []
            for number, row in enumerate(every, 1):
                values = dict(zip(columns, (row,) if single else row, strict=True))
                try:
                    test(**values, **others)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"row {number} of {len(every)}: {values!r:.500}")
                    failed.append(error)
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(every)} rows failed", failed)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        all_rows.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        del all_rows.__wrapped__
        return all_rows

    return fold
