"""`bench runs show RUN --where`, `--failed`, `--worst` and `--group-by`: rollouts that are found, and the lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_samples import Bench, finished
from store_samples import PEAK, example, failed, generated, key, python, scored, write

from harness.core.records import JUDGEMENTS, Record
from harness.core.types import Usage
from harness.report.rollout_columns import COLUMNS, FLAGS, parsed_answer

OUTPUTS = Path("outputs")
ID = "20261121T091503Z-aaaa"
ROOT = Path(__file__).resolve().parents[2]


def said(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, **more}]


CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "eggs"}'}}


def records() -> list[Record]:
    """Six rollouts: right, wrong, cut short, failed, unscored, waiting for its score."""
    return [
        *(example(index, info={"level": index, "source": {"name": "Book"}}) for index in range(5)),
        generated(0, completion=said("It is \\boxed{1}"), usage=Usage(1000, 200, requests=1, cost=0.01)),
        scored(0, 0, 1.0, metrics={"correct": 1.0, "format": 1.0}),
        generated(0, 1, completion=said("Let me\nthink.\n#### 7", reasoning_content="Two eggs, so seven.")),
        scored(0, 1, 0.0, metrics={"correct": 0.0, "format": 1.0}),
        generated(1, completion=said("<answer>3", tool_calls=[CALL]), stop_condition="length", is_truncated=True),
        scored(1, 0, 0.25, metrics={"correct": 0.5, "format": 0.0}, extra={
            JUDGEMENTS: [{"model": "judge", "text": "Half of it is right."}], "verdict": {"passed": False}}),
        failed(2, completion=said("So far")),
        generated(3),
        scored(3, 0, None, metrics={"correct": None, "format": 1.0}, reasons={"correct": "judge_error: no verdict"}),
        generated(4),
    ]  # fmt: skip


@pytest.fixture
def run(here: Path) -> str:
    planned = {"num_examples": 5, "rollouts_per_example": 2}
    finished(OUTPUTS, records(), planned=planned, metric_names=("correct", "format"), state_columns=("verdict",))
    return ID


def places(bench: Bench, *arguments: str) -> list[tuple[object, int]]:
    done = bench("runs", "show", *arguments, "--json")
    assert done.code == 0, done.err
    return [(each["example_id"], each["rollout_index"]) for each in json.loads(done.out)["rollouts"]]


FINDS = {
    "": [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (4, 0)],
    "reward<1": [(0, 1), (1, 0)],
    "-reward>=1": [(0, 1), (1, 0), (2, 0), (3, 0), (4, 0)],
    "outcome:unscored": [(2, 0), (3, 0), (4, 0)],
    "is:failed": [(0, 1), (1, 0), (2, 0), (3, 0)],
    "is:passed": [(0, 0)],
    "is:waiting": [(4, 0)],
    "is:retryable": [(2, 0)],
    "is:truncated stop:length": [(1, 0)],
    "reason:timeout": [(2, 0)],
    'error:"no verdict"': [(3, 0)],
    "metric.format=0": [(1, 0)],
    "-has:metric.correct": [(2, 0), (3, 0), (4, 0)],
    'metrics:"correct=0 format=1"': [(0, 1)],
    'text:"let me think"': [(0, 1)],
    "eggs": [(0, 1), (1, 0)],
    "reasoning:eggs": [(0, 1)],
    "prompt:eggs": [],
    "completion:eggs -reasoning:eggs": [(1, 0)],
    "parsed=7 or parsed=1": [(0, 0), (0, 1)],
    "tool:search": [(1, 0)],
    'judge:"half of it"': [(1, 0)],
    "state.verdict.passed:false": [(1, 0)],
    "info.level>=3": [(3, 0), (4, 0)],
    "info.source.name:book example:0": [(0, 0), (0, 1)],
    "example:0 rollout:1": [(0, 1)],
    "example>3": [(4, 0)],
    "answer=2": [(1, 0)],
    "cost>0.005": [(0, 0)],
    "-has:cost -is:failed": [(4, 0)],
    "tokens>1000": [(0, 0)],
    "turns:1 seconds<1 attempts:1 requests:1 example:4": [(4, 0)],
    "model:m-1 env:sums run:2026 example:4": [(4, 0)],
}


@pytest.mark.parametrize("query", FINDS)
def test_a_query_finds_rollouts(bench: Bench, run: str, query: str) -> None:
    assert places(bench, "--where", query) == FINDS[query]


def test_failed_is_the_query_and_combines_with_another(bench: Bench, run: str) -> None:
    assert places(bench, "--failed") == FINDS["is:failed"]
    assert places(bench, "--failed", "--where", "reward<1 or reason:timeout") == [(0, 1), (1, 0), (2, 0)]


def test_failed_is_below_the_threshold_of_the_run(bench: Bench, here: Path) -> None:
    finished(OUTPUTS, records(), settings={"env.pass_threshold": 0.25})
    assert places(bench, "--failed") == [(0, 1), (2, 0), (3, 0)]


def test_the_worst_have_the_lowest_rewards_first(bench: Bench, run: str) -> None:
    assert places(bench, "--worst", "2") == [(0, 1), (1, 0)]
    assert places(bench, "--worst", "9", "--where", "-example:1") == [(0, 1), (0, 0)]
    assert "6 of 6 rollouts; the 2 with the lowest rewards are shown" in bench("runs", "show", "--worst", "2").out


def test_a_line_fits_the_terminal_and_names_the_transcript(
    bench: Bench, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = bench("runs", "show", "--where", "-is:passed tokens<9999")
    assert done.out.splitlines()[:-2] == [
        "example  rollout  reward  tokens  ended by             text",
        "─" * 80,
        "0              1   0.000      15  stop                 Let me think. #### 7",
        "1              0   0.250      15  length               <answer>3",
        "2              0       –       0  timeout              timeout: no reply in 600…",
        "3              0       –      15  correct judge_error  correct: judge_error: no…",
        "4              0       –      15  not scored           #### 5",
        "",
    ]
    last = done.out.splitlines()[-1]
    assert last == f"read one: bench runs show {ID} --example 0 --rollout 1"
    assert "Let me" in bench(*last.removeprefix("read one: bench ").split()).out


def test_a_line_shows_where_the_text_was_found(bench: Bench, here: Path) -> None:
    text = "word " * 500 + "the needle here " + "word " * 500
    finished(OUTPUTS, [example(0), generated(0, completion=said(text)), scored(0, 0, 0.0)])
    assert "…rd word the needle here word" in bench("runs", "show", "--where", "needle").out
    assert "needle" not in bench("runs", "show", "--failed").out


def test_hostile_text_is_harmless(bench: Bench, here: Path) -> None:
    evil = "\x1b[2J\x07evil\u202e"
    finished(OUTPUTS, [example(0, info={"x": evil}), generated(0, completion=said(evil), stop_condition=evil),
                       scored(0, 0, 0.0)])  # fmt: skip
    for arguments in (["--failed"], ["--group-by", "info.x"], ["--group-by", "stop"], ["--where", "evil"],
                      ["--where", f"stop:{evil}x"], ["--where", f"rewrd:{evil}"], ["--group-by", evil]):  # fmt: skip
        done = bench("runs", "show", *arguments)
        assert not {"\x1b", "\x07", "\u202e"} & set(done.out + done.err), arguments


def test_a_long_list_is_cut_and_says_so(bench: Bench, here: Path) -> None:
    finished(OUTPUTS)
    done = bench("runs", "show", "--where", "", "-n", "2")
    assert (
        len(done.out.splitlines()) == 2 + 2 + 3
        and "4 of 4 rollouts; the first 2 are shown, -n -1 shows all" in done.out
    )
    assert len(places(bench, "--where", "", "-n", "-1")) == 4


def test_json_has_the_rollout_with_its_example(bench: Bench, run: str) -> None:
    whole = json.loads(bench("runs", "show", "--where", "example:1", "--json").out)
    assert {name: whole[name] for name in ("runs", "query", "matched", "total")} == {
        "runs": [ID], "query": "example:1", "matched": 1, "total": 6,
    }  # fmt: skip
    [found] = whole["rollouts"]
    assert (found["run"], found["key"], found["answer"], found["info"]["level"]) == (ID, key("rollout", 1, 0), "2", 1)
    assert found["metrics"] == {"correct": 0.5, "format": 0.0} and found["completion"][0]["tool_calls"] == [CALL]
    assert json.loads(bench("runs", "show", "--where", "zzz", "--json").out)["rollouts"] == []


def groups(bench: Bench, column: str, *arguments: str) -> dict[object, int]:
    whole = json.loads(bench("runs", "show", "--group-by", column, *arguments, "--json").out)
    return {each["value"]: each["count"] for each in whole["groups"]}


def test_groups(bench: Bench, run: str) -> None:
    assert groups(bench, "reason") == {None: 3, "timeout": 1, "correct judge_error": 1, "not scored": 1}
    assert groups(bench, "stop") == {"stop": 4, "length": 1, None: 1}
    assert groups(bench, "metrics", "--failed") == {
        "correct=0 format=1": 1, "correct=0..1 format=0": 1, "correct=none format=1": 1, None: 1,
    }  # fmt: skip
    assert groups(bench, "info.level")["0"] == 2
    assert groups(bench, "tool") == {None: 5, "search": 1}
    assert groups(bench, "reward", "--where", "has:reward") == {"1": 1, "0": 1, "0.25": 1}


def test_a_group_has_share_mean_and_an_example(bench: Bench, run: str) -> None:
    whole = json.loads(bench("runs", "show", "--group-by", "stop", "--json").out)
    first = whole["groups"][0]
    assert (first["count"], first["scored"], first["mean"], whole["group_by"]) == (4, 2, 0.5, "stop")
    assert first["share"] == 4 / 6 and first["first"] == {"run": ID, "example_id": "0", "rollout_index": 0}
    out = bench("runs", "show", "--group-by", "stop", "-n", "1").out
    assert "and 2 more values of 2 rollouts; -n -1 shows all" in out and "6 of 6 rollouts" in out


def test_a_suite_is_searched_as_one_and_grouped_by_run(bench: Bench, here: Path) -> None:
    finished(OUTPUTS, suite="together")
    finished(OUTPUTS, minute=1, letters="bbbb", env_id="other", suite="together")
    done = bench("runs", "show", "latest", "--failed")
    assert done.code == 0, done.err
    assert "4 of 8 rollouts" in done.out and "20261121T091603Z-bbbb" in done.out
    assert groups(bench, "env", "--failed") == {"sums": 2, "other": 2}
    titles = bench("runs", "show", "--group-by", "stop").out
    assert "sums · lab/m-1 · 20261121T091503Z-aaaa" in titles


def test_notes_say_why_nothing_was_found(bench: Bench, run: str) -> None:
    done = bench("runs", "show", "--where", "info.levl>2")
    assert (done.code, done.out) == (0, "") and 'no rollout has info.levl: did you mean "info.level"?' in done.err
    assert "none of 6 rollouts matches" in done.err
    assert 'no rollout has stop "lenght": did you mean "length"?' in bench("runs", "show", "--where", "stop:lenght").err
    assert "no rollout has info.levels" in bench("runs", "show", "--group-by", "info.levels").err
    assert bench("runs", "show", "--where", "stop:length").err == ""


def test_a_run_without_rollouts(bench: Bench, here: Path) -> None:
    path = finished(OUTPUTS).journal_path
    path.unlink()
    done = bench("runs", "show", "--failed")
    assert (done.code, done.out) == (0, "") and "the journal has no rollouts yet" in done.err
    assert json.loads(bench("runs", "show", "--failed", "--json").out)["total"] == 0


def test_a_run_in_progress_is_read_as_far_as_it_is_written(bench: Bench, here: Path) -> None:
    path = finished(OUTPUTS, status="running").journal_path
    path.write_bytes(path.read_bytes()[:-20])
    assert len(places(bench, "--where", "has:reward")) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--where", "rewrd<1"),
            'error: --where: there is no column "rewrd"; did you mean "reward"?\n  rewrd<1\n  ^^^^^\n',
        ),
        (("--where", "metric.formt=0"), 'did you mean "metric.format"?'),
        (
            ("--group-by", "stopp"),
            'error: --group-by: there is no column "stopp"; did you mean "stop"?\n  stopp\n  ^^^^^\n',
        ),
        (("--group-by", ""), "--group-by: there is no column"),
        (("--failed", "--example", "0"), "--example cannot be combined with --where, --failed, --worst or --group-by"),
        (("--failed", "--settings"), "--settings cannot be combined"),
        (("--limit", "3"), "--limit N has no effect without a list of rollouts"),
        (("--worst", "3", "--limit", "3"), "--worst N cannot be combined with --limit"),
        (("--worst", "3", "--group-by", "stop"), "--worst N cannot be combined with --group-by"),
        (("--worst", "0"), "greater than or equal to 1"),
    ],
)
def test_wrong_options_are_refused(bench: Bench, run: str, arguments: tuple[str, ...], message: str) -> None:
    done = bench("runs", "show", *arguments)
    assert (done.code, done.out) == (2, "") and message in done.err


def test_damage_is_an_error_without_a_traceback(bench: Bench, here: Path) -> None:
    path = finished(OUTPUTS).journal_path
    path.write_bytes(b"x\n" + path.read_bytes())
    done = bench("runs", "show", "--failed")
    assert done.code == 1 and "journal.jsonl:1 (byte 0)" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("so \\boxed{\\frac{1}{2}} and more", "\\frac{1}{2}"),
        ("#### 1\n#### 2 ", "2"),
        ("<think>x</think>\n<answer> 4 </answer>\nbye", "4"),
        ("no tag </answer>", "no tag </answer>"),
        ("first\nlast \n", "last"),
        ("", ""),
    ],
)
def test_the_answer_in_a_reply(reply: str, answer: str) -> None:
    assert parsed_answer(reply) == answer


def test_the_reference_lists_every_column_and_property() -> None:
    page = (ROOT / "docs/reference/queries.md").read_text(encoding="utf-8")
    for name in (*(each.name for each in COLUMNS), *FLAGS):
        assert f"| `{name}` |" in page, name


@pytest.mark.slow
def test_many_rollouts_are_streamed(bench: Bench, here: Path) -> None:
    path = finished(OUTPUTS).journal_path
    text = "word " * 400
    code = f"""
import sys
from harness.cli.main import main
{PEAK}
main(["runs", "show", "--where", "reward<1 word", "--json"])
print(peak(), file=sys.stderr)
"""
    peaks: list[float] = []
    for count in (500, 30_000):
        path.unlink()
        write(path, (record for index in range(count) for record in (
            example(index), generated(index, completion=said(text)), scored(index, 0, float(index % 2)))))  # fmt: skip
        done = python(code)
        assert done.stdout.count('"example_id"') == count // 2
        peaks.append(float(done.stderr))
    assert peaks[1] - peaks[0] < 25, "the texts alone are 60 MB"
