"""Thread-safe parsing of Python source."""

from __future__ import annotations

import ast
import threading

_alone = threading.RLock()


def parse(source: str | bytes) -> ast.Module:
    """Parse Python source like `ast.parse`, one call at a time. Python 3.11 counts the recursion depth of all threads
    together, and fails if two threads parse and a finalizer runs in between (CPython issue 106905).

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the source is not valid Python or is nested too deeply.
    """
    with _alone:
        return ast.parse(source)
