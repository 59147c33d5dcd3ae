"""Packages that were written for the classic API, run unmodified by `bench run`: what the model is told and asked, how
rollouts end and what they score is what the real old releases did (`packages/expected`, measured by `measure.py`),
except for their faults, each of which is named in the play with what is right instead. So it is when the run is killed
after the model has said all and before anything is scored."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop, count
from classic_runs import Played, differences, examples, model_of, without_tool_words
from classic_server import MODEL, Play, plays


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", plays())
def test_a_package_does_what_it_did_under_the_real_release(shop: Workshop, name: str) -> None:
    expected = Play(name).expected
    with model_of(shop, name) as run:
        played = run()
        forget_scores(played.run)
        resumed = run("--resume")
    assert {played.done.code, resumed.done.code} <= {0, 1, 3}, played.done.err + resumed.done.err
    assert differences(expected, played) == []
    assert differences(expected, resumed) == [], "the scores that the journal gives are the same"
    failed = sum(len(examples(change)) for change in expected["bench"] if change.get("outcome") == "failed")
    asked_again = [request for request in resumed.asked if request["model"] == MODEL]  # judges are asked anew
    assert len(asked_again) <= failed * Play(name).rollouts, "only what failed is asked again"
    assert played.log == expected["log"], "cleanup and teardown"
    if not expected["asked_differs"]:
        own_words = any(change.get("tool_words") for change in expected["bench"])
        assert_asked(expected["asked"], played, own_words)
    assert_offered(expected["tools"], played.tools)


def forget_scores(run: Path) -> None:
    """Leave the journal as a crash between the last reply and the first score does, with half a line at its end."""
    journal = run / "journal.jsonl"
    kept: list[bytes] = []
    torn = b""
    for line in journal.read_bytes().splitlines(keepends=True):
        if json.loads(line)["type"] == "scored":
            torn = torn or line[: len(line) // 2]
        else:
            kept.append(line)
    assert torn
    journal.write_bytes(b"".join(kept) + torn)
    for made in ("summary.json", "data"):
        path = run / made
        if path.is_file():
            path.unlink()
    whole = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**whole, "status": "running"}))
    assert count(run, "scored") == 0
    assert count(run, "generated") > 0


def assert_asked(expected: list[dict[str, Any]], played: Played, own_words: bool) -> None:
    """The same requests: their messages, tools on offer and sampling arguments, each as often. What tools say of a
    model's mistakes is in our own words where the play says so."""
    words = (lambda messages: messages) if not own_words else without_tool_words
    want, have = (
        Counter(json.dumps({**each, "messages": words(each["messages"])}, sort_keys=True) for each in asked)
        for asked in (expected, played.asked)
    )
    assert sorted((have - want).elements()) == sorted((want - have).elements())


def assert_offered(expected: dict[str, Any], tools: dict[str, Any]) -> None:
    """The same tools, described in the same words. The releases call every parameter required, also those that have a
    default; ours are required only if they have none."""
    for name, tool in expected.items():
        have = tools[name]
        assert (have["description"], have["parameters"]) == (tool["description"], tool["parameters"])
        assert set(have["required"]) <= set(tool["required"])


def test_every_play_was_measured_under_a_release_of_its_generation() -> None:
    releases = {"B": "0.1.9.post3", "C": "0.1.14"}
    for name in plays():
        expected = Play(name).expected
        assert (expected["release"], expected["rollouts_per_example"]) == (
            releases[Play(name).generation], Play(name).rollouts,
        )  # fmt: skip
        assert expected["bench"] == Play(name).differs, "measure again: the play has changed"


def test_there_are_packages_enough_for_both_generations() -> None:
    packages = {
        generation: {Play(n).package for n in plays() if Play(n).generation == generation} for generation in "BC"
    }
    assert min(len(names) for names in packages.values()) >= 5
