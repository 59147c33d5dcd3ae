"""`bench runs show`: the page, the settings and the transcripts of a run, by whatever name it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_samples import Bench, finished, paid
from store_samples import example

from harness.core.records import Record

OUTPUTS = Path("outputs")


def two() -> list[Record]:
    return [
        example(0, example_id="q/0"), *paid(0, 1.0),
        *paid(0, 0.0, rollout=1, completion=[{"role": "assistant", "content": "no"}]),
        example(1), *paid(1, 0.5),
    ]  # fmt: skip


def test_a_run_is_named_by_id_prefix_path_or_latest(bench: Bench, here: Path) -> None:
    old, new = finished(OUTPUTS), finished(OUTPUTS, minute=5, env_id="other")
    for name in (old.id, old.id[:13], str(old.path), f"{old.path}/run.json"):
        assert bench("runs", "show", name).out.startswith("sums · lab/m-1 · done\n")
    for name in ((), ("latest",), (new.id,)):
        assert bench("runs", "show", *name).out.startswith("other · lab/m-1 · done\n")
    done = bench("runs", "show", "2026")
    assert (done.code, done.out) == (2, "") and "'2026' matches 2 runs; give more of the id" in done.err
    done = bench("runs", "show", "nope")
    assert done.code == 2 and f"no run 'nope' under outputs/evals; the newest are {new.id}" in done.err


def test_commands_name_the_run_so_that_they_find_it(bench: Bench, here: Path) -> None:
    run = finished(OUTPUTS)
    assert f"  read one: bench runs show {run.id} --example 0\n" in bench("runs", "show").out
    assert f"  read one: bench runs show {run.id} --example 0\n" in bench("runs", "show", str(run.path.absolute())).out
    (here / "outputs").rename(here / "archive")
    away = f"archive/evals/sums--lab--m-1/{run.id}"
    assert f"  read one: bench runs show {away} --example 0\n" in bench("runs", "show", "-o", "archive").out
    assert f"  read one: bench runs show {away} --example 0\n" in bench("runs", "show", away).out


def test_the_page_as_json(bench: Bench, here: Path) -> None:
    run = finished(OUTPUTS, two(), planned={"num_examples": 2, "rollouts_per_example": 2})
    whole = json.loads(bench("runs", "show", "--json").out)
    assert (whole["run"]["id"], whole["summary"]) == (run.id, run.read_summary())
    assert [each["example_id"] for each in whole["worst"]] == ["q/0", 1]
    assert whole["settings"]["model.model"] == {
        "value": "lab/m-1", "origin": "eval", "source": "suite.toml eval[0].model",
    }  # fmt: skip


def test_all_settings(bench: Bench, here: Path) -> None:
    finished(OUTPUTS)
    lines = bench("runs", "show", "--settings").out.splitlines()
    assert lines[0].split() == ["env.env_id", "sums", "bench", "run", "sums"] and len(lines) == 7
    whole = json.loads(bench("runs", "show", "--settings", "--json").out)
    assert whole["env.timeout"] == {"value": None, "origin": "builtin", "source": "built-in"}


def test_one_transcript_or_all_of_an_example(bench: Bench, here: Path) -> None:
    finished(OUTPUTS, two(), planned={"num_examples": 2, "rollouts_per_example": 2})
    both = bench("runs", "show", "--example", "q/0")
    assert [line for line in both.out.splitlines() if line.startswith(("Example", "Rollout"))] == [
        "Example q/0 · task sums", "Rollout 0 · reward 1.000", "Rollout 1 · reward 0.000",
    ]  # fmt: skip
    one = bench("runs", "show", "latest", "--example", "q/0", "--rollout", "1")
    assert "  no\n" in one.out and "#### 1" not in one.out
    whole = json.loads(bench("runs", "show", "--example", "q/0", "--json").out)
    assert whole["run"] == "20261121T091503Z-aaaa"
    [found] = whole["examples"]
    assert (found["example_id"], [each["reward"] for each in found["rollouts"]]) == ("q/0", [1.0, 0.0])


def test_examples_of_one_id_stand_one_below_the_other(bench: Bench, here: Path) -> None:
    records: list[Record] = [example(0, example_id="a"), example(1, example_id="a"), *paid(0, 1.0), *paid(1, 0.0)]
    finished(OUTPUTS, records)
    out = bench("runs", "show", "--example", "a").out
    assert out.count("Example a") == 2 and "\n\n\nExample a" in out


def test_a_megabyte_is_printed_whole_and_harmless(bench: Bench, here: Path) -> None:
    text = "\x1b[2J" + "word " * 200_000 + "\x07end"
    finished(OUTPUTS, [example(0), *paid(0, 1.0, completion=[{"role": "assistant", "content": text}])])
    out = bench("runs", "show", "--example", "0").out
    assert "  " + "word " * 200_000 + "end\n" in out
    assert "\x1b" not in out and "\x07" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--example", "7"), "no example '7' in the journal of 20261121T091503Z-aaaa: its examples are called 0, 1, 2"),
        (("--example", "0", "--rollout", "4"), "example 0 of 20261121T091503Z-aaaa has no rollout 4: it has 0"),
        (("--rollout", "0"), "--rollout K requires --example ID, which selects the example of this rollout"),
        (("--settings", "--example", "0"), "--settings and --example are mutually exclusive"),
    ],
)
def test_what_is_not_there_is_refused(bench: Bench, here: Path, arguments: tuple[str, ...], said: str) -> None:
    finished(OUTPUTS)
    done = bench("runs", "show", *arguments)
    assert (done.code, done.out) == (2, "") and said in done.err


def test_damage_is_said_and_is_no_traceback(bench: Bench, here: Path) -> None:
    run = finished(OUTPUTS)
    run.journal_path.write_bytes(b"x\n" + run.journal_path.read_bytes())
    page = bench("runs", "show")
    assert page.code == 0 and "journal.jsonl:1 (byte 0)" in page.out
    transcript = bench("runs", "show", "--example", "0")
    assert transcript.code == 1 and "journal.jsonl:1 (byte 0)" in transcript.err and transcript.out == ""
    run.manifest_path.write_text("{")
    assert bench("runs", "show").out.startswith("sums--lab--m-1 · damaged\n")
    settings = bench("runs", "show", "--settings")
    assert settings.code == 1 and "run.json: not JSON" in settings.err
