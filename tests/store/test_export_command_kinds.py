"""Runs that `bench` itself made, of every kind: the formats agree with their datasets."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from exported_runs import exported_runs

from harness.store.export_formats import export_run, formats
from harness.store.rundir import RunDir

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDir]:
    return exported_runs(tmp_path_factory.mktemp("runs"))


def dataset(run: RunDir) -> list[tuple[str, int, float]]:
    import polars as pl

    frame = pl.read_parquet(run.data_path / "*.parquet")
    return [(str(row["example_id"]), row["rollout_index"], row["reward"]) for row in frame.to_dicts()]


@pytest.mark.parametrize("kind", ["run", "group", "agent", "multi"])
def test_every_format_holds_the_rows_of_the_dataset(kind: str, runs: dict[str, RunDir], tmp_path: Path) -> None:
    import polars as pl

    run = runs[kind]
    expected = dataset(run)
    assert expected
    written = {name: export_run(run, formats()[name], tmp_path / name) for name in formats()}
    assert {done.rows for done in written.values()} == {len(expected)}

    def rows(name: str) -> list[dict[str, Any]]:
        path = written[name].paths[0]
        if name == "csv":
            with path.open(newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        if name == "parquet":
            return pl.read_parquet(path).to_dicts()
        return [json.loads(line) for line in path.read_text().splitlines()]

    for name in ("csv", "jsonl", "parquet"):
        found = [(str(row["example_id"]), int(row["rollout_index"]), float(row["reward"])) for row in rows(name)]
        assert found == expected, name
    lines = rows("verifiers")
    assert [(str(line.get("src_id", line["example_id"])), line["reward"]) for line in lines] == [
        (example_id, reward) for example_id, _, reward in expected
    ]
    metadata = json.loads(written["verifiers"].paths[1].read_text())
    summary = run.read_summary()
    assert summary is not None
    assert metadata["avg_reward"] == summary["reward"]["mean"]
    assert metadata["pass_all_k"] == summary["pass_hat_k"]
    assert metadata["time"] == summary["wall_s"]
