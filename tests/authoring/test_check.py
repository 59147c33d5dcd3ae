"""Environments with one fault each, and the line that names it. The engine, the embedded server, the journal and the
other processes are real."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.authoring import Report, check_environment
from harness.core.errors import ConfigError, EnvironmentLoadError, EnvironmentNotFound

SOUND = """
import random
from harness import Rubric, SingleTurnEnv

def rows(size):
    return [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(size)]

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

class Sums(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment(size: int = 6):
    return Sums(dataset=rows(size), rubric=Rubric([right]))
"""

ORDER = ["entry point", "defaults", "README", "rows", "duplicates", "empty", "keys", "oracle", "null", "bounds",
         "repeats", "state", "event loop", "speed"]  # fmt: skip

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write an environment's file; returns its path."""

    def write(source: str) -> str:
        path = tmp_path / "some_env.py"
        path.write_text(textwrap.dedent(source))
        return str(path)

    return write


def changed(*pairs: tuple[str, str]) -> str:
    """The sound environment with some words replaced."""
    source = SOUND
    for old, new in pairs:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def outcomes(report: Report) -> dict[str, str]:
    return {finding.name: finding.status for finding in report.findings}


def test_a_sound_file_passes_and_what_only_a_package_has_is_skipped(write: Write) -> None:
    seen: list[str] = []
    report = check_environment(write(SOUND), on_finding=lambda finding: seen.append(finding.name))
    assert seen == ORDER
    expected = dict.fromkeys(ORDER, "ok") | dict.fromkeys(ORDER[:3], "skipped")
    assert outcomes(report) == expected, report.text()
    says = {finding.name: finding.says for finding in report.findings}
    assert says["rows"] == "6 rows, all well formed"
    assert says["oracle"] == "the best reward, 1, in all 6 rollouts"
    assert says["null"] == "the worst reward, 0, in all 6 rollouts"
    assert says["bounds"] == "24 rewards in [0, 1]"
    assert says["repeats"].startswith("two runs agree in 12 rollouts")
    assert report.counts() == "11 ok, 0 failed, 3 skipped"


def test_arguments_reach_the_environment_here_in_runs_and_in_other_processes(write: Write) -> None:
    report = check_environment(write(SOUND), {"size": 3}, num_examples=2)
    says = {finding.name: finding.says for finding in report.findings}
    assert says["rows"] == "3 rows, all well formed"
    assert says["oracle"] == "the best reward, 1, in all 2 rollouts"
    assert report.failed == []


FAULTS = {
    "the ideal answer is not accepted": (
        changed(('== answer)', '== answer and answer != "4")')),
        "oracle", "not the best reward, 1, in 1 of 6 rollouts: example 2 has 0 (right 0)",
    ),
    "a reward raises": (
        changed(('return float(', 'assert answer != "4"; return float(')),
        "scored", "2 of 12 rollouts have no score: reference/oracle, example 2: right raised AssertionError",
    ),
    "nothing is worth something": (
        changed(("== answer)", "== answer) or 0.25")),
        "null", "not the worst reward, 0, in 6 of 6 rollouts: example",
    ),
    "a reward leaves its range": (
        changed(("return float(", "return 2 * float(")),
        "bounds", "12 rewards outside [0, 1]: example",
    ),
    "an example twice": (
        changed(("for n in range(size)]", "for n in [*range(size), 3, 4]]")),
        "duplicates", "2 examples equal to an earlier one: 6 (as 3); 7 (as 4)",
    ),
    "a question with two answers": (
        changed(("for n in range(size)]", 'for n in range(size)] + [{"question": "1 + 1?", "answer": "11"}]')),
        "duplicates", "1 example with the prompt of an earlier one: 6 (as 1), but with another answer or info",
    ),
    "an empty prompt": (
        changed(("for n in range(size)]", 'for n in range(size)] + [{"prompt": [{"role": "user", "content": " "}]}]')),
        "empty", "1 example with an empty prompt: 6",
    ),
    "a row without answer": (
        changed(("for n in range(size)]", 'for n in range(size)] + [{"question": "Why?"}]')),
        "empty", "1 example with neither answer nor info: 6",
    ),
    "a row that is no row": (
        changed(("dataset=rows(size)", 'dataset=lambda: Lazy(rows(size) + [{"question": 7}])'),
                ("def right", "class Lazy(list):\n    __class__ = property(lambda self: tuple)\n\ndef right")),
        "rows", "column 'question': must be a string, not int",
    ),
    "rows in the order of a set": (
        changed(("for n in range(size)]", "for n in map(int, {str(n) for n in range(size)})]")),
        "keys", "has the same examples in another order",
    ),
    "rows by a clock": (
        changed(('f"{n} + {n}?"', 'f"{n} + {n}? ({random.random()})"')),
        "keys", "a second load has 6 other examples: 0; 1; 2; and 3 more",
    ),
    "another size every time": (
        changed(("for n in range(size)]", "for n in range(size + len(grown))]"),
                ("def rows(size):\n", "import sys\n\ngrown = sys.__dict__.setdefault('_grown_by_a_test', [])\n\n"
                 "def rows(size):\n    grown.append(1)\n")),
        "keys", "examples instead of",
    ),
    "a score that is drawn": (
        changed(("return float(", "return random.random() * float(")),
        "repeats", "two runs differ in 6 of 12 rollouts: reference/oracle, example",
    ),
    "a reward that the journal cannot feed": (
        changed(("def right(completion, answer):", "def right(completion, answer, state):\n    state['seen']"),
                ("class Sums(SingleTurnEnv):", "class Sums(SingleTurnEnv):\n    def setup_state(self, state):\n"
                 "        state['seen'] = object()\n")),
        "state", "reward 1, then – (right state lost",
    ),
    "a metric that reads the clock": (
        changed(("Rubric([right])", "Rubric([right, clock], [1.0, 0.0])"),
                ("class Sums", "import time\n\ndef clock():\n    return time.perf_counter()\n\nclass Sums")),
        "repeats", ": clock ",
    ),
    "code that blocks": (
        changed(("def right(completion, answer):",
                 "async def right(completion, answer):\n    import time\n    time.sleep(0.7 * (answer == '4'))")),
        "event loop", "right",
    ),
    "a cleanup that fails": (
        changed(("class Sums(SingleTurnEnv):", "from harness import cleanup\n\nclass Sums(SingleTurnEnv):\n"
                 "    @cleanup\n    async def close(self, state):\n        raise OSError('gone')\n")),
        "scored", "failed: Sums @cleanup close raised OSError: gone",
    ),
    "an answer that never comes": (
        changed(("return example.answer", "raise KeyError(example.answer)")),
        "scored", "6 of 12 rollouts have no score: reference/oracle, example",
    ),
}  # fmt: skip


@pytest.mark.slow
def test_what_blocks_the_event_loop_is_named_once_with_how_often(write: Write) -> None:
    blocks = "async def right(completion, answer):\n    import time\n    time.sleep(0.5)"
    report = check_environment(write(changed(("def right(completion, answer):", blocks))), num_examples=2)
    [finding] = report.failed
    assert finding.name == "event loop"
    match = re.fullmatch(r"right \(some_env\.py:10\) blocked it (?:once|(\d+) times?)", finding.says)
    # Two policies, two examples, a second run, and once more from the journal: at most 12. On a busy machine, calls
    # that follow one another at once count as one.
    assert match is not None and int(match[1] or 1) <= 12, finding.says


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_what_to_do(fault: str, write: Write) -> None:
    source, name, words = FAULTS[fault]
    report = check_environment(write(source))
    found = {finding.name: finding for finding in report.failed}
    assert name in found, report.text()
    assert words in found[name].says, report.text()
    assert found[name].advice


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (changed(("def load_environment(size: int = 6):", "def load_environment(size: int = 6):\n    1 / 0")),
         "ZeroDivisionError"),
        (changed(("import random", "import random, nothing_of_this_name")), "the module 'nothing_of_this_name'"),
        ("x = 1\n", "has no load_environment()"),
    ],
)  # fmt: skip
def test_an_environment_that_does_not_load_is_one_failure_and_the_end(source: str, words: str, write: Write) -> None:
    report = check_environment(write(source))
    assert list(outcomes(report)) == [*ORDER[:3], "load"]
    [failed] = report.failed
    assert words in failed.says


def test_without_a_reference_policy_the_oracle_is_not_possible_and_not_passed(write: Write) -> None:
    source = changed(
        ("    def reference_reply(self, example, messages):\n        return example.answer\n", "    pass\n")
    )
    report = check_environment(write(source))
    assert report.failed == []
    assert outcomes(report)["oracle"] == "skipped"
    assert outcomes(report)["null"] == "ok"
    assert "no reference policy" in next(finding.says for finding in report.skipped if finding.name == "oracle")


def test_a_rubric_that_needs_live_state_is_scored_live_both_times(write: Write) -> None:
    source = changed(
        ("def right(completion, answer):", "def right(completion, answer, state):\n    state['seen']"),
        ("Rubric([right])", "Rubric([right], needs_live_state=True)"),
        ("class Sums(SingleTurnEnv):", "class Sums(SingleTurnEnv):\n    def setup_state(self, state):\n"
         "        state['seen'] = object()\n        state['kept'] = 1\n"),
    )  # fmt: skip
    report = check_environment(write(source))
    assert report.failed == [], report.text()
    says = {finding.name: finding.says for finding in report.findings}
    assert says["state"].startswith("columns for -C: kept; not JSON, so lost after a crash: seen; needs_live_state")
    assert "many at once" in says["speed"]


def test_group_rewards_see_as_many_rollouts_as_a_run_gives_them(write: Write) -> None:
    source = changed(
        ("def right(completion, answer):\n    return float(completion[-1][\"content\"] == answer)",
         "def right(completions, answers):\n    assert len(completions) == 3\n"
         "    return [float(c[-1]['content'] == a) for c, a in zip(completions, answers)]"),
    )  # fmt: skip
    report = check_environment(write(source), num_examples=2)
    assert report.failed == [], report.text()
    assert (
        next(each.says for each in report.findings if each.name == "oracle") == "the best reward, 1, in all 6 rollouts"
    )


def test_few_examples_are_drawn_from_the_whole_dataset(write: Write) -> None:
    """A fault at the end of the rows is not out of sight."""
    source = changed(("== answer)", "== answer and int(answer) < 100)"))
    report = check_environment(write(source), {"size": 100}, num_examples=20)
    [failed] = [finding for finding in report.failed if finding.name == "oracle"]
    assert "in 10 of 20 rollouts" in failed.says or " of 20 rollouts" in failed.says


def test_wrong_words_are_refused_before_anything_is_loaded(write: Write, tmp_path: Path) -> None:
    path = write(SOUND)
    with pytest.raises(ConfigError, match="at least 1, or -1"):
        check_environment(path, num_examples=0)
    with pytest.raises(ConfigError, match="only one environment can be checked at a time"):
        check_environment("gsm8k,wordle")
    with pytest.raises(EnvironmentNotFound, match="bench env check: no environment 'nothing-here' is installed"):
        check_environment("nothing-here")
    with pytest.raises(EnvironmentNotFound, match="this file or folder does not exist"):
        check_environment(str(tmp_path / "nothing.py"))
    with pytest.raises(EnvironmentLoadError, match="did you mean 'size'"):
        check_environment(path, {"sizes": 3})


@pytest.mark.slow
def test_a_package_must_say_how_it_is_found_run_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "some_env"
    folder.mkdir()
    (folder / "some_env.py").write_text(SOUND)
    (folder / "pyproject.toml").write_text('[project]\nname = "some-env"\nversion = "0.3"\n')
    report = check_environment(folder)
    found = {finding.name: finding for finding in report.failed}
    assert set(found) == {"entry point", "defaults", "README"}
    assert 'some-env = "some_env:load_environment"' in found["entry point"].advice
    assert report.version == "0.3"
    (folder / "README.md").write_text("# some-env\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "some-env"\nversion = "0.3"\n[tool.harness.eval]\nnum_examples = 4\n'
        '[project.entry-points."harness.environments"]\nsome-env = "some_env:load_environment"\n'
    )
    report = check_environment(folder)
    assert report.failed == []
    assert "it does not name the argument size" in next(f.says for f in report.findings if f.name == "README")


def test_what_has_no_score_is_one_failure_whose_advice_names_the_function(write: Write) -> None:
    report = check_environment(write(changed(("    return float(", "    return str("))))
    found = {finding.name: finding for finding in report.findings}
    assert [finding.name for finding in report.failed] == ["scored"], report.text()
    assert found["scored"].says.startswith("12 of 12 rollouts have no score: reference/oracle, example ")
    assert found["scored"].advice == "make right return a number for every reply, also for an empty one"
    for name in ("oracle", "null"):
        assert (found[name].status, found[name].says) == ("skipped", "not possible: no rollout has a score")


def test_the_others_are_still_judged_where_one_rollout_has_no_score(write: Write) -> None:
    report = check_environment(write(changed(("return float(", 'assert answer != "4"; return float('))))
    says = {finding.name: finding.says for finding in report.findings}
    assert [finding.name for finding in report.failed] == ["scored"], report.text()
    assert says["oracle"] == "the best reward, 1, in all 5 rollouts that have a score"


@pytest.mark.slow
def test_a_broken_pyproject_is_a_failure_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "some_env"
    folder.mkdir()
    (folder / "some_env.py").write_text(SOUND)
    (folder / "pyproject.toml").write_text('[project]\nname = "some-env"\nversion = = 1\n')
    report = check_environment(folder)
    [finding] = report.failed
    assert finding.name == "pyproject"
    assert finding.says.startswith(f"{folder}/pyproject.toml: not valid TOML: ")
    assert "(at line 3, " in finding.says
    assert {f.name for f in report.skipped} == {"entry point", "defaults", "README"}
    [other] = check_environment(folder / "some_env.py").failed  # named by its file, it is the same project
    assert other.says == finding.says


def test_the_report_as_json_says_everything(write: Write) -> None:
    report = check_environment(write(changed(("== answer)", "== answer) or 0.25"))), num_examples=1)
    document: dict[str, Any] = report.to_json()
    assert (document["environment"], document["version"]) == ("some_env", None)
    assert document["failed"] == len(report.failed) == 1
    assert [check["name"] for check in document["checks"]] == ORDER
    assert all(set(check) == {"name", "status", "says", "advice"} for check in document["checks"])
