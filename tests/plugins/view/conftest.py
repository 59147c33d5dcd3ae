"""Indexes of these tests are in a folder of their own; one browser for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, browser
from view_server import own_cache


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_cache(tmp_path_factory.mktemp("cache")) as folder:
        yield folder


@pytest.fixture(scope="module")
def in_browser() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "outputs"
