"""Parquet: one sorted file with the dataset's schema, for every reader of tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from odd_runs import odd_run
from store_samples import make_run

from harness.store.dataset import DatasetWriter
from harness.store.export_formats import Exported, export_run, formats
from harness.store.rows import RowShape, arrow_schema
from harness.store.rundir import RunDir


def exported(run: RunDir, tmp_path: Path) -> Exported:
    return export_run(run, formats()["parquet"], tmp_path / "rows.parquet")


def test_the_file_is_what_the_finished_dataset_is(tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    parquet: Any = pq
    run = odd_run(tmp_path)
    done = exported(run, tmp_path)
    assert (done.paths, done.rows, done.notes) == ((tmp_path / "rows.parquet",), 6, ())
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    [dataset] = run.data_path.glob("*.parquet")
    ours, theirs = parquet.read_table(done.paths[0]), parquet.read_table(dataset)
    assert ours.to_pylist() == theirs.to_pylist()
    assert ours.schema.equals(arrow_schema(RowShape.of(run.read_manifest())))
    assert json.loads(ours.schema.metadata[b"bench"]) == {"run": run.id}


def test_datasets_pandas_and_polars_load_it(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl
    from datasets import load_dataset  # pyright: ignore[reportMissingTypeStubs]

    path = str(exported(odd_run(tmp_path), tmp_path).paths[0])
    rewards = [1.0, -1.5, None, None, 0.0, None]
    loaded: Any = load_dataset("parquet", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["reward"][:] == rewards
    assert loaded[0]["completion"][0]["tool_calls"][0]["arguments"] == '{"a": 1}'
    frame = pd.read_parquet(path)
    assert [None if pd.isna(value) else value for value in frame["reward"]] == rewards
    assert pl.read_parquet(path)["reward"].to_list() == rewards


def test_an_empty_run_is_a_table_without_rows(tmp_path: Path) -> None:
    import polars as pl

    run = make_run(tmp_path)
    done = exported(run, tmp_path)
    assert done.rows == 0
    frame = pl.read_parquet(done.paths[0])
    assert (frame.shape, frame.columns) == ((0, 18), list(RowShape.of(run.read_manifest()).names))
