"""Which earlier run one that has just ended is best compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_samples import run_at

from harness.report.compare.pairing import LOOKED_AT, earlier_suite, has_several_models, previous_run
from harness.store.rundir import RunDir, write_suite

ENV: dict[str, Any] = {"env_id": "sums", "env_args": {"size": 4}, "extra_env_kwargs": {}, "source": "a"}


def run(output_dir: Path, minute: int, model: str, **changes: Any) -> RunDir:
    identity = {
        "env": ENV | changes.pop("env", {}),
        "model": {"names": [model], "sampling_args": changes.pop("sampling", {})},
        "order": {"shuffle": changes.pop("shuffle", False)},
    }
    planned = changes.pop("planned", {"num_examples": 6, "rollouts_per_example": 1})
    return run_at(output_dir, minute, model=model, identity=identity, planned=planned, **changes)


def found(new: RunDir) -> str | None:
    other = previous_run(new, new.read_manifest())
    return None if other is None else other.id


def test_the_newest_one_by_another_model_or_with_other_sampling(tmp_path: Path) -> None:
    first = run(tmp_path, 0, "lab/a")
    assert found(first) is None
    again = run(tmp_path, 1, "lab/a")
    assert found(again) is None, "the same once more says nothing about models"
    warm = run(tmp_path, 2, "lab/a", sampling={"temperature": 1})
    assert found(warm) == again.id
    # Another version of the environment's code may still ask the same: pairs are made by content.
    assert found(run(tmp_path, 3, "lab/b", env={"source": "b"})) == warm.id


@pytest.mark.parametrize(
    "changes",
    [
        {"env_id": "sums-2"}, {"env": {"env_args": {}}}, {"env": {"extra_env_kwargs": {"k": 1}}}, {"shuffle": True},
        {"status": "stopped"}, {"status": "running"}, {"derived": {"how": "rescore"}},
        {"planned": {"num_examples": 5, "rollouts_per_example": 9}}, {"planned": {}},
    ],
)  # fmt: skip
def test_what_says_nothing_about_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    run(tmp_path, 0, "lab/a", **changes)

    assert found(run(tmp_path, 1, "lab/b")) is None


def test_of_one_second_the_suite_that_was_written_before_is_the_earlier(tmp_path: Path) -> None:
    first, second, third = (f"20261121T100000Z-{letters}" for letters in ("zzzz", "mmmm", "aaaa"))
    for minute, suite in enumerate((first, second, third)):
        made = run(tmp_path, minute, "lab/a", suite=suite)
        write_suite(tmp_path, suite, file=None, command="", runs=[(made, made.read_manifest())])

    assert [earlier_suite(tmp_path, suite) for suite in (third, second, first)] == [second, first, None]


def test_a_resumed_suite_is_not_compared_with_its_own_runs(tmp_path: Path) -> None:
    old, made = run(tmp_path, 0, "lab/a"), run(tmp_path, 1, "lab/a")
    suites = [f"20261121T10000{number}Z-aaaa" for number in range(3)]
    for suite, one in zip(suites, (old, made, made), strict=True):
        write_suite(tmp_path, suite, file=None, command="", runs=[(one, one.read_manifest())])

    assert earlier_suite(tmp_path, suites[2]) == suites[0]


def test_a_damaged_run_is_passed_over(tmp_path: Path) -> None:
    good, bad = run(tmp_path, 0, "lab/a"), run(tmp_path, 1, "lab/c")
    bad.manifest_path.write_text("{")

    assert found(run(tmp_path, 2, "lab/b")) == good.id


def test_not_all_of_many_runs_are_read(tmp_path: Path) -> None:
    run(tmp_path, 0, "lab/other")
    for minute in range(1, LOOKED_AT + 1):
        run(tmp_path, minute, "lab/a")

    assert found(run(tmp_path, 99, "lab/a")) is None


def test_rivals_of_one_invocation(tmp_path: Path) -> None:
    one = run(tmp_path, 0, "lab/a").read_manifest()

    assert not has_several_models([])
    assert not has_several_models([one, replace(one, name="more")])
    assert has_several_models([one, replace(one, name="more"), replace(one, model="lab/b")])
