"""The console report at several widths, and the line of a finished run."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_samples import EXACT, PARTIAL, evaluation, failed, rows, run
from rich.cells import cell_len
from tables import for_each_row

from harness.agents.results import EvalResult, EvalRunResult, ModelOutcomes
from harness.agents.screen import eval_screen, format_duration, run_line, show
from harness.agents.summaries import build_result
from harness.report.text import make_console
from harness.stats.intervals import Estimate


def lines_of(result: EvalResult, width: int = 80, **changes: Any) -> list[str]:
    return [line.plain for line in eval_screen(result, width, **changes)]


def one(*scores: Any, n_runs: int = 1, **changes: Any) -> EvalResult:
    model = ModelOutcomes("my-model", None, rows(*scores))
    return build_result([model], [EXACT], **{"n_runs": n_runs, "pass_threshold": 1.0, "wall_ms": 562.0, **changes})


def two(first: list[tuple[int, EvalRunResult]], second: list[tuple[int, EvalRunResult]], n_runs: int = 1) -> EvalResult:
    models = [ModelOutcomes("mine", "primary", first), ModelOutcomes("theirs", "baseline", second)]
    return build_result(models, [EXACT], n_runs=n_runs, pass_threshold=1.0, wall_ms=562.0)


def tagged(tag: str, *scores: Any) -> list[tuple[int, EvalRunResult]]:
    return [(row, replace(each, model_tag=tag)) for row, each in rows(*scores)]


def test_the_whole_report_of_one_model() -> None:
    assert lines_of(one([1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], n_runs=3)) == [
        "Evaluation Results:",
        "  Rows: 3",
        "  Runs per row: 3",
        "  Total runs: 9",
        "  Duration: 562ms",
        "  Total tokens: 270",
        "",
        "Performance:",
        "Model     Avg Latency  Avg Tokens",
        "─────────────────────────────────",
        "my-model        100ms          30",
        "",
        "Eval Function         Mean    Min    Max    Std  pass@1  pass@3   95 % interval",
        "───────────────────────────────────────────────────────────────────────────────",
        "rewards:exact_match  0.556  0.000  1.000  0.497   55.6%   66.7%  [0.000, 1.000]",
        "A run passes with a score of at least 1.",
        "95 % interval: Student's t with a row added at 0 and at 1.",
    ]


def test_intervals_that_do_not_fit_beside_their_means_stand_below() -> None:
    told = lines_of(one([1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], n_runs=3), 78)
    assert told[12:] == [
        "Eval Function         Mean    Min    Max    Std  pass@1  pass@3",
        "───────────────────────────────────────────────────────────────",
        "rewards:exact_match  0.556  0.000  1.000  0.497   55.6%   66.7%",
        "A run passes with a score of at least 1.",
        "",
        "With intervals:",
        "Eval Function         Mean   95 % interval",
        "──────────────────────────────────────────",
        "rewards:exact_match  0.556  [0.000, 1.000]",
        "95 % interval: Student's t with a row added at 0 and at 1.",
    ]


@for_each_row(
    ("scores", "n_runs", "words"),
    [
        ([[0.2], [0.4]], 1, "Student's t with a row added at 0 and at 1."),
        ([[0.3], [0.7], [0.4], [0.6]] * 8, 1, "Student's t over the rows' means."),
        ([[0.0], [1.0]], 1, "Wilson's over the rows."),
        ([[1.0, 1.0], [1.0, 1.0]], 2, "Wilson's over the rows."),
        ([[0.5]], 1, "– where there is too little data."),
        ([["failed"]], 1, "– where there is too little data."),
    ],
)
def test_the_method_of_an_interval_is_named(scores: Any, n_runs: int, words: str) -> None:
    [said] = [line for line in lines_of(one(*scores, n_runs=n_runs)) if line.startswith("95 % interval: ")]
    assert said == f"95 % interval: {words}"


@for_each_row(
    ("n_runs", "words"),
    [
        (1, "Wilson's over the rows, Student's t with a row added at 0 and at 1."),
        (2, "Wilson's over the rows, Student's t with a row added at 0 and at 1."),
    ],
)
def test_two_methods_in_one_table_are_told_apart(n_runs: int, words: str) -> None:
    runs = [(row, run(n, scores={EXACT: 1.0, PARTIAL: 0.1 * row})) for row in (1, 2) for n in range(n_runs)]
    model = ModelOutcomes("m", None, runs)
    made = build_result([model], [EXACT, PARTIAL], n_runs=n_runs, pass_threshold=1.0, wall_ms=1.0)
    assert " ".join(lines_of(made)[-2:]).endswith(f"95 % interval: {words}")
    same = replace(made.eval_summaries[PARTIAL].scored, estimate=Estimate(0.5, examples=2))
    made.eval_summaries[PARTIAL].scored = same
    assert lines_of(made)[-1] == "95 % interval: Wilson's over the rows; – where there is too little data."


def test_what_left_nothing_is_said() -> None:
    assert "  No run completed" in lines_of(one(["failed"], ["failed"]))
    assert "  No run has a score from rewards:exact_match" in lines_of(one([None], ["failed"]))
    told = lines_of(two(tagged("primary", [1.0]), tagged("baseline", ["failed"])))
    assert "  No run of [baseline] theirs completed" in told
    assert not any("No run" in line for line in lines_of(one([None], [0.0], ["failed"])))


def test_runs_that_were_there_are_not_in_the_duration() -> None:
    model = ModelOutcomes("m", None, rows([1.0], [1.0], [1.0]), 16.0, resumed=2)
    made = build_result([model], [EXACT], n_runs=1, pass_threshold=1.0, wall_ms=16.0)
    assert "  Duration: 16ms (1 new run, 2 from earlier)" in lines_of(made)


def test_a_huge_score_pushes_no_other_off_the_screen() -> None:
    told = lines_of(one([1e99], [1234.5]))
    assert max(map(cell_len, told)) <= 80
    assert any(line.startswith("rewards:exact_match  5e+98  1234.500  1e+99  5e+98") for line in told)
    assert run_line(1, 1, run(score=1e99)).endswith("[rewards:exact_match=1e+99]")


def test_unlike_errors_of_failed_runs_stand_apart() -> None:
    errors = ["slow", "gone", "slow", *(f"odd {number}" for number in range(6))]
    made = one(*(["failed"] for _ in errors))
    made = replace(made, rows=[
        replace(row, runs=[replace(row.runs[0], error=error)]) for row, error in zip(made.rows, errors, strict=True)
    ])  # fmt: skip
    told = lines_of(made)
    first = told.index("Failed runs:") + 1
    assert told[first : first + 2] == [
        "  agent_error: 2 of 9; e.g. row 0 run 0: slow", "  agent_error: 1 of 9; e.g. row 1 run 0: gone",
    ]  # fmt: skip
    assert told[first + 5] == "  agent_error: 3 of 9 with other messages"


def test_what_failed_and_what_had_no_score_is_said_with_counts_and_an_example() -> None:
    told = lines_of(one([1.0, "failed"], [None, None], n_runs=2))
    assert "  Failed runs: 1 of 4; each counts 0.0 in the table" in told
    assert told[told.index("Scored runs alone:") + 3] == ("rewards:exact_match  1.000              –       1 of 4")
    assert told[told.index("Failed runs:") + 1] == "  agent_error: 1 of 4; e.g. row 0 run 1: the agent gave up"
    assert told[told.index("Runs without a score (they count 0.0 in the table):") + 1] == (
        "  rewards:exact_match: 2 of 3 completed runs; e.g. row 1 run 0: KeyError: 'x'"
    )


def test_the_differences_of_two_models() -> None:
    told = lines_of(two(rows([1.0], [1.0], [0.5]), rows([0.0], [0.5], [0.5])))
    assert "  Total runs: 6 (3 + 3)" in told
    start = told.index("Primary minus baseline, row by row:")
    assert told[start + 1 :] == [
        "Eval Function          Diff     95 % interval      p  Win  Loss  Tie",
        "────────────────────────────────────────────────────────────────────",
        "rewards:exact_match  +0.500  [-0.973, +1.000]  0.417    2     0    1",
        "Interval and p: Student's t with one won and one lost row added.",
    ]
    start = told.index("Performance:")
    assert [line.split("  ")[0] for line in told[start + 3 : start + 5]] == ["[primary] mine", "[baseline] theirs"]
    table = [line for line in told if line.startswith("rewards:exact_match  primary")]
    assert table == [
        "rewards:exact_match  primary   0.833  0.500  1.000  0.236  [0.000, 1.000]",
    ]


def test_both_comparisons_stand_together_where_they_differ() -> None:
    told = lines_of(two(rows([1.0], ["failed"], [0.5]), rows([0.0], [0.5], [0.5])))
    start = told.index("Primary minus baseline, row by row:")
    assert [line.split("[")[0].strip() for line in told[start + 3 : start + 5]] == [
        "rewards:exact_match  +0.167",
        "scored runs        +0.500",
    ]
    assert told[start + 6 : start + 9] == [
        "  rewards:exact_match: 1 run without a score counted as 0.0; in scored runs",
        "    alone, left out: 1 row with a score of only one model",
        "",
    ]


def test_rows_of_one_model_alone_are_said_to_be_left_out() -> None:
    told = lines_of(two(rows([1.0], [1.0]), rows([0.0])))
    assert told[-1] == "  rewards:exact_match: left out: 1 row that only one model has run"


def test_a_difference_of_zero_has_no_sign_and_a_small_p_is_no_zero() -> None:
    same = lines_of(two(rows([1.0], [0.0]), rows([1.0], [0.0])))
    assert same[-2] == "rewards:exact_match  0.000  [-1.000, +1.000]  1.000    0     0    2"
    assert same[-1] == "Interval and p: Student's t with one won and one lost row added."
    far = lines_of(two(rows(*[[1.0]] * 30), rows(*[[0.0]] * 30)))
    assert far[-2].split() == ["rewards:exact_match", "+1.000", "[+0.812,", "+1.000]", "<0.001", "30", "0", "0"]


@for_each_row("width", [72, 80, 120])
@for_each_row("n_runs", [1, 3, 10])
@for_each_row("baseline", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, n_runs: int, baseline: bool) -> None:
    whole = lines_of(evaluation(12, n_runs, baseline=baseline), width)
    early = lines_of(
        evaluation(12, n_runs, baseline=baseline, stop_reason="no such model " * 9, interrupted=True), width
    )
    assert max(cell_len(line) for line in [*whole, *early]) <= width


def test_pass_at_k_gets_a_table_of_its_own_where_space_is_short() -> None:
    wide, narrow = lines_of(evaluation(5, 10), 120), lines_of(evaluation(5, 10), 80)
    assert sum(line.startswith("Eval Function") and "pass@10" in line for line in wide) == 1
    [head] = [line for line in wide if "pass@10" in line]
    assert head.split() == [
        "Eval",
        "Function",
        "Model",
        "Mean",
        "Min",
        "Max",
        "Std",
        "pass@1",
        "pass@3",
        "pass@5",
        "pass@10",
    ]
    [head] = [line for line in narrow if "pass@10" in line]
    assert head.split() == ["Eval", "Function", "Model", "pass@1", "pass@3", "pass@5", "pass@10"]


def test_a_long_name_loses_its_middle_and_no_number() -> None:
    name = "my_package.rewards.numeric:exact_match_of_the_last_number"
    runs = [(0, run(0, scores={name: 1.0})), (1, run(0, scores={name: 0.0}))]
    result = build_result([ModelOutcomes("m" * 90, None, runs)], [name], n_runs=1, pass_threshold=1.0, wall_ms=1.0)
    told = lines_of(result, 60)
    [row] = [line for line in told if "0.500  0.000" in line]
    assert row.startswith("exact_match_of_the_last_number ") and row.endswith("0.500  0.000  1.000  0.500")
    [row] = [line for line in lines_of(result, 50) if "0.500  0.000" in line]
    assert row.startswith("exact_matc…last_number  ") and row.endswith("0.500  0.000  1.000  0.500")
    assert max(map(cell_len, told)) <= 60


def test_functions_lose_their_modules_only_together_and_only_where_they_can_be_told_apart() -> None:
    def firsts(names: list[str], width: int) -> list[str]:
        runs = [(row, run(0, scores=dict.fromkeys(names, row / 2))) for row in (0, 1)]
        model = ModelOutcomes("m", None, runs)
        told = lines_of(build_result([model], names, n_runs=1, pass_threshold=1.0, wall_ms=1.0), width)
        start = next(i for i, line in enumerate(told) if line.startswith("Eval Function"))
        return [line.split()[0] for line in told[start + 2 : start + 2 + len(names)]]

    one_module = ["my_rewards.numbers:exact", "my_rewards.numbers:close"]
    assert firsts(one_module, 80) == one_module
    assert firsts(one_module, 50) == ["exact", "close"]
    assert firsts(["my_rewards.numbers:exact", "other_rewards:exact"], 50) == [
        "my_rewards…mbers:exact",
        "other_rewards:exact",
    ]


def test_wide_characters_keep_the_columns_aligned() -> None:
    names = ["報酬:正確", "rewards:exact_match"]
    runs = [(0, run(0, scores=dict.fromkeys(names, 1.0)))]
    told = lines_of(build_result([ModelOutcomes("m", None, runs)], names, n_runs=1, pass_threshold=1.0, wall_ms=1.0))
    start = next(i for i, line in enumerate(told) if line.startswith("Eval Function"))
    assert len({cell_len(line) for line in told[start : start + 4]}) == 1


def test_an_early_end_is_said() -> None:
    assert "  Stopped early. Reason: no such model" in lines_of(one([1.0], stop_reason="no such\x1b[2J model"))
    assert "  Interrupted: the numbers include only the runs until then" in lines_of(one([1.0], interrupted=True))


def test_without_runs_there_is_no_table() -> None:
    assert lines_of(one()) == [
        "Evaluation Results:",
        "  Rows: 0",
        "  Runs per row: 1",
        "  Total runs: 0",
        "  Duration: 562ms",
        "  Total tokens: 0",
    ]


def test_tokens_that_were_not_reported_are_not_zero() -> None:
    unknown = ModelOutcomes("m", None, [(0, run(tokens=0, unreported=2))])
    told = lines_of(build_result([unknown], [EXACT], n_runs=1, pass_threshold=1.0, wall_ms=1.0))
    assert "  Total tokens: unknown" in told
    partly = ModelOutcomes("m", None, [(0, run(tokens=30, unreported=1))])
    told = lines_of(build_result([partly], [EXACT], n_runs=1, pass_threshold=1.0, wall_ms=1.0))
    assert "  Total tokens: >= 30" in told


def test_foreign_text_is_harmless() -> None:
    evil = "x\x1b]0;title\x07\x1b[2J\u202e[red]y\r\nz"
    runs = [(0, failed(error=evil, reason=evil)), (1, run(scores={}, score_errors={evil: evil}))]
    result = build_result(
        [ModelOutcomes(evil, None, runs)], [evil], n_runs=1, pass_threshold=1.0, wall_ms=1.0, stop_reason=evil
    )
    whole = "\n".join(lines_of(result))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", whole)
    assert whole.count("x[red]y z") >= 7


def test_a_terminal_without_unicode_gets_ascii() -> None:
    told = lines_of(evaluation(4, 2), ascii_only=True)
    assert "".join(told).isascii()
    assert len(told) == len(lines_of(evaluation(4, 2)))


def test_off_a_terminal_the_report_is_plain_text() -> None:
    file = io.StringIO()
    show(evaluation(4, 2), make_console(file=file, width=80))
    printed = file.getvalue()
    assert "\x1b" not in printed
    assert [line.rstrip() for line in printed.splitlines()] == lines_of(evaluation(4, 2))


def test_on_a_terminal_heads_are_bold() -> None:
    heads = [line.plain for line in eval_screen(evaluation(4, 2)) if "bold" in str(line.style)]
    assert heads[:2] == ["Evaluation Results:", "Performance:"]


@for_each_row(
    ("ms", "words"),
    [
        (0.0, "0ms"), (-1.0, "0ms"), (0.6, "1ms"), (562.4, "562ms"), (999.4, "999ms"), (999.6, "1.0s"),
        (1234.0, "1.2s"), (59_940.0, "59.9s"), (59_960.0, "1m0.0s"), (192_400.0, "3m12.4s"), (119_999.0, "2m0.0s"),
        (3_723_400.0, "62m3.4s"),
    ],
)  # fmt: skip
def test_durations(ms: float, words: str) -> None:
    assert format_duration(ms) == words


def test_the_line_of_a_run() -> None:
    done = run(scores={EXACT: 1.0, PARTIAL: 2 / 3}, duration_ms=120.0, model_tag="primary")
    assert run_line(1, 18, done) == (
        "[1/18] [primary] OK (120ms, 30 tokens) [rewards:exact_match=1.000, rewards:partial_match=0.667]"
    )
    assert run_line(2, 9, run(scores={})) == "[2/9] OK (100ms, 30 tokens)"
    unscored = run(scores={EXACT: 1.0}, score_errors={PARTIAL: "KeyError"})
    assert run_line(2, 9, unscored).endswith("[rewards:exact_match=1.000, rewards:partial_match=no score]")


def test_the_line_of_a_failed_run_has_the_beginning_of_its_error() -> None:
    short = failed(error="x" * 50, duration_ms=56.0, model_tag="baseline")
    assert run_line(5, 18, short) == f"[5/18] [baseline] FAILED (56ms, 15 tokens) - {'x' * 50}"
    long = failed(error="ab\x1b[2J\n" + "x" * 50)
    assert run_line(5, 18, long) == f"[5/18] FAILED (50ms, 15 tokens) - ab {'x' * 44}..."
    assert run_line(5, 18, failed(error=None)).endswith("- agent_error")


def test_the_reference_shows_the_report_as_it_is() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "agent-evals.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```report\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown.splitlines() == lines_of(one([1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], n_runs=3))
