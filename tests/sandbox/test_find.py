"""The choice of a sandbox: what works is taken, what does not is named, and nothing is never taken for something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxes import sandbox

from harness.core.errors import ConfigError, EnvironmentFault
from harness.sandbox import Sandbox, find_sandbox

FIND = """
import sys
from harness.core.errors import HarnessError
from harness.sandbox import find_sandbox
try:
    print(find_sandbox(*sys.argv[1:]).name)
except HarnessError as error:
    print(f"{type(error).__name__} {error.exit_code}: {error}")
"""


def find(path: Path, *arguments: str) -> str:
    """What `find_sandbox` comes to where only `path` holds programs."""
    done = subprocess.run(
        [sys.executable, "-c", FIND, *arguments],
        env={**os.environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_every_way_keeps_the_protocol() -> None:
    assert isinstance(sandbox(), Sandbox)
    assert isinstance(find_sandbox("unsafe-local"), Sandbox)
    assert find_sandbox("bubblewrap") is find_sandbox("auto")


def test_without_any_it_says_what_to_install_and_never_goes_without(tmp_path: Path) -> None:
    said = find(tmp_path)
    assert said.startswith("SandboxMissing 2: model-written code needs a sandbox, and none works here: ")
    for part in ("bubblewrap (bwrap) is not installed", "docker is not installed", "podman is not installed"):
        assert part in said
    assert "apt-get install bubblewrap" in said
    assert "sandbox='unsafe-local', which runs the code without isolation" in said
    assert find(tmp_path, "unsafe-local") == "unsafe-local"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bubblewrap", "docker", "podman"])
def test_what_was_asked_for_by_name_is_not_replaced(tmp_path: Path, name: str) -> None:
    for other in {"docker", "podman"} - {name}:
        script(tmp_path, other, "exit 0")
    assert find(tmp_path, name).startswith("SandboxMissing 2: ")
    assert f"{name} (bwrap) is not installed" in find(tmp_path, name) or f"{name} is not installed" in find(
        tmp_path, name
    )


def test_a_bubblewrap_that_does_not_work_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    script(tmp_path, "bwrap", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    assert "does not work: bwrap: No permissions to create a new namespace" in find(tmp_path)
    script(tmp_path, "podman", "exit 0")
    assert find(tmp_path) == "podman"
    script(tmp_path, "docker", "exit 0")
    assert find(tmp_path) == "docker"
    script(tmp_path, "docker", "echo 'permission denied' >&2; exit 1")
    assert find(tmp_path) == "podman"


def test_a_bubblewrap_that_is_too_old_is_told_by_its_own_words(tmp_path: Path) -> None:
    script(tmp_path, "bwrap", "echo 'bwrap: Unknown option --size' >&2; exit 1")
    said = find(tmp_path, "bubblewrap")
    assert "Unknown option --size" in said
    assert "0.7 or newer" in said


def test_one_that_lies_is_found_out(tmp_path: Path) -> None:
    script(tmp_path, "bwrap", "cat > /dev/null; exit 0")
    (tmp_path / "cat").symlink_to("/bin/cat")
    assert "no error message" in find(tmp_path, "bubblewrap")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bwrap", 'did you mean "bubblewrap"'),
        ("Docker", 'did you mean "docker"'),
        ("unsafe_local", 'did you mean "unsafe-local"'),
    ],
)
def test_an_unknown_name_is_refused(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        find_sandbox(name)


def test_a_package_that_is_not_there_is_named() -> None:
    sandbox()
    with pytest.raises(EnvironmentFault, match=r"the package 'no_such_package', which .* is not installed"):
        find_sandbox("bubblewrap", packages=["no_such_package"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_works_for_an_ordinary_user_as_well(tmp_path: Path) -> None:
    """Root makes no user namespace, everybody else does: the way that most people have is tried here, too."""
    interpreter = "/usr/bin/python3"
    version = subprocess.run(
        [interpreter, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if version.stdout.strip() != "True":
        pytest.skip(f"{interpreter} is not a Python that everybody may start, 3.11 or newer")
    sandbox()
    program = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from harness.sandbox import Limits, find_sandbox
from harness.sandbox.api import Result
BOMB = '''
import json, os, time
made = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(10)
        made += 1
except OSError:
    pass
status = open("/proc/self/status").read()
refused = []
write = lambda path: lambda name: open(path, "w")
for attempt in (os.memfd_create, lambda name: os.listdir("/home"), write("/dev/x"), write("/x")):
    try:
        attempt("x")
    except OSError as error:
        refused.append(error.errno)
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if b"yranac"[::-1] in open(f"/proc/{pid}/environ", "rb").read():
            refused.append("environment")
    except OSError:
        pass
print(json.dumps([made, os.getuid(), int(status.split("CapEff:")[1].split()[0], 16), refused]), flush=True)
os._exit(0)
'''
async def main():
    runs = [await find_sandbox("bubblewrap").run({}, ["python", "-c", BOMB], b"", Limits(processes=12)) for _ in "ab"]
    grow = "x = []\\nimport time\\nwhile True: x.append(bytearray(b'x') * (20 << 20)); time.sleep(0.05)"
    memory = await find_sandbox("bubblewrap").run({}, ["python", "-c", grow], b"", Limits(memory_mb=200))
    print(json.dumps([*(json.loads(run.stdout) for run in runs), memory.outcome]))
asyncio.run(main())
"""
    house = tmp_path / "house"
    house.mkdir()
    subprocess.run(["cp", "-r", str(Path(__file__).parents[2] / "harness"), str(house)], check=True)
    for folder in [house, *house.parents]:
        if folder.owner() == "root" and str(folder).startswith("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run(
        [interpreter, "-c", program, str(house)],
        user=54321, group=54321, extra_groups=[], cwd="/", capture_output=True, text=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "BENCH": "canary"}, check=False,
    )  # fmt: skip
    assert done.stdout == '[[11, 65534, 0, [1, 2, 30, 30]], [11, 65534, 0, [1, 2, 30, 30]], "memory"]\n', done.stderr
