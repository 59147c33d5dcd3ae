"""The list of runs at several widths: what is shown, what is cut, what is said of the unusual ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from run_samples import finished, paid, run_at
from store_samples import example, failed, rollouts
from tables import for_each_row

from harness.report.runs import origin_text, recorded_coverage, recorded_estimate, remarks, runs_lines
from harness.store.catalogue import Catalogue, ListedRun, read_entry
from harness.store.rundir import RunDir


def lines(entries: list[ListedRun], width: int) -> list[str]:
    return list(runs_lines(entries, width, name_of=lambda entry: entry.id))


@pytest.fixture
def four(tmp_path: Path) -> list[ListedRun]:
    """A finished run, one that lost a rollout, an agent evaluation that was stopped, and one that died."""
    finished(tmp_path, rollouts(4), env_id="gsm8k", model="openai/gpt-4.1-mini")
    lossy = [example(0), example(1), *paid(0, 1.0, cost=0.25), failed(1)]
    finished(tmp_path, lossy, env_id="math-python", model="anthropic/opus-4-1", minute=1)
    run_at(tmp_path, env_id="calc-rows", model="m", kind="eval", status="interrupted", minute=2)
    finished(tmp_path, rollouts(2), env_id="gsm8k", model="openai/gpt-4.1-mini", status="running", minute=3)
    return list(Catalogue(tmp_path))


def test_the_whole_list(four: list[ListedRun]) -> None:
    assert (
        "\n".join(lines(four, 200))
        == """\
run                    kind  environment  model                state         mean   95 % interval  scored   cost
────────────────────────────────────────────────────────────────────────────────────────────────────────────────
20261121T091803Z-aaaa  run   gsm8k        openai/gpt-4.1-mini  died             –               –  – of 4      –
  go on: bench resume 20261121T091803Z-aaaa
20261121T091703Z-aaaa  eval  calc-rows    m                    interrupted      –               –  – of 4      –
20261121T091603Z-aaaa  run   math-python  anthropic/opus-4-1   done         1.000               –  1 of 4  $0.25
20261121T091503Z-aaaa  run   gsm8k        openai/gpt-4.1-mini  done         0.500  [0.074, 0.926]  4 of 4      –"""
    )


def test_a_narrow_list_keeps_what_matters(four: list[ListedRun]) -> None:
    assert (
        "\n".join(lines(four, 60))
        == """\
run                    env      model     state         mean
────────────────────────────────────────────────────────────
20261121T091803Z-aaaa  gsm8k    ope…mini  died             –
  go on: bench resume 20261121T091803Z-aaaa
20261121T091703Z-aaaa  cal…ows  m         interrupted      –
20261121T091603Z-aaaa  mat…hon  ant…-4-1  done         1.000
20261121T091503Z-aaaa  gsm8k    ope…mini  done         0.500"""
    )


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal_and_no_id_is_cut(four: list[ListedRun], width: int) -> None:
    shown = lines(four, width)
    assert max(map(cell_len, shown)) <= width
    assert [entry.id in "\n".join(shown) for entry in four] == [True] * 4
    mean = shown[0].index("mean")
    assert shown[-1][mean - 1 : mean + 4] == "0.500"


def test_eighty_cells_have_room_for_how_much_was_scored(four: list[ListedRun]) -> None:
    head = lines(four, 80)[0]
    assert head.split() == ["run", "environment", "model", "state", "mean", "scored"]


def test_runs_of_one_command_are_held_together(tmp_path: Path) -> None:
    suites = (None, "S1", "S1", "S1", "S2", "S1", None, None)
    for minute, suite in enumerate(suites):
        finished(tmp_path, minute=minute, suite=suite, name=f"m{minute}", kind="multi")
    head, _, *rows = lines(list(Catalogue(tmp_path)), 80)
    assert [row[21:23] for row in rows] == ["  ", "  ", "  ", "  ", " ┐", " │", " ┘", "  "]
    assert [row.split("·")[1].split()[0] for row in rows[4:7]] == ["m3", "m2", "m1"]
    assert head.startswith("run                      kind")


def test_a_label_is_shown_where_it_tells_more(tmp_path: Path) -> None:
    for minute, name in enumerate(("tasks", "lab/m-1", "fast", "")):
        finished(tmp_path, minute=minute, env_id="tasks", name=name, kind="multi")
    assert [entry.title for entry in Catalogue(tmp_path)] == ["tasks", "tasks · fast", "tasks", "tasks"]


def test_without_runs_there_is_no_list() -> None:
    assert lines([], 80) == []


def test_what_a_run_was_made_from_stands_below_it(tmp_path: Path) -> None:
    derived = {"how": "rescore", "parent": "20260101T000000Z-pppp", "only": "unscored"}
    run = run_at(tmp_path, parent="20260101T000000Z-pppp", derived=derived)
    assert remarks(read_entry(run.path), "x") == ["rescored from 20260101T000000Z-pppp (unscored only)"]


@for_each_row(
    ("derived", "words"),
    [
        ({"how": "replay", "model": None}, "replayed from ID"),
        ({"how": "rescore", "only": None}, "rescored from ID"),
        ({}, "made from ID"),
        ({"how": "rescore", "only": "correct\x1b[2J"}, "rescored from ID (correct only)"),
    ],
)
def test_ways_to_make_a_run_from_another(derived: dict[str, Any], words: str) -> None:
    assert origin_text(derived, "ID") == words


def test_a_run_whose_rows_are_in_a_program_goes_on_there(tmp_path: Path) -> None:
    settings = {"env.env_id": "agent-eval", "env.env_args": {"agent": "x:y"}}
    run = run_at(tmp_path, kind="eval", status="running", settings=settings)
    [remark] = remarks(read_entry(run.path), run.id)
    assert remark == "go on: run its program again with resume=True"


def test_a_name_that_a_shell_would_split_is_quoted(tmp_path: Path) -> None:
    run = run_at(tmp_path, status="running")
    assert remarks(read_entry(run.path), "my outputs/x") == ["go on: bench resume 'my outputs/x'"]


def test_damage_is_said_where_the_figures_would_be(tmp_path: Path) -> None:
    finished(tmp_path, minute=2)
    no_manifest, no_summary = finished(tmp_path, minute=1), finished(tmp_path)
    no_manifest.manifest_path.write_text("{")
    no_summary.summary_path.write_text('{"reward": ')
    shown = lines(list(Catalogue(tmp_path)), 400)
    assert [line.split()[:1] for line in shown if not line.startswith("  ")][2:] == [
        ["20261121T091703Z-aaaa"], ["20261121T091603Z-aaaa"], ["20261121T091503Z-aaaa"],
    ]  # fmt: skip
    said = [line for line in shown if line.startswith("  ")]
    assert len(said) == 2
    assert said[0].startswith(f"  cannot read {no_manifest.manifest_path}: not JSON")
    assert said[1].startswith(f"  cannot read {no_summary.summary_path}: not JSON")
    assert " damaged " in shown[3] and " done " in shown[5]


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"reward": 3, "usage": [], "scored": "9"},
        {"reward": {"mean": "high", "ci95": [0.1]}, "scored": True, "planned": None},
        {"reward": {"mean": None, "ci95": None}},
        {"reward": {"mean": 0.5, "ci95": [None, 1.0]}, "usage": {"cost": "free"}},
    ],
)
def test_a_summary_of_any_shape_is_a_row(tmp_path: Path, summary: dict[str, Any]) -> None:
    run = run_at(tmp_path)
    run.write_summary(summary)
    [_, _, row] = lines([read_entry(run.path)], 200)
    assert row.startswith(run.id)
    mean = {"reward": {}, **summary}["reward"]
    assert ("0.500" in row) == (isinstance(mean, dict) and mean.get("mean") == 0.5)


def test_figures_of_a_summary() -> None:
    summary = {"reward": {"mean": 0.5, "stderr": 0.1, "ci95": [0.3, 0.7]}, "scored": 9, "planned": 10}
    estimate = recorded_estimate(summary)
    assert (estimate.mean, estimate.stderr, estimate.low, estimate.high) == (0.5, 0.1, 0.3, 0.7)
    assert recorded_coverage(summary, 10) == "9 of 10"
    assert recorded_coverage({"scored": 1234, "planned": 10, "num_rollouts": 2000}, None) == "1,234 of 2,000"
    assert recorded_coverage(None, 10) == "– of 10"
    assert recorded_coverage(None, None) == "– of ?"


def test_nothing_in_a_manifest_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    evil = "\x1b[2Jevil\x07\u202e\n\x9b31m"
    run = run_at(tmp_path, name=evil, model=evil, kind=evil, parent=evil, derived={"how": evil, "only": evil})
    value = json.loads(run.manifest_path.read_text())
    run.manifest_path.write_text(json.dumps({**value, "id": evil}))
    shown = "\n".join(lines([read_entry(run.path)], 120))
    assert "evil" in shown and not set(shown) & set("\x1b\x07\x9b\u202e")
    assert [len(line.split("\n")) for line in lines([read_entry(run.path)], 120)] == [1, 1, 1, 1]


def test_wide_characters_keep_the_columns(tmp_path: Path) -> None:
    for minute, name in enumerate(("数学問題集", "math")):
        finished(tmp_path, name=name, minute=minute)
    shown = lines(list(Catalogue(tmp_path)), 120)
    ends = {cell_len(line[: line.index("0.500")]) for line in shown[2:]}
    assert len(ends) == 1


def test_an_entry_of_any_folder_name(tmp_path: Path) -> None:
    run = finished(tmp_path)
    odd = RunDir(run.path.rename(run.parent / "my run\nof monday"))
    [_, _, row] = lines([read_entry(odd.path)], 120)
    assert row.startswith("my run of monday  sums")
    assert read_entry(odd.path).created is not None  # its manifest tells
