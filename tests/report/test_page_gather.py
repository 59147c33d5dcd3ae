"""What is on the page: runs and what they are called, differences, relations, and which examples are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain, pairwise
from pathlib import Path

import pytest
from report_suites import Shape, suite
from run_samples import SETTINGS, finished, paid, run_at
from store_samples import example, failed, generated, scored

from harness.core.errors import StoreError, UsageError
from harness.core.records import Record, Timing
from harness.core.types import Usage
from harness.report import numerals
from harness.report.page import content as content_module
from harness.report.page.columns import RolloutColumns, asked, relations_of
from harness.report.page.content import content_of, samples_of
from harness.report.page.gather import Page, methods_of, page_of, passing
from harness.report.page.markdown import markdown
from harness.report.page.sections import (
    WATCHED,
    cautions,
    differences,
    environment_section,
    leaderboards,
)
from harness.stats.averages import macro_mean
from harness.stats.hypotheses import holm, welch
from harness.stats.intervals import mean_interval
from harness.stats.paired import paired_by_key, paired_difference
from harness.store.journal_index import Recorded
from harness.store.outcomes import in_order, outcomes, read_journal
from harness.store.rundir import RunDir


def judged(rewards: Iterable[Iterable[float | None]], **changes: object) -> list[Record]:
    """Examples with the rewards of their rollouts; None is one that timed out."""
    records: list[Record] = []
    for index, group in enumerate(rewards):
        records.append(example(index, example_id=f"q{index}"))
        for rollout, reward in enumerate(group):
            if reward is None:
                records.append(failed(index, rollout))
            else:
                records += [generated(index, rollout, **changes), scored(index, rollout, reward)]
    return records


def columns_of(recorded: Recorded) -> RolloutColumns:
    columns, numbers = RolloutColumns(), in_order(recorded)
    for number, outcome in zip(numbers, outcomes(recorded, numbers), strict=True):
        columns.take(number, outcome)
    columns.end_example()
    return columns


def page(*runs: RunDir) -> Page:
    return page_of([run.path for run in runs])


def test_runs_stand_by_environment_the_best_first(tmp_path: Path) -> None:
    weak = finished(tmp_path, judged([[0.0], [0.0], [1.0]]), model="lab/weak", letters="aaaa")
    other = finished(tmp_path, judged([[1.0]]), env_id="other", model="lab/weak", letters="bbbb")
    strong = finished(tmp_path, judged([[1.0], [1.0], [1.0]]), model="lab/strong", letters="cccc")

    shown = page(weak, other, strong)

    assert [(each.name, [run.label for run in each.runs]) for each in shown.environments] == [
        ("sums", ["lab/strong", "lab/weak"]),
        ("other", ["lab/weak"]),
    ]
    assert [run.colour for run in shown.runs] == [1, 0, 0]
    assert shown.title == "2 environments · 2 models"


def test_twins_are_told_apart_by_name_and_then_by_id(tmp_path: Path) -> None:
    plain = finished(tmp_path, letters="aaaa")
    same = finished(tmp_path, letters="bbbb")
    hot = finished(tmp_path, letters="cccc", name="hot")

    labels = {run.entry.id: run.label for run in page(plain, same, hot).runs}

    assert labels == {
        plain.id: f"lab/m-1 · {plain.id}",
        same.id: f"lab/m-1 · {same.id}",
        hot.id: "lab/m-1 · hot",
    }


def test_differences_are_those_of_the_statistics(tmp_path: Path) -> None:
    rewards = {
        "lab/a": [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, None]],
        "lab/b": [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [None, None]],
        "lab/c": [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
    }
    runs = [finished(tmp_path, judged(each), model=model) for model, each in rewards.items()]
    scored_only = {model: [[r for r in group if r is not None] for group in each] for model, each in rewards.items()}
    means = {
        model: {n: sum(group) / len(group) for n, group in enumerate(each) if group}
        for model, each in scored_only.items()
    }

    [environment] = page(*runs).environments

    names = [run.label for run in environment.runs]
    assert names == ["lab/a", "lab/b", "lab/c"]
    pairs = [("lab/a", "lab/b"), ("lab/a", "lab/c"), ("lab/b", "lab/c")]
    expected = [paired_by_key(means[first], means[second], limits=(0.0, 1.0)) for first, second in pairs]
    assert [(names[d.first], names[d.second]) for d in environment.differences] == pairs
    assert [d.paired for d in environment.differences] == expected
    assert [d.adjusted for d in environment.differences] == holm([each.p_value for each in expected])
    assert [d.is_found for d in environment.differences] == [True, True, False]
    assert environment.differences[0].paired.only_first == 1
    assert environment.differences[0].settling is None


def test_p_values_are_adjusted_for_all_pairs_of_the_page(tmp_path: Path) -> None:
    """As `bench compare` adjusts them: who reads the page looks at every environment of it."""
    better = {"sums": 8, "browse": 6, "essays": 7}
    runs = [
        finished(tmp_path, judged([[float(n < right)] for n in range(8)]), env_id=env, model=model)
        for env, wins in better.items()
        for model, right in (("lab/a", wins), ("lab/b", 0))
    ]

    environments = page(*runs).environments

    found = [difference for environment in environments for difference in environment.differences]
    won = [paired_difference([1.0] * wins + [0.0] * (8 - wins), [0.0] * 8) for wins in better.values()]
    assert [each.paired.p_value for each in found] == [each.p_value for each in won]
    assert [each.adjusted for each in found] == holm([each.p_value for each in won])


def test_runs_of_a_sweep_are_called_by_what_was_swept(tmp_path: Path) -> None:
    made = [("0.0", "lab/a"), ("0.7", "lab/a"), ("0.0", "lab/b")]
    runs = [
        finished(
            tmp_path, judged([[1.0]]), env_id="sums", model=model, name=f"sums[temperature={heat}, {model}]",
            letters=f"aaa{number}",
        )
        for number, (heat, model) in enumerate(made)
    ]  # fmt: skip

    [environment] = page(*runs).environments

    assert [run.label for run in environment.runs] == [
        "lab/a · temperature=0.0", "lab/a · temperature=0.7", "lab/b",
    ]  # fmt: skip


def test_what_a_run_that_ended_early_means_for_differences_is_said(tmp_path: Path) -> None:
    settings = {**SETTINGS, "env.until_ci": 0.4}
    stopped = finished(
        tmp_path, judged([[1.0]] * 30), model="lab/a", settings=settings,
        planned={"num_examples": 200, "rollouts_per_example": 1},
    )  # fmt: skip
    whole = finished(tmp_path, judged([[0.0]] * 30), model="lab/b")

    watched, alone, ordinary = page(stopped, whole), page(stopped), page(whole)

    assert watched.runs[0].estimate.method == "betting"
    assert [WATCHED in cautions(each) for each in (watched, alone, ordinary)] == [True, False, False]
    assert WATCHED in str(differences(watched))
    assert WATCHED in markdown(watched)


def test_groups_of_a_run_that_ended_early_have_no_interval(tmp_path: Path) -> None:
    """The ordinary one is of runs whose size was set beforehand."""
    records = list(chain.from_iterable(
        [example(n), generated(n, usage=Usage(1, n + 1, requests=1)), scored(n, 0, float(n % 3 > 0))] for n in range(60)
    ))  # fmt: skip
    planned = {"num_examples": 100, "rollouts_per_example": 1}
    plain = finished(tmp_path, records, planned=planned, letters="aaaa")
    early = finished(
        tmp_path,
        records,
        planned=planned,
        letters="bbbb",
        model="lab/early",
        settings={**SETTINGS, "env.until_ci": 0.3},
    )

    groups = {run.model: run.relations["tokens"] for run in page(plain, early).runs}

    assert [group.reward.mean for group in groups["lab/early"]] == [group.reward.mean for group in groups["lab/m-1"]]
    assert all(group.reward.ends is not None for group in groups["lab/m-1"])
    assert all(group.reward.ends is None for group in groups["lab/early"])
    note = "Groups of runs that ended early have no interval."
    assert note in environment_section(page(early).environments[0], 0, None)
    assert note not in environment_section(page(plain).environments[0], 0, None)


def test_rewards_beyond_the_range_of_the_rubric_are_compared_all_the_same(tmp_path: Path) -> None:
    """A function may give more than its rubric says."""
    models = {"lab/a": [[2.5], [1.5], [0.5]], "lab/b": [[-1.0], [0.0], [0.0]]}
    runs = [
        finished(tmp_path, judged(rewards), model=model, letters=f"aaa{n}")
        for n, (model, rewards) in enumerate(models.items())
    ]

    [found] = page(*runs).environments[0].differences

    assert found.paired.estimate.mean == pytest.approx((3.5 + 1.5 + 0.5) / 3)
    assert content_of(page(*runs), 60).transcripts


def test_what_is_said_of_a_difference_that_is_not_found(tmp_path: Path) -> None:
    """Too few for any finding is no finding; and the number of examples allows for the number of comparisons, as that
    of `bench compare` does."""
    few = [
        finished(tmp_path, judged([[reward]] * 5), model=f"lab/{reward}", letters=f"aaa{reward:g}")
        for reward in (1.0, 0.0)
    ]
    half = [[float(n % 2)] for n in range(40)]
    better = [[1.0] if n in (0, 2, 4) else each for n, each in enumerate(half)]
    many = [
        finished(tmp_path, judged(rewards), env_id="other", model=f"lab/{n}", letters=f"bbb{n}")
        for n, rewards in enumerate((better, half))
    ]

    [one] = page(*few).environments[0].differences
    [alone] = page(*many).environments[0].differences
    both = [each for environment in page(*few, *many).environments for each in environment.differences]

    assert one.outlook == "too few examples to tell; it takes 6 or more"
    assert [both[0].outlook, both[0].settling] == ["too few examples to tell; it takes 6 or more", 6]
    assert alone.settling is not None and both[1].settling is not None
    assert alone.outlook == f"not told apart; about {alone.settling} examples would settle it"
    assert both[1].settling > alone.settling > 40


def test_a_difference_that_is_there_never_looks_like_none(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path, judged([[0.5], [0.5 + more], [0.25]]), model=f"lab/{more}", letters=f"aaa{n}")
        for n, more in enumerate((0.0006, 0.0))
    ]

    shown = page(*runs)

    assert "+0.0002" in str(differences(shown)) and "-0.0002" in str(leaderboards(shown))
    assert "+0.0002" in markdown(shown)


def test_what_a_pass_is_names_the_environments_where_it_is_another(tmp_path: Path) -> None:
    strict = {**SETTINGS, "env.pass_threshold": 0.75}
    runs = [
        finished(tmp_path, judged([[1.0]]), env_id="sums", letters="aaaa"),
        finished(tmp_path, judged([[1.0]]), env_id="tens", letters="bbbb"),
        finished(tmp_path, judged([[1.0]]), env_id="words", letters="cccc", settings=strict),
    ]

    words = "A rollout passes with a reward of at least 1 (words: 0.75)."

    assert passing(page(*runs)) == words
    assert f"- {words}" in markdown(page(*runs))


def test_many_runs_are_compared_with_the_best_alone(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path, judged([[1.0]] * right + [[0.0]] * (8 - right)), model=f"lab/{right}") for right in range(7)
    ]

    [environment] = page(*runs).environments

    assert [(each.first, each.second) for each in environment.differences] == [(0, n) for n in range(1, 7)]


def test_runs_that_share_too_few_examples_are_compared_as_two_samples(tmp_path: Path) -> None:
    """As `bench compare` does, and so that nobody takes the one example in common for all that is known."""
    rewards = {"lab/a": (0, [1.0, 0.5, 1.0, 1.0]), "lab/b": (3, [0.0, 0.25, 0.0])}
    runs = [
        finished(tmp_path, chain.from_iterable([example(n), *paid(n, each)] for n, each in enumerate(scores, start)),
                 model=model, planned={"num_examples": len(scores), "rollouts_per_example": 1})
        for model, (start, scores) in rewards.items()
    ]  # fmt: skip

    shown = page(*runs)

    [found] = shown.environments[0].differences
    samples = welch(rewards["lab/a"][1], rewards["lab/b"][1])
    assert (found.paired.pairs, found.adjusted) == (1, samples.p_value)
    assert found.unpaired is not None and found.unpaired.estimate.high == min(1.0, samples.estimate.high or 0.0)
    assert found.outlook == "better, as two samples: too few examples in common"
    for form in (str(differences(shown)), markdown(shown)):
        assert numerals.difference(samples.estimate) in form
        assert "by Welch&#x27;s t test" in form or "by Welch's t test" in form
    assert [name for name, _ in methods_of(shown) if name in ("p_value", "two samples", "interval: welch")] == [
        "two samples", "interval: welch",
    ]  # fmt: skip


def test_of_an_example_each_nothing_is_known(tmp_path: Path) -> None:
    first = finished(tmp_path, judged([[1.0]]), model="lab/a")
    second = finished(tmp_path, [example(9), *paid(9, 1.0)], model="lab/b")

    [found] = page(first, second).environments[0].differences

    assert (found.outlook, found.verdict, found.adjusted) == ("no evidence", "unknown", None)


def test_the_mean_over_environments_is_of_models_that_ran_in_all(tmp_path: Path) -> None:
    rewards = {
        ("sums", "lab/a"): [[1.0], [0.0], [1.0], [0.5]],
        ("other", "lab/a"): [[0.0], [0.5], [0.25]],
        ("sums", "lab/b"): [[1.0], [0.0]],
    }
    runs = [finished(tmp_path, judged(each), env_id=env, model=model) for (env, model), each in rewards.items()]

    shown = page(*runs)

    [overall] = shown.overall
    parts = [
        mean_interval([m for [m] in rewards[env, "lab/a"]], single_rollout=True, limits=(0.0, 1.0))
        for env in ("sums", "other")
    ]
    assert overall.model == "lab/a"
    assert overall.estimate == macro_mean(parts)
    assert overall.estimate.mean == pytest.approx((0.625 + 0.25) / 2)


def test_one_environment_has_no_mean_over_environments(tmp_path: Path) -> None:
    assert page(finished(tmp_path)).overall == []


def test_a_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    good, empty = finished(tmp_path), run_at(tmp_path, minute=3, status="interrupted")
    broken, damaged = finished(tmp_path, letters="bbbb"), finished(tmp_path, letters="cccc")
    broken.manifest_path.write_text("{")
    lines = damaged.journal_path.read_bytes().split(b"\n")
    damaged.journal_path.write_bytes(b"\n".join([lines[0], b"{rubbish", *lines[2:]]))

    shown = page_of([run.path for run in (good, empty, broken, damaged)], missing=["gone: of a suite"])

    assert [run.entry.id for run in shown.runs] == [good.id]
    assert shown.missing[:2] == ["gone: of a suite", f"{empty.id} (sums, interrupted) has no rollouts yet"]
    assert shown.missing[2].startswith(f"{broken.id}: cannot read {broken.manifest_path}")
    assert str(damaged.journal_path) in shown.missing[3]
    with pytest.raises(StoreError, match="cannot read"):
        page(broken)
    with pytest.raises(UsageError, match=f"nothing to report: {empty.id}"):
        page(empty)


def test_columns_say_what_each_rollout_took(tmp_path: Path) -> None:
    talk = [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    usage = Usage(10, 30, requests=2, cost=0.25)
    run = finished(
        tmp_path,
        [
            example(0),
            generated(0, 0, completion=talk, usage=usage, timing=Timing(1.0, 5.0, 3.0, 1.5)),
            scored(0, 0, 1.0),
            generated(0, 1, completion="", usage=Usage(requests=1, unreported=1), timing=Timing()),
            scored(0, 1, 0.0),
            failed(0, 2, usage=Usage(1, 2, requests=1)),
        ],
    )

    columns = columns_of(read_journal(run))

    assert [list(map(str, column)) for column in columns.measures.values()] == [
        ["2.0", "nan", "nan"],
        ["30.0", "nan", "2.0"],
        ["3.5", "nan", "nan"],
        ["0.25", "nan", "nan"],
    ]
    [row] = columns.examples
    assert (row.mean, row.scored, row.made, row.low, row.high, row.reason) == (0.5, 2, 3, 0.0, 1.0, "timeout")
    assert columns.mean_of("tokens", row) == 16.0
    assert math.isnan(columns.mean_of("cost", row._replace(begin=1)))


def test_the_end_of_a_completion_prompt_is_shown() -> None:
    assert asked("word " * 50 + "and now?").endswith("word and now?")
    assert asked("short") == "short"
    assert asked([{"role": "system", "content": "no"}, {"role": "user", "content": "yes"}]) == "yes"
    assert asked([{"role": "system", "content": "no"}]) == ""


def test_groups_of_a_relation_by_hand(tmp_path: Path) -> None:
    records: list[Record] = []
    for index in range(12):
        records.append(example(index))
        for rollout in range(2):
            usage = Usage(1, 10 * (index + 1), requests=1)
            reward = float(index < 6) if rollout else 1.0
            records += [generated(index, rollout, usage=usage), scored(index, rollout, reward)]
    columns = columns_of(read_journal(finished(tmp_path, records)))

    relations = relations_of(columns)

    assert list(relations) == ["tokens"]  # every rollout took one turn, as long, and nothing is known of its cost
    groups = relations["tokens"]
    # 24 rollouts in groups of at least 5; those of one example have equal tokens and stay together.
    assert [(g.low, g.middle, g.high, g.rollouts) for g in groups] == [
        (10, 20, 30, 6),
        (40, 50, 60, 6),
        (70, 80, 90, 6),
        (100, 110, 120, 6),
    ]
    assert [g.reward.mean for g in groups] == [1.0, 1.0, 0.5, 0.5]
    assert [g.reward.examples for g in groups] == [3, 3, 3, 3]
    assert groups[0].reward == mean_interval([1.0] * 3, single_rollout=False, binary=True)


@pytest.mark.parametrize("count", [*range(2, 14), 31, 32, 37, 60])
def test_a_small_rest_joins_the_group_before_it(tmp_path: Path, count: int) -> None:
    records = chain.from_iterable(
        [example(n), generated(n, usage=Usage(1, n + 1, requests=1)), scored(n)] for n in range(count)
    )

    groups = relations_of(columns_of(read_journal(finished(tmp_path, list(records))))).get("tokens", [])

    assert (not groups) == (count < 10)
    assert sum(group.rollouts for group in groups) == (count if groups else 0)
    assert all(group.rollouts >= 5 for group in groups)
    assert all(a.high < b.low for a, b in pairwise(groups))


def test_every_rollout_with_a_score_is_in_one_group(tmp_path: Path) -> None:
    [run, *_] = suite(tmp_path, Shape(environments=("browse",), examples=30))
    columns = columns_of(read_journal(run))
    scored_rollouts = sum(reward == reward for reward in columns.reward)

    for measure, groups in relations_of(columns).items():
        assert sum(group.rollouts for group in groups) == scored_rollouts
        assert all(a.high < b.low for a, b in pairwise(groups))
        assert len(groups) <= (12 if measure == "turns" else 6)
        assert measure != "turns" or all(group.low == group.high for group in groups), "one number of turns a group"


def test_kinds_of_examples_take_turns(tmp_path: Path) -> None:
    rewards = [[1.0, 1.0]] * 10 + [[0.0, 0.0]] * 10 + [[0.0, 1.0]] * 10 + [[None, 1.0]] * 10
    first = finished(tmp_path, judged(rewards), model="lab/a", letters="aaaa")
    second = finished(tmp_path, judged([[1.0]] * 11 + [[0.0]] * 29), model="lab/b", letters="bbbb")
    [environment] = page(first, second).environments
    mine = next(n for n, run in enumerate(environment.runs) if run.label == "lab/a")

    sample = samples_of(environment, 12)[mine]

    assert list(sample.items())[:5] == [
        (30, "unscored"),
        (10, "flips"),
        (11, "worst"),
        (0, "best"),
        (20, "mixed"),
    ]
    assert list(sample.values()).count("unscored") >= 2
    assert len(sample) == 12
    assert samples_of(environment, 12)[mine] == sample


def test_all_examples_are_taken_where_there_are_few(tmp_path: Path) -> None:
    [environment] = page(finished(tmp_path, judged([[1.0]] * 5))).environments

    [sample] = samples_of(environment, 60)

    assert sorted(sample) == [0, 1, 2, 3, 4]


def test_a_few_of_each_reason_come_before_many_of_one(tmp_path: Path) -> None:
    records = judged([[None]] * 20)
    records += chain(*([example(20 + n), failed(20 + n, reason=f"rare {n}")] for n in range(2)))
    [environment] = page(finished(tmp_path, records)).environments

    [sample] = samples_of(environment, 5)

    assert [n for n, kind in sample.items() if kind == "unscored"][:2] == [0, 1]
    assert {20, 21} <= set(samples_of(environment, 11)[0])


def test_the_notes_say_what_is_there(tmp_path: Path) -> None:
    shown = page(finished(tmp_path, judged([[1.0]] * 7 + [[0.0]] * 3)))

    assert content_of(shown, 60).notes == ["All 10 examples are here with their transcripts."]
    few = content_of(shown, 4)
    assert [each["name"] for each in few.transcripts] == ["q7", "q0", "q1", "q8"]
    assert few.notes[0].startswith("4 of 10 examples are here with their transcripts: ")
    assert few.rows[0]["transcript"] == [1, 2, -1, -1, -1, -1, -1, 0, 3, -1]
    assert content_of(shown, 0).notes[0] == "0 of 10 examples are here with their transcripts."


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [{"role": "assistant", "content": "x" * 3000}]
    shown = page(finished(tmp_path, judged([[1.0]] * 6, completion=long)))
    monkeypatch.setattr(content_module, "BYTES", 8000)
    monkeypatch.setattr(content_module, "ROWS", 4)

    found = content_of(shown, 60)

    assert len(found.transcripts) == 2
    assert len(found.rows[0]["example"]) == 4
    assert found.rows[0]["total"] == 6
    assert found.notes[0].startswith("The table has 4 of 6 examples")
    assert found.notes[1].endswith("4 more were chosen and left out, because the page would have become too large.")
