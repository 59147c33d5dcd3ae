"""`bench` as a function, in throw-away folders; the pages of `bench view` with indexes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_command import bench, here, write
from view_server import own_cache

__all__ = ["bench", "here", "write"]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory.mktemp("cache")) as folder:
        yield folder
