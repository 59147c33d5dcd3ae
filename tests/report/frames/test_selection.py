"""How runs are named: by id, path, folder, list or frame; and what is said of a name that means none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from store_samples import make_run, rollouts, write

from harness.core.errors import UsageError
from harness.report.frames import messages_df, rollouts_df, runs_df
from harness.store.rundir import RunDir

IDS = ["20260101T000000Z-aaaa", "20260102T000000Z-bbbb", "20260103T000000Z-cccc"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output folder: two runs of one environment, then one of another."""
    for name, run_id in zip(("sums", "sums", "other"), IDS, strict=True):
        run = make_run(tmp_path / "out", env_id=name)
        write(run.journal_path, rollouts(2))
        moved = RunDir(run.path.rename(run.parent / run_id))
        moved.write_manifest(type(manifest := moved.read_manifest())(**{**_fields(manifest), "id": run_id}))
    return tmp_path / "out"


def _fields(manifest: Any) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}


def ids(runs: Any, path: Path | str = "outputs") -> list[str]:
    """The runs that are meant, in their order; by both functions the same."""
    found = rollouts_df(runs, path=path)["run_id"]
    assert found.tolist() == [run_id for run_id in found.unique() for _ in range(2)]
    assert messages_df(runs, path=path)["run_id"].unique().tolist() == found.unique().tolist()
    return found.unique().tolist()


def test_one_run_by_its_id_its_beginning_or_latest(out: Path) -> None:
    assert ids(IDS[0], out) == [IDS[0]]
    assert ids("20260102", out) == [IDS[1]]
    assert ids("latest", str(out)) == [IDS[2]]


def test_one_run_by_its_folder(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = out / "evals" / "sums--lab--m-1" / IDS[0]
    assert ids(folder) == ids(str(folder)) == ids(RunDir(folder)) == ids(folder / "run.json") == [IDS[0]]
    monkeypatch.chdir(folder.parent)
    assert ids(IDS[0]) == [IDS[0]]


def test_all_runs_of_a_folder_oldest_first(out: Path) -> None:
    assert ids(out) == ids(str(out)) == IDS
    assert ids(out / "evals" / "sums--lab--m-1") == IDS[:2]


def test_several_runs_in_their_order_each_once(out: Path) -> None:
    folder = out / "evals" / "sums--lab--m-1" / IDS[0]
    assert ids(["latest", folder, IDS[2], str(folder), folder.parent], out) == [IDS[2], IDS[0], IDS[1]]
    assert rollouts_df(iter([IDS[1]]), path=out)["run_id"].tolist() == [IDS[1]] * 2
    assert len(rollouts_df([], path=out)) == 0


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_the_runs_of_a_frame(out: Path, backend: Any) -> None:
    frame: Any = runs_df(out, backend=backend)
    assert ids(frame) == IDS[::-1]
    assert ids(frame[1:]) == [IDS[1], IDS[0]]
    assert ids(frame["path"]) == IDS[::-1]
    assert ids(frame["id"], out) == IDS[::-1]
    assert len(rollouts_df(frame[:0])) == 0
    assert ids(frame.iloc[1] if backend == "pandas" else frame.row(1, named=True)) == [IDS[1]]
    with pytest.raises(UsageError, match=r"runs: the frame has no column 'path'; pass a frame from runs_df\(\)"):
        rollouts_df(frame[["id", "mean"]])


def test_a_name_that_means_no_run_is_refused(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'2026' matches 3 runs; give more of the id"):
        rollouts_df("2026", path=out)
    with pytest.raises(UsageError, match=r"no run 'nope' under .*; the newest are 20260103T000000Z-cccc"):
        messages_df("nope", path=out)
    with pytest.raises(UsageError, match=f"^no runs under {tmp_path}/none/evals; pass path= to search another"):
        rollouts_df("latest", path=tmp_path / "none")
    with pytest.raises(UsageError, match="runs: int is not a run; give an id, a path, a list of them, or a frame"):
        rollouts_df(5)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(UsageError, match="runs: float is not a run; each must be an id or a path"):
        rollouts_df([IDS[0], 0.5], path=out)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(UsageError, match="no run ''"):
        rollouts_df("", path=out)
