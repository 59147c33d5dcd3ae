"""A server without a model, and a folder of tasks."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from bench_runs import served
from lm_eval_folder import write_tasks

LM_EVAL = "lm_eval is not installed: pip install 'bench-harness[lm-eval]'"


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Address of `bench serve`."""
    command = ["bench", "serve", "--port", "0"]
    with served(command, tmp_path_factory.mktemp("server"), dict(os.environ)) as server:
        yield server.url


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of tasks for `include_path`."""
    pytest.importorskip("lm_eval", reason=LM_EVAL)
    os.environ["HF_DATASETS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return write_tasks(tmp_path_factory.mktemp("tasks") / "own")
