"""What a run consists of: the order of its examples, and keys that mean the same tomorrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import for_each_row

from harness import Rubric, SingleTurnEnv
from harness.core.errors import EnvironmentFault
from harness.engine.plan import PlannedRollouts, identity_of
from harness.settings.resolver import ResolvedRun, resolve

IDENTITY: dict[str, Any] = {"env": {"env_id": "toy"}, "model": {"names": ["m"]}}


def rows(count: int) -> list[dict[str, Any]]:
    return [{"question": f"question {index}", "answer": str(index)} for index in range(count)]


def resolved(**flags: object) -> ResolvedRun:
    return resolve("reverse-text", {"model": "reference/oracle", **flags}).runs[0]


def plan_of(dataset: list[dict[str, Any]], **flags: object) -> PlannedRollouts:
    return PlannedRollouts(SingleTurnEnv(dataset=dataset), resolved(**flags), IDENTITY)


def asked(plan: PlannedRollouts) -> list[str]:
    """The answers of the plan's examples, which name the rows."""
    return [example.answer for example in plan.examples()]


def keys(plan: PlannedRollouts) -> list[str]:
    return [item.key for example in plan.examples() for item in plan.items(example)]


def test_examples_come_in_the_datasets_order_each_with_its_place() -> None:
    plan = plan_of(rows(7), num_examples=5, rollouts_per_example=2)
    assert asked(plan) == ["0", "1", "2", "3", "4"]
    assert [example.index for example in plan.examples()] == [0, 1, 2, 3, 4]
    assert (plan.num_examples, plan.rollouts_per_example, plan.total) == (5, 2, 10)
    for example in plan.examples():
        assert [(item.example.key, item.rollout_index) for item in plan.items(example)] == [
            (example.key, 0), (example.key, 1),
        ]  # fmt: skip
    assert len(set(keys(plan))) == 10


@for_each_row(("wanted", "given"), [(-1, 7), (100, 7), (7, 7), (1, 1)])
def test_a_plan_is_never_larger_than_the_dataset(wanted: int, given: int) -> None:
    plan = plan_of(rows(7), num_examples=wanted, rollouts_per_example=1)
    assert (plan.num_examples, len(asked(plan)), plan.total) == (given, given, given)


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="is empty"):
        plan_of([])


def test_only_group_rewards_make_groups() -> None:
    def spread(completions: list[Any]) -> list[float]:
        return [1.0 for _ in completions]

    assert not plan_of(rows(1)).is_group
    assert PlannedRollouts(SingleTurnEnv(dataset=rows(1), rubric=Rubric([spread])), resolved(), IDENTITY).is_group


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 60), seed=st.integers(0, 10**9), sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_a_larger_shuffled_plan_begins_with_the_smaller_one(count: int, seed: int, sizes: tuple[int, int]) -> None:
    small, large = sorted(sizes)
    flags = {"shuffle": True, "shuffle_seed": seed}
    first = plan_of(rows(count), num_examples=small, **flags)
    second = plan_of(rows(count), num_examples=large, **flags)
    assert asked(second)[: len(asked(first))] == asked(first)
    assert keys(second)[: len(keys(first))] == keys(first), "what is recorded keeps its key when -n grows"
    assert sorted(asked(plan_of(rows(count), num_examples=-1, **flags)), key=int) == [str(n) for n in range(count)]


def test_a_shuffle_is_its_seed() -> None:
    def order(seed: int) -> list[str]:
        return asked(plan_of(rows(50), num_examples=-1, shuffle=True, shuffle_seed=seed))

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(0) != asked(plan_of(rows(50), num_examples=-1))


def test_equal_rows_are_told_apart_and_keep_their_number() -> None:
    twins = [{"question": "same", "answer": "1"}] * 3 + [{"question": "other", "answer": "2"}]
    plan = plan_of(twins, num_examples=-1, rollouts_per_example=1)
    assert len({example.key for example in plan.examples()}) == 4
    fewer = plan_of(twins, num_examples=2, rollouts_per_example=1)
    assert keys(plan)[:2] == keys(fewer)
    # Which of the equal rows is first does not matter; how many came before does.
    moved = plan_of([twins[3], *twins[:3]], num_examples=-1, rollouts_per_example=1)
    assert set(keys(moved)) == set(keys(plan))


@for_each_row(
    "other",
    [{"env": {"env_id": "another"}, "model": IDENTITY["model"]}, {"env": IDENTITY["env"], "model": {"names": ["n"]}}],
)
def test_keys_cover_environment_and_model(other: dict[str, Any]) -> None:
    environment = SingleTurnEnv(dataset=rows(2))
    assert not set(keys(PlannedRollouts(environment, resolved(), IDENTITY))) & set(
        keys(PlannedRollouts(environment, resolved(), other))
    )


def test_identity_names_what_changes_results_and_nothing_else() -> None:
    environment = SingleTurnEnv(dataset=rows(2), sampling_args={"temperature": 0.5, "top_p": 1})

    def identity(**flags: object) -> dict[str, Any]:
        return identity_of(resolved(**flags), environment)

    same: list[dict[str, object]] = [
        {"max_concurrent": 3}, {"request_retries": 1}, {"request_timeout": 5}, {"num_examples": 50}, {"rpm": 7},
        {"rollouts_per_example": 9}, {"max_retries": 4}, {"scoring_timeout": 3}, {"save_every": 7}, {"shuffle_seed": 4},
        {"pass_threshold": 0.5}, {"interleave_scoring": False},
    ]  # fmt: skip
    assert all(identity(**flags) == identity() for flags in same), same
    different: list[dict[str, object]] = [
        {"env_args": '{"split": "other"}'}, {"extra_env_kwargs": '{"max_turns": 1}'}, {"model": "reference/null"},
        {"sampling_args": '{"temperature": 1}'}, {"shuffle": True}, {"timeout": 5}, {"max_tokens": 7},
        {"extra_headers": ["X-Beta: 1"]},
    ]  # fmt: skip
    assert len({json.dumps(identity(**flags), sort_keys=True) for flags in [{}, *different]}) == len(different) + 1
    assert identity(sampling_args='{"temperature": 1}')["model"]["sampling_args"] == {"temperature": 1, "top_p": 1}
    found = identity()["env"]
    assert found["distribution"].startswith("reverse-text ") and len(found["source"]) == 64


def test_the_embedded_servers_address_is_nobodys_identity() -> None:
    environment = SingleTurnEnv(dataset=rows(1))
    assert identity_of(resolved(), environment)["model"]["urls"] == []
    elsewhere = resolved(model="m", api_base_url="http://127.0.0.1:9/v1/")
    assert identity_of(elsewhere, environment)["model"]["urls"] == ["http://127.0.0.1:9/v1"]


_KEYS = """
import json, sys
from harness import SingleTurnEnv
from harness.settings.resolver import resolve
from harness.engine.plan import PlannedRollouts, identity_of
info = {name: {"b": 1, "a": [1, {"z": None, "é": 2.5}]} for name in ("x", "y", "naïve", "😀")}
rows = [{"question": f"q{n}", "answer": str(n), "info": {**info, "n": n}} for n in range(20)]
environment = SingleTurnEnv(dataset=rows, sampling_args={"top_p": 1, "stop": ["a", "b"], "seed": 3})
flags = {"model": "reference/oracle", "num_examples": -1, "shuffle": True, "env_args": '{"b": 1, "a": {"d": 1}}'}
run = resolve("reverse-text", flags).runs[0]
plan = PlannedRollouts(environment, run, identity_of(run, environment))
print(json.dumps([item.key for example in plan.examples() for item in plan.items(example)]))
"""


@pytest.mark.slow
def test_keys_are_the_same_in_every_process(tmp_path: Path) -> None:
    answers: set[str] = set()
    for seed in ("0", "1", "4242", "random"):
        done = subprocess.run(
            [sys.executable, "-c", _KEYS], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=tmp_path,
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        answers.add(done.stdout)
    assert len(answers) == 1
    assert len(set(json.loads(answers.pop()))) == 60
