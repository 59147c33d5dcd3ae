"""What an import does to the process that looks at it: each environment is imported by a real child process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.authoring.child_process import installed_now, verify

GOOD = "def load_environment(): ...\n"


@pytest.fixture
def put(install: Any, site: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a module that new processes find, too."""
    monkeypatch.setenv("PYTHONPATH", str(site))

    def put(name: str, source: str) -> None:
        install(name, {f"{name}.py": source}, entry=f"{name} = {name}")

    return put


@pytest.mark.slow
def test_what_an_import_writes_to_stdout_is_not_taken_for_the_answer(put: Any) -> None:
    put("loud_one", "import os, subprocess\nos.write(1, b'[]')\nsubprocess.run(['echo', 'hello'])\n" + GOOD)
    assert [(each.name, each.problem) for each in verify(["loud-one"])] == [("loud_one", "")]
    assert "loud_one" in [each.name for each in installed_now()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("os._exit(3)", "importing it ended the process with exit code 3"),
        ("os._exit(0)", "importing it ended the process with exit code 0"),
        ("os.write(2, b'no licence\\n'); os._exit(4)",
         "importing it ended the process with exit code 4; its last output: no licence"),
        ("os.kill(os.getpid(), 9)", "importing it ended the process with signal SIGKILL"),
        ("raise SystemExit(5)",
         "environment 'deadly_one': importing it failed: SystemExit: 5 (in <module>, deadly_one.py:2)"),
    ],
)  # fmt: skip
def test_an_import_that_ends_its_process_is_named_and_says_nothing_of_others(line: str, problem: str, put: Any) -> None:
    put("deadly_one", f"import os\n{line}\n{GOOD}")
    put("sound_one", GOOD)
    found = {each.name: each.problem for each in verify(["deadly_one", "sound_one"])}
    assert found == {"deadly_one": problem, "sound_one": ""}


def test_an_import_that_never_comes_back_is_ended_with_what_it_started(put: Any, tmp_path: Path) -> None:
    note = tmp_path / "child"
    put("slow_one", "import pathlib, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\ntime.sleep(600)\n" + GOOD)  # fmt: skip
    [found] = verify(["slow_one"], 3.0)
    assert found.problem == "importing it took more than 3 seconds"
    pid = int(note.read_text())
    deadline = time.monotonic() + 60
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
