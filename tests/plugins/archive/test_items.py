"""`bench items`: what is said of the examples of many runs, and the round trip of a subset through `bench run`."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run
from run_samples import Bench
from store_samples import example, generated, scored, write

from harness.plugins.archive.scores import read_scores
from harness.store.catalogue import read_entry
from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

OUT = Path("outputs")


def run(scores: Scores, minute: int, model: str = "", **changes: Any) -> RunDir:
    return scored_run(OUT, scores, minute, model=model or f"lab/m-{minute}", **changes)


def found(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench("items", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def row(document: dict[str, Any], example_id: int) -> dict[str, Any]:
    [one] = [each for each in document["examples"] if each["example_id"] == example_id]
    return one


def ladder(count: int, examples: int = 24, *, wrong: int | None = None) -> list[Scores]:
    """Models of rising strength: model m solves the examples below a limit, and the others fail; one label is wrong."""
    tables: list[dict[int, list[float]]] = []
    for model in range(count):
        limit = (model + 1) * examples // (count + 1)
        tables.append({n: [float((n < limit) != (n == wrong))] for n in range(examples)})
    return list(tables)


def test_a_subset_is_written_and_run(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for accuracy in (0.2, 0.4, 0.6, 0.8, 0.95):
        model = f"reference/noisy?accuracy={accuracy}&seed=3"
        assert bench("run", "reverse-text", "-n", "20", "-r", "2", "-m", model, "-q").code == 0
    monkeypatch.setenv("COLUMNS", "80")

    done = bench("items", "--subset", "6", "--write", "small.toml", "--top", "3")

    assert done.code == 0, done.err
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert done.out.startswith("reverse-text · reward: 5 models, 20 examples, 200 scored rollouts\n")
    assert "The subset has 6 of 20 examples." in done.out
    assert "note: wrote small.toml; run it with: bench run small.toml -m MODEL" in done.out
    [entry] = tomllib.loads(Path("small.toml").read_text())["eval"]
    assert entry["env_id"] == "reverse-text" and len(entry["example_ids"]) == 6

    again = bench("run", "small.toml", "-r", "1", "-m", "reference/oracle", "-q", "--json")
    assert again.code == 0, again.err
    [result] = json.loads(again.out)["runs"]
    small = RunDir(Path(result["path"]))
    ids = [str(each.example.example_id) for each in outcomes(read_journal(small))]
    assert ids == sorted(entry["example_ids"], key=int)

    document = found(bench, "--subset", "6")
    assert document["subset"]["models_left_out"] == 1  # the one with six examples
    assert sorted(map(str, document["subset"]["example_ids"]), key=int) == ids
    first = min((path for path in OUT.glob("evals/*noisy*/*/run.json")), key=lambda path: path.parent.name)
    pairs = json.loads(bench("compare", str(first.parent), str(small.path), "--json").out)["comparisons"]
    assert pairs[0]["pairs"] == 6

    resumed = bench("resume", str(small.path), "-q", "--json")
    assert resumed.code == 0, resumed.err
    assert len(read_journal(small)) == 6


def test_the_lists_name_the_right_examples(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute, scores in enumerate(ladder(12, wrong=11)):
        run({**scores, 30: [1.0], 31: [0.0]}, minute)
    monkeypatch.setenv("COLUMNS", "80")
    document = found(bench)

    assert [each["model"] for each in document["models"]][:2] == ["lab/m-11", "lab/m-10"]
    assert row(document, 30)["solved_by_all"] and row(document, 31)["solved_by_none"]
    assert row(document, 30)["discrimination"] is None and row(document, 30)["p_negative"] is None
    suspects = [each["example_id"] for each in document["examples"] if (each["p_adjusted"] or 1.0) <= 0.05]
    assert suspects == [11]
    assert row(document, 11)["discrimination"] < -0.5 < 0.5 < row(document, 10)["discrimination"]
    assert row(document, 12)["mean"] == pytest.approx(5 / 12)
    assert row(document, 11)["within_variance"] is None

    text = bench("items", "--top", "2").out
    assert "2 examples are solved by every model in every rollout: 0, 30." in text
    assert "1 example is negatively related to the rest" in text
    assert "Unknown: every model has one rollout of each example; more come with -r." in text


def test_flaky_examples_are_those_with_more_variance_than_their_difficulty_explains(bench: Bench, here: Path) -> None:
    for minute in range(6):
        steady: dict[int, list[float]] = {n: [float(n < 3 * minute)] * 4 for n in range(15)}
        run({**steady, 20: [1.0, 0.0, 1.0, 0.0]}, minute)
    document = found(bench)
    excess = {each["example_id"]: each["within_variance"] - each["expected_variance"] for each in document["examples"]}
    assert max(excess, key=lambda each: excess[each]) == 20 and excess[20] > 0.2
    assert row(document, 20)["within_variance"] == pytest.approx(1 / 3)
    assert "ranking, not a test" in bench("items").out


def test_the_line_of_huge_scores_is_short(bench: Bench, here: Path) -> None:
    for minute, scores in enumerate(ladder(6)):
        huge: Scores = {n: [1e90 * each for each in values if each is not None] for n, values in scores.items()}
        run(huge, minute, reward_range=(0.0, float("inf")))
    [said] = [line for line in bench("items").out.splitlines() if line.startswith("The subset has ")]
    assert len(said) < 200
    one = run({0: [1.0]}, 30, "lab/one")
    others = [run({0: [0.0]}, 31 + n, f"lab/other-{n}") for n in range(3)]
    assert (
        "1 example has a score of every model, which is too few."
        in bench("items", one.id, *(each.id for each in others)).out
    )


def test_intervals_of_models_allow_for_declared_clusters(bench: Bench, here: Path) -> None:
    infos = {n: {"document": n // 10} for n in range(200)}
    scores: Scores = {n: [float(n // 10 % 2)] for n in infos}
    made = run(scores, 0, "lab/a", infos=infos, cluster_key="document")
    report = json.loads(bench("report", made.id, "-o", "-", "-f", "json").out)
    ends = report["environments"][0]["runs"][0]["summary"]["reward"]["ci95"]
    assert ends[1] - ends[0] > 0.4
    assert found(bench)["models"][0]["ci95"] == ends
    trend = json.loads(bench("trend", "sums", "--json").out)
    assert trend["segments"][0]["runs"][0]["ci95"] == ends


def test_runs_of_one_model_are_pooled_and_missing_cells_are_allowed(bench: Bench, here: Path) -> None:
    a = run({0: [1.0], 1: [0.0]}, 0, "lab/a")
    run({0: [0.0, None], 2: [1.0]}, 1, "lab/a")
    run({0: [1.0], 1: [1.0], 2: [0.0]}, 2, "lab/b")
    document = found(bench)
    assert row(document, 0)["mean"] == pytest.approx(0.75) and row(document, 0)["rollouts"] == 3
    assert row(document, 1)["models"] == 2
    assert len(document["models"][1]["runs"]) == 2 or len(document["models"][0]["runs"]) == 2
    notes = " ".join(document["notes"])
    assert "the runs of one model are pooled: 1 model has several" in notes
    assert "1 rollout has no score" in notes
    assert document["subset"]["problem"].startswith("a subset needs 4 models")
    refused = bench("items", "--subset", "1", "--write", "few.toml").err
    assert "name runs of more models" in refused and "choose a size" not in refused
    only = found(bench, a.id)
    assert len(only["runs"]) == 1 and [each["mean"] for each in only["examples"]] == [1.0, 0.0]
    text = bench("items", a.id)
    assert text.code == 0 and "Unknown: it takes 3 models" in text.out


def test_a_run_counts_once(bench: Bench, here: Path) -> None:
    """Copies, and the original of a rescored run, would count the same replies twice."""
    first = run({0: [1.0], 1: [0.0]}, 0, "lab/a")
    second = run({0: [1.0], 1: [1.0]}, 1, "lab/b")
    derived = {"how": "rescore", "parent": first.id}
    run({0: [0.0], 1: [0.0]}, 2, "lab/a", parent=first.id, derived=derived)
    shutil.copytree(second.path, Path("copy/evals/x/") / second.id)
    document = found(bench, *(path.parent.as_posix() for path in Path().glob("**/run.json")))
    assert len(document["runs"]) == 2
    assert row(document, 0)["rollouts"] == 2 and row(document, 0)["mean"] == 0.5
    assert "a second copy of a run" in " ".join(document["notes"])
    assert "replayed or scored again" in " ".join(document["notes"])


def test_csv_has_a_row_for_each_example(bench: Bench, here: Path) -> None:
    for minute, scores in enumerate(ladder(5, 8)):
        run(scores, minute, ids={n: "=evil" if n == 0 else n for n in range(8)})
    rows = list(csv.DictReader(io.StringIO(bench("items", "--csv").out)))
    assert len(rows) == 8
    assert rows[0]["example_id"] == "'=evil" and rows[1]["text"] == "What is 1 + 1?"
    assert float(rows[3]["mean"]) == pytest.approx(row(found(bench), 3)["mean"])
    assert rows[0]["within_variance"] == ""


def test_graded_rewards_of_any_range(bench: Bench, here: Path) -> None:
    for minute in range(5):
        scores: Scores = {n: [float(minute + n), float(minute + n + 1)] for n in range(12)}
        run(scores, minute, reward_range=(0.0, 20.0))
    document = found(bench, "--subset", "5")
    assert document["limits"] == [0.0, 20.0]
    assert row(document, 0)["mean"] == pytest.approx(2.5) and row(document, 0)["discrimination"] == pytest.approx(1.0)
    prediction = document["subset"]["prediction"]
    assert prediction["slope"] == pytest.approx(1.0)
    assert document["subset"]["sizes"][0]["error"] == pytest.approx(0.0, abs=1e-6)
    run({0: [1e99]}, 9, reward_range=(float("-inf"), float("inf")))
    assert found(bench)["limits"] == [0.0, 1e99]


def test_another_metric(bench: Bench, here: Path) -> None:
    for minute, scores in enumerate(ladder(4, 6)):
        run(scores, minute)
    assert found(bench, "--metric", "correct")["measure"] == "correct"
    done = bench("items", "--metric", "corect")
    assert done.code == 2 and "has no metric 'corect'" in done.err


def test_what_is_read_is_what_the_journal_says(here: Path) -> None:
    """Newer lines replace older ones, and unusable rewards are none, exactly as for the other commands."""
    folder = run({}, 0)
    write(folder.journal_path, [
        *(replace(example(n), index=n) for n in range(5)),
        generated(0), scored(0, reward=1.0), scored(0, reward=0.25),
        generated(1), scored(1, reward=1.0), generated(1),
        generated(2), scored(2, reward=1e200), generated(3), scored(3, reward=None), generated(4), scored(4, reward=1),
    ])  # fmt: skip
    found = read_scores(read_entry(folder.path), "reward")
    twin: dict[str, list[float]] = {}
    for each in outcomes(read_journal(folder)):
        if each.reward is not None:
            twin.setdefault(each.example.key, []).append(each.reward)
    assert found.values == twin and [*twin.values()] == [[0.25], [1]]
    assert found.unscored == 3


def test_wrong_usage_is_one_sentence(bench: Bench, here: Path) -> None:
    def refused(*arguments: str) -> str:
        done = bench("items", *arguments)
        assert done.code == 2 and "Traceback" not in done.err
        return done.err

    assert "no runs in outputs" in refused()
    run({0: [None]}, 0)
    assert "none of these runs has a score" in refused()
    for minute, scores in enumerate(ladder(5, 8)):
        run(scores, minute + 1)
    assert "must be below the number of examples that every model has, 8" in refused("--subset", "8")
    for wrong in ("0", "-3", "many", "1.5"):
        assert "give a number of examples, or auto" in refused("--subset", wrong)
    assert "a suite file ends in .toml" in refused("--write", "ids.txt")
    assert "mutually exclusive" in refused("--csv", "--json")
    assert "no runs of chess" in refused("--env", "chess")
    run({0: [1.0]}, 20, env_id="other")
    assert "choose one with --env: other, sums" in refused()
    assert bench("items", "--env", "sums").code == 0
    assert "no run 'nothing'" in refused("nothing")


def test_ids_that_do_not_tell_examples_apart_are_not_written(bench: Bench, here: Path) -> None:
    for minute, scores in enumerate(ladder(5, 8)):
        run(scores, minute, ids=dict.fromkeys(range(8), "same"))
    done = bench("items", "--subset", "5", "--write", "x.toml")
    assert done.code == 2 and "several examples have the id 'same'" in done.err
    assert not Path("x.toml").exists()


def test_unknown_ids_stop_a_run_before_it_begins(bench: Bench, here: Path) -> None:
    Path("rows.py").write_text(
        "from harness import Rubric, SingleTurnEnv\n"
        "def right(completion, answer): return float(completion[-1]['content'] == answer)\n"
        "class Rows(SingleTurnEnv):\n"
        "    def reference_reply(self, example, messages): return example.answer\n"
        "def load_environment():\n"
        "    rows = [{'question': str(n), 'answer': str(n), 'example_id': f'id-{n}'} for n in range(9)]\n"
        "    return Rows(dataset=rows, rubric=Rubric([right]))\n"
    )
    usual = ("run", "./rows.py", "-m", "reference/oracle", "-r", "1", "-q", "--json")
    done = bench(*usual, "--example-ids", "id-7,id-2,id-7")
    assert done.code == 0, done.err
    [result] = json.loads(done.out)["runs"]
    recorded = outcomes(read_journal(RunDir(Path(result["path"]))))
    assert [each.example.example_id for each in recorded] == ["id-2", "id-7"]
    done = bench(*usual, "--example-ids", "id-2,id-77")
    assert done.code == 2 and "rows has no example 'id-77'" in done.err and "--example-ids" in done.err
    done = bench(*usual, "--example-ids", "id-1,id-2,id-3", "-n", "2")
    assert json.loads(done.out)["runs"][0]["summary"]["num_examples"] == 2
