"""Indexes of these tests are in a folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from view_server import own_cache


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory.mktemp("cache")) as folder:
        yield folder
