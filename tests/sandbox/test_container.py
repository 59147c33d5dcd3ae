"""Programs in containers of a real engine: their protection, their end, and what happens to the containers of a process
that is killed or of an engine that is out of order."""

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
from containers import IMAGE, PODMAN, exists, need_podman, podman
from sandboxes import eventually, marked

from harness.cli.doctor.machine import check_containers
from harness.core.errors import SandboxError, SandboxMissing
from harness.sandbox import Limits, Sandbox, engine_client, find_sandbox, leftovers
from harness.sandbox.engine_client import Engine
from harness.sandbox.find import find_engine
from harness.sandbox.leftovers import HELPER, is_over, labels, owner


@pytest.fixture
def container() -> Sandbox:
    need_podman()
    return find_sandbox("podman", image=IMAGE)


def test_a_program_has_no_network_no_rights_and_nothing_of_ours(
    container: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    program = """
import json, os
def can_write(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "input": input(), "variables": sorted(os.environ), "network": os.listdir("/sys/class/net"), "user": os.getuid(),
    "rights": int(status["CapEff"], 16), "new": status["NoNewPrivs"].strip(), "host": os.uname().nodename,
    "writes": [path for path in ("/etc/x", "/usr/x", "/x", "/tmp/x") if can_write(path)],
    "pids": open("/sys/fs/cgroup/pids.max").read().strip() if os.path.exists("/sys/fs/cgroup/pids.max") else "",
    "tmp": os.statvfs("/tmp").f_blocks * os.statvfs("/tmp").f_frsize,
}))
"""
    limits = Limits(memory_mb=300, processes=20, disk_mb=64)
    done = asyncio.run(container.run({"a.py": program}, ["python3", "a.py"], "hi\n", limits))
    assert (done.outcome, done.exit_code, done.stderr) == ("exited", 0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert {"PATH", "HOME", "TMPDIR"} <= {*found["variables"]} and "SECRET_KEY" not in found["variables"]
    assert (found["input"], found["network"], found["host"]) == ("hi", ["lo"], "sandbox")
    assert (found["user"], found["rights"], found["new"]) == (65534, 0, "1")
    assert found["writes"] == ["/tmp/x"]
    assert found["pids"] in ("21", "")
    assert found["tmp"] == 56 << 20


@pytest.mark.parametrize("how", ["time", "cancelled", "output", "memory"])
def test_the_container_is_removed_however_a_run_ends(container: Sandbox, how: str) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    program = {
        "output": "while True: print('x' * 1000)",
        "memory": "x = bytearray(200 << 20); x[::4096] = b'x' * len(x[::4096])",
    }.get(how, "import os, time\nos.fork()\nwhile True: time.sleep(1)")

    async def main() -> str:
        async with asyncio.timeout(3 if how == "cancelled" else 60):
            argv = ["python3", "-c", program, mark]
            seconds = 60.0 if how == "cancelled" else 2.0
            limits = Limits(wall_seconds=seconds, output_bytes=1000, memory_mb=100)
            return (await container.run({}, argv, b"", limits)).outcome

    if how == "cancelled":
        with pytest.raises(TimeoutError):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) in {"time": ["timeout"], "memory": ["memory", "exited"]}.get(how, [how])
    assert eventually(lambda: marked(mark) == [])
    assert ours() == []


def ours(pid: int | None = None) -> list[str]:
    """Containers that a process has started."""
    label = f"label=bench.owner={owner(pid or os.getpid())}"
    return podman("ps", "--all", "--quiet", "--no-trunc", "--filter", label).stdout.split()


def test_a_session_goes_through_and_its_container_is_removed(container: Sandbox) -> None:
    async def main() -> None:
        argv = ["python3", "-uc", "while True: print(input()[::-1])"]
        async with container.session({}, argv, Limits(wall_seconds=60)) as session:
            await session.send(b"abc\n")
            assert await session.read_line(20) == b"cba\n"
            assert len(ours()) == 1

    asyncio.run(main())
    assert ours() == []


def test_an_engine_that_cannot_start_the_image_is_no_answer_of_the_program() -> None:
    need_podman()
    container = find_sandbox("podman", image="localhost/no/such:1")
    with pytest.raises(SandboxError, match="podman failed with exit code 125"):
        asyncio.run(container.run({}, ["python3", "-c", ""]))


def test_an_engine_that_does_not_answer_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_podman()
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/no-socket")
    find_engine.cache_clear()
    try:
        with pytest.raises(SandboxMissing, match=r"podman does not work: .*no-socket"):
            find_sandbox("podman", image="another")
    finally:
        find_engine.cache_clear()


KEEPS = textwrap.dedent("""
    import asyncio, sys
    from harness.sandbox import MachineSpec, engine_client, leftovers, open_machine
    from harness.usercode.scope import enter_run

    # So that no other test takes its container for a leftover.
    engine_client.machine = leftovers.machine = lambda: sys.argv[3]

    async def main():
        enter_run("run-" + sys.argv[2])
        async with open_machine(MachineSpec(sandbox="podman", image=sys.argv[1], memory_mb=64)) as machine:
            print(machine.container, flush=True)
            await machine.exec(["sleep", "300"], timeout=300)

    asyncio.run(main())
    """)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a machine of this test alone."""
    name = secrets.token_hex(8)
    for module in (engine_client, leftovers):
        monkeypatch.setattr(module, "machine", lambda: name)
    return name


@pytest.fixture
def keeper(machine: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process, which keeps a container, and the container's name."""
    need_podman()
    command = [sys.executable, "-c", KEEPS, IMAGE, secrets.token_hex(4), machine]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert exists(name)
        try:
            yield process, name
        finally:
            process.kill()
            podman("rm", "--force", name, check=False)


def helper_of(process: subprocess.Popen[str]) -> int:
    [pid] = [pid for pid in marked(HELPER) if owner(process.pid) in Path(f"/proc/{pid}/cmdline").read_text()]
    return pid


def test_the_container_of_a_killed_process_is_removed_at_once(keeper: tuple[subprocess.Popen[str], str]) -> None:
    process, name = keeper
    process.kill()
    process.wait()
    assert eventually(lambda: not exists(name), 20)


def test_an_interrupted_process_removes_its_container(keeper: tuple[subprocess.Popen[str], str]) -> None:
    process, name = keeper
    helper = helper_of(process)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    process.wait()
    assert eventually(lambda: not exists(name), 20)
    assert eventually(lambda: not Path(f"/proc/{helper}").exists(), 20)


KEPT = """
import os, sys
from harness.engine.isolation.keeper import keep
keep(int(sys.argv[4]), ())
"""


@pytest.mark.parametrize("how", ["process", "parent"])
def test_the_containers_of_an_isolated_process_are_removed_when_it_is_killed(how: str) -> None:
    need_podman()
    life, alive = os.pipe()
    program = KEPT + KEEPS.replace("print(machine.container,", "print(os.getpid(), machine.container,")
    command = [sys.executable, "-c", program, IMAGE, "r", secrets.token_hex(8), str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[life]) as keeper:
        os.close(life)
        assert keeper.stdout is not None
        pid, name = keeper.stdout.readline().split()
        try:
            assert exists(name)
            if how == "process":
                os.kill(int(pid), signal.SIGKILL)
            os.close(alive)
            keeper.wait()
            assert eventually(lambda: not exists(name), 20)
        finally:
            podman("rm", "--force", name, check=False)


def test_what_a_killed_process_left_is_removed_before_the_next_start_and_nothing_else(
    keeper: tuple[subprocess.Popen[str], str], machine: str
) -> None:
    process, name = keeper
    foreign = f"bench-test-{secrets.token_hex(4)}"
    podman("create", "--name", foreign, "--label", "bench.owner=0-0-1-0", IMAGE, "true")  # of another machine
    try:
        engine = Engine("podman", PODMAN)
        living = podman("inspect", "--format", "{{.Id}}", name).stdout.strip()
        assert living not in [each.container for each in engine.leftovers()]
        os.kill(helper_of(process), signal.SIGKILL)
        process.kill()
        process.wait()
        [left] = [each for each in engine.leftovers() if each.container == living]
        assert left.run.startswith("run-")
        [told] = check_containers()
        assert told.status == "note" and told.name == "podman containers"
        assert "1 container of bench, 1 of them left by processes that were killed (run-" in told.says
        assert told.fix is not None and f"podman rm --force --volumes {living[:12]}" in told.fix
        command = [sys.executable, "-c", KEEPS, IMAGE, "next", machine]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            started = following.stdout.readline().strip()
            assert exists(started) and exists(foreign) and not exists(name)
            [told] = check_containers()
            assert (told.status, told.says) == ("ok", "answers; 1 container of bench")
            following.send_signal(signal.SIGINT)
            assert "of a process that was killed" in following.stderr.read()
        assert not exists(started)
    finally:
        podman("rm", "--force", foreign)


def test_owners_are_known_by_boot_namespace_process_and_start() -> None:
    own = owner(os.getpid())
    boot, space, pid, started = own.split("-")
    assert not is_over(own, True)
    assert is_over(f"{'0' * 32}-{space}-{pid}-{started}", False), "of an earlier boot"
    assert is_over(f"{boot}-{space}-{pid}-{int(started) + 1}", True), "the id was given to another process"
    assert not is_over(f"{boot}-1-{pid}-{int(started) + 1}", False), "its process namespace cannot be seen"
    assert not is_over(f"{'0' * 32}-{space}-{pid}-{started}", True), "of a copy of this machine"
    for strange in ("", "a", "a-b-c-d", "----"):
        assert not is_over(strange, False)
    assert f"bench.owner={own}" in labels()


HIDDEN = """mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@" """


def test_a_process_of_another_user_that_cannot_be_seen_is_not_over() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can hide processes")
    program = "import sys; from harness.sandbox.leftovers import *; print(is_over(sys.argv[1], True), machine())"
    command = [sys.executable, "-c", program, owner(os.getpid())]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    hidden = subprocess.run(
        ["unshare", "--mount", "sh", "-c", HIDDEN, "sh", *command], capture_output=True, text=True, check=False, cwd="/"
    )
    if hidden.returncode:
        pytest.skip(f"processes cannot be hidden here: {hidden.stderr.strip()[-200:]}")
    assert (seen[0], hidden.stdout.split()[0]) == ("False", "False")
    assert seen[1] != hidden.stdout.split()[1], "containers of another user are not looked at"


@pytest.mark.parametrize(
    ("report", "outcome"), [({"signal": 9, "memory": True}, "memory"), ({"signal": 9}, "signalled")]
)
def test_the_engines_word_on_memory_counts(report: dict[str, Any], outcome: str) -> None:
    from harness.sandbox.process import _outcome  # pyright: ignore[reportPrivateUsage]

    assert _outcome({"wall": 1.0, "cpu": 0.1, **report}, Limits()) == outcome
