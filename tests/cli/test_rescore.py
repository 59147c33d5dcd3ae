"""What `bench rescore` says and refuses; what it leaves on disk is tested in tests/e2e/test_life_of_a_run.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded_runs import HALF_RIGHT, Bench, Write, all_runs, change, make_run

from harness.cli.main import main


def test_a_changed_rubric_changes_the_table_and_the_comparison_says_how(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    write("functions", "correct polite")
    done = bench("rescore", "latest", "-q")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-5:] == [
        f"Compared with {parent.name}",
        "  mean 0.500 → 0.750",
        "  rewards: 0 the same, 4 higher, 0 lower",
        "  changed: example 0 (1.000 → 1.250), 1 (0.000 → 0.250), 2 (1.000 → 1.250), 3",
        "    (0.000 → 0.250)",
    ]
    assert "paired" not in done.out, "the replies are the same: there is nothing to estimate"


def test_json_says_what_was_rescored(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    done = bench("rescore", "latest", "--only", "correct", "-q", "--json")
    document = json.loads(done.out)
    assert document["parent"] == {
        "id": parent.name, "path": str(parent), "env_id": "by_file", "model": HALF_RIGHT,
        "how": "rescore", "only": "correct", "rollouts": 4, "planned": 4,
    }  # fmt: skip
    assert (document["changes"]["same"], document["changes"]["paired"]) == (4, None)
    manifest = json.loads((Path(document["runs"][0]["path"]) / "run.json").read_text())
    assert manifest["derived"] == {
        "how": "rescore", "parent": parent.name, "only": "correct", "model": None, "path": str(parent),
    }  # fmt: skip
    assert manifest["command"] == "bench rescore latest --only correct -q --json"


def test_what_breaks_today_is_unscored_and_can_be_tried_again(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    write("broken", "a1 a2")
    done = bench("rescore", "latest", "-q", "--json")
    document = json.loads(done.out)
    assert (done.code, document["runs"][0]["summary"]["unscored"]) == (0, {"correct raised ConnectionError": 2})
    assert (document["changes"]["unscored"], document["changes"]["same"]) == (2, 2)
    path = document["runs"][0]["path"]
    assert f"go on: bench resume {path} --retry-failed" in done.err
    Path("broken").unlink()
    again = bench("resume", path, "--retry-failed", "-q", "--json")
    assert again.code == 0, again.err
    changes = json.loads(again.out)["changes"]
    assert (changes["same"], changes["unscored"], json.loads(again.out)["runs"][0]["path"]) == (4, 0, path)
    assert "go on: " not in again.err


def test_nothing_scored_is_no_success(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    write("broken", "a0 a1 a2 a3")
    done = bench("rescore", "latest", "-q", "--json")
    assert (done.code, json.loads(done.out)["runs"][0]["state"]) == (1, "done")


@pytest.mark.parametrize(
    ("functions", "only", "words"),
    [
        ("correct", "corect", "'corect': the rubric has no such function; did you mean \"correct\"?"),
        ("correct polite", "zzz", "'zzz': the rubric has no such function; valid here: correct, polite"),
        (
            "correct polite strict",
            "correct",
            "the reward also needs recorded values of polite, strict, which the run does not have",
        ),
        ("correct", "", "--only is empty: give `unscored`, or the name of a reward function"),
    ],
)
def test_a_function_that_cannot_be_run_alone_is_refused_before_a_folder_is_made(
    bench: Bench, write: Write, functions: str, only: str, words: str
) -> None:
    parent = make_run(bench, write)
    write("functions", functions)
    done = bench("rescore", "latest", "--only", only)
    assert (done.code, done.out) == (2, "")
    assert words in done.err and "Traceback" not in done.err
    assert all_runs() == [parent]


def test_a_rubric_that_scores_in_its_own_way_has_no_function_to_run_alone(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    write("own-way", "yes")
    done = bench("rescore", "latest", "--only", "correct")
    assert (done.code, done.out) == (2, "")
    assert "OwnWay overrides the computation of the reward, so its functions cannot be run separately" in done.err
    assert all_runs() == [parent]
    assert bench("rescore", "latest", "-q").code == 0, "as a whole it can"


def test_a_new_function_can_be_scored_alone_if_the_others_are_on_record(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    write("functions", "correct polite")
    done = bench("rescore", "latest", "--only", "polite", "-q", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)["runs"][0]["summary"]
    assert (summary["reward"]["mean"], summary["metrics"]["polite"]["mean"]) == (0.75, 0.25)


def test_only_unscored_of_a_whole_run_changes_nothing(bench: Bench, write: Write) -> None:
    make_run(bench, write)
    write("functions", "polite")
    done = bench("rescore", "latest", "--only", "unscored", "-q", "--json")
    assert (done.code, json.loads(done.out)["changes"]["same"]) == (0, 4)


def test_settings_that_ask_a_model_are_refused(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    for text in ("model.model=other", "model.sampling_args.temperature=1", "env.rollouts_per_example=3"):
        done = bench("rescore", "latest", "--set", text)
        assert (done.code, done.out) == (2, ""), text
        assert f"--set {text} " in done.err
    assert all_runs() == [parent]
    assert bench("rescore", "latest", "-q", "--set", "env.scoring_timeout=9", "--set", "pass_threshold=0.5").code == 0


def test_a_run_that_was_stopped_before_its_scores_gets_them(bench: Bench, write: Write) -> None:
    parent = make_run(bench, write)
    journal = parent / "journal.jsonl"
    whole = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in whole if '"type":"scored"' not in line[:20]))
    change(parent / "run.json", status="interrupted")
    done = bench("rescore", "latest", "--only", "unscored", "-q", "--json")
    assert done.code == 0, done.err
    changes = json.loads(done.out)["changes"]
    assert (changes["scored"], changes["mean_before"], changes["mean_after"]) == (4, None, 0.5)


def test_an_unknown_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", "latest", "--model", "x"]) == 2
    assert "No such option" in capsys.readouterr().err
