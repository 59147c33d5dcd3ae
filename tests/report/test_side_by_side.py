"""Several models side by side, as a terminal shows them: every line at several widths."""

from __future__ import annotations

import math
import re
import statistics

from hypothesis import given
from hypothesis import strategies as st
from late import Late
from rich.cells import cell_len
from tables import for_each_row

from harness.core.types import Usage
from harness.report.layout import plain
from harness.report.side_by_side import Ending, side_by_side
from harness.stats.standings import TaskOutcome, standings

stats = Late("scipy.stats")

FAST = (0.3, 0.5, 0.3, 0.7, 0.3, 0.5, 0.3, 0.3)
DEEP = (0.9, 0.9, 0.7, 0.9, 0.9, 0.5, 0.9, 0.9)

NONE_SHARED = "no task has a score of both"
BOTH = "that both have a score for"
PART = " on the tasks that have a score"

Model = tuple[str, list[TaskOutcome], int]


def model(name: str, scores: tuple[float | None, ...], *, planned: int = 0, cost: float | None = None) -> Model:
    """Its tasks; None failed, and every second task has a schema, which a score of 0.7 or more satisfies."""
    attempts: list[TaskOutcome] = []
    for number, score in enumerate(scores):
        task = f"task-{number}"
        if score is None:
            attempts.append(TaskOutcome(task, None, reason="timeout", error="MultiModelEvaluator timeout after 50ms"))
            continue
        usage = Usage(120, 300, requests=1, cost=cost)
        checked = score >= 0.7 if number % 2 else None
        attempts.append(
            TaskOutcome(task, score, score >= 0.5, schema_valid=checked, seconds=0.1 * (number + 1), usage=usage)
        )
    return name, attempts, planned or len(scores)


def shown(*models: Model, width: int = 80, ascii_only: bool = False, endings: tuple[Ending, ...] = ()) -> list[str]:
    lines = side_by_side(standings(models), width, endings=endings)
    if ascii_only:
        lines = map(plain, lines)
    return [line.plain for line in lines]


def test_everything_a_newcomer_asks_for_at_eighty_columns() -> None:
    fast, deep = model("fast", FAST, cost=0.0001), model("deep", DEEP, cost=0.002)
    assert (
        shown(fast, deep)
        == """\
model  score   95 % interval  success  schema     p50     p95
─────────────────────────────────────────────────────────────
fast   0.400  [0.274, 0.526]     38 %  1 of 4  400 ms  800 ms
deep   0.825  [0.701, 0.949]    100 %  3 of 4  400 ms  800 ms

model  tokens in  tokens out     cost
─────────────────────────────────────
fast         960       2,400  $0.0008
deep         960       2,400   $0.016
score: mean over the tasks. success: tasks whose answer is valid.
schema: answers valid against the schema of their task.
p50, p95: half, and 95 %, of the tasks took no longer.
95 % interval: Student's t.

Difference from fast, task by task; + is better:
model  difference     95 % interval      p  wins  losses  ties
──────────────────────────────────────────────────────────────
deep       +0.425  [+0.080, +0.600]  0.017     7       0     1

deep is better than fast: more than noise.
More than noise is p < 0.05, in Student's t test of the tasks' differences.

Where they differ most:
model  task-0  task-4  task-6  task-7  task-1
─────────────────────────────────────────────
fast    0.300   0.300   0.300   0.300   0.500
deep    0.900   0.900   0.900   0.900   0.900""".splitlines()
    )


def test_a_wide_terminal_has_the_models_in_one_table() -> None:
    lines = shown(model("fast", FAST, cost=0.0001), model("deep", DEEP), width=120)
    head = "model  score   95 % interval  success  schema     p50     p95  tokens in  tokens out     cost"
    assert lines[0] == head
    assert lines[2].split()[-3:] == ["960", "2,400", "$0.0008"]
    assert lines[3].split()[-1] == "unknown", "an unknown cost is not 0"


MIXED = (
    model("openai/gpt-4.1-mini", FAST),
    model("anthropic/claude-3-7-sonnet", (None, None, *DEEP[2:])),
    model("qwen/qwen3-235b-a22b-instruct-2507", FAST[:3], planned=8),
)
ENDS = (Ending(), Ending(), Ending("stopped", "stopped at its first error: the endpoint is gone"))


@for_each_row("width", [60, 80, 100, 120])
@for_each_row("ascii_only", [False, True])
def test_no_line_is_longer_than_the_terminal_and_no_figure_is_cut(width: int, ascii_only: bool) -> None:
    for models, ends in ((MIXED, ENDS), (MIXED[:2], ENDS[:2]), ((model("a", FAST), model("b", DEEP)), ())):
        lines = shown(*models, width=width, ascii_only=ascii_only, endings=ends)
        assert max(map(cell_len, lines)) <= width
        assert all(line == line.rstrip() for line in lines)
        assert not ascii_only or "".join(lines).isascii()
        figures = re.findall(r"\[[^\]]*", "\n".join(lines))
        assert figures and not any("…" in figure or "~" in figure for figure in figures)


def test_what_has_no_score_is_told_apart_from_what_scored_low() -> None:
    text = "\n".join(shown(*MIXED, width=100, endings=ENDS))
    assert "score: mean over the tasks run; one without a score counts 0." in text
    rows = [line.split() for line in text.splitlines()]
    assert ["anthropic/claude-3-7-sonnet", "0.600", "75", "%", "2", "of", "3", "8", "of", "8"] in [r[:10] for r in rows]
    assert ["anthropic/claude-3-7-sonnet", "0.800", "[0.624,", "0.976]", "6", "of", "8"] in rows
    assert ["qwen/qwen3-235b-a22b-instruct-2507", "0.367", "[0.080,", "0.654]", "3", "of", "8"] in rows
    assert ["unscored", "as", "0"] in [row[:3] for row in rows]
    assert text.endswith("""
Tasks without a score:
  anthropic/claude-3-7-sonnet: timeout 2 of 8; e.g. task-0: MultiModelEvaluator timeout after 50ms

Not run:
  qwen/qwen3-235b-a22b-instruct-2507: 5 of 8 tasks: stopped at its first error: the endpoint is gone""")


def test_a_verdict_on_part_of_the_tasks_says_so() -> None:
    first, second = model("a", FAST), model("b", (*[0.9] * 7, None))
    assert "b is better than a on the tasks that have a score: more than noise." in shown(first, second)


def test_three_models_are_held_against_the_first_and_the_best() -> None:
    lines = shown(model("fast", FAST), model("deep", (0.9,) * 8), model("mid", tuple(s + 0.05 for s in FAST)))
    heads = [line for line in lines if line.startswith("Difference")]
    assert heads == ["Difference from fast, task by task; + is better:", "Difference from deep, the best; + is better:"]
    verdict = lines.index("deep is better than fast and mid: more than noise.")
    bound = "More than noise is p < 0.017, which is 0.05 / 3 pairs of models, in Student's t"
    assert lines[verdict + 1 : verdict + 3] == [bound, "test of the tasks' differences."]


def test_the_first_is_not_held_against_itself_as_the_best() -> None:
    lines = shown(model("deep", DEEP), model("fast", FAST), model("mid", FAST))
    assert len([line for line in lines if line.startswith("Difference")]) == 1


@for_each_row(
    ("first", "second", "words"),
    [
        ((0.5, 0.5), (0.5, 0.5), "No difference: a and b have the same score on every task."),
        ((0.9,), (0.1,), "a has the highest score. Against b that may be noise: one task cannot tell."),
        ((0.9,) * 3, (0.1,) * 3, "a has the highest score. Against b that may be noise: 3 tasks cannot tell."),
        ((0.1, 0.9) * 5, (0.9, 0.2) * 5, "b has the highest score. Against a that may be noise."),
        ((0.1, 0.9), (0.9, 0.1), "a and b have the highest score."),
        ((0.1,) * 6, (0.9,) * 6, "b is better than a: more than noise."),
        ((0.1, None), (None, 0.9), f"b has the highest score{PART}. Against a that may be noise: {NONE_SHARED}."),
        ((0.5, 0.5), (0.5, None), f"No difference: a and b have the same score on every task {BOTH}."),
        ((0.5, 0.5), (None, None), "b has no score on any task."),
        ((None, None), (None, None), "No model has a score on any task."),
    ],
)  # fmt: skip
def test_the_verdict_never_says_more_than_the_tasks_do(
    first: tuple[float | None, ...], second: tuple[float | None, ...], words: str
) -> None:
    assert words in shown(model("a", first), model("b", second), width=120)


def test_a_verdict_on_answered_tasks_says_what_failures_would_make_of_it() -> None:
    failing = model("failing", (*[0.9] * 6, *[None] * 6))
    lines = shown(failing, model("steady", (0.7,) * 12))
    at = lines.index("failing is better than steady on the tasks that have a score: more than noise.")
    assert lines[at + 1] == "With tasks without a score as 0, steady scores higher than failing."
    fewer = shown(model("failing", (*[0.9] * 9, *[None] * 3)), model("steady", (0.6,) * 12))
    assert "With tasks without a score as 0, the difference from steady may be noise." in fewer
    close = shown(
        model("failing", (0.9, 0.9, 0.5, *[None] * 3)), model("steady", (0.8, 0.9, 0.55, *[0.9] * 3)), width=100
    )
    at = close.index(
        "failing has the highest score on the tasks that have a score. Against steady that may be noise: 3"
    )
    assert close[at + 1 : at + 3] == [
        "tasks cannot tell.",
        "With tasks without a score as 0, steady scores higher than failing.",
    ]


def test_a_verdict_on_tasks_that_were_run_says_so() -> None:
    lines = shown(model("cut", (0.9,) * 7, planned=10), model("all", (0.1,) * 10))
    assert "cut is better than all on the tasks that have a score: more than noise." in lines
    assert not any("as 0" in line for line in lines), "what was not run is no failure"


def test_a_model_that_beats_the_best_is_told_where_models_go_round_in_a_circle() -> None:
    good, bad, none = (0.9,) * 8, (0.1,) * 8, (None,) * 8
    lines = shown(
        model("a", (*good, *none, *bad)), model("b", (*bad, *good, *none)), model("c", (*none, *bad, *good)), width=120
    )
    at = lines.index("a is better than b on the tasks that have a score: more than noise.")
    assert lines[at + 1] == "c did better than a on the tasks of both: more than noise."


KINDS = st.sampled_from([(0.1, 0.2, 0.3), (0.7, 0.8, 0.9), (0.8, 0.9, None), (0.1, 0.5, 0.9)])
ROWS = KINDS.flatmap(lambda cells: st.lists(st.sampled_from(cells), min_size=8, max_size=12))


@given(st.lists(ROWS, min_size=2, max_size=4))
def test_whoever_is_called_better_is_ahead_and_below_the_bound(rows: list[list[float | None]]) -> None:
    models = [model(name, tuple(row), planned=12) for name, row in zip("abcd", rows, strict=False)]
    scores = {name: {each.task: each.score for each in made if each.score is not None} for name, made, _ in models}
    scored = sum(bool(each) for each in scores.values())
    bound = 0.05 / max(1, math.comb(scored, 2))
    lines = shown(*models, width=400)
    claims = re.findall(
        r"^(\w) is better than ([\w, ]+?)( on the tasks that have a score)?: more", "\n".join(lines), re.M
    )
    for better, others, where in claims:
        for other in re.findall(r"\b[abcd]\b", others):
            tasks = scores[better].keys() & scores[other].keys()
            first, second = ([scores[name][task] for task in sorted(tasks)] for name in (better, other))
            assert sum(first) > sum(second)
            assert by_hand(first, second) < bound
            assert where or len(tasks) == 12


def by_hand(first: list[float], second: list[float]) -> float:
    """The two-sided p-value of Student's t with one task more won and one more lost."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    typical = sum(gap * gap for gap in gaps) / sum(map(abs, gaps))
    every = [*gaps, typical, -typical]
    t = statistics.fmean(every) / (statistics.pstdev(every) / math.sqrt(len(every)))
    return 2 * float(stats.t.sf(abs(t), len(gaps) - 1))


def test_of_many_models_all_are_told_and_none_at_length() -> None:
    models = [model(f"vendor/model-{n:02}", tuple(min(1.0, 0.04 * n + 0.01 * k) for k in range(8))) for n in range(20)]
    lines = shown(*models)
    assert max(map(cell_len, lines)) <= 80
    verdict = "vendor/model-19 has the highest score. Against all 19 others that may be noise: 8 tasks cannot tell."
    assert verdict in " ".join(lines)
    assert "More than noise is p < 0.00026, which is 0.05 / 190 pairs of models" in " ".join(lines)
    apart = lines.index("Where they differ most:")
    assert len(lines) == apart + 3 + 20, "a line a model"
    against = "\n".join(lines[lines.index("Difference from vendor/model-00, task by task; + is better:") :])
    assert len(re.findall(r"\b0\.00\d+\b|<0.001", against)) >= 19, "as many digits as the bound has, and one more"


def test_beaten_close_and_level_models_stand_in_one_verdict() -> None:
    best = (0.9,) * 8
    close = (*[0.9] * 7, 0.8)
    lines = shown(model("best", best), model("weak", (0.1,) * 8), model("close", close), model("same", best))
    at = lines.index("best is better than weak: more than noise.")
    assert lines[at + 1 : at + 3] == ["Against close that may be noise.", "same has the same score on every task."]


def test_models_of_equal_means_are_not_told_to_lead_one_another() -> None:
    tied, other, weak = model("tied", (0.6, 0.8) * 5), model("other", (0.8, 0.6) * 5), model("weak", (0.1, 0.2) * 5)
    lines = shown(tied, other, weak)
    at = lines.index("tied is better than weak: more than noise.")
    assert lines[at + 1] == "other has the same mean as tied."
    near = shown(tied, other, model("near", (0.6, 0.7) * 5))
    assert "tied and other have the highest score. Against near that may be noise." in near
    same = shown(tied, model("same", (0.6, 0.8) * 5), model("near", (0.6, 0.7) * 5))
    at = same.index("tied and same have the highest score. Against near that may be noise.")
    assert same[at + 1] == "same has the same score on every task."


def test_one_model_is_not_compared() -> None:
    text = "\n".join(shown(model("only", FAST)))
    assert "0.400" in text and "Difference" not in text and "noise" not in text and "Where they differ" not in text


def test_a_model_that_came_to_nothing() -> None:
    dead = ("dead", list[TaskOutcome](), 3)
    lines = shown(dead, ("gone", [], 3), endings=(Ending("failed", "no such model"), Ending("interrupted")))
    assert lines[2].split() == ["dead", "–", "–", "0", "of", "3", "–", "–", "–", "–"]
    assert lines[-2:] == ["  dead: 3 of 3 tasks: no such model", "  gone: 3 of 3 tasks: interrupted"]
    assert "95 % interval: – where there is too little to tell." in lines


def test_a_cost_of_some_replies_is_a_lower_bound() -> None:
    name, attempts, planned = model("m", FAST, cost=1.5)
    attempts[0] = TaskOutcome("task-0", 0.5, True, seconds=1.0, usage=Usage(1, 1, requests=1))
    assert shown((name, attempts, planned), width=120)[2].split()[-2:] == ["≥", "$10.50"]
    assert shown((name, attempts, planned), width=120, ascii_only=True)[2].split()[-2:] == [">", "$10.50"]


def test_without_a_price_the_cost_is_said_to_be_unknown() -> None:
    lines = shown(model("m", FAST), model("n", DEEP))
    assert "cost: unknown; give a model its `price` to see it." in lines
    assert not any("cost" in line for line in lines if line.startswith("model"))


def test_names_and_errors_of_others_cannot_steer_the_terminal() -> None:
    attempts = [TaskOutcome("t\x1b[2J", None, reason="x\x1b[31m", error="gone\x1b]0;title\x07 \x9b2J" + "y" * 500)]
    text = "\n".join(shown(("evil\x1b[31m\nname", attempts, 2), endings=(Ending("stopped", "\x1b[2Jnote"),)))
    assert "\x1b" not in text and "\x9b" not in text and "\x07" not in text
    assert "  evil name: x 1 of 1; e.g. t: gone " in text
    assert "  evil name: 1 of 2 tasks: note" in text
    assert "y" * 200 not in text.replace("\n    ", "")


def test_a_model_that_was_stopped_early_is_not_ranked() -> None:
    lucky = model("lucky", (0.99,), planned=8)
    lines = shown(lucky, model("weak", (0.1,) * 8), model("fine", (0.5,) * 8))
    at = lines.index("fine is better than weak: more than noise.")
    assert lines[at + 1] == "lucky has a score on too few tasks to be ranked."
    alone = shown(lucky, model("weak", (0.1,) * 8))
    assert "lucky has a score on too few tasks to be ranked." in alone
    assert not any("noise" in line for line in alone)


def test_a_model_without_any_task_has_no_row_among_the_differences() -> None:
    lines = shown(model("a", FAST), ("gone", [], 8))
    assert not any(line.startswith("Difference") for line in lines)


def test_many_reasons_are_cut_short() -> None:
    attempts = [TaskOutcome(f"t{n}", None, reason=f"reason {n}") for n in range(6)]
    lines = shown(("m", attempts, 6))
    assert lines[-1] == "  m: 2 for 2 more reasons"
    assert lines[-5:-1] == [f"  m: reason {n} 1 of 6; e.g. t{n}" for n in range(4)]


def test_wide_characters_are_counted_by_cells() -> None:
    lines = shown(model("模型一", FAST), model("b", DEEP), width=60)
    table = lines[:4]
    assert len({cell_len(line) for line in table}) == 1
