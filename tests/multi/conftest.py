"""A folder of its own for every test of the Python API, and no key in the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; what a provider's key or address may be is the test's to say."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_API_BASE", "_TOKEN")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
