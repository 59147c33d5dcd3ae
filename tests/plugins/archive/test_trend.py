"""`bench trend`: dated runs, their chart, and the verdict on drift."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compared_runs import Scores, scored_run
from run_samples import Bench

from harness.store.rundir import RunDir

OUT = Path("outputs")
FIRST = datetime(2026, 11, 1, 3, tzinfo=UTC)
MODEL = "reference/nightly"


def nightly(bench: Bench, day: int, accuracy: float, rows: int = 100) -> None:
    """A real run of a player with its own luck, as the run of one model on another day."""
    before = {*OUT.glob("evals/*/*/run.json")}
    player = f"reference/noisy?accuracy={accuracy}&seed={day}"
    done = bench("run", "reverse-text", "-n", str(rows), "-r", "1", "-m", player, "-q")
    assert done.code == 0, done.err
    [file] = {*OUT.glob("evals/*/*/run.json")} - before
    manifest = json.loads(file.read_text())
    manifest["identity"]["model"]["names"] = [MODEL]
    created = (FIRST + timedelta(days=day)).isoformat()
    file.write_text(json.dumps({**manifest, "model": MODEL, "created": created}))


def dated(day: int, scores: Scores, **changes: Any) -> RunDir:
    """A run with chosen scores."""
    created = (FIRST + timedelta(days=day)).isoformat()
    return scored_run(OUT, scores, day, created=created, model=changes.pop("model", MODEL), **changes)


def calm(day: int, rows: int = 30) -> Scores:
    luck = Random(day)
    return {n: [float(luck.random() < 0.5 + n % 5 / 10)] for n in range(rows)}


def found(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench("trend", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_drop_is_found_and_dated(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(8):
        nightly(bench, day, 0.8)
    early = found(bench, "reverse-text", "--model", MODEL)
    assert not early["drift"] and early["segments"][0]["change"] is None
    assert bench("trend", "reverse-text", "--fail-on-drift").code == 0
    for day in range(8, 12):
        nightly(bench, day, 0.45)
    monkeypatch.setenv("COLUMNS", "80")

    done = bench("trend", "reverse-text", "--model", MODEL, "--fail-on-drift")

    assert done.code == 1
    assert all(len(line) <= 80 for line in done.out.splitlines())
    lines = done.out.splitlines()
    assert lines[0] == f"reverse-text · {MODEL} · reward: 12 runs"
    assert lines[4].startswith("2026-11-01 03:00     100  0.") and lines[4].endswith("1.00")
    assert sum("─o─" in line for line in lines) == 12
    assert "Drift since about 2026-11-09" in done.out, done.out
    assert "Without a change it reaches 20 in at most 5 % of cases" in " ".join(done.out.split())
    late = found(bench, "reverse-text", "--model", MODEL)
    [segment] = late["segments"]
    assert late["drift"] and segment["difference_ci95"][1] < 0
    assert [each["e"] for each in segment["runs"]][:8] == [each["e"] for each in early["segments"][0]["runs"]]
    assert segment["runs"][8]["run"] == segment["change"]
    assert bench("trend", "reverse-text", "--since", "2026-11-09", "--fail-on-drift").code == 0


def test_no_drift_says_what_could_have_been_found(bench: Bench, here: Path) -> None:
    for day in range(20):
        dated(day, calm(day, 100))
    done = bench("trend", "sums")
    assert done.code == 0
    assert "No drift seen: e is 1.38, and 20 would show one." in done.out
    assert "that began half way would have been found by now in 80 % of cases." in done.out
    [segment] = found(bench, "sums")["segments"]
    assert 0.03 < segment["detectable"] < 0.3 and segment["difference"] is None


def test_changes_of_anything_but_the_model_begin_a_segment(bench: Bench, here: Path) -> None:
    def identity(source: str, temperature: float = 0.0) -> dict[str, Any]:
        return {
            "env": {"env_id": "sums", "source": source * 64},
            "model": {"names": [MODEL], "sampling_args": {"temperature": temperature}},
            "order": {"shuffle": source == "a", "shuffle_seed": None},
        }

    for day in range(4):
        dated(day, {n: [1.0] for n in range(40)}, identity=identity("a"))
    for day in range(4, 8):
        dated(day, {n: [0.0] for n in range(40)}, identity=identity("b"))
    dated(8, {n: [1.0] for n in range(40)}, identity=identity("b", 1.0))
    dated(9, {n: [0.0] for n in range(100, 140)}, identity=identity("b", 1.0))
    dated(10, {n: [0.0] for n in range(110, 150)}, identity=identity("b", 1.0), versions={"bench-harness": "9"})
    document = found(bench, "sums", "--model", MODEL)
    reasons = [each["reason"] for each in document["segments"]]
    assert [len(each["runs"]) for each in document["segments"]] == [4, 4, 1, 2]
    assert reasons[0] is None and reasons[1] == "env.source has changed"
    assert reasons[2] == "model.sampling_args.temperature was 0.0, now 1.0"
    assert reasons[3] == "the examples are others: 0 of 40 were there before"
    assert not any(each["drift"] for each in document["segments"])
    assert any("bench None became 9 before run" in note for note in document["notes"])
    text = bench("trend", "sums").out
    assert "New segment from 2026-11-05: env.source has changed." in text
    assert "One run: it takes two to compare." in text
    assert "So few runs could not have shown any drift yet." in text


def test_runs_that_cannot_be_compared_are_left_out_and_named(bench: Bench, here: Path) -> None:
    first = dated(0, calm(0))
    dated(1, calm(1))
    dated(2, calm(2), derived={"how": "rescore", "parent": first.id}, parent=first.id)
    dated(3, {0: [None]})
    settings = {"env.until_ci": 0.1, "env.env_id": "sums"}
    dated(4, calm(4), settings=settings)
    broken = dated(5, calm(5))
    broken.manifest_path.write_text("{")
    document = found(bench, "sums")
    assert [len(each["runs"]) for each in document["segments"]] == [2]
    notes = " ".join(document["notes"])
    for words in ("made from the replies", "it has no score", "--until-ci", "cannot be read"):
        assert words in notes


def test_runs_come_in_the_order_of_their_dates(bench: Bench, here: Path) -> None:
    for day in (5, 2, 9):
        created = (FIRST - timedelta(days=day)).isoformat()
        scored_run(OUT, calm(day), day, created=created, model=MODEL)
    [segment] = found(bench, "sums")["segments"]
    assert [each["created"][:10] for each in segment["runs"]] == ["2026-10-23", "2026-10-27", "2026-10-30"]


def test_dates_that_utc_does_not_have_are_those_of_the_id(bench: Bench, here: Path) -> None:
    for minute, created in enumerate(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday"]):
        scored_run(OUT, calm(minute), minute, created=created, model=MODEL)
    done = bench("trend", "sums")
    assert done.code == 0 and done.out.count("2026-11-21 09:1") == 3, done.err


def test_the_chart_has_the_newest_runs(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(45):
        dated(day, calm(day, 8))
    monkeypatch.setenv("COLUMNS", "50")
    text = bench("trend", "sums").out
    assert "The chart has the newest 40; --json has all." in text
    assert "2026-11-05" not in text and "2026-11-06" in text
    assert all(len(line) <= 60 for line in text.splitlines())


def test_graded_rewards_and_metrics(bench: Bench, here: Path) -> None:
    for day in range(20):
        loss = 2.0 if day >= 10 else 0.0
        scores: Scores = {n: [5.0 + n % 5 - loss + (n * day) % 7 / 7] for n in range(30)}
        dated(day, scores, reward_range=(0.0, 10.0))
    document = found(bench, "sums")
    [segment] = document["segments"]
    assert document["drift"] and segment["difference"] == pytest.approx(-2.0, abs=0.3)
    assert segment["change"] == segment["runs"][10]["run"]
    assert found(bench, "sums", "--metric", "correct")["drift"]
    assert bench("trend", "sums", "--metric", "corect").code == 2


def test_wrong_usage_is_one_sentence(bench: Bench, here: Path) -> None:
    def refused(*arguments: str) -> str:
        done = bench("trend", *arguments)
        assert done.code == 2 and "Traceback" not in done.err
        return done.err

    assert "no runs of 'sums'" in refused("sums")
    dated(0, {0: [None]})
    assert "none of these runs has a score" in refused("sums")
    dated(1, calm(1), model="lab/a")
    dated(2, calm(2), model="lab/ab")
    assert "choose one with --model: lab/a, lab/ab" in refused("sums")
    assert bench("trend", "sums", "--model", "lab/a").code == 0  # the whole name of one
    assert "give its whole name" in refused("sums", "--model", "lab/")
    dated(3, calm(3), env_id="sums-2", model="lab/a")
    assert bench("trend", "sums", "--model", "lab/a").code == 0
    assert "2 environments" in refused("sum", "--model", "lab/a")
    assert "--since soon" in refused("sums", "--since", "soon")
