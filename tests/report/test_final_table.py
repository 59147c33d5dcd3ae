"""The final table at several widths, and the JSON beside it."""

from __future__ import annotations

import io
import random
import re
from dataclasses import replace

import orjson
import pytest
from rich.cells import cell_len
from tables import for_each_row

from harness.core.redact import redactor
from harness.core.types import Usage
from harness.report.final_table import RunReport, final_table, result_json
from harness.report.runs import GO_ON, Step, next_steps
from harness.report.text import PlainConsole
from harness.stats.summary import ScoreTable, Summary, summarize


def summary(
    *,
    examples: int = 40,
    rollouts: int = 4,
    lose: int = 0,
    usage: Usage | None = None,
    seed: int = 1,
    right: float = 0.7,
) -> Summary:
    rnd = random.Random(seed)
    table = ScoreTable()
    for index in range(examples * rollouts):
        reward = float(rnd.random() < right)
        place = divmod(index, rollouts)
        spent = usage or Usage(123_456, 65_432, requests=1)
        if index < lose:
            table.add(*place, None, {}, "timeout" if index % 3 else "judge \x1b[31mKeyError", usage=spent)
        else:
            metrics: dict[str, float | None] = {"correct_answer": reward, "num_turns": 1.0 + index % 5}
            table.add(*place, reward, metrics, None, usage=spent, truncated=index == 100, refused=index > 150)
    return summarize(
        table,
        pass_threshold=1.0,
        rollouts_per_example=rollouts,
        planned=examples * rollouts,
        reward_range=(0.0, 1.0),
        wall_s=61.0,
    )


def report(
    name: str = "gsm8k", *, of: Summary | None, model: str = "my-model", state: str = "done", note: str = ""
) -> RunReport:
    path = None if of is None else f"outputs/evals/{name}--{model}/20260101-120000-ab3f"
    steps = () if path is None else next_steps(path, has_data=True)
    return RunReport(name, name, model, path, of, state, note, steps)


def printed(results: list[RunReport], width: int, *, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    final_table(results, PlainConsole(file=file, width=width, markup=False, emoji=False, highlight=False))
    file.flush()
    return raw.getvalue().decode(encoding).split("\n")


def figures(lines: list[str]) -> list[str]:
    return re.findall(r"-?\d[\d,.]*", "\n".join(lines))


@for_each_row("width", [80, 100, 120, 200])
@for_each_row("rollouts", [1, 4, 32])
def test_every_width_shows_every_number(width: int, rollouts: int) -> None:
    results = [
        report(of=summary(rollouts=rollouts, lose=3)),
        report("alphabet-sort", of=summary(rollouts=rollouts, seed=2, right=0.4)),
        report("reverse-text", of=None, state="failed", note="no module named nltk"),
    ]
    lines = printed(results, width)
    tables = lines[: next(i for i, line in enumerate(lines) if line.startswith("pass@k, pass^k"))]
    assert all(cell_len(line) <= width for line in tables)
    assert "…" not in "".join(tables)
    # The same figures, however they are broken into tables.
    wide = printed(results, 400)
    wide = wide[: next(i for i, line in enumerate(wide) if line.startswith("pass@k, pass^k"))]
    shown = figures(tables)
    dropped = [number for number in figures(wide) if number not in shown]
    assert not dropped


def test_one_run_at_80_columns_reads_like_this() -> None:
    lines = [line.rstrip() for line in printed([report(of=summary(lose=3))], 80)]
    assert lines == [
        "run     mean   95 % interval    std      scored",
        "───────────────────────────────────────────────",
        "gsm8k  0.725  [0.630, 0.799]  0.451  157 of 160",
        "",
        "run    pass@1  pass@2  pass@4  pass^2  pass^4",
        "─────────────────────────────────────────────",
        "gsm8k   0.725   0.906   0.949   0.530   0.256",
        "",
        "run     tokens in  tokens out  time  rollouts",
        "─────────────────────────────────────────────",
        "gsm8k  19,752,960  10,469,120  1:01     2.6/s",
        "",
        "metric           mean   95 % interval    min    max  values",
        "───────────────────────────────────────────────────────────",
        "correct_answer  0.725  [0.630, 0.799]  0.000  1.000     157",
        "num_turns       3.038  [2.915, 3.160]  1.000  5.000     157",
        "",
        "k  pass@k   95 % interval  pass^k   95 % interval",
        "─────────────────────────────────────────────────",
        "2   0.906  [0.802, 0.970]   0.530  [0.425, 0.635]",
        "4   0.949  [0.844, 1.000]   0.256  [0.113, 0.400]",
        "",
        "pass@k, pass^k: a rollout passes with a reward of at least 1",
        "gsm8k",
        "  3 unscored (timeout 2, judge KeyError 1); mean 0.706 if all were worst, 0.725",
        "    if all best",
        "  1 example has fewer than 4 scored rollouts: no part in pass@4",
        "  1 of 157 answers were cut short by a limit (<1 %)",
        "  9 of 157 answers are refusals (6 %)",
        "",
        "Results",
        "  outputs/evals/gsm8k--my-model/20260101-120000-ab3f",
        "",
        "Next",
        "  load: load_dataset('outputs/evals/gsm8k--my-model', '20260101-120000-ab3f', split='train')",
        "  publish: bench push outputs/evals/gsm8k--my-model/20260101-120000-ab3f",
        "",
    ]


def test_where_nothing_was_scored_the_first_error_is_said_in_words() -> None:
    error = "KeyError: 'n\x1b[2Jope' (in setup_state, raises.py:4)"
    none = replace(report(of=summary(examples=2, rollouts=1, lose=2)), error=error)
    assert "  first error: KeyError: 'nope' (in setup_state, raises.py:4)" in printed([none], 120)
    told = replace(none, state="stopped", note=f"stopped at its first error, as requested: {error}")
    some = replace(report(of=summary(lose=3)), error=error)
    assert "  first error:" not in "\n".join([*printed([told], 120), *printed([some], 120)])


def test_what_the_mean_hides_is_said() -> None:
    text = "\n".join(printed([report(of=summary(lose=3))], 200))
    assert "3 unscored (timeout 2, judge KeyError 1); mean " in text
    assert "if all were worst" in text and "if all best" in text
    assert "1 example has fewer than 4 scored rollouts: no part in pass@4" in text
    assert "1 of 157 answers were cut short by a limit (<1 %)" in text
    assert "9 of 157 answers are refusals (6 %)" in text
    assert "\x1b" not in text


@for_each_row(
    ("usage", "words"),
    [
        (Usage(1234, 56, requests=1, cost=0.5), "judge: 1 reply, 1,234 + 56 tokens, $0.50"),
        (Usage(1234, 56, requests=20), "judge: 20 replies, 1,234 + 56 tokens, cost unknown"),
        (Usage(0, 0, requests=2, unreported=2), "judge: 2 replies, unknown + unknown tokens, cost unknown"),
        (Usage(9, 8, requests=2, unreported=1), "judge: 2 replies, ≥ 9 + ≥ 8 tokens, cost unknown"),
    ],
)
def test_what_judges_cost_is_said_in_a_line_of_its_own(usage: Usage, words: str) -> None:
    run = replace(summary(), judge_usage=usage)
    lines = printed([report(of=run)], 120)
    assert [line.strip() for line in lines if "judge:" in line] == [words]
    assert not any("judge:" in line for line in printed([report(of=summary())], 120))


@pytest.mark.parametrize(
    ("unpriced", "words"),
    [
        (18, "at least $9.00 (18 replies of unknown cost)"),
        (1, "at least $9.00 (1 reply of unknown cost)"),
        (0, "$9.00"),
    ],
)
def test_a_sum_that_does_not_know_every_cost_is_a_lower_bound(unpriced: int, words: str) -> None:
    run = replace(summary(), judge_usage=Usage(7, 6, requests=20, cost=9.0), judge_unpriced=unpriced)
    said = [line.strip() for line in printed([report(of=run)], 120) if "judge:" in line]
    assert said == [f"judge: 20 replies, 7 + 6 tokens, {words}"]
    assert run.to_json()["judge_usage"] == {
        "input_tokens": 7, "output_tokens": 6, "reasoning_tokens": 0, "cached_tokens": 0, "requests": 20,
        "unreported": 0, "cost": 9.0, "unpriced": unpriced,
    }  # fmt: skip


def test_clean_runs_have_no_remarks() -> None:
    result = RunReport("gsm8k", "gsm8k", "m", None, summary(examples=320, rollouts=1, right=0.5, usage=Usage()))
    assert "Results" not in "\n".join(printed([result], 80))


def test_small_binary_runs_say_wilson() -> None:
    text = "\n".join(printed([report(of=summary(examples=10, rollouts=1))], 80))
    assert "\n95 % interval: Wilson's\n" in text


def test_what_passes_is_said_once_and_for_those_that_differ() -> None:
    names = ("wordle", "gsm8k", "sums")
    runs = [report(name, of=replace(summary(), pass_threshold=0.75 if name == "wordle" else 1.0)) for name in names]
    said = next(line for line in printed(runs, 120) if line.startswith("pass@k, pass^k"))
    assert said == "pass@k, pass^k: a rollout passes with a reward of at least 1 (wordle: 0.75)"


def test_what_was_cut_off_comes_first_among_the_next_steps() -> None:
    cut = replace(report("b", of=summary(), state="interrupted"), next_steps=(Step(GO_ON, "bench resume b"),))
    lines = printed([report("a", of=summary()), cut], 80)
    assert [line.split(":")[0] for line in lines[lines.index("Next") + 1 :] if line] == [
        "  go on",
        "  load",
        "  publish",
    ]


def test_perfect_runs_show_an_interval() -> None:
    text = "\n".join(printed([report(of=summary(examples=1319, rollouts=1, right=2.0))], 80))
    assert "1.000  [0.997, 1.000]  0.000  1,319 of 1,319" in text


def test_one_example_shows_no_interval_and_why() -> None:
    text = "\n".join(printed([report(of=summary(examples=1))], 80))
    assert "no interval: one example says nothing about others" in text


def test_failed_and_interrupted_runs_are_in_the_table() -> None:
    stopped = summarize(
        ScoreTable(), pass_threshold=1.0, rollouts_per_example=3, planned=30, reward_range=(0, 1), wall_s=0.0
    )
    results = [
        report("broken", of=None, state="failed", note="no module named \x1b]0;x\x07nltk"),
        report("cut", of=stopped, state="interrupted"),
    ]
    text = "\n".join(printed(results, 80))
    assert re.search(r"broken +– +– +– +failed", text)
    assert re.search(r"cut +– +– +– +0 of 30", text)
    assert "failed: no module named nltk" in text
    assert "30 of 30 not run" in text
    assert "\x1b" not in text


def test_unknown_tokens_are_called_unknown() -> None:
    silent = "\n".join(printed([report(of=summary(usage=Usage(requests=1, unreported=1)))], 80))
    assert re.search(r"gsm8k +unknown +unknown +1:01", silent)
    assert "160 of 160 replies reported no tokens" in silent
    known = "\n".join(printed([report(of=summary(usage=Usage(10, 20, requests=1, cost=0.01)))], 80))
    assert re.search(r"gsm8k +1,600 +3,200 +\$1.60 +1:01 +2.6/s", known)


def test_metrics_have_a_table_unless_they_repeat_the_reward() -> None:
    text = "\n".join(printed([report(of=summary())], 80))
    assert re.search(r"num_turns +3\.000", text)
    lonely = ScoreTable()
    for index in range(9):
        lonely.add(index, 0, index / 9, {"reward": index / 9}, None, usage=Usage())
    only = summarize(lonely, pass_threshold=1, rollouts_per_example=1, planned=9, reward_range=(0, 1), wall_s=1.0)
    assert "metric" not in "\n".join(printed([report(of=only)], 80))


def test_very_many_metrics_are_cut_and_said_to_be() -> None:
    table = ScoreTable()
    for index in range(4):
        table.add(index, 0, 0.5, {f"metric_{i:02}": index / 4 for i in range(40)}, None, usage=Usage())
    many = summarize(table, pass_threshold=1, rollouts_per_example=1, planned=4, reward_range=(0, 1), wall_s=1.0)
    text = "\n".join(printed([report(of=many)], 80))
    assert "40 metrics: see summary.json in each run's folder, or --json" in text
    assert "metric_29" not in text


def test_nothing_to_show_is_no_error() -> None:
    assert printed([], 80) == [""]
    lines = printed([report("broken", of=None, state="failed", note="why")], 80)
    assert [line.split()[0] for line in lines if line.strip()][:1] == ["run"]
    assert sum(line.startswith("run ") for line in lines) == 1


def test_paths_and_commands_are_never_broken_and_said_once() -> None:
    name = "an-environment-with-a-very-long-name-that-does-not-fit-anywhere"
    lines = printed([report(name, of=summary()), report(name, of=summary())], 80)
    path = f"outputs/evals/{name}--my-model/20260101-120000-ab3f"
    assert f"  {name}: {path}" in lines
    assert lines.count(f"  publish: bench push {path}") == 1


def test_the_model_is_named_where_runs_differ_by_it() -> None:
    lines = printed([report(of=summary(), model="a"), report(of=summary(), model="b")], 80)
    assert any(line.startswith("gsm8k · a ") for line in lines)
    assert any(line.startswith("gsm8k · b ") for line in lines)


def test_a_terminal_without_unicode_gets_ascii_rules() -> None:
    lines = printed([report(of=summary(lose=2))], 80, encoding="ascii")
    assert "\n".join(lines).isascii()
    assert re.fullmatch(r"-+", lines[1])


def test_markup_in_names_is_text() -> None:
    lines = printed([report("[red]x[/red]", of=summary()), report(":smile:", of=summary())], 80)
    assert any(line.startswith("[red]x[/red] ") for line in lines)
    assert any(line.startswith(":smile: ") for line in lines)


def test_json_holds_no_secret_whoever_wrote_what_is_in_it() -> None:
    redactor.add("correct-horse-battery")
    raw = result_json([report("no correct-horse-battery", of=None, note="said: correct-horse-battery")])
    assert b"horse" not in raw
    [run] = orjson.loads(raw)["runs"]
    assert (run["name"], run["note"]) == ("no [redacted]", "said: [redacted]")


def test_json_has_the_promised_shape_and_no_nan() -> None:
    empty = summarize(
        ScoreTable(), pass_threshold=1, rollouts_per_example=2, planned=4, reward_range=(0, 1), wall_s=0.0
    )
    results = [
        report(of=summary(lose=3)),
        report("empty", of=empty),
        report("broken", of=None, state="failed", note="half \ud83d\x1b[31m"),
    ]
    raw = result_json(results)
    assert raw.endswith(b"}\n")
    assert b"NaN" not in raw and b"Infinity" not in raw
    runs = orjson.loads(raw)["runs"]
    assert [run["name"] for run in runs] == ["gsm8k", "empty", "broken"]
    assert set(runs[0]) >= {"env_id", "name", "model", "path", "summary"}
    assert runs[0]["summary"]["unscored"] == {"timeout": 2, "judge KeyError": 1}
    assert runs[0]["summary"]["reward"]["mean"] == summary(lose=3).reward.estimate.mean
    assert runs[1]["summary"]["reward"]["mean"] is None
    assert (runs[2]["summary"], runs[2]["path"], runs[2]["note"]) == (None, None, "half \ufffd")


def test_next_steps() -> None:
    path = "out puts/gsm8k--m/20260101-120000-ab3f"
    assert [*map(str, next_steps(path, has_data=True, resume="bench run gsm8k --resume"))] == [
        "go on: bench run gsm8k --resume",
        "load: load_dataset('out puts/gsm8k--m', '20260101-120000-ab3f', split='train')",
        "publish: bench push 'out puts/gsm8k--m/20260101-120000-ab3f'",
    ]
    assert [*map(str, next_steps(path, has_data=True, to_publish=False))] == [
        "load: load_dataset('out puts/gsm8k--m', '20260101-120000-ab3f', split='train')",
    ]
    assert next_steps(path, has_data=False) == ()
    assert next_steps(path, has_data=False, resume="a", compare="b") == (Step(GO_ON, "a"), Step("compare", "b"))
