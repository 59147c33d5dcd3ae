"""Environments are imported elsewhere, and neither built nor run: whatever they do, the others are told of."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shelf import Shelf

from harness.cli.doctor.machine import BACKENDS, backend_findings
from harness.cli.doctor.packages import (
    WantedEnvironment,
    check_environments,
    import_all,
    install_extra,
    wanting_sandbox,
)
from harness.settings.packages import FoundEnvironment, find_environment

SOUND = "def load_environment():\n    raise RuntimeError('must not be called')\n"


@pytest.fixture
def write(plain: Path) -> Path:
    for name, text in {
        "sound.py": SOUND,
        "leaves.py": "import os\nos._exit(3)\n",
        "hangs.py": "import time\ntime.sleep(60)\n",
        "shouts.py": f"print('noise')\n{SOUND}",
        "wants.py": "import fastmcp_of_nobody\n",
        # As `import textarena` fails where the extra is not installed.
        "wants_extra.py": "raise ModuleNotFoundError(\"No module named 'textarena'\", name='textarena')\n",
        "wrong.py": "1 / 0\n",
        "empty.py": "",
        "codes.py": f"from harness.sandbox import find_sandbox\n{SOUND}",
        "offline.py": "import os\nassert os.environ['HF_HUB_OFFLINE'] == '1'\n" + SOUND,
    }.items():
        (plain / name).write_text(text)
    return plain


def wanted(name: str) -> WantedEnvironment:
    found = find_environment(f"./{name}.py")
    assert found is not None
    return WantedEnvironment(f"./{name}.py", name, found)


def test_whatever_one_does_the_others_are_imported(write: Path) -> None:
    names = ("sound", "leaves", "shouts", "hangs", "wrong", "offline", "leaves")
    done = import_all([f"./{name}.py" for name in names], patience=3.0)
    assert len(done) == len(names)
    assert [problem for problem, _ in done if problem] == [
        "importing it ended the process with exit code 3",
        "importing it took more than 3 seconds",
        "environment './wrong.py': importing it failed: ZeroDivisionError: division by zero (in <module>, wrong.py:1)",
        "importing it ended the process with exit code 3",
    ]
    assert import_all([]) == []


def test_nothing_is_left_of_an_import_whose_parent_was_killed(write: Path) -> None:
    (write / "endless.py").write_text(
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'])\n"
        "pathlib.Path('new').write_text(f'{os.getpid()} {child.pid}')\n"
        "os.rename('new', 'pids')\n"
        "time.sleep(120)\n"
    )
    code = "from harness.cli.doctor.packages import import_all; import_all(['./endless.py'], 100.0)"
    scratch = write / "scratch"  # of a process that is killed, and cannot clear it up
    scratch.mkdir()
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(scratch)})
    try:
        wait_for(Path("pids").exists)
    finally:
        parent.kill()
        parent.wait()
    pids = [int(word) for word in Path("pids").read_text().split()]
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_running, pids)))


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when it holds; processes begin and end in their own time."""
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() != "" and not done.stdout.startswith("Z")


@pytest.mark.plugins
def test_each_is_told_of_with_what_to_do(write: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = check_environments([wanted(name) for name in ("sound", "shouts", "wants", "wants_extra", "wrong", "empty")])
    assert [(each.name, each.status) for each in found] == [
        ("sound", "ok"), ("shouts", "ok"), ("wants", "problem"), ("wants_extra", "problem"), ("wrong", "problem"),
        ("empty", "problem"),
    ]  # fmt: skip
    assert found[0].says.startswith("not installed; used from its files; imported in ")
    assert "fastmcp_of_nobody" in found[2].says and "pip install fastmcp_of_nobody" in found[2].fix
    assert found[3].fix == install_extra("textarena")
    assert found[4].fix == "see where it fails: bench env check ./wrong.py"
    assert capfd.readouterr() == ("", "")


def test_what_is_built_in_is_not_imported(write: Path) -> None:
    found = check_environments(
        [WantedEnvironment("agent-eval", "agent-eval", FoundEnvironment("nothing_of_this_name"), True)]
    )
    assert [(each.name, each.status, each.says) for each in found] == [("agent-eval", "ok", "is built in")]


def test_what_a_distribution_wants_beside_it_is_looked_for(write: Path, shelf: Shelf) -> None:
    shelf.put("bench-harness", "0.1.0", ['fastmcp>=2.14; extra == "mcp"'], ["mcp"])
    shelf.put("toy", "1.0", ["bench-harness[mcp]", "verifiers>=0.1", "rich>=13", "wordlist", "tables; extra == 'x'"])
    shelf.put("rich", "12.0")
    path = Path("sound.py").resolve()
    toy = WantedEnvironment("./sound.py", "toy", FoundEnvironment("sound", "toy", "1.0", (path,), path=path))
    found = check_environments([toy], shelf.installed)
    assert [(each.status, each.says) for each in found[1:]] == [
        ("problem", "needs the extra mcp of bench, but its requirements are not met: fastmcp"),
        ("note", "needs rich>=13, but 12.0 is installed"),
        ("note", "needs wordlist, but it is not installed"),
    ]
    assert found[1].fix == install_extra("mcp")


def test_those_whose_code_speaks_of_a_sandbox_want_one(write: Path) -> None:
    assert wanting_sandbox([wanted("sound"), wanted("codes")]) == ["codes"]


def test_no_sandbox_is_a_problem_for_who_wants_one_and_a_note_for_others() -> None:
    none = [f"{name} is not installed" for name in BACKENDS]
    [noted] = backend_findings(none)
    [told] = backend_findings(none, ["codes"])
    assert (noted.status, told.status) == ("note", "problem")
    assert told.says.startswith("codes may run code that a model has written, and no sandbox works: bubblewrap is not")
    [works] = backend_findings([none[0], "", none[2]], ["codes"])
    assert (works.status, works.name) == ("ok", "docker")
    assert "podman is not installed" in works.says
    assert os.path.sep not in works.says
