"""The display in a real child process, under a pseudo-terminal and through pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tables import for_each_row

CHILD = """
import os, sys, time
from harness.engine.progress import RunProgress
from harness.report.live import open_display
from harness.core.types import Usage

how = sys.argv[1]
run = RunProgress("gsm8k", "gsm8k", "my-model")
with open_display([run], quiet="--quiet" in sys.argv) as display:
    run.total, run.started, run.state = 40, time.monotonic(), "running"
    display.tick()
    for index in range(40):
        run.scored += 1
        run.rewards.add(index, 1.0)
        run.usage += Usage(10, 5, requests=1)
        if index == 20:
            print("printed by an environment")
            display.say("said \\x1b[2Jby the engine")
            display.tick()
            if how == "raise":
                raise ValueError("a bug")
            if how == "kill":
                os.kill(os.getpid(), 9)
            if how == "interrupt":
                os.kill(os.getpid(), 2)
    run.state, run.finished = "done", time.monotonic()
print("the table")
"""

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def in_terminal(
    how: str, *arguments: str, stdout: int | None = None, environ: dict[str, str] | None = None
) -> tuple[str, int]:
    """Run the child with a pseudo-terminal of 80 × 24; everything written to it, and the exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, how, *arguments],
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env={**clean, "TERM": "xterm-256color", **(environ or {})},
    )
    os.close(slave)
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not part:
            break
        parts.append(part)
    os.close(master)
    return b"".join(parts).decode(), child.wait(timeout=60)


def test_a_terminal_gets_a_table_that_goes_when_the_result_comes() -> None:
    output, code = in_terminal("finish")
    assert code == 0
    assert "gsm8k" in output and "━" in output and "my-model" in output
    assert "printed by an environment\r\n" in output
    assert "said by the engine" in output and "\x1b[2J" not in output
    assert "\x1b[1A\x1b[2K" in output  # the lines of the table are taken back
    assert output.rstrip().endswith("the table")


@for_each_row(("how", "code"), [("raise", 1), ("interrupt", -signal.SIGINT)])
def test_an_exception_leaves_a_usable_terminal_and_the_last_picture(how: str, code: int) -> None:
    output, exit_code = in_terminal(how)
    assert exit_code == code
    assert output.rindex(SHOW) > output.rindex(HIDE)
    # stderr is its own again: the traceback stands below the last picture.
    assert output.rindex("21/40") < output.rindex("Traceback")


def test_a_process_that_is_killed_leaves_the_cursor_visible() -> None:
    output, code = in_terminal("kill")
    assert code == -signal.SIGKILL
    assert output.rindex(SHOW) > output.rindex(HIDE)


@for_each_row("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_plain_lines_where_colour_is_not_welcome(environ: dict[str, str]) -> None:
    output, code = in_terminal("finish", environ=environ)
    assert code == 0
    assert "\x1b" not in output
    assert output.startswith("gsm8k · my-model: 40 rollouts\r\n")
    assert "gsm8k: done, 40/40, mean 1.000 ±" in output


def test_quiet_is_one_line_a_run() -> None:
    output, _ = in_terminal("finish", "--quiet")
    assert "\x1b" not in output
    assert [line for line in output.splitlines() if line.startswith("gsm8k")] == [
        line for line in output.splitlines() if line.startswith("gsm8k: done, 40/40")
    ]


def test_stdout_in_a_file_holds_data_only_and_stderr_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        output, code = in_terminal("finish", stdout=file.fileno())
    assert code == 0
    assert path.read_text() == "printed by an environment\nthe table\n"
    assert "\x1b" not in output and "gsm8k: done, 40/40" in output


def test_pipes_get_plain_lines() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "finish"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "printed by an environment\nthe table\n"
    lines = done.stderr.splitlines()
    assert lines[0] == "gsm8k · my-model: 40 rollouts"
    assert lines[1] == "said by the engine"
    assert lines[-1].startswith("gsm8k: done, 40/40, mean 1.000 ±")


def test_a_reader_of_stderr_that_goes_away_does_not_end_the_run() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "finish"], stdout=subprocess.PIPE, stderr=write, timeout=60, check=False
    )
    os.close(write)
    assert done.stdout == b"printed by an environment\nthe table\n"
