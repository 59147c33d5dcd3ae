"""What `harness.report.frames` offers, what it costs to import, and what a missing library says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_samples import make_run, python, rollouts, write

import harness.report.frames
from harness.core.errors import UsageError

PUBLIC = ["messages_df", "rollouts_df", "runs_df"]


def test_the_public_names_are_these() -> None:
    assert harness.report.frames.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(harness.report.frames))
    assert [getattr(harness.report.frames, name).__name__ for name in PUBLIC] == PUBLIC
    with pytest.raises(AttributeError, match="rollout_df"):
        _ = harness.report.frames.rollout_df  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


def test_it_imports_what_it_needs_when_it_needs_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write(run.journal_path, rollouts(3))
    program = """
import json, sys
heavy = {"pandas", "polars", "pyarrow", "numpy", "datasets", "aiohttp", "rich", "pydantic"}
seen = []
import harness.report.frames
seen.append(sorted(heavy & set(sys.modules)))
from harness.report.frames import messages_df, rollouts_df, runs_df
seen.append(sorted(heavy & set(sys.modules)))
lengths = [len(made(sys.argv[1], backend="polars")) for made in (runs_df, rollouts_df, messages_df)]
seen.append([lengths, "pandas" in sys.modules])
lengths = [len(made(sys.argv[1])) for made in (runs_df, rollouts_df, messages_df)]
seen.append([lengths, sorted({"datasets", "aiohttp", "pydantic", "rich"} & set(sys.modules))])
print(json.dumps(seen))
"""
    child = python(program, tmp_path)
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == [[], [], [[1, 3, 9], False], [[1, 3, 9], []]]


@pytest.mark.parametrize(
    ("backend", "install"), [("polars", "'bench-harness[polars]'"), ("pandas", "'pandas'")], ids=str
)
def test_a_missing_library_says_how_to_get_it(tmp_path: Path, backend: str, install: str) -> None:
    program = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from harness.core.errors import UsageError
from harness.report.frames import messages_df, rollouts_df, runs_df
for made in (runs_df, rollouts_df, messages_df):
    try:
        made("nowhere", backend=sys.argv[1])
    except UsageError as error:
        print(error)
"""
    child = python(program, backend)
    assert child.returncode == 0, child.stderr
    said = child.stdout.splitlines()
    assert len(said) == 3
    assert all(
        s.startswith(f"backend: {backend} cannot be imported (") and s.endswith(f"; pip install {install}")
        for s in said
    )


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    for made in (harness.report.frames.runs_df, harness.report.frames.rollouts_df, harness.report.frames.messages_df):
        with pytest.raises(UsageError, match="backend: 'polar' is not known; did you mean \"polars\""):
            made(tmp_path, backend="polar")  # pyright: ignore[reportCallIssue, reportArgumentType]
