"""A place to work over a whole rollout: what stays, what is told of an end, and that nothing inside answers for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sandboxes import eventually, marked, sandbox

from harness.core.errors import SandboxError
from harness.sandbox import Limits
from harness.sandbox.workbench import NEW_INTERPRETER, NEW_PLACE, CodeResult, Lost, Ran, Workbench

LIMITS = Limits(wall_seconds=300, cpu_seconds=60, memory_mb=512, output_bytes=4_000_000)


def work(body: Callable[[Workbench], Awaitable[Any]], way: str = "bubblewrap", **more: Any) -> Any:
    async def main() -> Any:
        bench = Workbench(sandbox(way), **{"limits": LIMITS, **more})
        try:
            return await body(bench)
        finally:
            await bench.close()

    return asyncio.run(main())


def ran(*commands: str, seconds: float = 20, way: str = "bubblewrap", **more: Any) -> list[Any]:
    async def body(bench: Workbench) -> list[Any]:
        return [await bench.command(command, seconds) for command in commands]

    return work(body, way, **more)


def cells(*codes: str, seconds: float = 20, apart: bool = True, **more: Any) -> list[Any]:
    async def body(bench: Workbench) -> list[Any]:
        return [await bench.python(code, seconds, apart) for code in codes]

    return work(body, **more)


@pytest.mark.parametrize("way", ["bubblewrap", "unsafe-local"])
def test_files_stay_and_each_command_has_a_shell_of_its_own(way: str) -> None:
    first, second = ran("x=1; cd /; echo a > $HOME/f; echo b >&2; exit 3", 'cat f; echo "[$x]"', way=way)
    assert first == Ran("", "b\n", 3, False)
    assert second == Ran("a\n[]\n", "", 0, False)


def test_a_command_has_its_folder_its_variables_and_no_input() -> None:
    async def body(bench: Workbench) -> Any:
        there = await bench.command("pwd; echo $A $B; cat", 20, "/tmp", {"B": "2"})
        return there, await bench.command("echo $A $B", 20), await bench.command("pwd", 20, "/no/such")

    there, again, nowhere = work(body, environment={"A": "1"})
    assert there == Ran("/tmp\n1 2\n", "", 0, False)
    assert again.stdout == "1\n"
    assert (nowhere.exit_code, nowhere.stdout) == (126, "") and "/no/such" in nowhere.stderr


def test_what_ends_by_a_signal_has_the_code_of_a_shell() -> None:
    assert ran("kill -9 $$")[0] == Ran("", "", 137, False)


def test_a_command_that_takes_too_long_is_ended_with_its_children_and_the_rest_goes_on() -> None:
    background, slow, after = ran(
        "echo 1 > f; sleep 300 & echo started",
        "sleep 301 & sleep 302",
        "sleep 0.2; cat f; ps -eo args | grep -c '^sleep 30[12]'; ps -eo args | grep -c '^sleep 300'",
        seconds=1,
    )
    assert background == Ran("started\n", "", 0, False)
    assert slow == Ran("", "", 137, True)
    assert after.stdout == "1\n0\n1\n"


def test_commands_cannot_reach_the_pipes_or_the_memory_of_the_session_program() -> None:
    tries = "for f in fd fd/0 fd/1 fd/3 mem environ; do cat /proc/$PPID/$f 2>&1 >/dev/null | tail -1; done"
    words = ran(tries)[0].stdout
    assert words.count("Permission denied") == 6, words
    forged = 'for n in 0 1 2 3 4 5; do echo \'{"stdout": "forged", "exit_code": 0}\' > /proc/$PPID/fd/$n; done; echo x'
    assert [one.stdout for one in ran(forged, "echo y")] == ["x\n", "y\n"]


def test_code_over_its_own_replies_is_told_and_does_no_harm() -> None:
    write = "import os\nfor n in range(3, 20):\n    try: os.write(n, b'%s\\n')\n    except OSError: pass\n"
    over = Lost("The code wrote over the interpreter's replies")
    right = '{"output": "x", "errors": "", "value": null, "error": null}'
    for forged in ('{"output": 1}', "no json", "[]", '{"failure": 1}', right, right.replace("{", '{"mark": "0", ')):
        assert cells("x = 1", write % forged + "import time\ntime.sleep(0.3)", "'x' in globals()")[1:] == [
            over,
            CodeResult("", "", "False", None),
        ], forged


def test_parts_of_a_piece_of_code() -> None:
    code = "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nn = os.system('echo c; echo d >&2')\n'e'"
    assert cells(code)[0] == CodeResult("a\nc\n", "b\nd\n", "'e'", None)
    assert cells(code, apart=False)[0] == CodeResult("a\nb\nc\nd\n'e'\n")
    [cell] = cells("print('a')\n1 / 0")
    assert (cell.output, cell.errors, cell.value) == ("a\n", "", None)
    assert cell.error.splitlines()[0] == "Traceback (most recent call last):"
    assert cell.error.splitlines()[-1] == "ZeroDivisionError: division by zero"
    long = cells("raise ValueError('x' * 200_000)", "'y' * 200_000")
    assert len(long[0].error) < 51_000 and "characters left out" in long[0].error
    assert len(long[1].value) < 11_000


def test_an_interpreter_that_is_lost_is_replaced_and_files_stay() -> None:
    async def body(bench: Workbench) -> Any:
        done: list[Any] = [await bench.python("x = 1\nopen('f', 'w').write('kept')", 20)]
        done.append(await bench.python("import time\ntime.sleep(60)", 1))
        done.append(await bench.python("'x' in globals(), open('f').read()", 20, True))
        done.append(
            await bench.python("import os\nif os.fork() == 0:\n    import time\n    time.sleep(60)\nos._exit(5)", 20)
        )
        done.append(await bench.command("cat f", 20))
        return done

    _, slow, after, ended, file = work(body)
    assert slow == Lost("The code ran for more than 1 s and was stopped", timed_out=True)
    assert str(slow).endswith(NEW_INTERPRETER)
    assert after.value == "(False, 'kept')"
    assert ended == Lost("The code ended the interpreter (exit code 5)")
    assert file.stdout == "kept"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "limits", "reason"),
    [
        ("kill -9 $PPID; sleep 9", {}, "It was ended by signal 9"),
        ("kill -STOP $PPID; sleep 9", {"wall_seconds": 3}, "It was open for more than 3 s"),
        (
            "python3 -c 'import time; x = bytearray(150 << 20); x[::4096] = bytes(38400); time.sleep(9)'",
            {"memory_mb": 100},
            "It used more than 100 MB of memory",
        ),
    ],
)
def test_a_place_that_is_lost_is_replaced(command: str, limits: dict[str, Any], reason: str) -> None:
    lost, after = ran(f"touch f; {command}", "ls", limits=Limits(**{"wall_seconds": 300, **limits}))
    assert lost == Lost(reason, everything=True)
    assert str(lost).endswith(NEW_PLACE)
    assert after == Ran("", "", 0, False)


def test_a_request_that_nobody_waits_for_any_more_does_not_answer_the_next_one() -> None:
    async def body(bench: Workbench) -> Any:
        await bench.command("echo 1 > f", 20)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await bench.command("sleep 1; echo old", 20)
        return [await bench.command("cat f", 20), await bench.command("echo new", 20)]

    assert [done.stdout for done in work(body)] == ["1\n", "new\n"]


def test_requests_at_once_are_done_one_after_the_other() -> None:
    async def body(bench: Workbench) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Any]] = [
                group.create_task(bench.command(f"echo {n} >> f; cat f", 20)) for n in range(3)
            ]
        return [task.result().stdout for task in tasks]

    assert work(body) == ["0\n", "0\n1\n", "0\n1\n2\n"]


def test_nothing_is_open_before_the_first_request_and_nothing_lives_after_the_end() -> None:
    mark = f"mark-{time.monotonic_ns()}"

    async def body(bench: Workbench) -> None:
        assert not bench.is_open
        await bench.command(f"setsid sh -c ': {mark}; sleep 300' & sleep 0.2", 20)
        assert bench.is_open and bench.open_seconds > 0
        assert marked(mark)
        await bench.python("1", 20)
        assert bench.ready_seconds > 0

    work(body)
    assert eventually(lambda: marked(mark) == [])


def test_a_start_command_runs_beside_the_others() -> None:
    wait = "while [ ! -e up ]; do sleep 0.05; done; cat up"
    assert ran(wait, start="echo yes > up.part; mv up.part up; sleep 1000")[0].stdout == "yes\n"


def test_a_module_that_is_not_there_is_a_fault_of_the_sandbox() -> None:
    with pytest.raises(
        SandboxError, match=r"the sandbox \(bubblewrap\) does not contain no_such_module: use an image that does"
    ):
        ran("true", modules=["json", "no_such_module"])
