"""Python source as a tree, from any thread. Owns the lock that this takes."""

from __future__ import annotations

import ast
import threading

_alone = threading.RLock()


def parse(source: str | bytes) -> ast.Module:
    """As `ast.parse`, one at a time: Python 3.11 counts how deep it is for all threads together, and fails where two
    are at it and a finalizer runs in between (CPython issue 106905).

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python, or nested too deeply.
    """
    with _alone:
        return ast.parse(source)
