"""What environments may not do to the process that they share."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tables import for_each_row

from harness.core.errors import EnvironmentFault
from harness.usercode import guarded
from harness.usercode.guarded import guarded as block

EVERY = {(module, name): getattr(module, name) for module, name in (
    (os, "_exit"), (os, "abort"), (os, "chdir"), (os, "fchdir"), (os, "close"), (os, "closerange"), (signal, "signal"),
)}  # fmt: skip


def on_a_loop(function: Callable[[], object]) -> None:
    async def main() -> None:
        function()

    asyncio.run(main())


def test_pythons_own_functions_come_back() -> None:
    with block():
        assert all(getattr(module, name) is not own for (module, name), own in EVERY.items())
        with block():
            pass
        assert os._exit is not EVERY[os, "_exit"], "the block inside ends nothing"
    assert all(getattr(module, name) is own for (module, name), own in EVERY.items())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@for_each_row(("call", "words"), [(lambda: os._exit(0), "os._exit(0)"), (os.abort, "os.abort()")])
def test_the_process_goes_on(call: Callable[[], object], words: str) -> None:
    with block(), pytest.raises(SystemExit) as ended:
        call() if words != "os.abort()" else os.abort()
    assert ended.value.code == words


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_end_of_a_thread_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with block(), caplog.at_level(logging.WARNING):

        def watch() -> None:
            os._exit(0)

        thread = threading.Thread(target=watch, name="watcher")
        thread.start()
        thread.join()
    line = watch.__code__.co_firstlineno + 1
    assert caplog.messages == [f"thread watcher called os._exit(0), which ended that thread (test_guarded.py:{line})"]


def test_a_child_ends_as_it_likes() -> None:
    with block():
        pid = os.fork()
        if pid == 0:
            os.chdir("/")
            os.closerange(3, 64)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_the_working_directory_may_be_left_while_nothing_runs_and_not_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with block():
        os.chdir("/")
        assert guarded.moved_by() == f"test_guarded.py:{inspect.currentframe().f_lineno - 1}"  # type: ignore[union-attr]
        os.chdir(tmp_path)
        with pytest.raises(EnvironmentFault, match=r"os.chdir\('/'\) would change the working directory of every run"):
            on_a_loop(lambda: os.chdir("/"))
        assert Path.cwd() == tmp_path
        folder = os.open("/", os.O_RDONLY)
        with pytest.raises(EnvironmentFault, match=r"os\.fchdir would change the working directory"):
            on_a_loop(lambda: os.fchdir(folder))
        os.close(folder)
        assert Path.cwd() == tmp_path


@for_each_row("fd", [0, 1, 2])
def test_standard_streams_stay_open(fd: int) -> None:
    with block(), pytest.raises(EnvironmentFault, match=rf"os.close\({fd}\) would close std"):
        os.close(fd)
    os.fstat(fd)


def test_files_of_others_stay_open() -> None:
    with block():
        mine = os.open(os.devnull, os.O_RDONLY)
        with pytest.raises(EnvironmentFault, match=r"os.closerange\(3, 64\) would close files of every run"):
            os.closerange(3, 64)
        os.fstat(mine)
        os.close(mine)
        with pytest.raises(OSError):
            os.fstat(mine)


def test_ctrl_c_stays_ours_once_anything_runs() -> None:
    with block():
        ours = signal.getsignal(signal.SIGINT)
        for number in (signal.SIGINT, signal.SIGTERM):
            with pytest.raises(EnvironmentFault, match="would take Ctrl-C from the runs"):
                on_a_loop(lambda number=number: signal.signal(number, signal.SIG_IGN))
        assert signal.getsignal(signal.SIGINT) is ours
        before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        on_a_loop(lambda: signal.signal(signal.SIGUSR1, before))


def test_what_is_replaced_is_put_back_and_named() -> None:
    def fake(*_: object) -> str:
        return "no"

    own, words = json.dumps, f"json.dumps by fake (test_guarded.py:{fake.__code__.co_firstlineno})"
    assert guarded.put_back() == "", "nothing is guarded"
    with block():
        assert guarded.put_back() == ""
        json.dumps = fake  # type: ignore[assignment]
        assert guarded.put_back() == words
        assert json.dumps is own and guarded.put_back() == ""
        assert guarded.replaced_by([Path(__file__)]) == words
        assert guarded.replaced_by([Path("another.py")]) == ""
    assert guarded.replaced_by([Path(__file__)]) == ""
