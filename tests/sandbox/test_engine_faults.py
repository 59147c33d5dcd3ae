"""Container engines that fail or are slow, programs that fight their end, and what is left behind. The engine is a real
podman, in some tests behind a script that lets single calls fail."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from containers import IMAGE, PODMAN, exists, need_podman, podman
from sandboxes import marked

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.sandbox import MachineSpec, container_machine, engine_load
from harness.sandbox.container_machine import ContainerMachine
from harness.sandbox.containers import Containers
from harness.sandbox.engine_client import Engine
from harness.sandbox.engine_load import AT_ONCE, FAILURES
from harness.sandbox.find import find_engine

FAULTY = f"""#!/bin/sh
# Fails once for each file in the folder `faults`, if the call contains its name. The words `lost` and `held` in it
# mean that the call's output is lost, or that it never begins.
[ ! -e "$0.variables" ] || env >>"$0.variables"
for fault in "$0".faults/*; do
  [ -e "$fault" ] || continue
  case " $* " in *"${{fault##*/}}"*) ;; *) continue ;; esac
  word=$(cat "$fault") && rm "$fault"
  case $word in
    lost) exec {PODMAN} "$@" >/dev/null 2>&1 ;;
    held) exec sleep 300 ;;
    *) echo "Error: $word" >&2; exit 125 ;;
  esac
done
exec {PODMAN} "$@"
"""


class Faults:
    """An engine whose next calls can be made to fail."""

    def __init__(self, folder: Path) -> None:
        need_podman()
        self.program = folder / "podman"
        self.program.write_text(FAULTY)
        self.program.chmod(0o755)
        self.folder = folder / "podman.faults"
        self.folder.mkdir()
        self.engine = Engine("podman", str(self.program))

    def fail(self, call: str, error: str = "something is broken") -> None:
        """Let the next call whose arguments contain `call` fail."""
        (self.folder / call).write_text(error)

    @property
    def left(self) -> list[str]:
        """Faults that have not happened yet."""
        return os.listdir(self.folder)

    def on(self, body: Callable[[ContainerMachine], Awaitable[Any]], **more: Any) -> Any:
        async def main() -> Any:
            spec = MachineSpec(**{"sandbox": "podman", "image": IMAGE, "memory_mb": 128, "processes": 40, **more})
            machine = await Containers(self.engine).open(spec)
            assert isinstance(machine, ContainerMachine)
            try:
                return await body(machine)
            finally:
                await machine.close()

        return uvloop.run(main())


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


def new_mark() -> str:
    return f"{secrets.randbelow(10**9)}.{secrets.randbelow(10**9):09}"


def sleepers(mark: str) -> list[int]:
    """Processes `sleep` with this argument."""
    return [pid for pid in marked(mark) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - processes send no event
            await asyncio.sleep(0.005)


# Programs that fight their end

SPY = """cp /bin/sh /bin/real-sh
cat >/bin/spy <<'END'
#!/bin/real-sh
while read -r name value; do [ "$name" != CapEff: ] || echo "$value" >>/rights; done </proc/$$/status
exec /bin/real-sh "$@"
END
chmod +x /bin/spy
mv /bin/spy /bin/sh
"""


def test_a_replaced_shell_never_has_more_rights_than_the_programs(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        await machine.exec(["sh", "-c", SPY])
        assert (await machine.exec(["sleep", "300"], timeout=2)).outcome == "timeout"
        rights = (await machine.read_file("/rights")).decode().split()
        assert len(rights) >= 2 and len(set(rights)) == 1
        assert int(rights[0], 16) & 1 << 21 == 0  # CAP_SYS_ADMIN

    faults.on(body)


LIARS = {
    "cat": """printf '#!/bin/sh\\n' >/bin/cat""",
    "sh": """cp /bin/sh /bin/real-sh
cat >/bin/liar <<'END'
#!/bin/real-sh
case "$2" in *BENCH_EXEC*) exit 0 ;; esac
exec /bin/real-sh "$@"
END
chmod +x /bin/liar
mv /bin/liar /bin/sh
""",
}


@pytest.mark.parametrize("liar", LIARS)
def test_a_program_that_has_replaced_its_killer_ends_nevertheless(faults: Faults, liar: str) -> None:
    mark = new_mark()

    async def body(machine: ContainerMachine) -> None:
        await machine.exec(["sh", "-c", LIARS[liar]])
        done = await machine.exec(["sleep", mark], timeout=2)
        assert (done.outcome, marked(mark)) == ("timeout", [])
        assert machine.restarts == (liar == "sh")

    faults.on(body)


def test_programs_of_other_users_are_killed_with_what_they_have_started(faults: Faults) -> None:
    mark = new_mark()

    async def body(machine: ContainerMachine) -> None:
        script = f"(setsid sleep {mark} &); setsid env -i sleep {mark} & sleep {mark}"
        call = asyncio.ensure_future(machine.exec(["sh", "-c", script], user="nobody", timeout=300))
        await until(lambda: len(sleepers(mark)) == 3)
        call.cancel()
        await asyncio.wait([call])
        assert marked(mark) == [] and machine.restarts == 0

    faults.on(body)


# An engine that fails


def test_a_call_that_fails_once_neither_restarts_the_machine_nor_leaves_its_program(faults: Faults) -> None:
    mark = new_mark()

    async def body(machine: ContainerMachine) -> None:
        faults.fail("BENCH_EXEC=$mark")  # the script that kills
        assert (await machine.exec(["sleep", mark], timeout=2)).outcome == "timeout"
        assert (faults.left, marked(mark), machine.restarts) == ([], [], 0)
        faults.fail("exec")
        assert (await machine.exec(["echo", "works"])).stdout == "works\n"
        assert (faults.left, machine.restarts) == ([], 0)

    faults.on(body)


def test_a_program_that_uses_up_all_processes_is_ended_by_a_restart(faults: Faults) -> None:
    bomb = "import os, time\nwhile True:\n  try: os.fork() or time.sleep(999)\n  except OSError: time.sleep(0.001)"

    async def body(machine: ContainerMachine) -> None:
        assert (await machine.exec(["python3", "-c", bomb], timeout=3)).outcome == "timeout"
        assert (await machine.exec(["echo", "works"])).stdout == "works\n"
        assert machine.restarts <= 1  # 0 if the engine found room for the script that kills

    faults.on(body, processes=12)


def test_an_engine_that_cannot_kill_a_program_is_an_error_and_no_restart(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        for part in ("BENCH_EXEC=$mark", "kill -9"):  # the script that kills, twice
            faults.fail(part)
        with pytest.raises(SandboxError, match="podman exec failed: Error: something is broken"):
            await machine.exec(["sleep", "300"], timeout=1)
        assert (faults.left, machine.restarts) == ([], 0)
        with pytest.raises(SandboxError, match="something is broken"):
            await machine.exec(["true"])

    faults.on(body)


def test_whether_a_program_has_ended_is_asked_twice_and_then_unknown(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        faults.fail("no=3")  # the script that looks for the program
        assert (await machine.exec(["sh", "-c", "kill -9 $$"])).exit_code == 137
        assert faults.left == []
        for part in ("no=3", "pid=$1"):
            faults.fail(part)
        with pytest.raises(SandboxError, match="something is broken"):
            await machine.exec(["sh", "-c", "kill -9 $$"])

    faults.on(body)


def test_a_program_that_the_engine_does_not_start_in_time_is_no_timeout(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(machine: ContainerMachine) -> None:
        monkeypatch.setattr(container_machine, "CALL_SECONDS", 1.0)
        faults.fail("echo never", "held")
        with pytest.raises(SandboxError, match="exec has not started its program in 1 s"):
            await machine.exec(["echo", "never"], timeout=0.001)

    faults.on(body)


def test_a_program_whose_output_is_lost_does_not_run_twice(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        faults.fail("echo once", "lost")
        with pytest.raises(SandboxError, match="has lost the output of a program"):
            await machine.exec(["sh", "-c", "echo once >>/ran"])
        assert podman("exec", machine.container, "cat", "/ran").stdout == "once\n"

    faults.on(body)


def test_a_client_that_is_killed_is_an_error_which_cannot_be_swallowed(faults: Faults) -> None:
    mark = new_mark()

    async def body(machine: ContainerMachine) -> None:
        call = asyncio.ensure_future(machine.exec(["sleep", mark], timeout=300))
        await until(lambda: len(sleepers(mark)) == 1)
        [client] = {*marked(mark)} - {*sleepers(mark)}
        os.kill(client, signal.SIGKILL)
        with pytest.raises(SandboxError, match="podman exec ended before its program"):
            await call
        assert sleepers(mark) == []
        for later in (machine.exec(["true"]), machine.read_file("/etc/passwd"), machine.restart()):
            with pytest.raises(SandboxError, match="ended before its program"):
                await later

    faults.on(body)


@pytest.mark.parametrize("error", ["no space left on device", "mounting overlay, upperdir=/x,workdir=/y: busy"])
def test_a_restart_that_fails_is_an_error_of_the_sandbox(faults: Faults, error: str) -> None:
    async def body(machine: ContainerMachine) -> None:
        faults.fail("restart", error)
        with pytest.raises(SandboxError, match=f"does not restart the container: Error: {error}"):
            await machine.restart()

    faults.on(body)


def test_a_container_whose_working_folder_is_gone_does_not_start_again(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        await machine.exec(["sh", "-c", "mv /srv /old"])
        await machine.restart()
        assert (await machine.exec(["true"])).exit_code == 127

    faults.on(body, folder="/srv")


def test_programs_that_a_restart_has_ended_did_not_end_by_themselves(faults: Faults) -> None:
    mark = new_mark()

    async def body(machine: ContainerMachine) -> None:
        call = asyncio.ensure_future(machine.exec(["sleep", mark], timeout=300))
        await until(lambda: len(sleepers(mark)) == 1)
        await machine.restart()
        done = await call
        assert (done.outcome, done.exit_code, machine.restarts) == ("signalled", None, 1)

    faults.on(body)


def test_a_container_that_was_stopped_from_outside_is_an_error_of_the_sandbox(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        podman("kill", machine.container)
        with pytest.raises(SandboxError, match="the container of this rollout was ended, with exit code 137"):
            await machine.exec(["true"])

    faults.on(body)


def test_a_file_that_the_engine_cannot_copy_is_not_a_missing_file(faults: Faults, tmp_path: Path) -> None:
    async def body(machine: ContainerMachine) -> None:
        for call in (machine.read_file("/etc/passwd"), machine.copy_out("/etc", tmp_path / "out")):
            faults.fail("cp", "no space left on device")
            with pytest.raises(OSError, match="cannot be read in the machine: Error: no space left") as caught:
                await call
            assert not isinstance(caught.value, FileNotFoundError)
        with pytest.raises(FileNotFoundError):
            await machine.read_file("/etc/none")
        machine.engine = Engine("podman", str(tmp_path / "gone"))
        with pytest.raises(SandboxError, match="gone cannot be started"):
            await machine.read_file("/etc/passwd")
        machine.engine = faults.engine  # which removes the container

    faults.on(body)


def test_programs_that_find_no_room_get_a_result_and_wait_for_a_restart(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        for call in ("here", "find"):
            faults.fail(call, "exec failed: read init-p: connection reset by peer")
        full = await machine.exec(["echo", "find", "here"])
        assert (full.exit_code, full.outcome) == (127, "exited") and "reset by peer" in full.stderr
        async with machine._restarting:  # pyright: ignore[reportPrivateUsage]
            podman("kill", machine.container)
            waiting = asyncio.ensure_future(machine.exec(["echo", "works"]))
            for _ in range(8):
                await machine.engine.call("ps")
            await machine.engine.call("restart", "-t", "0", machine.container)
        assert (await waiting).stdout == "works\n" and machine.restarts == 0
        assert await machine._script("exit 0", restarts=1) == 3  # pyright: ignore[reportPrivateUsage]

    faults.on(body)


def test_a_working_folder_that_is_gone_is_told_by_the_shell(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        await machine.exec(["sh", "-c", "mv /srv /old"])
        gone = await machine.exec(["true"])
        assert (gone.exit_code, gone.outcome) == (126, "exited") and "/srv" in gone.stderr
        assert (await machine.exec(["pwd"], cwd="/", user="0")).stdout == "/\n"
        assert machine.restarts == 0

    faults.on(body, folder="/srv")


def test_arguments_that_are_too_long_are_told_as_by_a_shell(faults: Faults) -> None:
    async def body(machine: ContainerMachine) -> None:
        done = await machine.exec(["sh", "-c", "true", *["x" * 120_000] * 60])
        assert (done.exit_code, done.stderr) == (126, "sh: Argument list too long")
        assert (await machine.exec(["true"])).exit_code == 0

    faults.on(body)


def test_failed_starts_in_a_row_delay_the_next_ones_and_one_is_tried(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_load, "PAUSE_SECONDS", 1.0)
    engine = faults.engine

    async def start(option: str, image: str = IMAGE) -> object:
        name = f"bench-test-{secrets.token_hex(4)}"
        try:
            await engine.start(name, ["--memory", "64m", option], image, ["true"], {})
        except SandboxError as error:
            return str(error)
        await engine.remove(name)
        return "started"

    async def main() -> None:
        bad = [await start("--no-such-option") for _ in range(FAILURES)]
        assert all("does not start a container" in str(each) for each in bad)
        others = await asyncio.gather(*(start("--no-such-option") for _ in range(4)))
        assert sum("does not start a container: " in str(each) for each in others) == 1, "one is tried"
        assert sum("out of order" in str(each) and "no-such-option" in str(each) for each in others) == 3
        assert await start("--tty", "debian:bookworm") == "started", "another image is not delayed"
        assert await start("--tty") == "started"
        assert engine.live == set()

    asyncio.run(main())


# What is left


def test_a_removal_that_fails_is_tried_again_in_the_background(faults: Faults) -> None:
    async def machine() -> ContainerMachine:
        found = await Containers(faults.engine).open(MachineSpec(sandbox="podman", image=IMAGE, memory_mb=64))
        assert isinstance(found, ContainerMachine)
        return found

    async def main() -> None:
        first, second = await machine(), await machine()
        faults.fail("rm --force")
        await first.close()
        assert faults.engine.live == {first.container, second.container} and exists(first.container)
        await second.close()
        await until(lambda: not faults.engine.live)
        assert not exists(first.container)

    asyncio.run(main())


def test_a_start_that_is_cancelled_twice_leaves_nothing(faults: Faults) -> None:
    async def main() -> str:
        spec = MachineSpec(sandbox="podman", image=IMAGE, memory_mb=64)
        starting = asyncio.ensure_future(Containers(faults.engine).open(spec))
        await until(lambda: bool(faults.engine.live))
        [name] = faults.engine.live
        for _ in range(2):
            starting.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: not faults.engine.live)
        return name

    assert not exists(asyncio.run(main()))


def image_of(folder: Path, *lines: str) -> Path:
    folder.mkdir()
    (folder / "Dockerfile").write_text("\n".join([f"FROM {IMAGE}", f"ENV ID={secrets.token_hex(8)}", *lines]) + "\n")
    return folder


def test_volumes_are_removed_and_a_missing_image_is_made_again(faults: Faults, tmp_path: Path) -> None:
    names: list[str] = []

    async def body(machine: ContainerMachine) -> None:
        form = "{{range .Mounts}}{{.Name}}{{end}} {{.Image}}"
        names.extend(podman("inspect", "--format", form, machine.container).stdout.split())

    folder = image_of(tmp_path / "image", "VOLUME /data")
    faults.on(body, image=folder)
    podman("rmi", "--force", names[1])
    faults.on(body, image=folder)
    podman("rmi", "--force", names[3])
    assert [podman("volume", "exists", name, check=False).returncode for name in names[::2]] == [1, 1]


def test_a_build_that_failed_once_is_tried_again_at_once(faults: Faults, tmp_path: Path) -> None:
    folder = image_of(tmp_path / "image")
    faults.fail("build", "the registry is down")
    with pytest.raises(EnvironmentFault, match="the registry is down"):
        faults.on(lambda machine: machine.exec(["true"]), image=folder)

    async def body(machine: ContainerMachine) -> str:
        return podman("inspect", "--format", "{{.Image}}", machine.container).stdout.strip()

    podman("rmi", "--force", faults.on(body, image=folder))


def test_rollouts_that_wait_for_an_image_that_cannot_be_built_fail_with_the_last_trial(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_load, "PAUSE_SECONDS", 1.0)
    folder = image_of(tmp_path / "image", "COPY missing /missing")

    async def main() -> list[str]:
        spec = MachineSpec(sandbox="podman", image=folder)
        opening = [Containers(faults.engine).open(spec) for _ in range(FAILURES + 4)]
        return [str(each) for each in await asyncio.gather(*opening, return_exceptions=True)]

    found = asyncio.run(main())
    assert sum("cannot build the image of" in each and "also after a pause" not in each for each in found) == 4
    assert sum(f"failed {FAILURES + 1} times in a row, also after a pause" in each for each in found) == 3


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
def test_a_build_that_is_ended_leaves_no_programs(faults: Faults, tmp_path: Path, how: str) -> None:
    mark = new_mark()
    folder = image_of(tmp_path / "image", f"RUN (setsid sleep {mark} &) ; sleep {mark}")

    async def main() -> None:
        spec = MachineSpec(sandbox="podman", image=folder, build_seconds=3600 if how == "cancelled" else 10)
        opening = asyncio.ensure_future(Containers(faults.engine).open(spec))
        await until(lambda: len(sleepers(mark)) == 2)
        if how == "cancelled":
            opening.cancel()
        with pytest.raises((asyncio.CancelledError, SandboxError)):
            await opening

    before = podman("ps", "--all", "--external", "--quiet").stdout.split()
    asyncio.run(main())
    assert marked(mark) == []
    left = {*podman("ps", "--all", "--external", "--quiet").stdout.split()} - {*before}
    assert not [each for each in left if mark in podman("inspect", each, check=False).stdout]


# The client


def test_a_container_without_memory_leaves_no_file_in_the_users_folder(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    async def body(machine: ContainerMachine) -> None:
        await machine.exec(["python3", "-c", "x = bytearray(1 << 30); print(len(x))"])

    faults.on(body)
    assert os.listdir(tmp_path / "here") == []


def test_proxies_reach_the_client_but_not_the_container(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://user:hidden@127.0.0.1:9")

    async def body(machine: ContainerMachine) -> str:
        return (await machine.exec(["sh", "-c", "env; cat /proc/1/environ"])).stdout

    assert "hidden" not in faults.on(body)
    with pytest.raises(SandboxError, match=r"cannot be pulled: .*127\.0\.0\.1:9"):
        faults.on(body, image="registry.invalid/no/such:1")


def test_only_secrets_are_variables_of_the_engines_client(faults: Faults) -> None:
    values = {"XTABLES_LIBDIR": "/x", "USER": "other", "GLIBC_TUNABLES": "a", "CONTAINER_SSHKEY": "b", "TMPDIR": "/c"}
    key = secrets.token_hex(16)
    lines: list[bytes] = []
    seen = Path(f"{faults.program}.variables")
    seen.touch()

    async def body(machine: ContainerMachine) -> list[str]:
        done = await machine.exec(
            ["sh", "-c", "tr '\\0' '\\n' </proc/$$/environ"], env={**values, "MY_API_KEY": key},
            on_output=lambda *_: lines.extend(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in marked("exec")),
        )  # fmt: skip
        return done.stdout.splitlines()

    shown = {f"{name}={value}" for name, value in values.items()}
    assert {*shown, f"MY_API_KEY={key}"} <= {*faults.on(body)}
    given = {*seen.read_text().splitlines()}
    assert f"MY_API_KEY={key}" in given and not shown & given
    assert lines and not [line for line in lines if key.encode() in line]
    for name in ("BASH_FUNC_echo%%", "a-b", "", "A=B", "ä"):
        with pytest.raises(ConfigError, match="environment variable"):
            MachineSpec(env={name: "() { :; }"})


def test_what_is_copied_belongs_to_root_also_if_the_image_has_another_user(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.sh").write_text("true\n")

    async def body(machine: ContainerMachine) -> None:
        await machine.copy_in(tmp_path / "tests", "/new/tests")
        await machine.write_file("/new/file", "x")
        done = await machine.exec(["sh", "-c", "id -un; cd /new; stat -c %U tests tests/test.sh file; echo >>file"])
        assert (done.stdout, done.exit_code) == ("games\nroot\nroot\nroot\n", 2)

    folder = image_of(tmp_path / "image", "USER games")
    faults.on(body, image=folder)


def test_a_program_docker_that_is_podman_is_used_as_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_podman()
    (tmp_path / "docker").write_text(f'#!/bin/sh\nexec {PODMAN} "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    find_engine.cache_clear()
    try:
        engine = find_engine("docker")
        assert isinstance(engine, Engine)
        assert (engine.name, engine.program) == ("podman", f"{tmp_path}/docker")
    finally:
        find_engine.cache_clear()


def test_programs_of_one_machine_do_not_wait_for_each_other(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AT_ONCE, "execs", 1)

    async def body(machine: ContainerMachine) -> None:
        server, client = (
            machine.exec(["sh", "-c", script], timeout=60)
            for script in ("mkfifo /tmp/p; cat /tmp/p", "until [ -e /tmp/p ]; do :; done; echo hello >/tmp/p")
        )
        served, _ = await asyncio.gather(server, client)
        assert served.stdout == "hello\n"

    faults.on(body)


def test_an_image_without_a_shell_is_a_fault_of_the_environment(faults: Faults, tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    with pytest.raises(EnvironmentFault, match="do not start: machines need /bin/sh"):
        faults.on(lambda machine: machine.exec(["true"]), image=folder)
    with pytest.raises(ConfigError, match="unable to find user nosuch"):
        faults.on(lambda machine: machine.exec(["true"], user="nosuch"))
    with pytest.raises(EnvironmentFault, match=r"the working folder must exist: .*missing"):
        faults.on(lambda machine: machine.exec(["true"]), folder="/missing")
