"""What `bench replay` says, writes and refuses. tests/e2e/test_life_of_a_run.py sees that it is its parent again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import ALL_RIGHT, HALF_RIGHT, Bench, Write, all_runs, change, make_run

from harness.report.changes import Changes, Mark, Marks, change_lines, compare
from harness.report.layout import print_lines
from harness.report.text import make_console
from harness.store.rundir import RunDir


def shown(changes: Changes, capsys: pytest.CaptureFixture[str], width: int = 80) -> list[str]:
    print_lines(change_lines("the-parent", changes, width), make_console(width=width))
    return capsys.readouterr().out.splitlines()


def marks(**rewards: list[float | None]) -> Marks:
    return {(key, number): Mark(key, reward) for key, each in rewards.items() for number, reward in enumerate(each)}


BEFORE = marks(a=[0.0, 1.0], b=[1.0, 0.5], c=[None, None], d=[1.0], gone=[0.25])
AFTER = marks(a=[1.0, 1.0 + 1e-15], b=[0.5, None], c=[0.5, None], d=[1.0], fresh=[1.0])


def test_every_rollout_is_compared_with_itself() -> None:
    changes = compare(BEFORE, AFTER, paired=False)
    assert changes.to_json() == {
        "mean_before": pytest.approx((0.5 + 0.75 + 1.0 + 0.25) / 4),
        "mean_after": pytest.approx((1.0 + 0.5 + 0.5 + 1.0 + 1.0) / 5),
        "same": 2, "up": 1, "down": 1, "scored": 1, "unscored": 1, "still_unscored": 1,
        "only_before": 1, "only_after": 1, "examples": 3,
        "first": [
            {"example_id": "a", "rollout_index": 0, "before": 0.0, "after": 1.0},
            {"example_id": "b", "rollout_index": 0, "before": 1.0, "after": 0.5},
            {"example_id": "c", "rollout_index": 0, "before": None, "after": 0.5},
        ],
        "paired": None,
    }  # fmt: skip


def test_another_models_difference_is_estimated_over_examples() -> None:
    paired = compare(BEFORE, AFTER, paired=True).paired
    assert paired is not None
    assert (paired.pairs, paired.wins, paired.losses, paired.ties) == (3, 1, 1, 1)
    assert (paired.only_first, paired.only_second) == (2, 1)
    assert paired.estimate.mean == pytest.approx((0.5 - 0.25 + 0.0) / 3)


def test_the_comparison_reads_well_at_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    changes = compare(BEFORE, AFTER, paired=True)
    assert shown(changes, capsys, 120) == [
        "Compared with the-parent",
        "  mean 0.625 → 0.800",
        "  rewards: 2 the same, 1 higher, 1 lower, 1 now scored, 1 now unscored, 1 still unscored, 1 not run yet, "
        "1 new",
        "  changed: example a (0.000 → 1.000), b (1.000 → 0.500), c (unscored → 0.500)",
        "  difference +0.083 [-0.642, +0.742], p = 0.785, paired over 3 examples",
    ]
    narrow = shown(changes, capsys, 60)
    assert max(map(len, narrow)) <= 60
    assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(shown(changes, capsys, 120)).split())


def test_a_small_change_does_not_look_like_none(capsys: pytest.CaptureFixture[str]) -> None:
    changes = compare(marks(a=[0.50001]), marks(a=[0.50002]), paired=False)
    assert shown(changes, capsys)[1:] == [
        "  mean 0.50001 → 0.50002",
        "  rewards: 0 the same, 1 higher, 0 lower",
        "  changed: example a (0.50001 → 0.50002)",
    ]


def test_many_changes_are_counted_and_a_hostile_id_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    before: Marks = {(str(n), 0): Mark(f"\x1b[31m{n}\x07", 0.0) for n in range(1200)}
    after = {key: Mark(mark.example_id, 1.0) for key, mark in before.items()}
    lines = shown(compare(before, after, paired=False), capsys, 200)
    assert lines[2:] == [
        "  rewards: 0 the same, 1,200 higher, 0 lower",
        "  changed: example 0 (0.000 → 1.000), 1 (0.000 → 1.000), 2 (0.000 → 1.000), 3 (0.000 → 1.000), "
        "4 (0.000 → 1.000) and 1,195 more",
    ]


def test_nothing_in_common_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(compare(marks(a=[None]), marks(a=[None]), paired=True), capsys)[1:] == [
        "  mean – → –",
        "  rewards: 0 the same, 0 higher, 0 lower, 1 still unscored",
        "  difference: no example has a score on both sides",
    ]


def test_the_screen_ends_with_the_comparison(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    done = bench("replay", "latest", "-q")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("run ") and "Results" in lines
    assert lines[-3:] == [
        f"Compared with {parent.name}",
        "  mean 0.500 → 0.500",
        "  rewards: 4 the same, 0 higher, 0 lower",
    ]


def test_json_is_all_that_stdout_holds(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    done = bench("replay", str(parent), "--model", ALL_RIGHT, "--json")
    document = json.loads(done.out)
    assert list(document) == ["runs", "parent", "changes"]
    assert document["parent"]["id"] == parent.name
    assert (document["changes"]["up"], document["changes"]["same"], document["changes"]["mean_after"]) == (2, 2, 1.0)
    assert document["changes"]["paired"]["difference"] == 0.5
    assert document["runs"][0]["model"] == ALL_RIGHT
    assert f"Compared with {parent.name}" in done.err
    assert "not used for" not in done.err, "that the old url does not count was asked for"


def test_nothing_leaves_without_a_flag(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    config = parent / "config.toml"
    config.write_text(config.read_text().replace("save_to_hf_hub = false", "save_to_hf_hub = true"))
    done = bench("replay", "latest", "-q", "--json")
    assert done.code == 0, done.err
    child = Path(json.loads(done.out)["runs"][0]["path"])
    settings = json.loads((child / "run.json").read_text())["settings"]
    assert (settings["save.save_to_hf_hub"], settings["save.save_results"]) == (False, True)
    assert "pushing" not in done.err


def test_a_run_that_was_not_to_be_kept_elsewhere_stands_beside_its_parent(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write, "-o", "there")
    done = bench("replay", str(parent), "-q", "--json")
    assert Path(json.loads(done.out)["runs"][0]["path"]).parents[2] == Path("there")
    missed = bench("replay", "latest")
    assert (missed.code, missed.err) == (
        2,
        "error: no runs under outputs/evals; name the output folder with --output-dir\n",
    )


def test_a_copy_that_lies_anywhere_is_replayed_into_the_output_folder(bench: Bench, write: Write) -> None:
    shutil.move(make_run(bench, write), "copy")
    done = bench("replay", "copy", "-q", "--json")
    assert done.code == 0, done.err
    assert Path(json.loads(done.out)["runs"][0]["path"]).parts[:2] == ("outputs", "evals")
    assert json.loads(done.out)["parent"]["path"] == "copy"


def test_a_killed_run_is_replayed_as_far_as_it_came(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    journal = parent / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    generated = [number for number, line in enumerate(lines) if b'"generated"' in line[:20]]
    journal.write_bytes(b"".join(lines[: generated[2]]) + lines[generated[2]][:40])
    change(parent / "run.json", status="running")
    done = bench("replay", "latest", "-q", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)["runs"][0]["summary"]
    assert (summary["num_rollouts"], summary["scored"], json.loads(done.out)["changes"]["only_after"]) == (2, 2, 0)
    assert journal.read_bytes().endswith(lines[generated[2]][:40]), "the parent is left as it is"
    note = f"note: {parent.name} has 2 of its 4 rollouts; this run uses only these, and their 2 examples"
    assert note in done.err.splitlines()
    told = json.loads(done.out)["parent"]
    assert (told["rollouts"], told["planned"]) == (2, 4)
    again = bench("replay", json.loads(done.out)["runs"][0]["path"], "-q")
    assert "note:" not in again.err, "that one is whole"


def test_the_number_of_rollouts_in_flight_may_be_another(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    done = bench("replay", "latest", "-c", "1", "-q", "--json")
    child = Path(json.loads(done.out)["runs"][0]["path"])
    settings = json.loads((child / "run.json").read_text())["settings"]
    bounds = ("max_concurrent", "max_concurrent_generation", "max_concurrent_scoring")
    assert [settings[f"model.{name}"] for name in bounds] == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-b", "http://localhost:1/v1"), "-b requires --model: without it no model is called"),
        (("-k", "SOME_KEY"), "-k requires --model"),
        (("-c", "0"), "-c 0: max_concurrent must be -1 (unlimited) or at least 1"),
        (
            ("--set", "env.num_examples=2"),
            "--set env.num_examples=2 cannot be set here, because the recorded run determines the rollouts",
        ),
        (("--set", "model=other"), "to call another model, use `bench replay RUN --model`"),
        (("--set", "temperature=1"), "--set temperature: unknown setting"),
        (("--set", "model.sampling_args.temperature=1"), "no model is called: the recorded replies are used"),
        (("--model", "reference/oracl"), "did you mean"),
        (("-e", "nowhere.toml"), "nowhere.toml: no such endpoint registry"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    bench: Bench, write: Write, arguments: tuple[str, ...], words: str
) -> None:
    parent = make_run(bench, write)
    done = bench("replay", "latest", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in " ".join(done.err.split()) and "Traceback" not in done.err
    assert all_runs() == [parent]


def test_what_a_run_needs_and_is_gone_is_named_with_where_it_was_looked_for(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    hint = "relative paths start in the working directory"
    Path("rows.json").rename("moved.json")
    done = bench("replay", "latest")
    assert (done.code, done.out) == (1, "") and "'rows.json'" in done.err and hint in done.err
    Path("by_file.py").unlink()
    done = bench("replay", "latest")
    assert (done.code, done.out) == (2, "")
    assert (
        "config.toml: eval[0].env.env_id: ./by_file.py: no environment found, because this file or folder does"
        in done.err
    )
    assert hint in done.err
    assert all_runs() == [parent]


def test_a_run_whose_rows_are_in_a_program_is_refused_with_what_to_do(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    manifest = json.loads((parent / "run.json").read_text())
    for env_id in ("agent-eval", "multi-eval"):
        settings = {**manifest["settings"], "env.env_id": env_id, "env.env_args": {"max_turns": 3}}
        change(parent / "run.json", settings=settings)
        for command in ("replay", "rescore", "resume"):
            done = bench(command, str(parent))
            assert (done.code, done.out) == (2, "")
            assert "was created by a Python program" in done.err and "resume=True" in done.err


def test_what_is_being_written_or_holds_nothing_is_refused(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    with RunDir(parent).lock():
        for command in ("replay", "rescore", "resume"):
            done = bench(command, "latest")
            assert (done.code, done.out) == (1, "")
            assert f"run {parent} is being written by another process" in done.err
    (parent / "journal.jsonl").unlink()
    done = bench("replay", "latest")
    assert (done.code, done.out) == (2, "")
    assert f"{parent} has no recorded rollouts, so there is nothing to replay" in done.err
    (parent / "config.toml").unlink()
    assert "lacks config.toml, the file with its settings" in bench("replay", "latest").err
    assert all_runs() == [parent]


def test_a_replay_of_a_replay_is_the_same_again(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    first = json.loads(bench("replay", "latest", "-q", "--json").out)
    second = json.loads(bench("replay", "latest", "-q", "--json").out)
    assert second["parent"]["path"] == first["runs"][0]["path"]
    assert (second["changes"]["same"], second["runs"][0]["model"]) == (4, HALF_RIGHT)


def test_an_environment_that_goes_another_way_is_a_failure_and_no_score(bench: Bench, write: Write) -> None:
    write("turns.py", TURNS)
    made = bench("run", "./turns.py", "-n", "-1", "-r", "1", "-m", "reference/oracle", "-q", "--json")
    assert json.loads(made.out)["runs"][0]["summary"]["scored"] == 2
    write("turns", "4")
    done = bench("replay", "latest", "-q", "--json")
    summary: dict[str, Any] = json.loads(done.out)["runs"][0]["summary"]
    assert (done.code, summary["scored"], summary["unscored"]) == (1, 0, {"replay_ended": 2})
    assert json.loads(done.out)["changes"]["unscored"] == 2
    assert re.search(r"go on: ", done.err) is None, "recorded replies end again where they ended"


TURNS = """
import pathlib
from harness import MultiTurnEnv, Rubric

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

class Turns(MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "once more"}]

    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    file = pathlib.Path("turns")
    turns = int(file.read_text()) if file.exists() else 2
    rows = [{"question": "say one", "answer": "one"}, {"question": "say two", "answer": "two"}]
    return Turns(dataset=rows, rubric=Rubric([right]), max_turns=turns)
"""
