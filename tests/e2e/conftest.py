"""Every test of this folder has a workshop of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_evals import evals
from bench_runs import Workshop

__all__ = ["evals", "shop"]


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
