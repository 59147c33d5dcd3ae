"""`bench import` of Inspect logs: those that Inspect 0.3.285 wrote, our own exports row by row, and hostile files."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from import_results import facts, golden, imported, refused
from odd_runs import odd_run
from strange_runs import strange_run
from tables import for_each_row

from harness.core.keys import ExampleKeys
from harness.core.records import Generated, Row
from harness.store.export_formats import export_run, formats
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

Bench = Callable[..., Any]

HEADER: dict[str, Any] = {"version": 2, "status": "success", "eval": {"task": "sums", "model": "m"}}
SAMPLE: dict[str, Any] = {"id": 1, "epoch": 1, "input": "2 + 2 =", "scores": {"match": {"value": "C"}}}


def log(path: Path, samples: dict[str, Any], header: Any = HEADER, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, value in {"header.json": header, **samples}.items():
            archive.writestr(name, value if isinstance(value, str | bytes) else json.dumps(value))
    return path


def test_a_log_of_inspect_is_read(bench: Bench) -> None:
    run = imported(bench, golden("inspect/capitals.eval"))
    manifest = run.read_manifest()
    assert (manifest.env_id, manifest.model, manifest.status) == ("capitals", "mockllm/model", "done")
    assert manifest.derived["reward"] == "includes" and manifest.versions["inspect_ai"] == "0.3.285"
    assert manifest.planned == {"num_examples": 4, "rollouts_per_example": 2}
    assert manifest.settings["model.sampling_args"] == {"temperature": 0.5}
    found = {(each.example.example_id, each.base.rollout_index): each for each in outcomes(read_journal(run))}
    assert [*found] == [(name, epoch) for name in ("peru", "kenya", 3, "broken") for epoch in (0, 1)]
    peru, kenya, norway, broken = (found[name, 0] for name in ("peru", "kenya", 3, "broken"))
    assert peru.example.prompt == [{"role": "user", "content": "Capital of Peru?"}]
    assert (peru.example.answer, peru.example.info) == ("Lima", {"level": 1})
    assert peru.base.completion == [{"role": "assistant", "content": "The capital is Lima"}]
    assert isinstance(kenya.example.prompt, list) and kenya.example.prompt[0]["role"] == "system"
    assert peru.reward == 1.0 and peru.score is not None and kenya.score is not None and norway.score is not None
    assert peru.score.metrics == {"includes": 1.0, "graded": 1.0, "parts.len": 19.0, "parts.ok": 1.0, "flaky": 1.5}
    assert kenya.score.metrics["graded"] == 0.5 and norway.score.metrics["graded"] == 0.0
    assert norway.score.metrics["flaky"] is None and "not a number" in norway.score.reasons["flaky"]
    assert peru.score.extra["scores"]["graded"]["explanation"] == "because"
    assert (peru.base.usage.input_tokens, peru.base.usage.output_tokens) == (10, 4)
    assert (broken.reward, broken.base.kind, broken.error) == (None, "failed", "error: ValueError('solver broke')")


def test_the_json_form_gives_the_same_run(bench: Bench) -> None:
    packed, plain = (facts(imported(bench, golden(f"inspect/capitals.{suffix}"))) for suffix in ("eval", "json"))
    assert plain == packed


def test_tool_calls_of_inspect_become_calls(bench: Bench) -> None:
    run = imported(bench, golden("inspect/tools.eval"))
    [only] = outcomes(read_journal(run))
    called, result, _ = cast("list[Any]", only.base.completion)
    [call] = called["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"x": 2, "y": 3}'}
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", call["id"], "5")
    assert (only.base.usage.input_tokens, only.base.usage.cached_tokens, only.base.usage.output_tokens) == (25, 5, 8)


@pytest.mark.parametrize("name", ["odd.eval", "odd.json"])
def test_an_export_comes_back_row_by_row(bench: Bench, tmp_path: Path, name: str) -> None:
    run = odd_run(tmp_path, kind="eval", name="primary")
    export_run(run, formats()["inspect"], tmp_path / name)
    again = imported(bench, tmp_path / name)
    ours, theirs = run.read_manifest(), again.read_manifest()
    for part in (
        "env_id",
        "name",
        "kind",
        "model",
        "status",
        "planned",
        "reward_range",
        "state_columns",
        "metric_names",
        "created",
    ):
        assert getattr(theirs, part) == getattr(ours, part), part
    assert facts(again) == facts(run)
    for before, after in zip(outcomes(read_journal(run)), outcomes(read_journal(again)), strict=True):
        assert after.example.key == key_of(before.example)
        assert (after.base.usage, after.base.attempts) == (before.base.usage, before.base.attempts)
        assert after.reason == before.reason
        if isinstance(before.base, Generated):
            assert isinstance(after.base, Generated)
            assert (after.base.stop_condition, after.base.is_truncated, after.base.state) == (
                before.base.stop_condition, before.base.is_truncated, before.base.state,
            )  # fmt: skip


def key_of(example: Any) -> str:
    """The key that the content of an example gives; the examples of these tests have made-up keys."""
    row = Row(example.example_id, example.prompt, example.answer, example.task, example.info)
    return ExampleKeys().example(row, 0).key


def test_an_export_of_strange_rollouts_comes_back(bench: Bench, tmp_path: Path) -> None:
    run = strange_run(tmp_path)
    export_run(run, formats()["inspect"], tmp_path / "strange.eval")
    again = imported(bench, tmp_path / "strange.eval")
    ours, theirs = list(outcomes(read_journal(run))), list(outcomes(read_journal(again)))
    assert [each.reward for each in theirs] == [each.reward for each in ours]
    assert [each.reason for each in theirs] == [each.reason for each in ours]
    metrics = [[score.metrics if score else {} for score in (each.score for each in side)] for side in (ours, theirs)]
    assert metrics[0] == metrics[1]


def test_the_reward_must_be_named_if_no_score_is_the_main_one(bench: Bench, tmp_path: Path) -> None:
    scores = {"match": {"value": "C"}, "brevity": {"value": 0.25}}
    path = log(tmp_path / "two.eval", {"samples/1_epoch_1.json": {**SAMPLE, "scores": scores}})
    said = refused(bench, path)
    assert 'has several metrics ("match", "brevity"); name the one that becomes the reward: --reward' in said
    assert 'did you mean "brevity"?' in refused(bench, path, "--reward", "brevty")
    run = imported(bench, path, "--reward", "brevity")
    [only] = outcomes(read_journal(run))
    assert only.reward == 0.25


@for_each_row(
    ("value", "reward"),
    [
        ("C", 1.0), ("I", 0.0), ("P", 0.5), ("N", 0.0), ("yes", 1.0), ("False", 0.0), ("0.25", 0.25), (True, 1.0),
        (3, 3.0), (float("nan"), None), (float("inf"), None), ("maybe", None), (None, None), (10**400, None),
    ],
)  # fmt: skip
def test_scores_become_numbers_or_stay_unknown(bench: Bench, tmp_path: Path, value: Any, reward: float | None) -> None:
    path = log(tmp_path / "one.eval", {"samples/1_epoch_1.json": {**SAMPLE, "scores": {"match": {"value": value}}}})
    [only] = outcomes(read_journal(imported(bench, path)))
    assert only.reward == reward
    assert (only.error is None) == (reward is not None)


def test_what_a_log_does_not_say_is_unknown(bench: Bench, tmp_path: Path) -> None:
    run = imported(bench, log(tmp_path / "bare.eval", {"samples/1_epoch_1.json": SAMPLE}))
    summary = run.read_summary()
    assert summary is not None
    assert (summary["usage"]["input_tokens"], summary["usage"]["cost"], summary["wall_s"]) == (None, None, None)
    [only] = outcomes(read_journal(run))
    assert only.base.usage.unreported == only.base.usage.requests == 1
    assert run.read_manifest().reward_range == (float("-inf"), float("inf"))


def test_an_unfinished_log_is_read_as_far_as_it_goes(bench: Bench, tmp_path: Path) -> None:
    spec = {**HEADER["eval"], "dataset": {"samples": 3, "sample_ids": [1, 2, 3]}, "config": {"epochs": 1}}
    path = tmp_path / "cut.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": spec}))
        archive.writestr("samples/2_epoch_1.json", json.dumps({**SAMPLE, "id": 2}))
    run = imported(bench, path)
    manifest, summary = run.read_manifest(), run.read_summary()
    assert manifest.status == "interrupted" and manifest.planned["num_examples"] == 3
    assert summary is not None and summary["scored"] == 1


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * (300 << 20))


def zstd_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", pa.compress(b" " * (300 << 20), codec="zstd", asbytes=True))
    whole = bytearray(path.read_bytes())
    for start, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = whole.index(start) + offset
        whole[at : at + 2] = (93).to_bytes(2, "little")
    path.write_bytes(bytes(whole))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to(golden("inspect/tools.eval"))


def cut(path: Path) -> None:
    whole = golden("inspect/tools.eval").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def spoiled(path: Path) -> None:
    whole = bytearray(golden("inspect/tools.eval").read_bytes())
    at = whole.index(b"samples/1_epoch_1.json") + 200
    whole[at : at + 40] = bytes(40)
    path.write_bytes(bytes(whole))


def chunked(path: Path) -> None:
    log(path, {"samples/1_epoch_1/sample.json": {}})


def twice(path: Path) -> None:
    log(path, {"samples/1_epoch_1.json": SAMPLE, "samples/01_epoch_1.json": SAMPLE})


def deep(path: Path) -> None:
    log(
        path,
        {"samples/1_epoch_1.json": json.dumps(SAMPLE)[:-1] + ', "metadata": {"a": ' + "[" * 9999 + "]" * 9999 + "}}"},
    )


@for_each_row(
    ("make", "problem"),
    [
        (bomb, "header.json is larger than 256 MiB"),
        (zstd_bomb, "header.json is larger than 256 MiB"),
        (fifo, "not a file or folder"),
        (link, "a symbolic link, which is not followed"),
        (cut, "is not a zip file"),
        (spoiled, "samples/1_epoch_1.json cannot be unpacked: "),
        (chunked, "samples in parts"),
        (twice, "sample 1, epoch 1: rollout 0 of example 1 is there twice"),
        (deep, "samples/1_epoch_1.json is nested too deeply"),
        (lambda path: log(path, {}), "no rollouts"),
        (lambda path: log(path, {}, header=[]), "header.json: the value: "),
        (lambda path: log(path, {}, header={"eval": {"task": 3}}), "header.json: eval.task: "),
        (lambda path: log(path, {}, header={**HEADER, "eval": {"task": "a\x1b[2J", "model": "m"}}), "is not usable"),
        (lambda path: log(path, {"samples/1_epoch_1.json": b"{"}), "samples/1_epoch_1.json is not JSON"),
        (lambda path: log(path, {"samples/1_epoch_1.json": {**SAMPLE, "epoch": 0}}), "epoch_1.json: epoch: "),
        (lambda path: log(path, {"samples/1_epoch_1.json": {**SAMPLE, "epoch": 10**9}}), "is not between 0 and"),
        (lambda path: log(path, {"samples/1_epoch_1.json": {**SAMPLE, "messages": "no"}}), "epoch_1.json: messages: "),
    ],
)  # fmt: skip
def test_hostile_logs_are_refused_and_leave_nothing(bench: Bench, tmp_path: Path, make: Any, problem: str) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    make(folder / "log.eval")
    assert problem in refused(bench, folder / "log.eval", "-f", "inspect")


def test_an_error_in_the_second_file_leaves_no_first_run(bench: Bench, tmp_path: Path) -> None:
    shutil.copy(golden("inspect/tools.eval"), tmp_path / "good.eval")
    cut(tmp_path / "bad.eval")
    made = bench("import", str(tmp_path / "good.eval"), str(tmp_path / "bad.eval"))
    assert made.code == 2 and not list(Path("outputs").glob("evals/*/*/"))


def test_the_origin_is_shown_and_a_resume_refused(bench: Bench) -> None:
    run: RunDir = imported(bench, golden("inspect/capitals.eval"))
    shown = bench("runs", "show", run.id)
    assert "imported from" in shown.out and "(reward: includes)" in shown.out.replace("\n", " ")
    assert "bench resume" not in shown.out + shown.err
    for command in ("resume", "rescore", "replay"):
        told = bench(command, run.id)
        assert told.code == 2 and "was imported and has no settings" in told.err
