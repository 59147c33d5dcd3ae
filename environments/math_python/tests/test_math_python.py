r"""The interpreter in its sandbox, the reward, the sources of problems, and the sample. The sandbox is a real one;
where there is none, tests of what it does are skipped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nursery
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_repos import Account, Entry
from hub_runs import hub_env
from hub_server import HubServer
from pace import is_linear
from sandboxes import sandbox
from scripted_chat import ScriptedChat

from harness import Message, State, verify_math
from harness.errors import ConfigError, EnvironmentLoadError, SandboxMissing
from harness.keys import ExampleKeys
from math_python import load_environment
from math_python.grading import OneBox
from math_python.interpreter import Interpreter, packages
from math_python.sample import TEMPLATES, problems

# The interpreter


def told(*codes: str, seconds: float = 30) -> list[str]:
    """What one interpreter answers to pieces of code, one after the other."""

    async def main() -> list[str]:
        interpreter = Interpreter(sandbox("auto", packages()), seconds)
        try:
            return [await interpreter.run(code) for code in codes]
        finally:
            await interpreter.close()

    return asyncio.run(main())


def test_variables_functions_and_imports_stay() -> None:
    assert told("import math\nx = 20", "def f(n):\n    return math.factorial(n) + x", "f(5)", "_ + 1") == [
        "[no output]",
        "[no output]",
        "140",
        "141",
    ]


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(1)\n2", "1\n2"),
        ("x = 3", "[no output]"),
        ("None", "[no output]"),
        ("'a'", "'a'"),
        ("for n in range(2):\n    print(n)", "0\n1"),
        ("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')", "a\nb\nc"),
        ("import os\nprint('a')\nn = os.system('echo b')\nprint('c')", "a\nb\nc"),
        ("print('é π \\ud800')", "é π \\ud800"),
        ("import sys\nsys.stdout = None\n5", "5"),
        ("", "[no output]"),
        ("print('a', end='')", "a"),
    ],
)
def test_what_code_prints_and_its_last_value_are_told(code: str, output: str) -> None:
    if "sys.stdout = None" in code:
        assert "AttributeError" in told(code)[0]  # its own doing; the next call works
        assert told(code, "5")[1] == "5"
    else:
        assert told(code) == [output]


def test_a_traceback_is_that_of_the_code_alone() -> None:
    first, second, third = told("def f(n):\n    return 1 // n", "x = 1\nf(0)", "x +")
    assert first == "[no output]"
    marks = re.compile(r"\n +[~^]+(?=\n)")  # as the version of Python has it
    assert marks.sub("", second) == (
        "Traceback (most recent call last):\n"
        '  File "<cell 2>", line 2, in <module>\n'
        "    f(0)\n"
        '  File "<cell 1>", line 2, in f\n'
        "    return 1 // n\n"
        "ZeroDivisionError: integer division or modulo by zero"
    )
    assert third.splitlines()[0] == '  File "<cell 3>", line 1'
    assert third.splitlines()[-1] == "SyntaxError: invalid syntax"
    assert "repl.py" not in second + third


def test_code_that_ends_itself_or_reads_input_goes_on() -> None:
    exited, asked, after = told("x = 1\nexit(3)", "input()", "x")
    assert exited.splitlines()[-1] == "SystemExit: 3"
    assert asked.splitlines()[-1].startswith("EOFError")
    assert after == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import time\ntime.sleep(60)", "ran for more than 2 s"),
        ("while True: pass", "ran for more than 2 s"),
        ("import os\nos._exit(7)", "The code ended the interpreter (exit code 7)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "The interpreter was ended by signal 11"),
        ("x = bytearray(4 << 30)\nx[:] = b'1' * len(x)", "MemoryError"),
    ],
)
def test_an_interpreter_that_is_lost_is_replaced_and_the_model_is_told(code: str, words: str) -> None:
    _, lost, after = told("kept = 1", code, "'kept' in globals()", seconds=2)
    assert words in lost
    if "MemoryError" in words:
        assert after == "True"  # that was only an exception
    else:
        assert lost.endswith("all variables, functions and imports are gone.]")
        assert after == "False"


def test_much_output_loses_its_middle() -> None:
    (text,) = told("for n in range(100_000): print(n)")
    assert text.startswith("0\n1\n2\n")
    assert text.endswith("99998\n99999")
    assert "bytes left out" in text
    assert len(text) < 60_000
    (value,) = told("list(range(100_000))")
    assert value.endswith("…")
    assert len(value) < 11_000


def test_a_fork_or_a_thread_of_the_code_does_not_answer_for_it() -> None:
    forked, after = told(
        "import os\npid = os.fork()\nif pid: n = os.waitpid(pid, 0)\n'parent' if pid else 'child'", "1"
    )
    assert forked == "'parent'" or forked == "'child'\n'parent'"
    assert after == "1"


def test_there_is_no_network_and_none_of_our_files_and_variables() -> None:
    os.environ["MATH_PYTHON_SECRET"] = "secret"
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    connect = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5).recv(2)"
    try:
        with socket.create_connection(("127.0.0.1", port), 5):  # from outside of the sandbox it is there
            listener.accept()[0].close()
        out = told(
            "import os\n'MATH_PYTHON_SECRET' in os.environ",
            connect,
            f"import os\nos.path.exists({__file__!r})",
        )
    finally:
        del os.environ["MATH_PYTHON_SECRET"]
        listener.setblocking(False)
        with listener, pytest.raises(BlockingIOError):  # nobody else came
            listener.accept()
    assert out[0] == "False"
    assert out[1].splitlines()[-1].startswith(("ConnectionRefusedError", "OSError: [Errno 101]", "PermissionError"))
    assert out[2] == "False"


def test_sympy_is_there_because_the_environment_depends_on_it_and_numpy_where_it_is_installed() -> None:
    assert {"sympy", "mpmath"} <= set(packages())
    assert told("import sympy\nsympy.factorint(360)") == ["{2: 3, 3: 2, 5: 1}"]
    if "numpy" in packages():
        assert told("import numpy\nint(numpy.linalg.det(numpy.eye(3)))") == ["1"]


# Rollouts


def calls(*codes: str) -> Message:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": "python", "arguments": json.dumps({"code": code})}}
            for n, code in enumerate(codes)
        ],
    }


def play(replies: Sequence[Any], **arguments: Any) -> State:
    sandbox("auto")
    env = load_environment(**{"split": "sample", **arguments})
    state = State.begin(ExampleKeys().example(env.row(0), 0), 0, "scripted", {})

    async def main() -> None:
        await env.rollout(state, ScriptedChat(replies))
        await env.rubric.score([state])

    asyncio.run(main())
    return state


def descendants() -> list[int]:
    """Our living descendants that run in a sandbox."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"closefd=False).readline()))" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # ended meanwhile
            continue
    return found


def test_a_rollout_has_one_interpreter_and_leaves_none(tmp_path: Path) -> None:
    before = set(descendants())
    path = jsonl(tmp_path, [{"problem": "?", "answer": "42"}])
    state = play([calls("x = 40"), calls("x += 1", "x += 1\nx"), r"It is \boxed{42}."], dataset=path, split="test")
    tools = [message for message in state["completion"] if message["role"] == "tool"]
    assert [message["content"] for message in tools] == ["[no output]", "[no output]", "42"]
    assert state["metrics"] == {
        "has_answer": 1.0, "correct_answer": 1.0, "num_turns": 3.0, "total_tool_calls": 3.0, "python_calls": 3.0,
    }  # fmt: skip
    assert state["reward"] == 1.0
    assert "python" not in state
    assert set(descendants()) <= before


def test_a_rollout_that_calls_nothing_starts_nothing_and_one_that_only_calls_has_no_answer(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"problem": "?", "answer": r"\frac{1}{2}"}])
    assert play([r"\boxed{0.5}"], dataset=path, split="test")["reward"] == 1.0
    state = play([calls("1")], dataset=path, split="test", max_turns=2)
    assert (state["reward"], state["metrics"]["has_answer"], state["metrics"]["python_calls"]) == (0.0, 0.0, 2.0)
    call = calls("1")
    call["tool_calls"][0]["function"]["arguments"] = '{"cod": 1}'
    wrong = play([call, r"\boxed{1}"], dataset=path, split="test")
    assert "code" in wrong["completion"][1]["content"]
    assert wrong["reward"] == 0.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5}", "5"),
        (r"\boxed{5} … so \boxed{5}", "5"),
        (r"\boxed{\dfrac{1}{2}} = \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{(1, 2)} \boxed{\left(1,2\right)}", r"\left(1,2\right)"),
        (r"\boxed{5} or \boxed{6}", ""),
        (r"\boxed{}", ""),
        (r"\boxed{} \boxed{5}", "5"),
        (r"<think>\boxed{4}</think>\boxed{5}", "5"),
        (r"<think>\boxed{5}", ""),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\text{a {b} c}}", r"\text{a {b} c}"),
        (r"\boxed{1 \boxed{2}}", r"1 \boxed{2}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{1 1/2} \boxed{11/2}", ""),
        (r"\boxed{1 1/2} or \boxed{1  1/2}", "1  1/2"),
        (r"\boxed{5", ""),
        ("5", ""),
    ],
)
def test_a_reply_commits_to_one_box(text: str, answer: str) -> None:
    assert OneBox().parse(text) == answer


@pytest.mark.slow
@pytest.mark.parametrize("part", [r"\boxed{", r"\boxed{1}", "{", "}", "\\", r"\boxed{1 "])
def test_a_long_reply_takes_no_long_time(part: str) -> None:
    assert isinstance(OneBox().parse(part * 100_000), str)
    assert is_linear(lambda size: OneBox().parse(part * size), 10_000)


# Where problems come from


def jsonl(folder: Path, rows: Iterable[object]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_files_are_read_with_the_answer_or_the_box_of_the_solution(tmp_path: Path) -> None:
    rows = [
        {"problem": "a?", "answer": "5", "subject": "Algebra", "level": 2, "more": 1},
        {"problem": "b?", "answer": r"\boxed{x^2}"},
        {"problem": "c\u2028d?", "solution": r"So \boxed{\frac{1}{2}}.", "type": "Algebra"},
        {"problem": "e?", "answer": 2.5},
    ]
    env = load_environment(dataset=jsonl(tmp_path, rows), sandbox="unsafe-local")
    assert [env.row(i).answer for i in range(env.row_count)] == ["5", "x^2", r"\frac{1}{2}", "2.5"]
    assert env.row(0).info == {"subject": "Algebra", "level": 2}
    assert env.row(2).prompt[-1] == {"role": "user", "content": "c\u2028d?"}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"problem": ["a?"], "answer": ["7"], "unique_id": ["test/1"]}), path)
    (row,) = [load_environment(dataset=str(path), sandbox="unsafe-local").row(0)]
    assert (row.answer, row.info) == ("7", {"unique_id": "test/1"})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"question": "a?", "answer": "1"}], r"rows\.jsonl, row 1: there is no column 'problem'; it has question,"),
        (
            [{"problem": "a?", "answer": "1"}, {"problem": " ", "answer": "1"}],
            "row 2: column 'problem' must be a non-blank string",
        ),
        ([{"problem": "a?"}], "there is no column 'answer'"),
        ([{"problem": "a?", "answer": ""}], "column 'answer' must be LaTeX or a number"),
        ([{"problem": "a?", "answer": True}], "column 'answer' must be LaTeX or a number"),
        ([{"problem": "a?", "answer": None, "solution": "no box"}], "column 'answer' must be LaTeX or a number"),
        ([["a?"]], "must be an object"),
        ([], "has no rows"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named(tmp_path: Path, rows: list[object], words: str) -> None:
    with pytest.raises(EnvironmentLoadError, match=words):
        _ = load_environment(dataset=jsonl(tmp_path, rows), sandbox="unsafe-local").row_count


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dataset": "missing/rows.jsonl"}, "there is no such file"),
        ({"dataset": "./rows.csv"}, r"must end in \.jsonl or \.parquet"),
        ({"dataset": "me/math", "split": "sample"}, "leave out `dataset`"),
        ({"dataset": 5}, "dataset must be a string, not 5"),
        ({"split": None}, "split must be a string, not None"),
        ({"sandbox": None}, "sandbox must be a string, not None"),
        ({"sandbox": "bublewrap"}, 'did you mean "bubblewrap"'),
        ({"max_turns": 1}, "max_turns must be .* not 1"),
        ({"tool_seconds": 0}, "tool_seconds must be .* not 0"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_environment(**arguments)


def test_without_a_sandbox_it_does_not_start_and_says_what_to_install(tmp_path: Path) -> None:
    program = "import math_python; math_python.load_environment(split='sample')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert SandboxMissing.__name__ in done.stderr
    assert "bubblewrap" in done.stderr and "install" in done.stderr


@pytest.mark.slow
def test_math_500_is_read_from_the_hub_through_the_real_library(tmp_path: Path) -> None:
    rows = [
        {
            "problem": f"What is {n} + 1?",
            "solution": f"It is $\\boxed{{{n + 1}}}$.",
            "answer": str(n + 1),
            "subject": "Prealgebra",
            "level": 1 + n,
            "unique_id": f"test/prealgebra/{n}.json",
        }
        for n in range(3)
    ]
    program = """
import json
from math_python import load_environment
env = load_environment()
print(json.dumps([[row.prompt[-1]["content"], row.answer, row.info] for row in map(env.row, range(env.row_count))]))
"""
    with HubServer() as server:
        repo = server.hub.create(Account("HuggingFaceH4"), "HuggingFaceH4", "MATH-500", private=False)
        repo.add("upload", {"test.jsonl": Entry("".join(json.dumps(row) + "\n" for row in rows).encode())})
        done = nursery.run(["-c", program], environ=hub_env(server, tmp_path, None))
    assert done.returncode == 0, done.stderr
    for n, (problem, answer, info) in enumerate(json.loads(done.stdout)):
        assert (problem, answer) == (rows[n]["problem"], rows[n]["answer"])
        assert info == {name: rows[n][name] for name in ("solution", "subject", "level", "unique_id")}


@pytest.mark.slow
def test_without_the_hub_loading_fails_and_names_both_alternatives(tmp_path: Path) -> None:
    done = nursery.run(
        ["-c", "import math_python; math_python.load_environment().row_count"],
        environ={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    assert "EnvironmentLoadError: dataset 'HuggingFaceH4/MATH-500' (split 'test') cannot be loaded" in done.stderr
    assert '{"dataset": "PATH.jsonl"}' in done.stderr
    assert '{"split": "sample"}' in done.stderr


# The sample


def test_the_sample_holds_every_kind_of_problem_and_none_twice() -> None:
    rows = list(problems())
    assert len({row["problem"] for row in rows}) == len(rows) == 200
    assert list(problems(24)) == rows[:24]
    counts = Counter(row["subject"] for row in rows)
    assert set(counts) == {template.__name__ for template in TEMPLATES}
    assert set(counts.values()) == {16, 17}


@pytest.mark.slow
def test_every_program_of_the_sample_prints_its_answer_in_the_sandbox() -> None:
    rows = list(problems())

    async def main() -> list[str]:
        interpreter = Interpreter(sandbox("auto"), 30)
        try:
            outputs = [await interpreter.run(row["program"]) for row in rows]
        finally:
            await interpreter.close()
        pairs = zip(rows, outputs, strict=True)
        return [row["problem"] for row, output in pairs if not await verify_math(output, row["answer"])]

    assert asyncio.run(main()) == []
    for row in rows:
        assert row["answer"] not in row["problem"].replace("$", " ").split() or len(row["answer"]) < 3
