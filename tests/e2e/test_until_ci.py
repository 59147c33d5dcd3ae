"""`--until-ci` from end to end: a run that ends once the mean of the whole is known, what it says and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_runs import Workshop, count, summary

from harness.stats.sequences import ConfidenceSequence
from harness.stats.target import Aim

ARGS = ("run", "sums", "-a", '{"size": 400}', "-m", "reference/noisy?accuracy=0.8", "--until-ci", "0.05")


def rewards(folder: Path) -> dict[int, float]:
    """The reward of each example by its place in the plan, read from the journal line by line."""
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    places = {line["example_key"]: line["index"] for line in lines if line["type"] == "example"}
    of_key = {line["key"]: places[line["example_key"]] for line in lines if line["type"] == "generated"}
    return {of_key[line["key"]]: line["reward"] for line in lines if line["type"] == "scored"}


def test_a_run_ends_when_the_mean_of_the_whole_is_known(shop: Workshop) -> None:
    done = shop.bench(*ARGS, "-c", "4", "--json")
    assert done.code == 0, done.err
    [run] = json.loads(done.out)["runs"]
    told = run["summary"]
    made = told["num_rollouts"]
    assert (run["state"], told["planned"], told["coverage"]) == ("done", made, 1.0)
    assert 100 < made < 300
    until = told["until_ci"]
    assert (until["reached"], until["of_examples"], until["half_width"]) == (True, 400, 0.05)
    # The same interval from the journal: the examples in the order of the plan, none left out, none twice.
    [folder] = [path.parent for path in shop.run_dirs()]
    found = rewards(folder)
    assert sorted(found) == list(range(made)) and until["examples"] == made
    aim = Aim(0.05, 400, 1, (0.0, 1.0))
    sequence = ConfidenceSequence((0.0, 1.0), planned=aim.planned, population=400)
    for place in range(made):
        sequence.add(found[place])
    again = sequence.estimate
    assert until["interval"] == [again.low, again.high] == told["reward"]["ci95"]
    assert told["reward"]["method"] == "betting"
    assert f"{400 - made} rollouts saved" in run["note"]
    shown = shop.bench("runs", "show", "latest", "--json")
    assert json.loads(shown.out)["summary"]["until_ci"] == until


def test_a_resume_of_it_asks_for_nothing_and_a_closer_aim_goes_on(shop: Workshop) -> None:
    with shop.serving(args={"size": 400}) as server:
        args = [*ARGS, "-b", server.url, "-c", "4", "--json"]
        assert shop.bench(*args).code == 0
        asked = server.stats()["requests"]
        again = shop.bench(*args, "--resume")
        assert again.code == 0 and server.stats()["requests"] == asked
        closer = shop.bench(*(word if word != "0.05" else "0.03" for word in args), "--resume")
        [run] = json.loads(closer.out)["runs"]
        assert run["summary"]["resumed"] == asked < run["summary"]["num_rollouts"] == server.stats()["requests"]
    [folder] = [path.parent for path in shop.run_dirs()]
    assert count(folder, "generated") == count(folder, "scored") == run["summary"]["num_rollouts"]


def test_every_screen_says_what_its_interval_is_and_no_metric_has_an_unwatched_one(shop: Workshop) -> None:
    done = shop.bench(*ARGS, "-c", "4")
    assert done.code == 0, done.err
    [folder] = [path.parent for path in shop.run_dirs()]
    told = summary(folder)
    assert told["reward"]["ci95"] and told["metrics"]
    assert all(metric["ci95"] is None and metric["method"] is None for metric in told["metrics"].values())
    words = (
        "its interval is for the mean of all 400 examples, however one stops (confidence sequence); metrics and pass "
        "rates have none"
    )
    assert shop.bench("report", "latest", "--format", "md", "-o", "page.md").code == 0
    page = (shop.cwd / "page.md").read_text()
    for screen in (done.out, shop.bench("runs", "show", "latest").out, page):
        flat = " ".join(screen.split())
        assert words in flat and "ended early" in flat
    assert "confidence sequence for the mean of all of them" in (folder.parent / "README.md").read_text()
    # The line of the live display has the interval of the table, not an ordinary one.
    low, high = told["reward"]["ci95"]
    mean = told["reward"]["mean"]
    assert f"mean {mean:.3f} ±{max(high - mean, mean - low):.3f}" in done.err


def test_what_is_made_of_it_ended_early_too(shop: Workshop) -> None:
    assert shop.bench(*ARGS, "-c", "4").code == 0
    [before] = [path.parent for path in shop.run_dirs()]
    for command in ("rescore", "replay"):
        again = shop.bench(command, str(before), "--json")
        assert again.code == 0, again.err
        [run] = json.loads(again.out)["runs"]
        first, second = summary(before), run["summary"]
        assert second["reward"]["ci95"] == first["reward"]["ci95"] and second["until_ci"] == first["until_ci"]
        assert second["num_rollouts"] == second["planned"] == first["num_rollouts"]
        gate = shop.bench("gate", str(run["path"]), "--baseline", str(before), "--margin", "0.5")
        assert gate.code == 3 and "ended early because of --until-ci" in gate.out


def test_an_aim_that_is_not_met_makes_the_whole_run_and_its_usual_interval(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-m", "reference/noisy", "--until-ci", "0.0001", "-r", "2")
    assert done.code == 0, done.err
    [folder] = [path.parent for path in shop.run_dirs()]
    told = summary(folder)
    assert (told["num_rollouts"], told["planned"], told["until_ci"]) == (48, 48, None)
    assert told["reward"]["method"] in ("t", "adjusted_t", "wilson")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--until-ci", "0"], "0"),
        (["--until-ci", "0.05", "--no-shuffle"], "needs examples in random order, but --no-shuffle takes the first"),
        (["--until-ci", "0.05", "-N"], "needs scores during the run, but -N scores at the end of the run"),
    ],
)
def test_what_would_make_it_dishonest_is_refused(shop: Workshop, given: list[str], words: str) -> None:
    done = shop.bench("run", "sums", "-m", "reference/oracle", *given)
    assert done.code == 2
    assert words in done.err and "Traceback" not in done.err
    assert shop.run_dirs() == []
