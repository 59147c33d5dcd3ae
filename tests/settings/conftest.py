"""Throw-away environments on the import path, and a folder to write suites in."""

from __future__ import annotations

from workplace import here, write

__all__ = ["here", "write"]
