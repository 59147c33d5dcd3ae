"""The way through docker or podman, against a stand-in engine: a real executable on PATH that records what it is asked,
runs a real process that outlives its client, and removes it when told to. What an engine makes of its options is the
engine's; that they are the right ones is checked word for word."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxes import eventually, marked, sandbox

from harness.core.errors import SandboxError, SandboxMissing
from harness.sandbox import Limits, Sandbox, find_sandbox
from harness.sandbox.find import _container  # pyright: ignore[reportPrivateUsage]

ENGINE = """\
#!{python}
import json, os, signal, subprocess, sys
folder = {folder!r}
with open(folder + "/asked", "a") as file:
    file.write(json.dumps([sys.argv[1:], sorted(os.environ)]) + "\\n")
if sys.argv[1] == "info":
    sys.stderr.write("Cannot connect to the daemon\\n" if os.path.exists(folder + "/broken") else "")
    sys.exit(os.path.exists(folder + "/broken"))
if sys.argv[1] == "rm":
    try:
        os.killpg(int(open(folder + "/" + sys.argv[3]).read()), signal.SIGKILL)
        os.unlink(folder + "/" + sys.argv[3])
    except (OSError, ValueError):
        sys.exit(1)
if sys.argv[1] == "run":
    if os.path.exists(folder + "/no image"):
        sys.stderr.write("Unable to find image\\n")
        sys.exit(125)
    name, image = sys.argv[sys.argv.index("--name") + 1], {image!r}
    inside = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    started = subprocess.Popen([*inside, {python!r}, *sys.argv[sys.argv.index(image) + 1:]], start_new_session=True)
    with open(folder + "/" + name, "w") as file:
        file.write(str(started.pid))
    code = started.wait()
    os.unlink(folder + "/" + name)
    sys.exit(code)
"""


class Engine:
    """The stand-in, and what it was asked.

    Args:
        folder: Where it lies.
        name: `docker` or `podman`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        path = folder / name
        python = os.path.realpath(sys.executable)  # a virtual environment below /tmp would not be seen inside
        path.write_text(ENGINE.format(python=python, folder=str(folder), image="some/image:1"))
        path.chmod(0o755)

    @property
    def asked(self) -> list[tuple[list[str], list[str]]]:
        """Arguments and names of the environment, call by call."""
        return [tuple(json.loads(line)) for line in (self.folder / "asked").read_text().splitlines()]

    @property
    def containers(self) -> list[str]:
        """Names of those that live."""
        return [path.name for path in self.folder.glob("bench-*")]


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    sandbox()  # the stand-in needs bubblewrap for a /tmp of its own
    _container.cache_clear()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    monkeypatch.setenv("SECRET_KEY", "canary")
    yield Engine(tmp_path, request.param)
    _container.cache_clear()


def found(engine: Engine) -> Sandbox:
    name = next(path.name for path in engine.folder.iterdir() if path.name in ("docker", "podman"))
    container = find_sandbox(name, image="some/image:1")
    assert container.name == name
    return container


def test_the_engine_is_asked_for_every_protection(engine: Engine) -> None:
    limits = Limits(memory_mb=300, processes=20, disk_mb=64)
    result = asyncio.run(found(engine).run({"a.py": "print(input())"}, ["python3", "a.py"], "hi\n", limits))
    assert (result.stdout, result.stderr, result.outcome, result.exit_code) == ("hi\n", "", "exited", 0)
    (info, _), (run, environment), (remove, _) = engine.asked
    assert info == ["info"]
    name = run[run.index("--name") + 1]
    assert name.startswith(f"bench-{os.getpid()}-")
    assert run[: run.index("some/image:1") + 1] == [
        "run", "--rm", "--interactive", "--read-only", "--name", name, "--network", "none", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "--user", "65534:65534", "--hostname", "sandbox", "--ipc", "private",
        "--log-driver", "none", "--pids-limit", "21", "--memory", "300m", "--memory-swap", "300m", "--shm-size", "8m",
        "--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777,size=56m", "--workdir", "/tmp", "--entrypoint", "python3",
        "some/image:1",
    ]  # fmt: skip
    assert not any("mount" in word or "volume" in word or word in ("-v", "-e", "--env", "--privileged") for word in run)
    assert "SECRET_KEY" not in environment
    assert {"PATH", "DOCKER_HOST"} <= set(environment)
    assert remove == ["rm", "--force", name]


def test_the_program_finds_nothing_of_our_environment(engine: Engine) -> None:
    argv = ["python3", "-c", "import json, os; print(json.dumps(sorted(os.environ)))"]
    names: list[str] = json.loads(asyncio.run(found(engine).run({}, argv)).stdout)
    assert {"PATH", "HOME", "TMPDIR"} <= set(names)
    assert {"SECRET_KEY", "DOCKER_HOST"}.isdisjoint(names)


@pytest.mark.parametrize("how", ["time", "cancelled", "output"])
def test_the_container_is_removed_however_a_run_ends(engine: Engine, how: str) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    program = "import os, time\nos.fork()\nwhile True: time.sleep(1)"
    if how == "output":
        program = "while True: print('x' * 1000)"
    container = found(engine)

    async def main() -> str:
        async with asyncio.timeout(2 if how == "cancelled" else 60):
            argv = ["python3", "-c", program, mark]
            seconds = 60.0 if how == "cancelled" else 1.0
            limits = Limits(wall_seconds=seconds, output_bytes=1000)
            return (await container.run({}, argv, b"", limits)).outcome

    if how == "cancelled":
        with pytest.raises(TimeoutError):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == {"time": "timeout", "output": "output"}[how]
    assert eventually(lambda: marked(mark) == [])
    assert engine.containers == []
    assert engine.asked[-1][0][:2] == ["rm", "--force"]


def test_a_session_goes_through_and_its_container_is_removed(engine: Engine) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    container = found(engine)

    async def main() -> None:
        argv = ["python3", "-uc", "while True: print(input()[::-1])", mark]
        async with container.session({}, argv, Limits(wall_seconds=60)) as session:
            await session.send(b"abc\n")
            assert await session.read_line(20) == b"cba\n"

    asyncio.run(main())
    assert eventually(lambda: marked(mark) == [])
    assert engine.containers == []


@pytest.mark.slow
def test_a_killed_harness_leaves_a_container_no_longer_than_its_time(engine: Engine) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    name = found(engine).name
    code = textwrap.dedent("""
        import asyncio, sys
        from harness.sandbox import Limits, find_sandbox
        container = find_sandbox(sys.argv[1], image="some/image:1")
        argv = ["python3", "-c", "import time; time.sleep(60)", sys.argv[2][::-1]]
        asyncio.run(container.run({}, argv, b"", Limits(wall_seconds=3)))
        """)
    with subprocess.Popen([sys.executable, "-c", code, name, mark[::-1]]) as harness:
        assert eventually(lambda: len(marked(mark)) == 1, 20)
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    assert marked(mark) != []
    assert eventually(lambda: marked(mark) == [], 10)
    assert eventually(lambda: engine.containers == [], 10)


def test_an_engine_that_cannot_start_the_image_is_no_answer_of_the_program(engine: Engine) -> None:
    container = found(engine)
    (engine.folder / "no image").touch()
    with pytest.raises(SandboxError, match="failed with exit code 125: Unable to find image"):
        asyncio.run(container.run({}, ["python3", "-c", ""]))


def test_an_engine_whose_daemon_does_not_answer_is_not_taken(engine: Engine) -> None:
    (engine.folder / "broken").touch()
    with pytest.raises(SandboxMissing, match="does not work: Cannot connect to the daemon"):
        found(engine)


@pytest.mark.parametrize(
    ("report", "outcome"), [({"signal": 9, "memory": True}, "memory"), ({"signal": 9}, "signalled")]
)
def test_the_engines_word_on_memory_counts(report: dict[str, Any], outcome: str) -> None:
    from harness.sandbox.process import _outcome  # pyright: ignore[reportPrivateUsage]

    assert _outcome({"wall": 1.0, "cpu": 0.1, **report}, Limits()) == outcome
