"""The page of one run: what it was, how it scored, what failed, which examples to look at, what to do next."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from run_samples import finished, paid, run_at
from store_samples import example, failed, generated, rollouts, scored
from tables import for_each_row

from harness.core.records import Record
from harness.core.types import Usage
from harness.report.layout import print_lines
from harness.report.run_facts import (
    facts_json,
    facts_of,
    home_of,
    read_usage,
    settings_json,
    settings_of,
    size_text,
    sizes_of,
    spent_on,
    steps_of,
)
from harness.report.run_page import page_lines, settings_lines
from harness.report.text import PlainConsole
from harness.store.catalogue import read_entry
from harness.store.dataset import DatasetWriter
from harness.store.rows import RowShape
from harness.store.rundir import RunDir


def page(run: RunDir, width: int = 100) -> list[str]:
    out = io.StringIO()
    console = PlainConsole(file=out, width=width, markup=False, emoji=False, highlight=False)
    print_lines(page_lines(facts_of(run.path, run.id), width), console)
    return out.getvalue().split("\n")


def section(lines: list[str], head: str) -> list[str]:
    """The lines of one section, up to the next empty one."""
    begin = lines.index(head) + 1
    return lines[begin : lines.index("", begin)] if "" in lines[begin:] else lines[begin:]


def together(lines: list[str]) -> str:
    """What was wrapped, in one line."""
    return " ".join(" ".join(lines).split())


def steps(run: RunDir) -> list[str]:
    return list(steps_of(facts_of(run.path, run.id)))


def lossy() -> list[Record]:
    """Four examples: one right, one wrong, one that timed out, one that no function could score."""
    records: list[Record] = [example(index, example_id=f"q{index}") for index in range(4)]
    records += [*paid(0, 1.0, cost=0.001), *paid(1, 0.0, completion=[{"role": "assistant", "content": "no idea"}])]
    records += [failed(2), generated(3), scored(3, reward=None, reasons={"correct": "ValueError: no digits"})]
    return records


def test_the_whole_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = finished(Path("outputs"), lossy(), git={"commit": "abc123", "dirty": True})
    size = run.journal_path.stat().st_size
    others = sum(path.stat().st_size for path in run.path.iterdir()) - size
    assert (
        "\n".join(page(run, 80))
        == f"""\
sums · lab/m-1 · done
  run           20261121T091503Z-aaaa
  folder        outputs/evals/sums--lab--m-1/20261121T091503Z-aaaa
  started       2026-11-21T09:15:03Z
  planned       4 examples
  command       bench run sums -n 4
  commit        abc123, with local changes
  versions      python 3.13.1
  files         journal.jsonl {size_text(size)}, others {size_text(others)}

run    mean   95 % interval    std  scored  pass@1
──────────────────────────────────────────────────
sums  0.500  [0.015, 0.985]  0.707  2 of 4   0.500

run   tokens in  tokens out    cost  time  rollouts
───────────────────────────────────────────────────
sums      2,010         405  $0.001  1:01   3.9/min

pass@k, pass^k: a rollout passes with a reward of at least 1
95 % interval: Wilson's
sums
  2 unscored (correct ValueError 1, timeout 1); mean 0.250 if all were worst,
    0.750 if all best
  2 examples have no scored rollout: no part in pass@1

What went wrong
  timeout: 1 rollout, a retry may succeed
    no reply in 600 s
    example q2
  correct ValueError: 1 rollout
    correct: ValueError: no digits
    example q3

Worst examples
  q1: mean 0.000
    asked     What is 1 + 1?
    answered  no idea
    expected  2

Best examples
  q0: mean 1.000
    asked     What is 0 + 1?
    answered  #### 1
    expected  1

Settings
  env.env_id         sums     bench run sums
  env.env_args.size  4        -a size
  model.model        lab/m-1  suite.toml eval[0].model
  3 more with their default; --settings shows them

Next
  try the unscored again: bench resume 20261121T091503Z-aaaa --retry-failed
  read one: bench runs show 20261121T091503Z-aaaa --example q1
  score it again, with today's rubric: bench rescore 20261121T091503Z-aaaa
  send the same prompts to another model: bench replay 20261121T091503Z-aaaa --model MODEL
  export it: bench export 20261121T091503Z-aaaa --format csv
"""
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_only_what_must_be_copied_whole_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    run = finished(tmp_path, lossy())
    wide = [line for line in page(run, width) if cell_len(line) > width]
    assert {line.split()[0] for line in wide} <= {
        "folder",
        "files",
        "read",
        "score",
        "send",
        "export",
        "try",
        "model.model",
    }


def test_a_run_with_rows_says_how_to_load_and_publish_them(tmp_path: Path) -> None:
    run = finished(tmp_path, rollouts(4))
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    said = steps(run)
    assert said[-2:] == [
        f"load: load_dataset('{run.parent}', '{run.id}', split='train')", f"publish: bench push {run.path}",
    ]  # fmt: skip
    assert not [step for step in said if "--retry-failed" in step]


@pytest.mark.parametrize("state", ["stopped", "interrupted", "failed", "running"])
def test_a_run_that_did_not_end_says_why_and_how_to_go_on(tmp_path: Path, state: str) -> None:
    run = finished(tmp_path, rollouts(2), status=state, note="nobody answers\x1b[2J")
    said = steps(run)
    assert said[0] == f"go on: bench resume {run.id}"
    assert not [step for step in said if "rescore" in step or "replay" in step]
    shown = together(page(run))
    assert "2 of 4 not run" in shown
    why = "died: its process ended without a reason: it was killed, or the machine stopped"
    assert (why in shown) == (state == "running")
    assert (f"{state}: nobody answers" in shown) == (state != "running") and "\x1b" not in shown
    empty = run_at(tmp_path, minute=1, status=state, note="nobody answers")
    assert (f"The run has no rollouts. {state}: nobody answers" in together(page(empty))) == (state != "running")


def test_a_run_under_way_shows_what_there_is_so_far(tmp_path: Path) -> None:
    run = finished(tmp_path, [*rollouts(2), example(2), generated(2)], status="running")
    with run.journal_path.open("ab") as journal:
        journal.write(b'{"type":"generated","key":"half a li')  # being written at this very moment
    with run.lock():
        lines = page(run)
        said = steps(run)
    assert lines[0] == "sums · lab/m-1 · running"
    [time] = [line for line in lines if line.startswith("sums  ") and line.endswith("–         –")]
    assert "1:01" not in time  # that is of the last time that it stopped
    assert "  running: 1 rollout is generated and not scored yet" in lines
    assert said == [f"read one: bench runs show {run.id} --example 0"]
    assert "What went wrong" not in lines


def test_a_run_without_a_rollout(tmp_path: Path) -> None:
    run = run_at(tmp_path, status="running")
    assert "The run has no rollouts." in page(run)
    with run.lock():
        assert "No rollout has finished yet." in page(run)
    assert steps(run) == [f"go on: bench resume {run.id}"]


def test_a_damaged_journal_leaves_what_the_summary_says(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.journal_path.write_bytes(b"garbage\n" + run.journal_path.read_bytes())
    lines = page(run, 400)
    assert f"{run.journal_path}:1 (byte 0): the line cannot be read" in together(lines)
    assert "Its summary.json says: mean 0.500 [0.074, 0.926], scored 4 of 4" in lines
    assert "Settings" in lines and "What went wrong" not in lines
    facts = facts_json(facts_of(run.path, run.id))
    assert facts["summary"] is None and len(facts["problems"]) == 1


def test_a_damaged_manifest_is_a_page_all_the_same(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.manifest_path.write_text("{")
    lines = page(run, 400)
    assert lines[0] == "sums--lab--m-1 · damaged"
    assert f"cannot read {run.manifest_path}: not JSON" in together(lines)
    assert steps(run) == [f"remove: bench runs rm {run.id}"]
    assert facts_json(facts_of(run.path, run.id))["settings"] == {}


def test_relatives_are_named_as_far_as_they_are_there(tmp_path: Path) -> None:
    parent = finished(tmp_path, minute=1, suite="S1")
    run = finished(
        tmp_path, minute=2, letters="bbbb", parent=parent.id, derived={"how": "rescore", "only": "unscored"}, suite="S2"
    )
    child = run_at(tmp_path, minute=3, parent=run.id, derived={"how": "replay"}, status="stopped")
    sibling = finished(tmp_path, minute=4, env_id="other", suite="S2")
    lines = page(run, 200)
    assert f"  made          rescored from {parent.id} (unscored only), sums · lab/m-1, done, mean 0.500" in lines
    assert f"  derived runs  {child.id} (sums · lab/m-1, stopped)" in lines
    assert f"  sibling runs  {sibling.id} (other · lab/m-1, done, mean 0.500)" in lines
    facts = facts_json(facts_of(run.path, run.id))
    assert (facts["children"], facts["siblings"]) == ([child.id], [sibling.id])
    sibling.path.rename(tmp_path / "away")
    parent.path.rename(tmp_path / "gone")
    lines = page(run, 200)
    assert f"  made          rescored from {parent.id} (unscored only), which no longer exists" in lines
    assert not [line for line in lines if "sibling runs" in line]


def derived(tmp_path: Path, how: str, model: str | None = None) -> tuple[RunDir, RunDir]:
    """A run, and one made from it in which one reward of four is another."""
    parent = finished(tmp_path, [*rollouts(3), example(3), *paid(3, 0.0)])
    path = f"{parent.path}/config.toml"
    origins = {
        "env.env_id": {"origin": "eval", "source": f"{path}: eval[0].env.env_id"},
        "env.num_examples": {"origin": "builtin", "source": "built-in"},
        "model.model": {"origin": "cli", "source": f"--model {model}"},
    }
    settings = {"env.env_id": "sums", "env.num_examples": 4, "model.model": "lab/m-1"}
    made = finished(
        tmp_path, [*rollouts(3), example(3), *paid(3, 1.0)], minute=1, parent=parent.id, settings=settings,
        origins=origins, derived={"how": how, "parent": parent.id, "model": model},
    )  # fmt: skip
    return parent, made


def test_a_run_made_from_another_is_compared_with_it(tmp_path: Path) -> None:
    parent, run = derived(tmp_path, "rescore")
    lines = page(run)
    assert section(lines, f"Compared with {parent.id}") == [
        "  mean 0.250 → 0.500",
        "  rewards: 3 the same, 1 higher, 0 lower",
        "  changed: example 3 (0.000 → 1.000)",
    ]
    changes = facts_json(facts_of(run.path, run.id))["changes"]
    assert (changes["mean_before"], changes["mean_after"], changes["same"], changes["up"]) == (0.25, 0.5, 3, 1)
    assert changes["paired"] is None
    assert facts_json(facts_of(parent.path, parent.id))["changes"] is None
    parent.journal_path.write_bytes(b"{\n" + parent.journal_path.read_bytes())
    assert not [line for line in page(run) if line.startswith("Compared")]


def test_another_model_is_compared_example_by_example(tmp_path: Path) -> None:
    parent, run = derived(tmp_path, "replay", "lab/m-2")
    last = section(page(run), f"Compared with {parent.id}")[-1]
    assert last.startswith("  difference +0.250 [") and last.endswith("paired over 4 examples")


def test_settings_of_the_parent_are_counted_and_not_repeated(tmp_path: Path) -> None:
    _, run = derived(tmp_path, "replay", "lab/m-2")
    assert section(page(run), "Settings") == [
        "  model.model  lab/m-1  --model lab/m-2",
        "  1 more as in its parent run, 1 more with their default; --settings shows them",
    ]
    assert len(list(settings_lines(run.read_manifest(), 100))) == 4  # all three, and a line between


def test_agents_and_tasks_are_said_to_be_such(tmp_path: Path) -> None:
    assert "  kind          an agent over rows" in page(run_at(tmp_path, kind="eval"))
    assert "  kind          a list of tasks" in page(run_at(tmp_path, kind="multi", minute=1))
    assert not [line for line in page(run_at(tmp_path, minute=2)) if "  kind" in line]


def test_a_run_of_a_program_is_not_sent_to_commands_that_refuse_it(tmp_path: Path) -> None:
    settings = {"env.env_id": "agent-eval", "env.env_args": {}, "env.pass_threshold": 1.0}
    run = finished(tmp_path, lossy(), kind="eval", settings=settings)
    assert not [step for step in steps(run) if "resume" in step or "rescore" in step or "replay" in step]
    died = finished(tmp_path, lossy(), kind="eval", settings=settings, status="running", minute=1)
    assert steps(died)[0] == "go on: run its program again with resume=True"


def troubled(count: int, message: str) -> Iterable[Record]:
    for index in range(count):
        yield example(index, example_id=f"q{index}")
        yield failed(index, error=message, retryable=index % 2 == 0)


def test_a_failure_names_a_few_of_its_examples_and_counts_the_others(tmp_path: Path) -> None:
    lines = page(finished(tmp_path, troubled(12, "no reply")))
    assert section(lines, "What went wrong") == [
        "  timeout: 12 rollouts, 6 of them may succeed on retry",
        "    no reply",
        "    examples q0, q1, q2, q3, q4, q5, q6, q7 and 4 more",
    ]


def test_an_endless_error_message_shows_its_beginning(tmp_path: Path) -> None:
    lines = section(page(finished(tmp_path, troubled(1, "HTTP 500\n" + "<p>\n" * 1000))), "What went wrong")
    assert lines[1:4] == ["    HTTP 500", "    <p>", "    <p>"]
    assert lines[17] == "    … 4,009 characters in total; a transcript shows all of them"
    assert lines[18] == "    example q0"


def test_if_nothing_was_scored_a_failure_is_what_to_read(tmp_path: Path) -> None:
    run = finished(tmp_path, troubled(2, "no reply"))
    assert f"read one: bench runs show {run.id} --example q0" in steps(run)
    assert "Worst examples" not in page(run)


def test_examples_that_are_all_alike_are_not_called_the_worst(tmp_path: Path) -> None:
    records: list[Record] = [each for index in range(4) for each in (example(index), *paid(index, 1.0))]
    lines = page(finished(tmp_path, records))
    assert [line for line in lines if line.startswith("  ") and ": mean" in line] == [
        f"  {index}: mean 1.000" for index in range(3)
    ]
    assert "Some examples (all have a mean of 1.000)" in lines
    assert "The example" in page(finished(tmp_path, records[:3], minute=1))


def test_an_example_says_which_of_its_rollouts_is_shown(tmp_path: Path) -> None:
    metrics: dict[str, float | None] = {f"metric{number}": number / 8 for number in range(6)}
    metrics = {"of_others": None, **metrics}
    records: list[Record] = [
        example(0), *paid(0, 0.0), generated(0, 1), scored(0, 1, 1.0, metrics=metrics), failed(0, 2),
        example(1), *paid(1, 0.25), *paid(1, 0.25, rollout=1), *paid(1, 0.25, rollout=2),
    ]  # fmt: skip
    lines = page(finished(tmp_path, records, planned={"num_examples": 2, "rollouts_per_example": 3}), 120)
    assert "  1: mean 0.250 over 3 rollouts; rollout 0" in lines
    metrics_said = "metric0 0.000, metric1 0.125, metric2 0.250, metric3 0.375, 2 more"
    assert f"0: mean 0.500 over 3 rollouts (2 scored); rollout 1: {metrics_said} asked" in together(lines)
    assert "  planned       2 examples × 3 rollouts" in lines


@pytest.mark.parametrize(
    ("prompt", "completion", "asked", "answered"),
    [
        ("a long text. " * 100 + "The question?", "an answer", "a long text. The question?", "an answer"),
        ([{"role": "user", "content": "one"}, {"role": "user", "content": "two"}], [], "two", "(empty)"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}],
            [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "[image, image/png: 2 characters of base64]", "→ f({)  (its arguments are not JSON)",
        ),
        ([{"role": "user", "content": "q\n\x1b[2Jx"}], [{"role": "assistant", "content": "a\x07b"}], "q x", "ab"),
        ([{"role": "user", "content": "q"}], [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}],
         "q", "a"),
    ],
)  # fmt: skip
def test_snippets(tmp_path: Path, prompt: Any, completion: Any, asked: str, answered: str) -> None:
    records: list[Record] = [example(0, prompt=prompt, answer=""), *paid(0, 1.0, completion=completion)]
    lines = page(finished(tmp_path, records), 100)
    at = next(number for number, line in enumerate(lines) if line.startswith("    asked"))
    shown = " ".join(line[14:] for line in lines[at : lines.index("", at)] if not line.startswith("    answered"))
    assert shown.endswith(asked) and (shown == asked or shown.startswith("…"))
    [line] = [line for line in lines if line.startswith("    answered")]
    assert " ".join(line[14:].split()) == " ".join(answered.split())
    assert not [line for line in lines if line.startswith("    expected")]


def test_a_huge_text_is_cut_to_two_lines(tmp_path: Path) -> None:
    records: list[Record] = [
        example(0),
        *paid(0, 1.0, completion=[{"role": "assistant", "content": "word " * 200_000}]),
    ]
    lines = page(finished(tmp_path, records), 80)
    at = next(number for number, line in enumerate(lines) if line.startswith("    answered"))
    assert lines[at + 1].startswith("              word") and lines[at + 1].endswith(" …")
    assert lines[at + 2] == "    expected  1"


def test_nothing_foreign_commands_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2Jevil\x07\u202e\n\x9b31m"
    records: list[Record] = [
        example(0, example_id=evil, answer=evil, prompt=evil), *paid(0, 1.0, completion=evil),
        example(1), failed(1, reason=evil, error=evil),
    ]  # fmt: skip
    run = finished(
        tmp_path, records, name=evil, model=evil, command=evil, versions={evil: evil}, git={"commit": evil},
        settings={f"env.{evil}": evil}, origins={f"env.{evil}": {"origin": "cli", "source": evil}}, kind=evil,
    )  # fmt: skip
    shown = "\n".join([*page(run, 120), *settings_lines(run.read_manifest(), 120)])
    assert "evil" in shown and not set(shown) & set("\x1b\x07\x9b\u202e")


def test_settings_that_somebody_chose_come_first(tmp_path: Path) -> None:
    manifest = run_at(tmp_path).read_manifest()
    assert list(settings_lines(manifest, 100)) == [
        "env.env_id         sums     bench run sums",
        "env.env_args.size  4        -a size",
        "model.model        lab/m-1  suite.toml eval[0].model",
        "",
        "env.num_examples    4     built-in",
        "env.pass_threshold  1.0   built-in",
        "env.timeout         none  built-in",
    ]
    assert [row[0] for rows in settings_of(manifest) for row in rows].count("env.env_args") == 0  # its entries say it
    assert settings_json(manifest)["env.env_args"] == {"value": {"size": 4}, "origin": "cli", "source": "-a size"}


def test_settings_without_origins_or_of_odd_shape(tmp_path: Path) -> None:
    run = run_at(tmp_path, settings={"a": {}, "b": [1, "x"], "c": ""}, origins={"a": "odd"})
    assert list(settings_lines(run.read_manifest(), 80)) == [
        'a  {}       unknown', 'b  [1,"x"]  unknown', "c  –        unknown",
    ]  # fmt: skip
    assert settings_json(run.read_manifest())["b"] == {"value": [1, "x"], "origin": None, "source": None}


def test_json_has_the_whole_page(tmp_path: Path) -> None:
    run = finished(tmp_path, lossy())
    facts = facts_json(facts_of(run.path, run.id))
    assert json.loads(json.dumps(facts)) == facts
    assert list(facts) == [
        "run", "settings", "versions", "git", "summary", "functions", "waiting", "troubles", "worst", "best", "changes",
        "children", "siblings", "sizes", "problems", "next",
    ]  # fmt: skip
    assert facts["run"] == read_entry(run.path).to_json()
    assert facts["summary"] == run.read_summary()
    assert [(each["reason"], each["count"]) for each in facts["troubles"]] == [
        ("timeout", 1),
        ("correct ValueError", 1),
    ]
    assert [each["example_id"] for each in facts["worst"] + facts["best"]] == ["q1", "q0"]
    assert facts["next"] == steps(run)


def test_where_a_run_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(tmp_path / "outputs")
    assert home_of(run) == tmp_path / "outputs"
    monkeypatch.chdir(run.parent)
    assert home_of(RunDir(Path(run.id))) == tmp_path / "outputs"
    copied = RunDir(run.path.rename(tmp_path / "copied"))
    assert home_of(copied) is None
    assert page(copied)[0] == "sums · lab/m-1 · done"


def test_what_a_run_has_cost(tmp_path: Path) -> None:
    run = finished(tmp_path, lossy())
    assert spent_on(read_entry(run.path)) == (4, Usage(2010, 405, requests=3, cost=0.001))
    died = finished(tmp_path, lossy(), status="running", minute=1)
    died.summary_path.unlink()  # the journal tells
    assert spent_on(read_entry(died.path)) == (4, Usage(2010, 405, requests=3, cost=0.001))
    died.journal_path.write_bytes(b"garbage\n\n")
    assert spent_on(read_entry(died.path)) == (None, None)


def test_the_judges_of_a_run_were_paid_as_well(tmp_path: Path) -> None:
    reply = {"model": "j", "text": "yes", "usage": {"input_tokens": 7, "output_tokens": 3, "requests": 1, "cost": 0.5}}
    records: list[Record] = [example(0), *paid(0, 1.0, cost=0.25)[:1], scored(0, extra={"judgements": [reply]})]
    expected = Usage(1007, 203, requests=2, cost=0.75)
    assert spent_on(read_entry(finished(tmp_path, records).path)) == (1, expected)
    died = finished(tmp_path, records, status="running", minute=1)
    assert spent_on(read_entry(died.path)) == (1, expected)


@for_each_row("table", [None, 3, {"input_tokens": None}, {"strange": 1}])
def test_usage_of_any_shape(table: object) -> None:
    assert read_usage(table) == (Usage() if isinstance(table, dict) else None)


@for_each_row(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (55_800_000, "55.8 MB"), (5e12, "5000 GB")],
)
def test_sizes(size: float, words: str) -> None:
    assert size_text(size) == words


def test_sizes_of_files(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.data_path.mkdir()
    (run.data_path / "x.parquet").write_bytes(b"12345")
    found = sizes_of(run)
    assert found["data/"] == 5 and found["journal.jsonl"] == run.journal_path.stat().st_size
    assert sum(found.values()) == sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
