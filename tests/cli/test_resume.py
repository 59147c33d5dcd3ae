"""What `bench resume` goes on with, says and refuses; kills are in tests/e2e/test_life_of_a_run.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Evals
from recorded_runs import HALF_RIGHT, Bench, Write, all_runs, change, make_run


def cut(run: Path, keep: int) -> list[str]:
    """Leave a run as a kill would: with so many lines of its journal; returns them."""
    journal = run / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)[:keep]
    journal.write_text("".join(lines))
    (run / "summary.json").unlink()
    shutil.rmtree(run / "data")
    change(run / "run.json", status="running")
    return lines


def steady(summary: dict[str, Any]) -> dict[str, Any]:
    by_the_clock = ("wall_s", "resumed", "rollouts_per_s", "rollout_seconds")
    return {name: value for name, value in summary.items() if name not in by_the_clock}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_a_run_goes_on_with_its_own_settings(bench: Bench, write: Write) -> None:
    run = make_run(bench, write, "-T", "0.5", "-C", "trace")
    whole = steady(read(run / "summary.json"))
    kept = cut(run, 5)
    done = bench("resume", run.name[:18], "-q", "--json")
    assert done.code == 0, done.err
    [report] = json.loads(done.out)["runs"]
    assert (report["path"], report["state"], "changes" in json.loads(done.out)) == (str(run), "done", False)
    assert steady(report["summary"]) == whole
    assert (run / "journal.jsonl").read_text().startswith("".join(kept))
    assert read(run / "run.json")["settings"]["model.sampling_args.temperature"] == 0.5
    assert all_runs() == [run]


def test_a_run_that_goes_on_is_still_what_the_first_command_made(bench: Bench, write: Write) -> None:
    run = make_run(bench, write, "-T", "0.5")
    cut(run, 5)
    before = read(run / "run.json")
    assert bench("resume", "latest", "-q", "-c", "3").code == 0
    after = read(run / "run.json")
    assert [after[name] for name in ("command", "suite", "created")] == [
        before[name] for name in ("command", "suite", "created")
    ]
    told = {path: origin["source"] for path, origin in after["origins"].items()}
    assert (told["model.sampling_args.temperature"], told["model.max_concurrent"]) == ("-T 0.5", "-c 3")
    assert after["origins"]["save.output_dir"] == before["origins"]["save.output_dir"]
    assert not [source for source in told.values() if "config.toml" in source or "--set" in source]


def test_only_what_was_typed_is_said_to_be(bench: Bench, write: Write) -> None:
    made = make_run(bench, write)
    assert bench("rescore", made.name, "-q", "-c", "2", "--set", "save.save_every=7").code == 0
    [rescored] = [run for run in all_runs() if run != made]
    origins = read(rescored / "run.json")["origins"]
    chosen = {path: origin["source"] for path, origin in origins.items() if made.name not in origin["source"]}
    assert {path: chosen.get(path) for path in ("save.output_dir", "save.save_results", "save.save_to_hf_hub")} == {
        "save.output_dir": "where the recorded run lies",
        "save.save_results": "derived from a recorded run",
        "save.save_to_hf_hub": "derived from a recorded run",
    }
    assert {origins[path]["origin"] for path in ("save.output_dir", "save.save_results")} == {"builtin"}
    assert (chosen["model.max_concurrent_scoring"], chosen["save.save_every"]) == ("-c 2", "--set save.save_every=7")


def test_a_run_that_is_done_says_so_and_loads_nothing(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    Path("by_file.py").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = bench("resume", "latest")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{run} is done: 4 of 4 rollouts have an outcome, and nothing is left to do\n"
    [report] = json.loads(bench("resume", "latest", "--json").out)["runs"]
    assert report == {
        "env_id": "by_file", "name": "by_file", "model": HALF_RIGHT, "path": str(run),
        "state": "done", "note": "nothing is left to do", "summary": read(run / "summary.json"),
    }  # fmt: skip
    assert bench("resume", "latest", "--retry-failed").out == done.out, "nothing failed"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_that_was_killed_at_its_very_end_gets_the_rows_that_are_missing(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    [rows] = (run / "data").iterdir()
    whole = steady(read(run / "summary.json"))
    rows.rename(rows.with_name("part-000000000000000-000000000000001.parquet"))  # of a checkpoint, and not all of them
    (run / ".data.0123abcd").mkdir()
    done = bench("resume", "latest", "-q", "--json")
    assert done.code == 0, done.err
    [report] = json.loads(done.out)["runs"]
    assert (report["state"], steady(report["summary"])) == ("done", whole)
    assert [path.name for path in (run / "data").iterdir()] == [rows.name]
    assert not (run / ".data.0123abcd").exists()


def test_what_failed_is_tried_again_when_it_is_asked_for(bench: Bench, write: Write) -> None:
    write("broken", "a1 a3")
    run = make_run(bench, write)
    again = f"bench resume {run} --retry-failed"
    assert bench("resume", "latest").out.splitlines()[1:] == [f"2 of them are unscored; to try again: {again}"]
    Path("broken").unlink()
    done = bench(*again.split()[1:], "-q", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)["runs"][0]["summary"]
    assert (summary["scored"], summary["unscored"]) == (4, {})


def test_a_run_may_grow_and_may_change_its_pace(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    done = bench("resume", "latest", "--set", "env.rollouts_per_example=2", "-c", "2", "-q", "--json")
    assert done.code == 0, done.err
    [report] = json.loads(done.out)["runs"]
    assert (report["path"], report["summary"]["scored"], report["summary"]["resumed"]) == (str(run), 8, 4)
    assert read(run / "run.json")["settings"]["model.max_concurrent_generation"] == 2


def test_what_changes_results_is_refused(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    cut(run, 3)
    done = bench("resume", "latest", "--set", "model.sampling_args.temperature=1")
    assert (done.code, done.out) == (2, "")
    assert "model.sampling_args.temperature was not set, now 1" in done.err


def test_a_derived_run_asks_for_nothing_that_it_does_not_use(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    child = Path(json.loads(bench("replay", "latest", "-q", "--json").out)["runs"][0]["path"])
    for arguments, words in (
        (("-k", "SOME_KEY"), "calls no model"),
        (("--set", "env.num_examples=2"), "the recorded run determines the rollouts"),
    ):
        done = bench("resume", str(child), *arguments)
        assert (done.code, done.out) == (2, "") and words in done.err


def test_a_derived_run_finds_its_parent_where_it_lies_now_or_says_that_it_is_gone(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    for command in ("replay", "rescore"):
        child = Path(json.loads(bench(command, str(parent), "-q", "--json").out)["runs"][0]["path"])
        whole = steady(read(child / "summary.json"))
        cut(child, 8)
        Path("outputs").rename("archive")
        moved = Path("archive", *child.parts[1:])
        done = bench("resume", str(moved), "-q", "--json")
        assert done.code == 0, done.err
        assert steady(json.loads(done.out)["runs"][0]["summary"]) == whole
        assert json.loads(done.out)["parent"]["path"] == str(Path("archive", *parent.parts[1:]))
        Path("archive").rename("outputs")
    cut(child, 8)
    shutil.rmtree(parent)
    done = bench("resume", str(child))
    assert (done.code, done.out) == (2, "")
    assert f"{child} is a rescore of {parent.name}, which no longer exists, so it cannot be resumed" in done.err


def test_a_rescore_goes_on_with_what_it_took_over_however_its_parent_has_grown(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    child = Path(json.loads(bench("rescore", "latest", "-q", "--json").out)["runs"][0]["path"])
    whole, kept = steady(read(child / "summary.json")), (child / "journal.jsonl").read_bytes()
    grown = bench("resume", str(parent), "--set", "env.rollouts_per_example=2", "-q", "--json")
    assert json.loads(grown.out)["runs"][0]["summary"]["scored"] == 8
    cut(child, 9)
    done = bench("resume", str(child), "-q", "--json")
    assert done.code == 0, done.err
    assert steady(json.loads(done.out)["runs"][0]["summary"]) == whole
    assert json.loads(done.out)["changes"]["only_before"] == 4
    lines = [json.loads(line)["type"] for line in (child / "journal.jsonl").read_text().splitlines()]
    assert lines == [json.loads(line)["type"] for line in kept.splitlines()], "nothing was played"


def test_a_rescore_that_died_before_it_took_anything_over_begins_again(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    child = Path(json.loads(bench("rescore", "latest", "-q", "--json").out)["runs"][0]["path"])
    whole = steady(read(child / "summary.json"))
    cut(child, 0)
    (child / "journal.jsonl").unlink()
    done = bench("resume", str(child), "-q", "--json")
    assert done.code == 0, done.err
    [report] = json.loads(done.out)["runs"]
    assert (steady(report["summary"]), report["path"]) == (whole, str(child))


@pytest.mark.plugins
def test_an_evaluation_of_an_agent_goes_on_and_is_played_again(evals: Evals) -> None:
    evals.rows("2 + 2", "13 + 13", "4 + 4", "5 + 5", "6 + 6")
    stopped = evals.eval(model="turning")
    [run] = evals.runs()
    assert (stopped.code, read(run / "run.json")["status"]) == (1, "stopped"), "the third refusal in a row is believed"
    replayed = evals.bench("replay", "latest", "-q", "--json")
    assert replayed.code == 0, replayed.err
    changes = json.loads(replayed.out)["changes"]
    assert (changes["same"], changes["still_unscored"], changes["only_before"]) == (1, 2, 0)
    evals.model.forgive()
    done = evals.bench("resume", str(run), "-q", "--json")
    assert done.code == 0, done.err
    [report] = json.loads(done.out)["runs"]
    assert (report["summary"]["scored"], report["summary"]["unscored"], report["summary"]["resumed"]) == (
        3, {"auth": 2}, 3,
    )  # fmt: skip
    assert read(run / "run.json")["kind"] == "eval"
    other = evals.bench("replay", str(run), "--model", "weak", "-b", evals.model.url, "-q", "--json")
    assert other.code == 0, other.err
    changes = json.loads(other.out)["changes"]
    assert (changes["scored"], changes["down"], changes["same"]) == (2, 1, 2), "weak is wrong about one sum"


def test_words_without_a_run_are_refused(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    for command in ("resume", "replay", "rescore"):
        missed = bench(command, "20010101T")
        assert (missed.code, missed.out) == (2, "")
        assert f"no run '20010101T' under outputs/evals; the newest are {run.name} (" in missed.err


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_summary_that_was_lost_is_made_anew(bench: Bench, write: Write, damage: str) -> None:
    run = make_run(bench, write)
    summary = run / "summary.json"
    whole = steady(read(summary))
    if damage == "gone":
        summary.unlink()
    else:
        summary.write_text('{"num_examples":')
    done = bench("resume", "latest", "-q")
    assert done.code == 0, done.err
    assert steady(read(summary)) == whole
    assert bench("resume", "latest").out.startswith(f"{run} is done: 4 of 4 rollouts have an outcome")


def test_a_derived_run_that_does_not_say_of_what_is_one_message(bench: Bench, write: Write) -> None:
    run = make_run(bench, write)
    change(run / "run.json", derived={"how": "replay"}, status="stopped")
    done = bench("resume", "latest")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {run}/run.json: `derived` does not say how and from which run this run was derived\n"
