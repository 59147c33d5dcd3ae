"""`bench` as a function, in throw-away folders."""

from __future__ import annotations

from bench_command import Bench, Done, bench, here

__all__ = ["Bench", "Done", "bench", "here"]
