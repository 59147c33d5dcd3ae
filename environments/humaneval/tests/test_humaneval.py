"""The program in a reply, the sources of problems, the rewards, and that none of them can be had by cheating."""

from __future__ import annotations

import asyncio
import gzip
import json
import secrets
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example as case
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import is_linear
from sandboxes import sandbox

from harness import Chat, Environment, ModelResponse, Prompt, Score, State
from harness.errors import ConfigError, EnvironmentFault, EnvironmentLoadError, SandboxError
from harness.keys import ExampleKeys
from harness.records import Example
from harness.sandbox import Limits, Result
from humaneval import HumanEvalEnv, load_environment, passed
from humaneval.extraction import Program, program_of
from humaneval.grading import Grader, Verdict, read_verdict
from humaneval.inside.values import Unreadable, decode, encode
from humaneval.sample import PROBLEMS
from humaneval.source import SOURCE, read_rows

WAYS = ("bubblewrap", "unsafe-local")
SAMPLE = {problem["entry_point"]: problem for problem in PROBLEMS}
LEAP = SAMPLE["is_leap"]
RIGHT = "def is_leap(year):\n" + LEAP["canonical_solution"]
WRONG = "def is_leap(year):\n    return True\n"


class Saying:
    """A model that always says the same."""

    model = "saying"

    def __init__(self, reply: str) -> None:
        self.reply = reply

    async def __call__(self, prompt: Prompt, **_: object) -> ModelResponse:
        reply = self.reply if isinstance(prompt, str) else {"role": "assistant", "content": self.reply}
        return ModelResponse(reply if isinstance(reply, dict) else {"role": "assistant", "content": reply}, "stop")


def example(env: Environment, entry_point: str) -> Example:
    keys = ExampleKeys()
    every = [keys.example(env.row(index), index) for index in range(env.row_count)]
    return next(one for one in every if one.info["entry_point"] == entry_point)


async def play(env: Environment, one: Example, chat: Chat) -> tuple[Score, State]:
    state = State.begin(one, 0, "saying", {})
    await env.rollout(state, chat)
    (score,) = await env.rubric.score([state])
    return score, state


def info(form: str = "chat", entry_point: str = "is_leap") -> dict[str, Any]:
    return {**SAMPLE[entry_point], "form": form}


# Which program a reply holds


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```python\ndef is_leap(y):\n    return 1\n```", "def is_leap(y):\n    return 1\n"),
        ("Sure:\n```\ndef is_leap(y): ...\n```\nDone.", "def is_leap(y): ...\n"),
        ("```python\ndef is_leap(y): 1\n```\n```python\ndef is_leap(y): 2\n```", "def is_leap(y): 2\n"),
        ("```python\ndef is_leap(y): 1\n```\nUse it:\n```python\nis_leap(4)\n```", "def is_leap(y): 1\n"),
        ("```python\ndef is_leap(y): 1\n", "def is_leap(y): 1\n"),  # cut off after the code
        ("- so:\n  ```py\n  def is_leap(y):\n      return 1\n  ```", "def is_leap(y):\n    return 1\n"),
        ("~~~python\ndef is_leap(y): 1\n~~~", "def is_leap(y): 1\n"),
        ("````\n```\ndef is_leap(y): 1\n```\n````", "```\ndef is_leap(y): 1\n```\n"),
        ("```python\nis_leap = lambda y: 1\n```", "is_leap = lambda y: 1\n"),
        ("def is_leap(y):\n    return 1", "def is_leap(y):\n    return 1"),
        ("<think>```python\ndef is_leap(y): 1\n```</think>```python\ndef is_leap(y): 2\n```", "def is_leap(y): 2\n"),
        ("<think>```python\ndef is_leap(y): 1\n```</think> No.", None),
        ("<think>```python\ndef is_leap(y): 1\n```", None),
        ("```python\ndef other(y): 1\n```", None),
        ("```python\nclass A:\n    def is_leap(self): 1\n```", None),
        ("It is_leap(2000).", None),
        ("", None),
    ],
)
def test_the_program_of_a_chat_reply(reply: str, code: str | None) -> None:
    program = program_of(reply, info())
    assert (program.code if program else None) == code


def test_what_the_prompt_gives_comes_before_the_program() -> None:
    program = program_of("```python\ndef root(y): 1\n```", info(entry_point="root"))
    assert program is not None
    assert program.given.startswith("import math\n")
    assert "def cube(x" in program.given
    assert "def root" not in program.given


@pytest.mark.parametrize(
    ("completion", "kept"),
    [
        ("    return 1\n", "    return 1\n"),
        ("    return 1\n\ndef other():\n    pass", "    return 1\n"),
        ("    return 1\nprint(is_leap(4))", "    return 1"),
        ("    return 1\n# done", "    return 1"),
        ("    # first\n    return 1\nif __name__", "    # first\n    return 1"),
        ("    return 1\n```\nThat is it.", "    return 1"),
        ("    if year:\n        return 1\nclass A:", "    if year:\n        return 1"),
    ],
)
def test_the_program_of_a_completion_is_the_prompt_and_what_follows_it(completion: str, kept: str) -> None:
    assert program_of(completion, info("completion")) == Program("", f"{LEAP['prompt']}{kept}\n")


@pytest.mark.parametrize("completion", ["", "  \n ", "\ndef other(): pass"])
def test_a_completion_that_adds_nothing_is_no_program(completion: str) -> None:
    assert program_of(completion, info("completion")) is None


@pytest.mark.parametrize("part", ["```", "```python\n", "~~~\n", "<think>", "def is_leap(", "\n    ```", "`"])
def test_a_long_reply_takes_no_long_time(part: str) -> None:
    program = program_of(part * 20_000, info())
    assert is_linear(lambda size: program_of(part * size, info()), 5_000)
    assert program == (Program("", part * 20_000) if part == "def is_leap(" else None)


# Where problems come from


def test_the_sample_is_whole_and_its_own() -> None:
    assert len(read_rows(SOURCE.hub_id, "sample")) == 8
    assert [row["task_id"] for row in read_rows(SOURCE.hub_id, "sample")] == [f"sample/{n}" for n in range(8)]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_file_is_read_in_its_own_order(tmp_path: Path, suffix: str) -> None:
    text = "".join(json.dumps({**problem, "more": 1}) + "\n\n" for problem in reversed(PROBLEMS)).encode()
    path = tmp_path / f"problems{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    SOURCE.check(str(path), "test")
    assert read_rows(str(path), "test") == [*reversed(PROBLEMS)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[1]", "row 2: must be an object with the columns task_id, prompt"),
        ("{", "row 2: not JSON"),
        (json.dumps({**LEAP, "test": ""}), "row 2: column 'test' must be a non-blank string, not ''"),
        (json.dumps({**LEAP, "test": None}), "row 2: column 'test' must be a non-blank string, not None"),
        (json.dumps({name: LEAP[name] for name in LEAP if name != "prompt"}), "row 2: there is no column 'prompt'"),
        (json.dumps({**LEAP, "entry_point": "leap"}), "does not define the function that 'entry_point' names, 'leap'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{json.dumps(LEAP)}\n{row}\n")
    with pytest.raises(EnvironmentLoadError, match=message):
        read_rows(str(path), "test")


def test_a_damaged_archive_and_an_empty_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}" * 1000)[:-9])
    (tmp_path / "b.jsonl").write_text("\n")
    with pytest.raises(EnvironmentLoadError, match=r"a\.jsonl\.gz cannot be read"):
        read_rows(str(tmp_path / "a.jsonl.gz"), "test")
    with pytest.raises(EnvironmentLoadError, match="has no rows"):
        read_rows(str(tmp_path / "b.jsonl"), "test")


@pytest.mark.parametrize(
    ("dataset", "split", "message"),
    [
        ("problems.jsonl", "test", "there is no such file"),
        (__file__, "test", "a file must end in .jsonl or .jsonl.gz"),
        ("./problems", "test", "a file must end in"),
        ("someone/else", "sample", "leave out `dataset`"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(dataset: str, split: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_environment(dataset=dataset, split=split, sandbox="unsafe-local")


def test_an_unknown_sandbox_is_refused_with_what_was_meant() -> None:
    with pytest.raises(ConfigError, match='did you mean "bubblewrap"'):
        load_environment(split="sample", sandbox="bublewrap")


# The rewards


def test_completion_form_asks_with_the_prompt_alone_and_its_oracle_wins() -> None:
    sandbox()
    env = load_environment(split="sample", form="completion")
    assert isinstance(env, HumanEvalEnv)

    async def main() -> None:
        keys = ExampleKeys()
        for one in [keys.example(env.row(index), index) for index in range(env.row_count)]:
            assert one.prompt == one.info["prompt"]
            for reply, wanted in ((env.reference_reply(one, []), 1.0), (env.null_reply(one, []), 0.0)):
                score, state = await play(env, one, Saying(reply))
                assert (score.reward, score.metrics["has_code"], score.reasons) == (wanted, 1.0, {}), state["verdict"]

    asyncio.run(main())


def test_metrics_tell_wrong_from_missing_from_slow() -> None:
    sandbox()
    env = load_environment(split="sample", timeout_seconds=1.0)

    async def main() -> list[tuple[object, ...]]:
        one, found = example(env, "is_leap"), []
        for reply in ("no", f"```\n{WRONG}```", "```\ndef is_leap(y):\n    while True: pass\n```", f"```\n{RIGHT}```"):
            score, state = await play(env, one, Saying(reply))
            found.append((*score.metrics.values(), state["verdict"]["reason"]))
        return found

    assert asyncio.run(main()) == [
        (0.0, 0.0, 0.0, "the reply holds no program"),
        (0.0, 1.0, 0.0, "AssertionError: "),
        (0.0, 1.0, 1.0, "its processor time was up"),
        (1.0, 1.0, 0.0, ""),
    ]


class Broken:
    """A sandbox that never works."""

    name = "broken"

    async def run(self, files: object, argv: object, stdin: object = b"", limits: object = None) -> Result:
        raise SandboxError("broken: no more user namespaces")


def test_a_broken_sandbox_leaves_the_rollout_unscored_and_names_the_function() -> None:
    env = load_environment(split="sample", sandbox="unsafe-local")
    env.rubric.add_class_object("grader", Grader(Broken(), 1.0))  # type: ignore[arg-type]
    score, _ = asyncio.run(play(env, example(env, "is_leap"), Saying(RIGHT)))
    assert score.reward is None
    assert "no more user namespaces" in score.reasons["passed"]
    assert score.metrics["has_code"] == 1.0
    assert "not graded" in score.reasons["timed_out"]
    assert passed.__name__ == "passed"


@pytest.mark.parametrize("test", ["def check(candidate:", "def chek(candidate): pass", "import nowhere", "1/0"])
def test_faulty_tests_are_no_fault_of_the_program(test: str) -> None:
    grader = Grader(sandbox(), 5.0)
    with pytest.raises(EnvironmentFault, match="the tests of sample/7 cannot be run"):
        asyncio.run(grader.grade(Program("", RIGHT), {**LEAP, "test": test}))


def test_a_verdict_without_the_nonce_is_none() -> None:
    result = Result(0, '{"passed": true}\nother{"passed": true}\n', "", "exited", 0.1)
    assert read_verdict(result, "nonce", "x") == Verdict(
        False, False, "it ended its own examination (exited, exit code 0)"
    )


# Values


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda part: st.lists(part) | st.lists(part).map(tuple) | st.dictionaries(st.text() | st.integers(), part),
    max_leaves=20,
)


@settings(deadline=None)
@given(plain | st.sets(st.integers()) | st.frozensets(st.text()) | st.binary().map(bytearray))
def test_plain_values_come_back_as_they_were(value: object) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)


class Agreeable(int):
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Anything:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_nothing_of_a_class_of_its_own_comes_over() -> None:
    back = decode(encode(Agreeable(3)))
    assert type(back) is int
    assert back == 3
    other = decode(encode(Anything()))
    assert isinstance(other, Unreadable)
    assert not other == other  # noqa: SIM201  # both ways are what a test may use
    assert other != 3
    with pytest.raises(TypeError):
        bool(other)
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    assert json.dumps(encode(nested)).count("unreadable") == 1
    assert list(decode(encode(iter([1, 2])))) == [1, 2]
    assert list(decode(encode({1: 2}.values()))) == [2]
    assert decode(encode({1: 2}.keys())) == {1}
    assert decode(encode(range(1, 9, 2))) == range(1, 9, 2)


PLAIN = {
    type(None), bool, int, float, complex, str, bytes, bytearray, range, dict, list, tuple, set, frozenset,
    type(iter([])), Unreadable,
}  # fmt: skip


def parts(value: Any) -> Iterator[object]:
    """A value and everything that it holds."""
    yield value
    if isinstance(value, dict):
        value = [*value.items()]
    if isinstance(value, list | tuple | set | frozenset | type(iter([]))):
        for one in value:
            yield from parts(one)


@settings(deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.sampled_from(["int", "dict", "list", "range", "float"]),
        lambda part: st.lists(part) | st.dictionaries(st.text(), part),
        max_leaves=15,
    )
)
@case(["list", [["int", "f"], ["iterator", [None]], ["range", 1, 2], ["unreadable", 1], ["tuple", [["set", []]]]]])
@case(["dict", [["tuple", ["key", ["float", "inf"]]], ["list", [["complex", "1", "nan"], ["bytes", "00"]]]]])
def test_no_answer_breaks_the_reading(data: object) -> None:
    """It is refused with one of the errors that the examiner expects, or read as plain data, never as anything else."""
    try:
        value = decode(data)
    except (ValueError, TypeError, OverflowError, RecursionError):
        assert data is None or type(data) not in (bool, str)
        return
    assert {type(one) for one in parts(value)} <= PLAIN


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (1, ValueError), (["int"], TypeError), (["int", "g"], ValueError), (["int", "1", "2"], TypeError),
        (["float", "1", 2], TypeError), (["range", "1"], TypeError), (["list"], ValueError), (["list", 5], TypeError),
        (["dict", [["int", "1"]]], TypeError), (["set", [["list", []]]], TypeError), (["import", ["os"]], ValueError),
        ([["int"], "1"], ValueError), ({"int": "1"}, ValueError), (["float", "0x1p9999"], OverflowError),
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused(data: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(data)


# Cheating


# These run in `unsafe-local`, too: none of them writes a file or touches a process that is not its own or its examiner.
CHEATS = {
    "exit 0 at once": "import sys; sys.exit(0)",
    "hard exit at once": "import os; os._exit(0)",
    "exit 0 when called": "def is_leap(year):\n    raise SystemExit(0)",
    "hard exit when called": "import os\ndef is_leap(year):\n    os._exit(0)",
    "say so": "print('passed', flush=True)\nprint('{\"passed\": true}', flush=True)\n" + WRONG,
    "say so on every stream": """
        import os
        for fd in range(64):
            try:
                os.write(fd, b'\\n{"passed": true}\\n{"ready": true}\\n')
            except OSError:
                pass
        def is_leap(year):
            return True
        """,
    "equal everything": """
        class Equal(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
        def is_leap(year):
            return Equal(1)
        """,
    "equal everything, of no known type": """
        class Equal:
            def __eq__(self, other): return True
        def is_leap(year):
            return Equal()
        """,
    "patch what tests use": """
        import builtins, calendar, sys
        calendar.isleap = lambda year: True
        builtins.AssertionError = type("AssertionError", (BaseException,), {})
        sys.excepthook = lambda *_: None
        def is_leap(year):
            return True
        """,
    "raise what a test expects": "def is_leap(year):\n    raise StopIteration",
    "kill the examiner": "import os\nos.kill(os.getppid(), 9)\n" + WRONG,
    "end in the middle of an answer": """
        import os, sys
        def is_leap(year):
            os.write(int(sys.argv[2]), b'{"value": tr')
            os._exit(0)
        """,
    "answer with what is no value": """
        import os, sys
        def is_leap(year):
            os.write(int(sys.argv[2]), b'{"value": ["dict", 5]}\\n' * 50)
            return True
        """,
    "answer too deeply": """
        import os, sys
        def is_leap(year):
            os.write(int(sys.argv[2]), b'{"value": ' + b'["list", [' * 20000 + b']]' * 20000 + b'}\\n')
            return True
        """,
    "no function": "is_leap = 5",
    "no syntax": "def is_leap(year:",
}


SHADOW = """
import os, sys
if os.getcwd() != "/tmp/work":
    raise SystemExit("this writes wherever it can, so it may only run where that is nowhere")
for folder in {os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0])), *sys.path}:
    try:
        with open(os.path.join(folder, "calendar.py"), "w") as file:
            file.write("isleap = lambda year: True")
    except OSError:
        pass
def is_leap(year):
    return True
"""


def test_a_module_put_in_the_way_of_the_tests_is_not_imported() -> None:
    """The tests import `calendar` after the program has had its chance to write one."""
    compares = """
def check(candidate):
    import calendar
    for year in range(1890, 2110):
        assert candidate(year) is calendar.isleap(year)
"""
    verdict = asyncio.run(Grader(sandbox(), 10.0).grade(Program("", SHADOW), {**LEAP, "test": compares}))
    assert (verdict.passed, verdict.reason) == (False, "AssertionError: ")
    look = SHADOW + "\nsys.path.insert(0, os.getcwd())\nimport calendar\nprint(calendar.isleap(1))"
    assert asyncio.run(sandbox().run({}, ["python", "-c", look])).stdout == "True\n"


@pytest.mark.parametrize("way", WAYS)
def test_right_programs_pass_in_every_way(way: str) -> None:
    assert asyncio.run(Grader(sandbox(way), 10.0).grade(Program("", RIGHT), LEAP)) == Verdict(True, False, "")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_does_not_pass(way: str, cheat: str) -> None:
    grader = Grader(sandbox(way), 10.0)
    verdict = asyncio.run(grader.grade(Program("", textwrap.dedent(CHEATS[cheat])), LEAP))
    assert not verdict.passed
    assert not verdict.timed_out
    assert verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n" + WRONG,
        "import time\ndef is_leap(year):\n    time.sleep(600)",
        "import os\nwhile True: pass",
    ],
)
def test_holding_up_the_examination_is_running_out_of_time(code: str) -> None:
    verdict = asyncio.run(Grader(sandbox(), 0.5).grade(Program("", code), LEAP))
    assert (verdict.passed, verdict.timed_out) == (False, True)


SEARCH = """
import gc, glob, os, sys

def looks_right(data):
    return BACKWARDS[::-1] in data

def found():
    frame = sys._getframe()
    while frame is not None:
        if any(looks_right(repr(value).encode()) for value in frame.f_locals.values()):
            return "frame"
        frame = frame.f_back
    for thing in gc.get_objects():
        texts = [one for one in list(thing.values()) if type(one) is str] if type(thing) is dict else []
        if any(looks_right(text.encode("utf-8", "replace")) for text in texts):
            return "memory"
    for folder in ("/tmp", "/dev/shm", os.getcwd(), os.path.expanduser("~")):
        for path in glob.glob(folder + "/**", recursive=True):
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 20 and looks_right(open(path, "rb").read()):
                    return path
            except OSError:
                pass
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        for name in ("cmdline", "environ", "fd/0", "fd/3", "fd/4", "fd/5"):
            try:
                fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_NONBLOCK)
                if looks_right(os.read(fd, 1 << 20)):
                    return f"/proc/{pid}/{name}"
            except OSError:
                pass
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
                for line in maps:
                    start, end = (int(part, 16) for part in line.split()[0].split("-"))
                    if " rw" in line and end - start < 1 << 26:
                        memory.seek(start)
                        if looks_right(memory.read(end - start)):
                            return f"/proc/{pid}/mem"
        except OSError:
            pass
    return None
"""
"""Looks everywhere for a word, which it knows backwards alone, so that it does not find itself."""


def search_for(word: str) -> str:
    return f"BACKWARDS = {word[::-1].encode()!r}\n{SEARCH}"


def test_the_tests_cannot_be_found_from_inside() -> None:
    """The program does what is asked if it finds the tests, and only then."""
    word = secrets.token_hex(12)
    cheat = search_for(word) + textwrap.dedent(
        """
        IS_FOUND = found()
        def is_leap(year):
            if IS_FOUND or found():
                return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        """
    )
    problem = {**LEAP, "test": LEAP["test"] + f"\nWORD = 'xx{word}xx'\n"}
    verdict = asyncio.run(Grader(sandbox(), 20.0).grade(Program("", cheat), problem))
    assert not verdict.passed
    assert verdict.reason == "AssertionError: "  # it ran, and did not know the answer


@pytest.mark.parametrize("where", ["file", "process"])
def test_the_search_finds_what_is_not_hidden(where: str) -> None:
    """The search of the test above is worth something."""
    word = secrets.token_hex(12)
    files: Mapping[str, str] = {"tests.py": f"# {word}"} if where == "file" else {}
    other = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(60)', "
        f"'{word}'], stdout=subprocess.PIPE)\np.stdout.readline()\n"
    )
    program = (other if where == "process" else "") + search_for(word) + "\nprint(found())"
    argv: Sequence[str] = ["python", "-c", program]
    if where == "process":
        argv = ["python", "-c", "import sys; exec(sys.stdin.read())"]
    result = asyncio.run(sandbox().run(files, argv, program, Limits()))
    assert result.stdout.strip() == "/tmp/work/tests.py" if where == "file" else "/proc/" in result.stdout, result
