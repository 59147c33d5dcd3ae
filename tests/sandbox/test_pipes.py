"""The reading of a contained process's streams, and the measuring of a tree, apart from any sandbox."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sandbox.pipes import BoundedOutput, LauncherReports
from harness.sandbox.seccomp import filter_program
from harness.sandbox.tree import exact_memory, usage

NONCE = "0f" * 16
REPORT = f'\n\x1e{NONCE} {{"code": 3}}\n'.encode()


@given(st.lists(st.binary(max_size=40) | st.just(REPORT) | st.just(REPORT[:20]), max_size=8), st.integers(1, 60))
def test_reports_are_parted_from_output_however_it_is_cut(parts: list[bytes], size: int) -> None:
    stream = b"".join(parts)
    reports, own = LauncherReports(NONCE), b""
    for at in range(0, len(stream), size):
        own += reports.add(stream[at : at + size])
    own += reports.rest()
    assert own == stream.replace(REPORT, b"")
    assert reports.seen == [{"code": 3}] * stream.count(REPORT)


@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(1, 50))
def test_the_first_bytes_are_kept_and_the_rest_is_counted(parts: list[bytes], bound: int) -> None:
    kept = BoundedOutput(bound)
    for part in parts:
        kept.add(part)
    stream = b"".join(parts)
    assert bytes(kept.data) == stream[:bound]
    assert kept.is_truncated == (len(stream) > bound)
    assert kept.is_above_kill_limit == (len(stream) > 8 * bound)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_tree_is_counted_with_its_threads_and_memory() -> None:
    program = (
        "import os, sys, threading, time\n"
        "held = bytearray(b'x') * (50 << 20)\n"
        "if os.fork():\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "os.write(1, b'.')\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = b""
        while len(said) < 2:
            said += os.read(process.stdout.fileno(), 2)
        used = usage(process.pid)
        assert used is not None
        assert used.pids[0] == process.pid
        assert (len(used.pids), used.threads) == (2, 3)
        assert used.memory >= 100 << 20  # the shared pages twice
        assert 50 << 20 <= exact_memory(used.pids) < 90 << 20
        os.kill(used.pids[1], 9)
        process.kill()
    assert usage(process.pid) is None


def test_the_filter_is_whole_for_every_known_processor() -> None:
    for machine in ("x86_64", "aarch64"):
        program = filter_program(machine)
        count, rest = divmod(len(program), 8)
        assert rest == 0
        assert 60 < count < 255
        for at in range(count):
            code, if_true, if_false = (
                int.from_bytes(program[at * 8 : at * 8 + 2], "little"),
                *program[at * 8 + 2 : at * 8 + 4],
            )
            assert code in (0x20, 0x15, 0x35, 0x45, 0x06)
            assert code == 0x06 or at + 1 + max(if_true, if_false) < count, "no jump leaves the program"
        assert program[-8:-4] == bytes.fromhex("06000000")
    assert filter_program("riscv64") == b""
