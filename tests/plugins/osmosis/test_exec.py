"""`bench exec`: a program is run as Python runs it, and nothing of ours is seen in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.plugins.osmosis.command import EXEC

PATIENCE = 60.0

Write = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process as it was, afterwards: whom it asks for modules, and what goes by the SDK's name."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "osmosis_ai"}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "osmosis_ai"]:
        del sys.modules[name]
    sys.modules.update(before)


def start(script: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "harness.cli.main", "exec", str(script), *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, cwd=script.parent, **{**pipes, **options})


# What a program finds


def test_help_lists_it(bench: Any) -> None:
    done = bench("--help")
    assert "exec" in done.out and EXEC.help in done.out


def test_a_program_finds_itself_as_main(bench: Any, write: Write, here: Path) -> None:
    write("deep/beside.py", "WORD = 'beside'\n")
    script = write(
        "deep/program.py",
        """
        import os, sys, __main__
        from beside import WORD
        print(__name__, __file__, WORD, __main__.WORD, sys.modules["__main__"].__dict__ is globals())
        print(sys.argv, sys.path[0], os.getcwd())
        print(__doc__, __package__, __builtins__ is not None, __spec__.origin)
        """,
    )
    done = bench("exec", "deep/program.py", "one", "two words")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"__main__ {script} beside beside True",
        f"['deep/program.py', 'one', 'two words'] {script.parent} {here}",
        f"None None True {script}",
    ]


def test_what_stands_behind_the_program_is_its_own(bench: Any, write: Write) -> None:
    write("program.py", "import sys; print(sys.argv[1:])")
    done = bench("exec", "program.py", "--help", "-q", "--", "--limit=3", "-")
    assert (done.code, done.out) == (0, "['--help', '-q', '--', '--limit=3', '-']\n")
    done = bench("exec", "--quiet", "program.py")
    assert done.code == 2
    assert "--quiet" in done.err


def test_its_imports_are_answered(bench: Any, write: Write) -> None:
    write("program.py", "from osmosis_ai.rollout import RolloutAgentLoop as A\nprint(A.__module__)")
    done = bench("exec", "program.py")
    assert (done.code, done.out, done.err) == (0, "harness.agents.loop\n", "")


def test_a_program_may_await_at_its_top_level(bench: Any, write: Write) -> None:
    write(
        "program.py",
        """
        import asyncio
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def opened(word):
            await asyncio.sleep(0)
            yield word
            print("closed", word)

        async with opened("a") as first:
            print([first for word in "bc"], await asyncio.sleep(0, "awaited"))

        def uses_globals():
            return first, asyncio.get_running_loop().is_running()

        print(uses_globals())
        """,
    )
    done = bench("exec", "program.py")
    assert (done.code, done.out, done.err) == (0, "['a', 'a'] awaited\nclosed a\n('a', True)\n", "")


def test_a_program_may_have_a_loop_of_its_own(bench: Any, write: Write) -> None:
    write("program.py", "import asyncio\nasync def main(): return 7\nprint(asyncio.run(main()))")
    assert bench("exec", "program.py").out == "7\n"


def test_variables_of_the_working_directory_are_loaded(bench: Any, write: Write, monkeypatch: Any) -> None:
    monkeypatch.setenv("EXEC_TEST_KEY", "")
    monkeypatch.delenv("EXEC_TEST_KEY")  # it is deleted once more in the end
    write(".env", "EXEC_TEST_KEY=from-file\n")
    write("program.py", "import os; print(os.environ['EXEC_TEST_KEY'])")
    assert bench("exec", "program.py").out == "from-file\n"


def test_what_was_there_is_put_back(bench: Any, write: Write) -> None:
    write("program.py", "import sys; sys.argv = []; sys.path.insert(0, 'else'); sys.path.remove('else'); 1 / 0")
    before = (sys.modules["__main__"], sys.argv, list(sys.path), dict(os.environ))
    assert bench("exec", "program.py").code == 1
    assert (sys.modules["__main__"], sys.argv, list(sys.path), dict(os.environ)) == before


# How it ends


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit('no rows')", 1, "no rows\n"),
        ("raise SystemExit({'a': 1})", 1, "{'a': 1}\n"),
        ("await asyncio.sleep(0); sys.exit(4)", 4, ""),
    ],
)
def test_its_exit_code_is_ours(bench: Any, write: Write, line: str, code: int, err: str) -> None:
    write("program.py", f"import asyncio, sys\nprint('ran')\n{line}\n")
    done = bench("exec", "program.py")
    assert (done.code, done.out, done.err) == (code, "ran\n", err)


TRACEBACK = """\
Traceback (most recent call last):
  File "{script}", line 5, in <module>
    {call}
  File "{script}", line 3, in broken
    raise ValueError(word)
ValueError: oh
"""


@pytest.mark.parametrize(("define", "call"), [("def", "broken('oh')"), ("async def", "await broken('oh')")])
def test_an_exception_is_shown_without_frames_of_ours(bench: Any, write: Write, define: str, call: str) -> None:
    script = write("program.py", f"\n{define} broken(word):\n    raise ValueError(word)\n\n{call}\n")
    done = bench("exec", "program.py")
    assert (done.code, done.out) == (1, "")
    assert done.err == TRACEBACK.format(script=script, call=call)


def test_a_syntax_error_is_shown_as_python_shows_it(bench: Any, write: Write) -> None:
    script = write("program.py", "print('never')\nx = = 1\n")
    done = bench("exec", "program.py")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == f'  File "{script}", line 2'
    assert done.err.splitlines()[-1] == "SyntaxError: invalid syntax"


def test_a_relative_import_does_not_begin_in_our_package(bench: Any, write: Write) -> None:
    write("program.py", "from . import main")
    done = bench("exec", "program.py")
    assert done.code == 1
    assert done.err.endswith("ImportError: attempted relative import with no known parent package\n")


def test_the_hook_of_the_program_gets_its_exception(bench: Any, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    write("program.py", "import sys\nsys.excepthook = lambda kind, exc, tb: print(kind, exc, tb.tb_lineno)\n1 / 0\n")
    done = bench("exec", "program.py")
    assert (done.code, done.out, done.err) == (1, "<class 'ZeroDivisionError'> division by zero 3\n", "")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("-", "error: bench exec cannot read a program from stdin: write it to a file and give its path\n"),
        ("nope.py", "error: file nope.py does not exist (looked in {here})\n"),
        ("folder", "error: folder is a folder; give the path of the Python file in it that should run\n"),
    ],
)
def test_what_is_no_program_is_refused(bench: Any, here: Path, script: str, words: str) -> None:
    (here / "folder").mkdir()
    done = bench("exec", script)
    assert (done.code, done.out, done.err) == (2, "", words.format(here=here))


def test_naming_no_program_is_wrong_usage(bench: Any) -> None:
    done = bench("exec")
    assert done.code == 2
    assert "SCRIPT" in done.err


# With an SDK installed


def test_an_installed_sdk_answers_and_the_user_is_told(
    bench: Any, write: Write, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("site/osmosis_ai/__init__.py", "WHO = 'theirs'")
    write("site/osmosis_ai/rollout/core/base.py", "")
    monkeypatch.syspath_prepend(str(here / "site"))
    write("program.py", "import osmosis_ai; print(osmosis_ai.WHO)")
    done = bench("exec", "program.py")
    assert (done.code, done.out) == (0, "theirs\n")
    assert done.err == "note: the script uses the installed package osmosis-ai, not the implementation of bench\n"


def test_an_sdk_that_has_no_agents_any_more_is_not_asked(
    bench: Any, write: Write, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("site/osmosis_ai/__init__.py", "raise RuntimeError('imported')")
    write("site/osmosis_ai/rollout/agent_workflow.py", "")
    monkeypatch.syspath_prepend(str(here / "site"))
    write("program.py", "from osmosis_ai.rollout import RolloutAgentLoop as A\nprint(A.__module__)")
    done = bench("exec", "program.py")
    assert (done.code, done.out, done.err) == (0, "harness.agents.loop\n", "")


# As a process


def test_input_and_output_are_the_programs_own(write: Write) -> None:
    script = write("program.py", "import sys\nprint('hello', input(), file=sys.stderr)\nprint(sys.stdin.read())\n")
    with start(script) as process:
        out, err = process.communicate("you\nand the rest", timeout=PATIENCE)
    assert (out, err, process.returncode) == ("and the rest\n", "hello you\n", 0)


def test_a_fault_in_printing_is_told_as_python_tells_it(write: Write) -> None:
    script = write("program.py", "import sys\nsys.stdout.write(5)\n")
    with start(script) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert err.splitlines()[-1] == "TypeError: write() argument must be str, not int"
    assert process.returncode == 1 and "harness" not in err


@pytest.mark.parametrize("wait", ["time.sleep(60)", "await asyncio.sleep(60)"])
def test_what_it_prints_appears_at_once_and_an_interrupt_ends_it_with_130(write: Write, wait: str) -> None:
    script = write("program.py", f"import asyncio, time\nprint('ready')\n{wait}\n")
    with start(script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"  # through a pipe, and nothing has flushed it
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("", 130)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "harness" not in err
    assert "CancelledError" not in err


def test_processes_that_it_spawns_find_the_program_and_its_imports(write: Write) -> None:
    script = write(
        "program.py",
        """
        import multiprocessing as mp, sys
        from osmosis_ai.rollout import RolloutAgentLoop

        class Task:
            def __init__(self, number):
                self.number = number

        def work(task):
            return task.number * 2, RolloutAgentLoop.__module__, __name__, sys.argv[1:], sys.path[0]

        if __name__ == "__main__":
            for kind in ("spawn", "forkserver"):
                with mp.get_context(kind).Pool(1) as pool:
                    print(pool.map(work, [Task(4)]))
        """,
    )
    with start(script, "--flag") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (err, process.returncode) == ("", 0)
    line = f"[(8, 'harness.agents.loop', '__mp_main__', ['--flag'], {str(script.parent)!r})]\n"
    assert out == line * 2
