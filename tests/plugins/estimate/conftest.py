"""`bench` as a function, in throw-away folders."""

from __future__ import annotations

from bench_command import bench, here

__all__ = ["bench", "here"]
