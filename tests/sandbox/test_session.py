"""A program that is talked to: lines both ways, waiting that ends, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from sandboxes import eventually, marked, sandbox

from harness.core.errors import SandboxError
from harness.sandbox import Limits, Result, Session

EVERY = ["bubblewrap", "unsafe-local"]
RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}

ECHO = """
import sys
for line in sys.stdin:
    print(line.strip()[::-1], flush=True)
print("bye", end="", flush=True)
"""


def talk(
    program: str,
    body: Callable[[Session], Awaitable[None]],
    way: str = "bubblewrap",
    runner: str = "asyncio",
    **limits: Any,
) -> Result:
    """Start a program, talk to it as `body` does, and close."""
    mark = f"mark-{secrets.token_hex(8)}"

    async def main() -> Result:
        async with sandbox(way).session({}, ["python", "-c", program, mark], Limits(**limits)) as session:
            await body(session)
            result = await session.close()
        assert await session.close() is result
        assert not session.is_running
        return result

    result = RUNNERS[runner](main())
    assert eventually(lambda: marked(mark) == [])
    return result


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("way", EVERY)
def test_lines_go_both_ways(way: str, runner: str) -> None:
    async def body(session: Session) -> None:
        for number in range(50):
            await session.send(f"{number}ab\n".encode())
            assert await session.read_line(10) == f"ba{str(number)[::-1]}\n".encode()
        await session.send(b"x\ny\n")
        assert [await session.read_line(10), await session.read_line(10)] == [b"x\n", b"y\n"]
        assert session.is_running

    result = talk(ECHO, body, way, runner)
    assert (result.outcome, result.exit_code, result.stdout) == ("signalled", None, "")


@pytest.mark.parametrize("runner", RUNNERS)
def test_waiting_ends_and_loses_nothing(runner: str) -> None:
    program = "import sys, time\nsys.stdout.write('one '); sys.stdout.flush(); sys.stdin.readline(); print('line')"

    async def body(session: Session) -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await session.read_line(0.2)
        await session.send(b"\n")
        assert await session.read_line(10) == b"one line\n"
        assert await session.read_line(10) == b""
        assert await session.read_line(10) == b""

    assert talk(program, body, runner=runner).exit_code == 0


@pytest.mark.parametrize("way", EVERY)
def test_the_end_of_the_program_is_the_end_of_its_lines(way: str) -> None:
    async def body(session: Session) -> None:
        assert await session.read_line(10) == b"last words\n"
        assert await session.read_line(10) == b"and half"
        assert await session.read_line(10) == b""
        await session.send(b"too late\n")

    result = talk("import sys\nprint('last words\\nand half', end='')\nsys.exit(3)", body, way)
    assert (result.outcome, result.exit_code) == ("exited", 3)


@pytest.mark.slow
def test_a_program_that_floods_waits_for_its_reader() -> None:
    program = "import sys\nfor n in range(300_000): print(n, 'x' * 90)\nprint('all', file=sys.stderr)"

    async def body(session: Session) -> None:
        await asyncio.sleep(0.5)
        assert session.is_running
        for number in range(300_000):
            assert await session.read_line(20) == b"%d %s\n" % (number, b"x" * 90)
        assert await session.read_line(20) == b""

    result = talk(program, body, output_bytes=20_000, wall_seconds=120, cpu_seconds=60)
    assert (result.exit_code, result.stderr) == (0, "all\n")


def test_a_line_that_is_too_long_comes_in_parts() -> None:
    async def body(session: Session) -> None:
        parts: list[bytes] = []
        while not (parts and parts[-1].endswith(b"\n")):
            parts.append(await session.read_line(10))
        assert b"".join(parts) == b"x" * 500_000 + b"\n"
        assert len(parts) > 1

    talk("print('x' * 500_000)\ninput()", body, output_bytes=10_000)


@pytest.mark.parametrize("runner", RUNNERS)
def test_sending_waits_for_a_program_that_does_not_read(runner: str) -> None:
    async def body(session: Session) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await session.send(b"x" * 5_000_000)

    talk("import time; time.sleep(60)", body, runner=runner)


def test_sending_to_a_program_that_dies_meanwhile_ends() -> None:
    async def body(session: Session) -> None:
        async with asyncio.timeout(60):
            await session.send(b"x" * 5_000_000)
            assert await session.read_line(10) == b""

    assert talk("import time; time.sleep(0.3)", body).outcome == "exited"


@pytest.mark.parametrize("way", EVERY)
def test_what_was_not_read_is_in_the_result(way: str) -> None:
    async def body(session: Session) -> None:
        assert await session.read_line(10) == b"one\n"
        async with asyncio.timeout(60):
            while session.is_running:  # noqa: ASYNC110  # another process is watched
                await asyncio.sleep(0.01)

    result = talk("print('one'); print('two')", body, way)
    assert (result.stdout, result.exit_code) == ("two\n", 0)


@pytest.mark.parametrize(
    ("program", "limits", "outcome"),
    [
        ("import time; time.sleep(60)", {"wall_seconds": 0.5}, "timeout"),
        ("while True: pass", {"cpu_seconds": 1}, "cpu"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", {"output_bytes": 1000}, "output"),
    ],
)
@pytest.mark.parametrize("way", EVERY)
def test_limits_hold_for_a_session_as_a_whole(way: str, program: str, limits: dict[str, Any], outcome: str) -> None:
    async def body(session: Session) -> None:
        assert await session.read_line(20) == b""

    assert talk(program, body, way, **limits).outcome == outcome


def test_a_session_that_is_left_by_an_error_leaves_nothing() -> None:
    mark = f"mark-{secrets.token_hex(8)}"

    async def main() -> None:
        async with sandbox().session({}, ["python", "-c", ECHO, mark]) as session:
            await session.send(b"x\n")
            await session.read_line(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert marked(mark) == []


def test_a_session_can_be_opened_and_closed_by_hand_and_does_not_wait_its_turn() -> None:
    async def main() -> None:
        sessions = [await sandbox().open_session({}, ["python", "-c", ECHO]) for _ in range(12)]
        for session in sessions:
            await session.send(b"ab\n")
        assert [await session.read_line(10) for session in sessions] == [b"ba\n"] * 12
        for session in sessions:
            await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("way", EVERY)
def test_a_program_that_cannot_be_started_is_an_error_of_the_sandbox(way: str) -> None:
    async def main() -> None:
        await sandbox(way).open_session({}, ["no-such-program"])

    with pytest.raises(SandboxError, match="cannot be started"):
        asyncio.run(main())


@pytest.mark.parametrize("way", EVERY)
def test_a_program_that_is_let_go_of_was_not_late(way: str) -> None:
    """Closing lets go first and kills then; on a busy machine the keeper comes first, and says how it went."""

    async def main() -> Result:
        async with sandbox(way).session({}, ["python", "-c", ECHO], Limits()) as session:
            process: Any = session._process  # type: ignore[attr-defined]
            process._launch.lifeline.cut()
            assert await session.read_line(10) == b""
            return await session.close()

    result = asyncio.run(main())
    assert (result.outcome, result.exit_code) == ("signalled", None)
