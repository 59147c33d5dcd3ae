"""The step that follows a run of an environment which another model ran before: one line, for people only."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from run_samples import Bench

ORACLE, NULL = ("-m", "reference/oracle"), ("-m", "reference/null")
SUITE = """
num_examples = 6
rollouts_per_example = 1
[[eval]]
id = "reverse-text"
model = "reference/oracle"
[[eval]]
id = "reverse-text"
model = "reference/null"
"""


def compare_step(said: str) -> str | None:
    """The command that it names, of which there is at most one."""
    steps = [line.strip() for line in said.splitlines() if line.startswith("  compare: ")]
    assert len(steps) < 2
    return steps[0].removeprefix("compare: ") if steps else None


@pytest.fixture
def first(bench: Bench) -> None:
    done = bench("run", "reverse-text", "-n", "6", "-r", "1", *NULL)
    assert (done.code, compare_step(done.out)) == (0, None), done.err


@pytest.mark.usefixtures("first")
def test_it_says_whether_the_two_differ(bench: Bench) -> None:
    step = compare_step(bench("run", "reverse-text", "-n", "6", "-r", "1", *ORACLE).out)

    assert step is not None
    done = bench(*shlex.split(step)[1:], "--flips", "0")
    assert done.code == 0
    assert "reference/oracle is better than reference/null, by 1.000: more than noise." in done.out


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("flag", ["--json", "--quiet"])
def test_programs_get_none(bench: Bench, flag: str) -> None:
    done = bench("run", "reverse-text", "-n", "6", "-r", "1", *ORACLE, flag)

    assert done.code == 0
    assert "compare" not in done.out + done.err


def test_a_suite_with_several_models_is_compared_as_a_whole(bench: Bench, here: Path) -> None:
    Path("suite.toml").write_text(SUITE)
    step = compare_step(bench("run", "suite.toml", "-o", "else where").out)

    assert step == "bench compare -o 'else where'"
    assert "reference/null is worse than reference/oracle" in bench(*shlex.split(step)[1:], "--flips", "0").out
