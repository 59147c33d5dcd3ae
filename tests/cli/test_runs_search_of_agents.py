"""`bench runs show --where`, `--failed`, `--worst` and `--group-by` on runs of `bench eval` and `bench multi`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from agent_evals import Evals
from multi_evals import Multi


@pytest.fixture
def evaluated(evals: Evals) -> Evals:
    """Six rows, twice each: three sums, two rows that the agent cannot do, and one that it gives up."""
    evals.rows("1+1", "2+2", "raise", "give up", "3+4", "raise")
    done = evals.eval("--n", "2", fns=("rewards:exact_match", "rewards:broken"))
    assert done.code == 0, done.err
    assert "agent_error: 4 of 12; e.g. row 2 run 0: ValueError: the agent cannot do this" in done.out
    assert "agent_error: 2 of 12; e.g. row 3 run 0: gave up" in done.out
    return evals


def finder(each: Evals | Multi) -> Callable[..., list[tuple[str, int]]]:
    """A function that returns the rollouts that a query finds."""

    def found(*arguments: str) -> list[tuple[str, int]]:
        done = each.bench("runs", "show", "latest", *arguments, "--json")
        assert done.code == 0, done.err
        return [(str(one["example_id"]), one["rollout_index"]) for one in json.loads(done.out)["rollouts"]]

    return found


def counter(each: Evals | Multi) -> Callable[..., dict[str, int]]:
    """A function that returns the sizes of groups."""

    def sizes(column: str, *arguments: str) -> dict[str, int]:
        done = each.bench("runs", "show", "latest", "--group-by", column, *arguments, "--json")
        assert done.code == 0, done.err
        counts: dict[str, int] = {}
        for run in json.loads(done.out)["groups"]:
            counts[str(run["value"])] = counts.get(str(run["value"]), 0) + run["count"]
        return counts

    return sizes


def twice(*rows: str) -> list[tuple[str, int]]:
    return [(row, number) for row in rows for number in range(2)]


def test_runs_of_an_agent_are_found(evaluated: Evals) -> None:
    found = finder(evaluated)
    assert found("--where", "outcome:unscored") == twice("1", "2", "3", "5")
    assert found("--where", "reason:agent_error") == twice("2", "3", "5")
    assert found("--where", 'error:"gave up"') == twice("3")
    assert found("--where", 'metric."rewards:broken"=0.5') == twice("0", "4")
    assert found("--where", "tool:calculate -outcome:scored") == twice("1")
    assert found("--failed", "--where", "error:cannot") == twice("2", "5")
    assert found("--worst", "1") == [("0", 0)]
    sizes = counter(evaluated)
    assert sizes("reason") == {"agent_error": 6, "None": 4, "rewards:broken raised KeyError": 2}
    assert sizes('metric."rewards:broken"') == sizes("metric.rewards:broken") == {"None": 8, "0.5": 4}
    assert sizes("parsed", "--where", "outcome:scored") == {"2": 2, "7": 2}


def test_the_name_of_an_eval_function_is_quoted_and_the_error_says_how(evaluated: Evals) -> None:
    done = evaluated.bench("runs", "show", "latest", "--where", "metric.rewards:broken=0.5")
    assert (done.code, done.err) == (
        2,
        'error: --where: there is no column "metric.rewards"; did you mean metric."rewards:broken"?\n'
        "  metric.rewards:broken=0.5\n"
        "  ^^^^^^^^^^^^^^\n",
    )


def test_runs_of_several_models_are_found(multi: Multi) -> None:
    multi.tasks("1+1", "2+2", "3+3", "no sum")
    assert multi.multi().code == 0
    found, sizes = finder(multi), counter(multi)
    assert found("--where", "model:weak metric.matched=0") == [("sum-1", 0)]
    assert found("--worst", "1") == [("sum-1", 0)]
    assert len(found("--failed")) == 8  # none reaches the threshold of 1
    assert sizes("model") == {"strong": 4, "weak": 4}
    assert sizes("parsed") == {"2": 2, "4": 1, "6": 2, "hello": 2, "about five": 1}
    done = multi.bench("runs", "show", "latest", "--where", "outcome:unscored")
    assert (done.code, done.out, done.err) == (0, "", "none of 8 rollouts matches\n")  # names no other outcome
