"""`bench judge` on the command line: labels of notes and files, draws, what reports show, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from compared_runs import scored_run
from recorded_runs import make_run
from run_samples import Bench
from view_server import viewing

from harness.store.draws import read_draws
from harness.store.notes import DRAWS, add_note, read_notes
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

OUTPUTS = Path("outputs")

RANGE = (0.0, 1.0)


def judged_run(examples: int = 40, rollouts: int = 1, **changes: Any) -> tuple[RunDir, dict[tuple[int, int], bool]]:
    """A run whose judge passes half of the wrong replies to hard examples, and the truth about its replies."""
    generator = random.Random(3)
    truth: dict[tuple[int, int], bool] = {}
    scores: dict[int, list[float | None]] = {}
    infos = {n: {"level": "easy" if n % 2 else "hard"} for n in range(examples)}
    for n in range(examples):
        row: list[float | None] = []
        for k in range(rollouts):
            truth[n, k] = generator.random() < 0.6
            is_mild = not truth[n, k] and n % 2 == 0 and generator.random() < 0.8
            row.append(1.0 if truth[n, k] or is_mild else 0.0)
        scores[n] = row
    return scored_run(OUTPUTS, scores, infos=infos, reward_range=RANGE, **changes), truth


def filled(
    path: Path, truth: Mapping[tuple[int, int], bool], most: int = 1000, author: str = ""
) -> list[dict[str, str]]:
    """Fill in the first rows of a file of `bench judge next`, as a person does."""
    rows = [*csv.DictReader(io.StringIO(path.read_text(), newline=""))]
    for row in rows[:most]:
        row["label"] = "right" if truth[int(row["example_id"]), int(row["rollout_index"])] else "wrong"
        row["author"] = author
    write_rows(path, rows)
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def checked(bench: Bench, *arguments: str) -> Any:
    done = bench("judge", "check", "latest", "--json", *arguments)
    assert done.code == 0, done.err
    return json.loads(done.out)


def refused(bench: Bench, *arguments: str) -> str:
    done = bench("judge", *arguments)
    assert done.code == 2 and "Traceback" not in done.err, (done.code, done.err)
    return done.err


def test_notes_of_the_view_correct_the_mean(bench: Bench, here: Path) -> None:
    """Written by the pages' own server: a tag, a score, and one that is neither."""
    run, truth = judged_run(30)
    with viewing(OUTPUTS) as client:
        for n in range(20):
            note = {"tags": ["right" if truth[n, 0] else "Wrong"]} if n % 2 else {"score": float(truth[n, 0])}
            assert client.post(f"/api/runs/{run.id}/notes/{n}/0", note).status == 200
        assert client.post(f"/api/runs/{run.id}/notes/25/0", {"tags": ["wrong-label"], "remark": "?"}).status == 200
    found = checked(bench, "--by", "level")
    [mine] = found["runs"]
    assert (mine["labels"], mine["people"], mine["drawn"]) == (20, ["ann"], False)
    right = sum(truth[n, 0] for n in range(20))
    cells = {(each["judge"], each["people"]): each["rollouts"] for each in found["table"]}
    assert cells[True, True] == right and cells[False, True] == 0 and sum(cells.values()) == 20
    assert found["agreement"]["mean"] == pytest.approx(1 - cells[True, False] / 20)
    kinds = {each["value"]: each for each in found["kinds"] if each["kind"] == "level"}
    assert (
        kinds["hard"]["bias"]["mean"] == pytest.approx(cells[True, False] / 10) and kinds["easy"]["bias"]["mean"] == 0
    )
    assert mine["corrected"]["mean"] < mine["mean"]["mean"] and mine["corrected"]["method"] == "ppi_added"
    assert "no draw is on record" in mine["cautions"][0]
    shown = bench("judge", "check", "latest", "--by", "level").out
    assert "judge passes" in shown and "corrected" in shown and "no calls of a judge model" in shown


def test_a_draw_is_labelled_checked_and_in_every_report(bench: Bench, here: Path) -> None:
    run, truth = judged_run(100, 2)
    done = bench("judge", "next", "latest", "-n", "30", "--file", "one.csv", "--notes")
    assert done.code == 0 and "30 rollouts to label, in random order (seed 0): one.csv" in done.out, done.err
    assert re.search(r"^ +30 +±0\.\d+$", done.out, re.MULTILINE)
    rows = filled(Path("one.csv"), truth, author="bob")
    assert len({row["example_id"] for row in rows}) >= 28  # two of an example only if one passed and one failed
    assert (
        "reward" not in rows[0] and rows[0]["question"].startswith("What is ") and rows[0]["reply"].startswith("####")
    )
    tagged = json.loads(bench("runs", "show", "latest", "--where", "note.tag=to-label", "--json").out)["rollouts"]
    assert {each["example_id"] for each in tagged} == {int(row["example_id"]) for row in rows}
    sizes = read_draws(run).draws[0].sizes
    shares = {float(row["probability"]) for row in rows}
    assert sum(sizes) == 200 and len(shares) <= 2 and all(0.1 < share < 0.2 for share in shares)
    by_file = checked(bench, "--labels", "one.csv")
    again = bench("judge", "check", "latest", "--labels", "one.csv", "--save")
    assert again.code == 0 and f"30 labels are in the notes of {run.id}" in again.err
    by_notes = checked(bench)
    assert by_notes["runs"][0]["corrected"] == by_file["runs"][0]["corrected"]
    assert by_notes["runs"][0]["drawn"] and by_notes["runs"][0]["people"] == ["bob"]
    corrected = by_notes["runs"][0]["corrected"]
    report = json.loads(bench("report", "latest", "-o", "-", "-f", "json").out)
    assert report["environments"][0]["runs"][0]["corrected"] == corrected
    words = f"{corrected['mean']:.3f}"
    assert "| corrected by labels |" in bench("report", "latest", "-o", "-", "-f", "md").out
    for form in ("md", "latex", "html"):
        page = bench("report", "latest", "-o", "-", "-f", form, "--no-plots").out
        assert words in page and "30 labels" in page, form
    table = csv.DictReader(io.StringIO(bench("report", "latest", "-o", "-", "-f", "csv").out))
    [row] = (row for row in table if row["kind"] == "run")
    assert float(row["corrected"]) == pytest.approx(corrected["mean"])
    assert (row["labels"], row["corrected_method"]) == ("30", corrected["method"])
    second = bench("judge", "next", "latest", "-n", "20", "--file", "two.jsonl", "--json")
    document = json.loads(second.out)
    assert (document["drawn"], document["left"]) == (20, 150)
    lines = [json.loads(line) for line in Path("two.jsonl").read_text().splitlines()]
    assert not {each["key"] for each in lines} & {row["key"] for row in rows}
    pending = checked(bench)["runs"][0]
    assert pending["corrected"]["mean"] == pytest.approx(corrected["mean"])  # the second draw has no label yet
    assert "20 drawn rollouts without a label" in " ".join(pending["cautions"])


def test_a_judge_that_errs_on_purpose_is_corrected_to_the_truth(bench: Bench, here: Path) -> None:
    _run, truth = judged_run(400)
    bench("judge", "next", "latest", "-n", "150", "--file", "l.csv")
    filled(Path("l.csv"), truth)
    found = checked(bench, "--labels", "l.csv")
    mine, mean = found["runs"][0], sum(truth.values()) / len(truth)
    low, high = mine["corrected"]["ci95"]
    assert low < mean < high < mine["mean"]["mean"] and high - low < 0.2
    assert found["bias"]["direction"] == "too mild" and mine["people"] == ["l"]
    found = checked(bench, "--labels", "l.csv", "--by", "level")
    assert {each["value"]: each["direction"] for each in found["kinds"] if each["kind"] == "level"} == {
        "hard": "too mild", "easy": "",
    }  # fmt: skip
    assert "too mild" in bench("judge", "check", "latest", "--labels", "l.csv").out


def test_several_people_and_ties(bench: Bench, here: Path) -> None:
    _, truth = judged_run(20)
    rows = [
        {"example_id": n, "rollout_index": 0, "label": label, "author": author}
        for n in range(12)
        for author, label in (("ann", truth[n, 0]), ("bob", truth[n, 0] if n else not truth[n, 0]))
    ]
    found = checked(bench, "--labels", str(write_rows(Path("l.csv"), rows)))
    mine = found["runs"][0]
    assert (mine["labels"], mine["labelled_by_several"], found["tied"]) == (12, 12, 1)
    assert 0.7 < mine["alpha"] < 1 and sum(each["rollouts"] for each in found["table"]) == 11
    third = [*rows, {"example_id": 0, "rollout_index": 0, "label": "right", "author": "cid"}]
    found = checked(bench, "--labels", str(write_rows(Path("l.csv"), third)))
    assert found["tied"] == 0
    graded = [{"example_id": n, "label": 0.25 if n % 2 else 0.75, "author": "ann"} for n in range(12)]
    found = checked(bench, "--labels", str(write_rows(Path("g.csv"), graded)))
    assert found["runs"][0]["corrected"]["labels"] == 12


def test_declared_clusters_are_the_unit_of_the_corrected_mean(bench: Bench, here: Path) -> None:
    scores = {n: [float(n // 10 % 3 > 0)] for n in range(300)}
    run = scored_run(
        OUTPUTS, scores, infos={n: {"document": n // 10} for n in scores}, reward_range=RANGE, cluster_key="document"
    )
    rows = [{"example_id": n, "label": float(n // 10 % 3 > 0 and n % 10 > 1)} for n in range(300)]
    file = write_rows(Path("labels.csv"), rows)
    found = checked(bench, "--labels", str(file), "--save")
    low, high = found["runs"][0]["corrected"]["ci95"]
    assert high - low > 0.2 and found["agreement"]["ci95"][1] - found["agreement"]["ci95"][0] > 0.02
    assert "30 clusters of 300 examples, by document" in bench("judge", "check", run.id).out
    report = json.loads(bench("report", run.id, "-o", "-", "-f", "json").out)
    assert report["environments"][0]["runs"][0]["corrected"]["ci95"] == [low, high]


def test_labels_of_failures_alone_are_no_random_part(bench: Bench, here: Path) -> None:
    run, _truth = judged_run(200)
    for outcome in outcomes(read_journal(run)):
        if outcome.reward == 0:
            add_note(run, {"key": outcome.base.key, "author": "ann", "tags": ["wrong"]})
    found = checked(bench)["runs"][0]
    assert "they are no random part" in found["cautions"][0]
    report = bench("report", "latest", "-o", "-", "-f", "md").out
    assert "no random part" in report and "corrected by labels" not in report
    assert (
        json.loads(bench("report", "latest", "-o", "-", "-f", "json").out)["environments"][0]["runs"][0]["corrected"]
        is None
    )


def test_labels_that_were_not_drawn_are_left_out(bench: Bench, here: Path) -> None:
    run, truth = judged_run(60)
    bench("judge", "next", "latest", "-n", "20", "--file", "l.csv")
    filled(Path("l.csv"), truth)
    drawn = set(read_draws(run).strata)
    other = next(each.base.key for each in outcomes(read_journal(run)) if each.base.key not in drawn)
    bench("judge", "check", "latest", "--labels", "l.csv", "--save")
    before = checked(bench)["runs"][0]["corrected"]
    add_note(run, {"key": other, "author": "eve", "score": 0})
    after = checked(bench)["runs"][0]
    assert after["corrected"] == before and "labels of 1 rollout left out, which were not drawn" in after["cautions"]


def test_a_rescored_run_keeps_the_draw_and_refuses_a_further_one(
    bench: Bench, here: Path, write: Callable[..., Any]
) -> None:
    path = make_run(bench, write)
    assert bench("judge", "next", str(path), "-n", "3", "--file", "l.csv").code == 0
    rows = [*csv.DictReader(io.StringIO(Path("l.csv").read_text(), newline=""))]
    write_rows(Path("l.csv"), [{**row, "label": 1} for row in rows])
    assert bench("judge", "check", str(path), "--labels", "l.csv", "--save").code == 0
    write("functions", "strict")
    assert bench("rescore", str(path), "-q").code == 0
    [made] = (each.parent for each in path.parent.glob("*/run.json") if each.parent != path)
    assert read_draws(RunDir(made)) == read_draws(RunDir(path)) and read_notes(RunDir(made)).by_rollout
    done = bench("judge", "check", str(made), "--json")
    assert json.loads(done.out)["runs"][0]["labels"] == 3, done.err
    assert "scores have changed since the last draw" in refused(bench, "next", str(made), "-n", "1", "--file", "m.csv")


def test_the_same_seed_draws_the_same_and_private_runs_stay_so(bench: Bench, here: Path) -> None:
    run, _ = judged_run(50)
    texts: list[str] = []
    for seed in ("7", "7", "8"):
        assert bench("judge", "next", "latest", "-n", "10", "--seed", seed, "--file", "l.csv").code == 0
        texts.append(Path("l.csv").read_text())
        Path("l.csv").unlink()
        (run.path / DRAWS).unlink()
    assert texts[0] == texts[1] != texts[2]
    os.chmod(run.path, 0o700)
    assert bench("judge", "next", "latest", "-n", "60").code == 0
    file = Path(f"labels-{run.id}-1.csv")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, run.path / DRAWS)] == [0o600, 0o600]
    assert "all 50 scored rollouts are drawn already" in refused(bench, "next", "latest")


def test_what_is_refused(bench: Bench, here: Path) -> None:
    run, _truth = judged_run(10)
    said = refused(bench, "check", "latest")
    assert "no note of " in said and f"bench judge next {run.id}" in said
    rows: dict[str, tuple[list[dict[str, Any]], str]] = {
        "no.csv": ([{"example_id": 1, "lable": 1}], "no column label; no.csv has example_id, lable"),
        "word.csv": ([{"example_id": 1, "label": "maybe"}], "row 1: label: 'maybe' is not a finite number"),
        "nan.csv": ([{"example_id": 1, "label": "nan"}], "not a finite number"),
        "far.csv": ([{"example_id": 1, "label": 5}], "the label 5 of far is not between 0 and 1"),
        "other.csv": ([{"example_id": 99, "label": 1}], "has no example 99, rollout 0"),
        "key.csv": ([{"key": "x", "label": 1}], "no rollout with the key x"),
        "unnamed.csv": ([{"label": 1}], "row 1: names no rollout"),
        "empty.csv": ([{"example_id": 1, "label": ""}], "no label of a scored rollout"),
        "twice.csv": ([{"example_id": 1, "label": n} for n in (1, 0)], "labels the rollout 0 here and 1 in row 1"),
        "part.csv": (
            [{"example_id": n, "label": 1, "probability": "" if n else 0.5} for n in range(2)],
            "has a label and no probability",
        ),
        "chance.csv": ([{"example_id": 1, "label": 1, "probability": 0}], "must be above 0 and at most 1"),
    }  # fmt: skip
    for name, (content, words) in rows.items():
        assert words in refused(bench, "check", "latest", "--labels", str(write_rows(Path(name), content))), name
    Path("list.jsonl").write_text("[1]\n")
    assert "row 1: a row must be an object" in refused(bench, "check", "latest", "--labels", "list.jsonl")
    os.mkfifo("pipe.csv")
    assert "pipe.csv is no regular file" in refused(bench, "check", "latest", "--labels", "pipe.csv")
    assert "Unsupported file format" in refused(bench, "check", "latest", "--labels", "labels.txt")
    assert "labels.csv" in refused(bench, "check", "latest", "--labels", "labels.csv")
    fine = write_rows(Path("fine.csv"), [{"example_id": 1, "label": 1, "probability": 0.5}])
    assert "has no record of a draw" in refused(bench, "check", "latest", "--labels", str(fine), "--save")
    assert "--save writes labels" in refused(bench, "check", "latest", "--save")
    assert "no metric 'korrect'" in refused(bench, "check", "latest", "--metric", "korrect")
    assert "--by leval" in refused(bench, "check", "latest", "--labels", str(fine), "--by", "leval")
    assert "already exists" in refused(bench, "next", "latest", "--file", "fine.csv")
    assert "must end in .csv or .jsonl" in refused(bench, "next", "latest", "--file", "l.xlsx")
    add_note(run, {"key": next(outcomes(read_journal(run))).base.key, "author": "ann", "tags": ["right", "wrong"]})
    assert "a note of ann has the tags right and wrong" in refused(bench, "check", "latest")
    assert "no correction by labels of people: a note of ann" in bench("report", "latest", "-o", "-", "-f", "md").out


def test_runs_with_holes(bench: Bench, here: Path) -> None:
    run = scored_run(
        OUTPUTS, {0: [1.0, None], 1: [None, None], 2: [float("nan"), 0.0], 3: [1.0, 1.0]}, reward_range=RANGE
    )
    for outcome in outcomes(read_journal(run)):
        add_note(run, {"key": outcome.base.key, "author": "ann", "score": 1})
    found = checked(bench)["runs"][0]
    assert (found["scored"], found["labels"]) == (4, 4)
    assert "labels of 4 rollouts left out, which have no score" in found["cautions"]
    assert found["corrected"]["mean"] == pytest.approx(1.0)
    none = scored_run(OUTPUTS, {0: [None]}, minute=5)
    assert "has no scored rollouts" in refused(bench, "next", none.id, "--file", "l.csv")


def test_one_labelled_example_has_no_interval_and_scores_without_range_do(bench: Bench, here: Path) -> None:
    run = scored_run(OUTPUTS, {n: [float(n % 7)] for n in range(60)}, reward_range=(0.0, float("inf")))
    file = write_rows(Path("one.csv"), [{"example_id": 3, "label": 2.5}])
    found = checked(bench, "--labels", str(file))
    assert found["runs"][0]["corrected"]["ci95"] is None and found["kappa"]["ci95"] is None
    file = write_rows(Path("l.csv"), [{"example_id": n, "label": n % 7 + 0.5 * (n % 3)} for n in range(0, 60, 2)])
    found = checked(bench, "--labels", str(file))["runs"][0]
    assert found["corrected"]["method"] == "ppi" and found["corrected"]["mean"] > found["mean"]["mean"]
    assert any("fewer than 100 labels" in each for each in found["cautions"])
    assert bench("judge", "next", run.id, "-n", "5", "--file", "n.csv").code == 0


def test_hostile_files_beside_a_run(bench: Bench, here: Path) -> None:
    run, truth = judged_run(10)
    for n, outcome in enumerate(outcomes(read_journal(run))):
        add_note(run, {"key": outcome.base.key, "author": "ann\x1b[2J", "score": float(truth[n, 0])})
    lines = ["{", "[]", '{"measure":"reward","edges":[NaN],"sizes":[1],"keys":[]}', '{"measure":1e999}']
    (run.path / DRAWS).write_text("\n".join(lines))
    assert not checked(bench)["runs"][0]["drawn"]
    assert "\x1b[2J" not in bench("judge", "check", "latest").out
    for sizes in ([10**400, -1], [10**400, 1]):
        whole = {"measure": "reward", "edges": [1.0], "sizes": sizes, "keys": [["x"], [3]]}
        (run.path / DRAWS).write_text(json.dumps(whole))
        assert not checked(bench)["runs"][0]["drawn"]
    for made in ("link", "fifo"):
        (run.path / DRAWS).unlink()
        if made == "link":
            (run.path / DRAWS).symlink_to(here / "x")
        else:
            os.mkfifo(run.path / DRAWS)
        done = bench("judge", "check", "latest")
        assert done.code != 0 and DRAWS in done.err and "Traceback" not in done.err
        assert bench("report", "latest", "-o", "-", "-f", "md").code == 0


def test_the_length_of_replies_and_the_model_are_kinds(bench: Bench, here: Path) -> None:
    first, truth = judged_run(30)
    second, _ = judged_run(30, model="lab/m-2", minute=3)
    for run in (first, second):
        for outcome in outcomes(read_journal(run)):
            place = int(outcome.example.example_id), 0
            add_note(run, {"key": outcome.base.key, "author": "ann", "score": float(truth[place])})
    done = bench("judge", "check", first.id, second.id, "--json")
    found = json.loads(done.out)
    assert [each["model"] for each in found["runs"]] == ["lab/m-1", "lab/m-2"]
    assert {each["kind"] for each in found["kinds"]} == {"length", "model"}
    assert "name one run" in refused(bench, "check", first.id, second.id, "--labels", "l.csv")
