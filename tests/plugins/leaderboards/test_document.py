"""The YAML document of a result: what is claimed, what its notes say, and which runs are none."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hub_runs import BENCHMARK, MODEL, SUMMARY, result_manifest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.errors import StoreError, UsageError
from harness.core.redact import redactor
from harness.plugins.leaderboards.document import (
    Claim,
    check_claim,
    check_run,
    document_of,
    notes_of,
    path_of,
    task_of,
    tasks_in,
    title_of,
    value_of,
)

CLAIM = Claim(MODEL, BENCHMARK)
SOURCE = ("https://huggingface.co/datasets/alice/gsm8k_my-model", "alice")
ALL = "mean reward in percent over all 1,319 examples, 1 rollout each"


def refused(summary: dict[str, Any] | None = None, claim: Claim = CLAIM, **changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        check_run(result_manifest(**changes), {**SUMMARY, **(summary or {})}, claim)
    return str(caught.value)


def test_the_document_is_what_the_hub_documents() -> None:
    text = document_of(result_manifest(), SUMMARY, CLAIM, "sums", *SOURCE)
    assert text == (
        "- dataset:\n"
        "    id: acme/sums-bench\n"
        "    task_id: sums\n"
        "  value: 73.46\n"
        "  date: '2026-01-01'\n"
        "  source:\n"
        "    url: https://huggingface.co/datasets/alice/gsm8k_my-model\n"
        "    name: Rollouts by bench\n"
        "    user: alice\n"
        f"  notes: '{ALL}; 95 % interval 70.99 to 75.88 (t); sampling: temperature=0.0, max_tokens=1024; gsm8k 0.1.0, "
        "bench-harness 0.1.0'\n"
    )


def test_the_library_reads_it_back() -> None:
    from huggingface_hub import parse_eval_result_entries

    claim = Claim(MODEL, BENCHMARK, revision="5" * 40, notes="no-tools")
    [entry] = parse_eval_result_entries(yaml.safe_load(document_of(result_manifest(), SUMMARY, claim, "sums", *SOURCE)))
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == (BENCHMARK, "sums", "5" * 40)
    assert (entry.value, entry.date, entry.source_url, entry.source_user) == (73.46, "2026-01-01", *SOURCE)
    assert entry.verify_token is None
    assert (entry.notes or "").startswith(f"no-tools; {ALL}; ")


@for_each_row(
    ("reward", "span", "claim", "value", "words"),
    [
        ({}, (0.0, 1.0), CLAIM, 73.46, "in percent over"),
        ({}, (0.0, 1.0), Claim(MODEL, BENCHMARK, fraction=True), 0.7346, "0.7099 to 0.7588"),
        ({"mean": 3.25, "max": 5.0, "ci95": [3.0, 3.5]}, (0.0, 5.0), CLAIM, 3.25, "mean reward over"),
        ({"min": -1.0}, (0.0, 1.0), CLAIM, 0.7346, "mean reward over"),
        ({}, (float("-inf"), float("inf")), CLAIM, 0.7346, "mean reward over"),
        ({"mean": 1.0, "ci95": None}, (0.0, 1.0), CLAIM, 100.0, "no interval"),
    ],
)
def test_percent_is_for_rewards_between_0_and_1(
    reward: dict[str, Any], span: tuple[float, float], claim: Claim, value: float, words: str
) -> None:
    summary = {**SUMMARY, "reward": {**SUMMARY["reward"], **reward}}
    manifest = result_manifest(reward_range=span)
    assert value_of(manifest, summary, claim) == value
    assert words in notes_of(manifest, summary, claim)


def test_what_has_no_score_is_in_the_notes() -> None:
    summary = {**SUMMARY, "scored": 1300, "unscored": {"timeout": 12, "judge error": 7}, "bounds": [0.724, 0.7384]}
    assert (
        "1,300 of 1,319 rollouts have a score (unscored: timeout 12, judge error 7; 72.40 to 73.84 if all of them had "
        "the lowest, or the highest, reward)"
    ) in notes_of(result_manifest(), summary, CLAIM)


def test_a_run_that_ended_early_says_so() -> None:
    early = {"half_width": 0.03, "reached": True, "examples": 412, "of_examples": 1319}
    summary = {**SUMMARY, "until_ci": early, "reward": {**SUMMARY["reward"], "method": "betting"}}
    manifest = result_manifest(settings={"env.num_examples": -1, "env.shuffle": True, "env.shuffle_seed": 0})
    check_run(manifest, summary, CLAIM)
    notes = notes_of(manifest, summary, CLAIM)
    assert notes.startswith("mean reward in percent over 412 of all 1,319 examples, in random order, 1 rollout each; ")
    assert (
        "(betting); stopped once the mean was known to ±0.03 (--until-ci), with an interval that is valid at any"
        in notes
    )


def test_a_part_of_a_benchmark_is_a_result_only_if_that_is_said() -> None:
    planned = {"num_examples": 5, "rollouts_per_example": 3}
    settings = {"env.num_examples": 5, "env.shuffle": False}
    message = refused(settings=settings, planned=planned)
    assert "has the first 5 examples, which may not be the whole benchmark" in message
    assert "num_examples -1, or add subset" in message
    allowed = Claim(MODEL, BENCHMARK, subset=True)
    manifest = result_manifest(settings=settings, planned=planned)
    check_run(manifest, SUMMARY, allowed)
    assert notes_of(manifest, SUMMARY, allowed).startswith(
        "mean reward in percent over the first 5 examples, 3 rollouts each; "
    )
    drawn = {"env.num_examples": 5, "env.shuffle": True, "env.shuffle_seed": 7}
    assert "has 5 examples drawn at random (seed 7), which may" in refused(settings=drawn, planned=planned)
    chosen = {"env.num_examples": -1, "env.example_ids": ["3", "5"]}
    assert "examples chosen by their ids, which may" in refused(settings=chosen, planned=planned)


def test_what_may_be_a_part_is_told_from_the_whole() -> None:
    derived = {"how": "rescore", "parent": "20251231T000000Z-zzzz", "only": None}
    assert "has 1,319 examples recorded by run 20251231T000000Z-zzzz, which may" in refused(
        derived=derived, parent="20251231T000000Z-zzzz"
    )
    later = {"env": {"env_args": {"offset": 100}}, "model": {"names": ["my-model"]}}
    assert "has 1,319 examples after the first 100, which may" in refused(identity=later)


def test_more_examples_than_there_are_is_all_of_them() -> None:
    check_run(result_manifest(settings={"env.num_examples": 5000}), SUMMARY, CLAIM)


@for_each_row(
    ("changes", "said"),
    [
        ({"model": "reference/oracle"}, "reference/oracle is a reference model"),
        ({"identity": {"model": {"names": ["real", "reference/noisy"]}}}, "reference/noisy is a reference model"),
        (
            {"identity": {"judges": {"judge": {"model": ["reference/judge"]}}}},
            "its judge reference/judge is a reference model",
        ),
        ({"status": "stopped"}, "is stopped, so it cannot be published as a result; resume it first: bench resume"),
        ({"status": "running"}, "is running, so it cannot be published as a result"),
    ],
)
def test_runs_that_are_no_results(changes: dict[str, Any], said: str) -> None:
    assert said in refused(**changes)


@for_each_row(
    ("summary", "said"),
    [
        ({"not_run": 3}, "is not finished"),
        ({"reward": {"mean": None}}, "has no score"),
        ({"reward": {"mean": True}}, "has no score"),
    ],
)
def test_numbers_that_are_no_results(summary: dict[str, Any], said: str) -> None:
    assert said in refused(summary)


def test_a_run_without_numbers_is_not_finished() -> None:
    with pytest.raises(UsageError, match="is not finished"):
        check_run(result_manifest(), None, CLAIM)


def test_how_it_was_made_is_in_the_notes() -> None:
    secret = "canary-eval-4711"
    known = list(redactor._secrets)  # pyright: ignore[reportPrivateUsage]
    redactor.add(secret)
    try:
        identity = {
            "env": {"env_args": {"split": "test", "api_key": secret}, "distribution": None},
            "model": {"names": ["my-model"], "sampling_args": {}},
            "judges": {"judge": {"model": ["gpt-4.1-mini"]}},
        }
        derived = {"how": "rescore", "parent": "20251231T000000Z-zzzz", "only": "unscored"}
        manifest = result_manifest(identity=identity, derived=derived, parent="20251231T000000Z-zzzz")
        notes = notes_of(manifest, SUMMARY, Claim(MODEL, BENCHMARK, notes=f"hello\n\x1b[31m {secret}"))
    finally:
        redactor._secrets[:] = known  # pyright: ignore[reportPrivateUsage]
    assert secret not in notes
    assert "\n" not in notes and "\x1b" not in notes
    assert 'sampling: the endpoint\'s defaults; gsm8k with split="test", api_key=' in notes
    assert notes.endswith("judged by gpt-4.1-mini, rescore of run 20251231T000000Z-zzzz (only unscored)")


@given(st.text(max_size=80), st.text(min_size=1, max_size=40).filter(str.isprintable))
def test_any_text_stays_text(notes: str, task: str) -> None:
    [entry] = yaml.safe_load(
        document_of(result_manifest(), SUMMARY, Claim(MODEL, BENCHMARK, notes=notes), task, *SOURCE)
    )
    assert list(entry) == ["dataset", "value", "date", "source", "notes"]
    assert entry["dataset"] == {"id": BENCHMARK, "task_id": task}
    assert "\n" not in entry["notes"]


def test_tasks_are_those_of_the_benchmark() -> None:
    text = "name: x\ntasks:\n- id: one\n  split: test\n- id: two\n"
    assert tasks_in(text, BENCHMARK) == ("one", "two")
    assert task_of(CLAIM, ("only",)) == "only"
    assert task_of(Claim(MODEL, BENCHMARK, "two"), ("one", "two")) == "two"
    with pytest.raises(UsageError, match=r"has 2 tasks; choose one with task: one, two"):
        task_of(CLAIM, ("one", "two"))
    with pytest.raises(UsageError, match='task tow: not a task of acme/sums-bench; did you mean "two"'):
        task_of(Claim(MODEL, BENCHMARK, "tow"), ("one", "two"))


@for_each_row(
    "text",
    ["tasks: [", "", "[]", "tasks: 7", "tasks: []", "tasks: [{id: 7}]", "tasks: [one]", 'tasks: [{id: "a\\nb"}]'],
)
def test_a_file_that_is_no_benchmarks_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"eval\.yaml of acme/sums-bench cannot be read"):
        tasks_in(text, BENCHMARK)


def test_files_are_one_a_run() -> None:
    assert path_of(CLAIM, "default", "R-1") == ".eval_results/sums_bench_R-1.yaml"
    assert path_of(CLAIM, "sums-bench", "R-1") == ".eval_results/sums_bench_R-1.yaml"
    assert path_of(CLAIM, "../../Hard Ones", "R-1") == ".eval_results/sums_bench_hard_ones_R-1.yaml"
    assert title_of(CLAIM, "hard", "R-1") == "Add a result of acme/sums-bench (hard): bench run R-1"


@for_each_row(
    ("claim", "said"),
    [
        (Claim("my-model", BENCHMARK), "eval_results my-model: give NAMESPACE/NAME"),
        (Claim(MODEL, "gsm8k"), "benchmark gsm8k: give NAMESPACE/NAME"),
        (Claim(MODEL, "a/b/c"), "NAMESPACE/NAME"),
        (Claim(MODEL, BENCHMARK, task=" "), "task"),
        (Claim(MODEL, BENCHMARK, revision="main"), "revision main: give the full commit hash"),
    ],
)
def test_names_that_cannot_be_are_refused(claim: Claim, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_claim(claim)
