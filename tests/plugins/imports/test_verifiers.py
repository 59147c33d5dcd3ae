"""`bench import` of results of verifiers 0.1: exports of `bench` come back as they were, and old files are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from import_results import golden
from odd_runs import odd_run
from store_samples import make_run, rollouts, write
from tables import for_each_row

from harness.store.export_formats import export_run, formats
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

Bench = Callable[..., Any]
"""The `bench` fixture: arguments to what the command left behind."""

LINE = {"example_id": 0, "prompt": "2 + 2 =", "completion": "4", "reward": 1.0}
METADATA = {"env_id": "sums", "model": "m"}


def folder(root: Path, lines: list[Any], metadata: Any = METADATA) -> Path:
    root.mkdir()
    (root / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "metadata.json").write_text(json.dumps(metadata))
    return root


def imported(bench: Bench, path: Path) -> RunDir:
    made = bench("import", str(path), "--json")
    [run] = json.loads(made.out)["runs"]
    return RunDir(Path(run["path"]))


def facts(run: RunDir) -> list[tuple[Any, ...]]:
    return [
        (each.example.prompt, each.example.answer, each.example.info, each.base.rollout_index, each.reward,
         {name: value for name, value in each.score.metrics.items() if value is not None} if each.score else {},
         each.base.completion if each.base.kind == "generated" else "")
        for each in outcomes(read_journal(run))
    ]  # fmt: skip


def test_an_export_comes_back_as_it_was(bench: Bench, tmp_path: Path) -> None:
    run = make_run(tmp_path / "out", status="done", planned={"num_examples": 3, "rollouts_per_example": 2})
    write(run.journal_path, rollouts(3, 2))
    export_run(run, formats()["verifiers"], tmp_path / "vf")
    again = imported(bench, tmp_path / "vf")
    assert facts(again) == facts(run)
    manifest = again.read_manifest()
    assert (manifest.env_id, manifest.model, manifest.status) == (
        run.read_manifest().env_id, run.read_manifest().model, "done",
    )  # fmt: skip
    assert manifest.planned == {"num_examples": 3, "rollouts_per_example": 2}


def test_rollouts_without_a_score_keep_their_reasons(bench: Bench, tmp_path: Path) -> None:
    run = odd_run(tmp_path)
    export_run(run, formats()["verifiers"], tmp_path / "vf")
    again = imported(bench, tmp_path / "vf")
    ours, theirs = list(outcomes(read_journal(run))), list(outcomes(read_journal(again)))
    assert [each.reward for each in theirs] == [each.reward for each in ours]
    assert [bool(each.error) for each in theirs if not each.is_scored] == [True] * sum(not e.is_scored for e in ours)


def test_files_of_old_releases_are_read(bench: Bench, tmp_path: Path) -> None:
    lines = [
        {**LINE, "generation_ms": 1500.0, "scoring_ms": 2.0, "total_ms": 1502.0, "right": 1.0, "turns": 2, "task": "t"},
        {**LINE, "reward": float("nan"), "right": float("nan"), "turns": 1, "task": "t", "info": '{"level": 2}'},
    ]
    run = imported(bench, folder(tmp_path / "old", lines, {**METADATA, "time_ms": 3000.0, "state_columns": []}))
    [first, second] = outcomes(read_journal(run))
    assert (first.reward, first.base.timing.generation) == (1.0, 1.5)
    assert first.score is not None and first.score.metrics == {"right": 1.0, "turns": 2.0}
    assert not second.is_scored and second.example.info == {"level": 2}
    summary = run.read_summary()
    assert summary is not None and (summary["scored"], summary["wall_s"]) == (1, 3.0)


def test_results_of_vf_eval_are_read_and_its_errors_are_no_zeros(bench: Bench) -> None:
    run = imported(bench, golden("verifiers"))
    manifest, found = run.read_manifest(), list(outcomes(read_journal(run)))
    assert (manifest.env_id, manifest.model) == ("vf_sums", "reference/echo")
    assert manifest.planned == {"num_examples": 3, "rollouts_per_example": 2}
    assert [each.reward for each in found] == [1.0, 1.0, 0.0, 0.0, None, None]
    first, broken = found[0], found[4]
    assert first.score is not None and first.score.metrics == {"echoes": 1.0, "length": 3.0, "num_turns": 2.0}
    assert first.base.usage.input_tokens > 0 and first.base.timing.model > 0 and first.example.info == {"level": 1}
    assert (broken.base.kind, broken.score) == ("failed", None) and "no sandbox" in (broken.error or "")
    summary = run.read_summary()
    assert summary is not None and (summary["scored"], summary["reward"]["mean"]) == (4, 0.5)


@for_each_row(
    ("lines", "metadata", "problem"),
    [
        ([], METADATA, "no rollouts"),
        ([LINE, [1]], METADATA, "results.jsonl, line 2: the value: "),
        ([{**LINE, "reward": "high"}], METADATA, "results.jsonl, line 1: reward: "),
        ([{"prompt": "x"}], METADATA, "results.jsonl, line 1: example_id: "),
        ([LINE], {"model": "m"}, "metadata.json: env_id: "),
        ([LINE], [], "metadata.json: the value: "),
    ],
)
def test_damaged_results_are_refused_and_leave_no_run(
    bench: Bench, tmp_path: Path, lines: list[Any], metadata: Any, problem: str
) -> None:
    refused = bench("import", str(folder(tmp_path / str(len(list(tmp_path.iterdir()))), lines, metadata)))
    assert refused.code == 2 and problem in refused.err and "Traceback" not in refused.err
    assert not list(Path("outputs").glob("evals/*"))


@for_each_row(
    ("words", "problem"),
    [
        (("nowhere",), "nowhere: no such file or folder"),
        ((".",), "is in no known format; name its format with --format inspect|lm-eval|"),
        ((".", "-f", "verifier"), "unknown import format 'verifier'; did you mean \"verifiers\"?"),
        ((".", "-f", "verifiers"), "is not a folder with results.jsonl and metadata.json"),
    ],
)
def test_what_is_no_result_is_refused(bench: Bench, words: tuple[str, ...], problem: str) -> None:
    refused = bench("import", *words)
    assert refused.code == 2 and problem in refused.err


def test_an_imported_run_cannot_be_resumed_but_compared(bench: Bench, tmp_path: Path) -> None:
    run = imported(bench, folder(tmp_path / "one", [LINE, {**LINE, "example_id": 1, "prompt": "1 + 1 ="}]))
    refused = bench("resume", run.id)
    assert refused.code == 2 and "was imported" in refused.err
    other = imported(bench, folder(tmp_path / "two", [{**LINE, "reward": 0.0}]))
    assert "pairs" in bench("compare", run.id, other.id).out
    assert "imported from" in bench("runs", "list").out
