"""`bench env …` in this process: what each screen says, and that every wrong word is one line and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ENV = '''
from harness import Rubric, SingleTurnEnv, ToolEnv

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

def long(completion):
    return float(len(completion[-1]["content"]))

class Sums(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment(size: int = 3, word: str = "plus"):
    """Sums.

    Args:
        size: How many there are.
        word: What stands between \\x1b[31mnumbers.
    """
    print("noise on stdout")
    rows = [{"question": f"{n} \\x1b[2J{word} {n}", "answer": str(2 * n), "info": {"n": n}} for n in range(size)]
    return Sums(dataset=rows, rubric=Rubric([right, long], [1.0, 0.0]), system_prompt="Add.")
'''

Write = Callable[[str, str], Path]


@pytest.fixture
def sums(write: Write) -> str:
    write("sums.py", ENV)
    return "./sums.py"


def test_the_group_lists_its_commands_and_imports_none(bench: Any) -> None:
    done = bench("env", "--help")
    assert done.code == 0
    listed = done.out.partition("Commands:")[2].partition("\n\n")[0].strip()
    assert [line.split()[0] for line in listed.splitlines()] == [
        "init", "install", "list", "info", "copy", "check",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["init", "install", "list", "info", "copy", "check"])
def test_each_command_explains_itself(command: str, bench: Any) -> None:
    done = bench("env", command, "--help")
    assert done.code == 0
    assert f"Usage: bench env {command}" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("init", "My Env"), "perhaps 'my-env'?"),
        (("init", "json"), "json is a module of the Python standard library"),
        (("init", "x", "--kind", "multi"), '--kind multi: unknown kind; did you mean "multi-turn"?'),
        (("install", "./nothing"), "./nothing: there is no such folder"),
        (("install", "./sums.py"), "run it directly: bench run ./sums.py"),
        (("list", "--path", "nothing"), "--path nothing: no such folder"),
        (("info", "nothing"), "bench env info: no environment 'nothing' is installed"),
        (("info", "./nothing.py"), "this file or folder does not exist"),
        (("info", "./sums.py", "-a", "{"), "-a: not valid JSON"),
        (("info", "./sums.py", "-a", '{"sizes": 1}'), "did you mean 'size'?"),
        (("info", "./sums.py", "--example", "3"), "--example 3: the dataset has 3 rows, numbered from 0"),
        (("info", "a,b"), "only one environment can be described at a time"),
        (("check", "nothing"), "bench env check: no environment 'nothing' is installed"),
        (("check", "./sums.py", "-n", "0"), "-n 0: must be at least 1, or -1 for all examples"),
        (("check", "./sums.py", "-a", "sizes=1"), "did you mean 'size'?"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str, bench: Any, sums: str
) -> None:
    done = bench("env", *arguments)
    assert done.code == 2
    assert words in done.err
    assert [line for line in done.err.splitlines() if line.startswith("error: ")] == done.err.splitlines()[-1:]
    assert "Traceback" not in done.err


def test_init_says_what_it_made_and_what_comes_next(bench: Any, here: Path) -> None:
    done = bench("env", "init", "org/my-thing", "--kind", "multi-turn")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "Created environments/my_thing"
    assert [line.split()[0] for line in lines[1:5]] == [
        "my_thing/__init__.py", "README.md", "tests/test_my_thing.py", "pyproject.toml",
    ]  # fmt: skip
    assert lines[6] == "Next"
    assert [line.partition("env ")[2] or line.partition(" run ")[2] for line in lines[7:10]] == [
        "install environments/my_thing", "check my-thing", "my-thing -n 5 -m reference/oracle",
    ]  # fmt: skip
    assert "To publish it" in lines
    assert (here / "environments/my_thing/my_thing/__init__.py").is_file()
    again = bench("env", "init", "my-thing")
    assert again.code == 2
    assert "environments/my_thing already exists" in again.err


def test_a_project_that_was_made_is_listed_as_not_installed_with_the_command_that_installs_it(bench: Any) -> None:
    bench("env", "init", "my-thing")
    done = bench("env", "list")
    assert done.code == 0
    [line] = [line for line in done.out.splitlines() if line.startswith("my-thing")]
    assert line.split()[:6] == ["my-thing", "0.1.0", "-n", "50", "-r", "3"]
    assert "not installed" in line
    assert done.out.splitlines()[-1] == "bench env install environments/my_thing"
    listed = json.loads(bench("env", "list", "--json").out)["environments"]
    assert next(each for each in listed if each["name"] == "my-thing")["status"] == "not installed"


@pytest.mark.slow
def test_a_project_with_a_broken_pyproject_is_listed_as_such_and_not_offered(bench: Any, here: Path) -> None:
    bench("env", "init", "my-thing")
    file = here / "environments/my_thing/pyproject.toml"
    file.write_text(file.read_text() + "what is this\n")
    number = len(file.read_text().splitlines())
    done = bench("env", "list")
    [line] = [line for line in done.out.splitlines() if line.startswith("my-thing")]
    assert "environments/my_thing/pyproject.toml: not valid TOML: " in line
    assert f"(at line {number}, " in line
    assert "bench env install" not in done.out
    checked = bench("env", "check", "./environments/my_thing")
    assert checked.code == 1
    assert "FAIL     pyproject" in checked.out


def test_a_narrow_terminal_cuts_the_summary_and_nothing_else(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = bench("env", "list")
    assert max(map(len, done.out.splitlines())) <= 80
    [line] = [line for line in done.out.splitlines() if line.startswith("gsm8k ")]
    assert line.endswith("…")
    monkeypatch.delenv("COLUMNS")
    assert "…" not in bench("env", "list").out  # a pipe has no width


def test_info_shows_all_there_is_and_nothing_that_a_terminal_obeys(bench: Any, sums: str) -> None:
    done = bench("env", "info", sums, "-a", "size=2")
    assert done.code == 0
    assert "noise on stdout" not in done.out
    assert "\x1b" not in done.out
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    for expected in (
        "from a single file",
        "size int 3 How many there are.",
        "word str 'plus' What stands between numbers.",
        'env_args {"size": 2} -a size=2'
        if 'env_args {"size": 2} -a size=2' in lines
        else 'env_args {"size": 2} -a size',
        "num_examples 5 built-in",
        "rows 2",
        "columns prompt, answer, info.n",
        "right weight 1",
        "long metric",
        "reward from 0 to 1",
        "class Sums",
        "turns one reply",
        "reference policy yes, as -m reference/oracle",
        "Example 0 of 2, as the model sees it",
        "system │ Add.",
        "user │ 0 plus 0",
        "answer │ 0",
        'info │ {"n": 0}',
    ):
        assert expected in lines, (expected, done.out)


def test_info_as_json_is_all_that_stdout_holds(bench: Any, sums: str) -> None:
    done = bench("env", "info", sums, "--json", "--example", "1")
    document = json.loads(done.out)
    assert [each["name"] for each in document["arguments"]] == ["size", "word"]
    assert document["settings"]["num_examples"] == {"value": 5, "origin": "builtin", "source": "built-in"}
    content = document["content"]
    assert (content["rows"], content["rewards"][:2]) == (
        3, [{"name": "right", "weight": 1.0}, {"name": "long", "weight": 0.0}],
    )  # fmt: skip
    assert content["sample"]["answer"] == "2"
    assert document["problem"] is None


def test_info_of_what_does_not_load_shows_the_rest_and_the_reason(bench: Any, write: Write) -> None:
    write("broken.py", "def load_environment(size: int = 3):\n    raise OSError('no disk')\n")
    done = bench("env", "info", "./broken.py")
    assert done.code == 1
    assert "size  int  3" in done.out
    assert "Rewards" not in done.out
    assert "no disk" in done.err


def test_info_of_what_needs_arguments_shows_what_it_takes(bench: Any, write: Write) -> None:
    write("needy.py", "def load_environment(size: int, word: str = 'a'):\n    raise OSError\n")
    done = bench("env", "info", "./needy.py")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert done.code == 2
    assert {"size int required", "word str 'a'", "num_examples 5 built-in"} <= set(lines)
    assert done.err.splitlines() == [
        "error: environment './needy.py': env_args: missing a required argument: 'size'; it takes size, word"
    ]
    as_json = bench("env", "info", "./needy.py", "--json")
    document = json.loads(as_json.out)
    assert as_json.code == 2
    assert [each["name"] for each in document["arguments"]] == ["size", "word"]
    assert document["problem"] == done.err.strip().removeprefix("error: ")


@pytest.mark.slow
def test_check_prints_a_line_for_each_check_and_a_verdict(bench: Any, sums: str) -> None:
    done = bench("env", "check", sums)
    assert done.code == 0
    lines = done.out.splitlines()
    assert {line.split()[0] for line in lines[:-2] if line[0] != " "} == {"ok", "skipped"}
    assert lines[
        -1
    ] == "sums: 11 ok, 0 failed, 3 skipped (entry point, defaults, README); --strict treats that as a failure" or (
        lines[-1].startswith("sums: 11 ok, 0 failed, 3 skipped (entry point, defaults, README)")
    )
    assert "noise on stdout" not in done.out
    assert bench("env", "check", sums, "--strict").code == 1


@pytest.mark.slow
def test_check_exits_1_with_the_reasons_also_as_json(bench: Any, write: Write) -> None:
    write("sums.py", ENV.replace("== answer)", "== answer) or 0.5"))
    done = bench("env", "check", "./sums.py", "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert (document["passed"], document["failed"]) == (False, 1)
    [failed] = [check for check in document["checks"] if check["status"] == "FAIL"]
    assert failed["name"] == "null"
    assert "FAIL     null" in done.err
