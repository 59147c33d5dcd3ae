"""Machines: programs and files that last for a rollout, in a real container and in bubblewrap; what a program may do to
its machine; and that none of its processes survives."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from containers import IMAGE, exists, need_podman, podman
from sandboxes import eventually, marked, sandbox

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.core.safe_text import OBEYED
from harness.sandbox import Machine, MachineSpec, Result, open_machine
from harness.sandbox.container_machine import ContainerMachine
from harness.sandbox.engine_client import Engine
from harness.sandbox.find import find_engine
from harness.sandbox.images import content_hash, dockerfile

WAYS = ["bubblewrap", "podman"]


def spec(way: str = "podman", **more: Any) -> MachineSpec:
    if way == "podman":
        need_podman()
        return MachineSpec(sandbox=way, **{"image": IMAGE, "memory_mb": 256, "processes": 40, **more})
    sandbox(way)
    return MachineSpec(sandbox=way, **more)


def on(way: str, body: Callable[[Machine], Awaitable[Any]], **more: Any) -> Any:
    async def main() -> Any:
        async with open_machine(spec(way, **more)) as machine:
            return await body(machine)

    return uvloop.run(main())  # as the commands do; its pipes are sockets


def sh(machine: Machine, script: str, *arguments: str, **options: Any) -> Awaitable[Result]:
    return machine.exec(["sh", "-c", script, "sh", *arguments], **options)


@pytest.mark.parametrize("way", WAYS)
def test_a_program_has_its_input_its_variables_and_its_folder_and_tells_how_it_ended(way: str) -> None:
    async def body(machine: Machine) -> None:
        heard: list[tuple[str, bytes]] = []
        done = await sh(
            machine, 'cat; echo "$A $B"; pwd; echo wrong >&2; exit 3', env={"B": "2"}, stdin="in ", cwd="/usr",
            on_output=lambda stream, data: heard.append((stream, data)),
        )  # fmt: skip
        assert (done.exit_code, done.outcome) == (3, "exited")
        assert (done.stdout, done.stderr) == ("in 1 2\n/usr\n", "wrong\n")
        assert b"".join(data for stream, data in heard if stream == "stdout") == b"in 1 2\n/usr\n"
        assert b"".join(data for stream, data in heard if stream == "stderr") == b"wrong\n"
        assert (await sh(machine, "kill -9 $$")).exit_code == 137
        nothing = await machine.exec(["no-such-program"])
        assert (nothing.exit_code, nothing.outcome) == (127, "exited") and "not found" in nothing.stderr
        assert (await machine.exec(["true"], cwd="/no/such")).exit_code == 126
        with pytest.raises(ValueError, match="NUL"):
            await machine.exec(["a\0b"])
        for argv in ([], "ls -l"):
            with pytest.raises(ConfigError, match="argv must be a list"):
                await machine.exec(argv)
        with pytest.raises(ConfigError, match="timeout"):
            await machine.exec(["true"], timeout=0)

    on(way, body, env={"A": "1"})


def test_a_program_that_leaves_its_input_unread_keeps_its_output() -> None:
    async def body(machine: Machine) -> None:
        for number in range(10):
            done = await sh(machine, "echo $1; exit 1", str(number), stdin="unread" * 100)
            assert (done.exit_code, done.stdout) == (1, f"{number}\n")

    on("podman", body)


def test_secret_variables_are_not_in_the_list_of_processes() -> None:
    first, second = secrets.token_hex(16), secrets.token_hex(16)

    async def body(machine: Machine) -> None:
        lines: list[bytes] = []

        def look(stream: str, data: bytes) -> None:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # a process that has ended meanwhile
                    lines.append(path.read_bytes())

        done = await sh(machine, "echo $MY_API_KEY $MY_TOKEN; sleep 0.3", env={"MY_TOKEN": second}, on_output=look)
        assert done.stdout == f"{first} {second}\n" and lines
        assert not [line for line in lines if first.encode() in line or second.encode() in line]

    on("podman", body, env={"MY_API_KEY": first})


@pytest.mark.parametrize("way", WAYS)
def test_output_is_bounded_and_the_result_says_so(way: str) -> None:
    async def body(machine: Machine) -> None:
        done = await sh(machine, "seq 1000 1999; echo short >&2", output_bytes=1000)
        assert (done.stdout_truncated, done.stderr_truncated) == (True, False)
        assert done.stdout.startswith("1000\n1001\n") and done.stdout.endswith("1998\n1999\n")
        assert "\n[… 4000 bytes left out …]\n" in done.stdout and len(done.stdout) < 1100
        assert (await sh(machine, "seq 100 349", output_bytes=1000)).stdout.count("\n") == 250
        if way == "podman":
            flood = await sh(machine, "yes", output_bytes=1000)
            assert (flood.outcome, flood.exit_code, flood.stdout_truncated) == ("output", None, True)
            assert (await sh(machine, "cat /proc/[0-9]*/comm")).stdout.count("yes") == 0

    on(way, body)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - processes send no event
            await asyncio.sleep(0.005)


DAEMONS = """
sleep 300 $1 & nohup setsid sleep 300 $1 >/dev/null 2>&1 &
env -i sh -c 'trap "" TERM; (setsid sleep 300 '$1' &) ; sleep 300 '$1 &
(setsid env -i sleep 300 $1 &)
trap '' TERM INT HUP
echo begun
sleep 300 $1
"""
"""Processes in other sessions, without an environment, without a parent, and deaf to signals."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
def test_nothing_of_a_program_survives_its_timeout_but_what_was_started_before_does(way: str, how: str) -> None:
    mark, early = (f"{secrets.randbelow(10**9)}.{secrets.randbelow(10**9):09}" for _ in range(2))

    async def body(machine: Machine) -> None:
        await sh(machine, "nohup sleep $1 >/dev/null 2>&1 &", early)
        assert eventually(lambda: len(marked(early)) == 1)
        if how == "timeout":
            done = await sh(machine, DAEMONS, mark, timeout=2)
            assert (done.outcome, done.exit_code) == ("timeout", None)
            assert done.stdout == "begun\n"
        else:
            call = asyncio.ensure_future(sh(machine, DAEMONS, mark, timeout=60))
            await until(lambda: len(marked(mark)) >= 6)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        # The workbench does not interrupt a cancelled request, but ends it with the machine.
        if (way, how) != ("bubblewrap", "cancelled"):
            left = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in marked(mark)]  # noqa: ASYNC240
            assert left == []
            assert len(marked(early)) == 1
            assert (await machine.exec(["echo", "usable"])).stdout == "usable\n"

    on(way, body)
    assert eventually(lambda: marked(early) == marked(mark) == [])


@pytest.mark.parametrize("way", WAYS)
def test_files_are_written_and_read_as_they_are(way: str) -> None:
    async def body(machine: Machine) -> None:
        data = bytes(range(256)) * 5
        await machine.write_file("/tmp/new/folder/f", data, 0o750)
        assert await machine.read_file("/tmp/new/folder/f") == data
        assert (await sh(machine, "stat -c %a /tmp/new/folder/f; stat -c %a /tmp")).stdout == "750\n1777\n"
        await machine.write_file("relative", "text")
        assert (await machine.exec(["cat", "relative"])).stdout == "text"
        await sh(machine, "ln -s /tmp/new/folder/f /tmp/link; mkfifo /tmp/fifo; rm relative; ln -s /no relative")
        assert await machine.read_file("/tmp/link") == data
        for path in ("/tmp/none", "/tmp/fifo", "/tmp/new", "relative"):
            with pytest.raises(FileNotFoundError):
                await machine.read_file(path)
        with pytest.raises(ValueError, match="more than 100"):
            await machine.read_file("/tmp/new/folder/f", limit=100)
        for path in ("/tmp/new", "/tmp/fifo")[: 1 if way == "podman" else 2]:  # an engine replaces the pipe
            with pytest.raises(OSError, match=path):
                await machine.write_file(path, b"")
        with pytest.raises(OSError, match=r"folder|directory"):
            await machine.write_file("/", b"")
        for name in ("i", "[i]", "w?", "b\\w", "?[\\]"):
            await machine.write_file(f"/tmp/{name}", name)
        for name in ("[i]", "w?", "b\\w", "?[\\]"):  # no patterns
            assert await machine.read_file(f"/tmp/{name}") == name.encode()

    on(way, body)


def test_folders_are_copied_in_and_out_without_links_and_special_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "run.sh").write_text("echo ran")
    (source / "run.sh").chmod(0o755)
    (source / "deep" / "link").symlink_to("../run.sh")

    async def body(machine: Machine) -> None:
        await machine.copy_in(source, "/opt/tests")
        done = await sh(machine, "cd /opt/tests; ./run.sh; sh deep/link; ls deep; stat -c '%u %a' run.sh")
        assert done.stdout == "ran\nran\nempty\nlink\n0 755\n"
        await machine.copy_in(source / "run.sh", "/opt")
        assert (await machine.exec(["/opt/run.sh"])).stdout == "ran\n"
        await sh(machine, "cd /opt/tests; ln -s /etc/shadow l; mkfifo p; ln /etc/passwd hard; chmod 4755 run.sh")
        await machine.copy_out("/opt/tests", target)
        found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))
        assert found == ["deep", "deep/empty", "hard", "run.sh"]
        assert (target / "run.sh").stat().st_mode & 0o7777 == 0o755
        for path in ("/opt/none", "/etc/passwd"):
            with pytest.raises(FileNotFoundError):
                await machine.copy_out(path, target)
        await sh(machine, "truncate -s 1T /opt/tests/large")
        with pytest.raises(ValueError, match="more than 1,073,741,824 bytes"):
            await machine.copy_out("/opt/tests", target)
        await sh(machine, "mkdir /dev/shm/new; echo 1 >/dev/shm/new/f")
        for call in (machine.copy_out("/dev/shm/new", target), machine.read_file("/dev/shm/new/f")):
            with pytest.raises(OSError, match="cannot be read in the machine") as caught:
                await call
            assert not isinstance(caught.value, FileNotFoundError)  # it is there, but podman cannot copy it

    on("podman", body)


def test_a_container_has_its_limits_and_no_network() -> None:
    async def body(machine: Machine) -> None:
        assert (await sh(machine, "ls /sys/class/net; hostname")).stdout == "lo\nmachine\n"
        hungry = await machine.exec(["python3", "-c", "x = bytearray(1 << 30); print(len(x))"])
        assert (hungry.exit_code, hungry.stdout) == (137, "")
        assert "used all memory" in hungry.stderr
        assert "memory" not in (await sh(machine, "kill -9 $$")).stderr
        within = await machine.exec(["sh", "-c", 'python3 -c "bytearray(1 << 30)"; exit $?'])
        assert within.exit_code == 137
        assert within.stderr.endswith("used all memory of the machine]\n")
        assert "BENCH" not in (await sh(machine, "env | grep -v ^BENCH_EXEC=")).stdout
        assert (await machine.exec(["id", "-un"], user="nobody")).stdout == "nobody\n"
        with pytest.raises(ConfigError, match="unable to find user nosuch"):
            await machine.exec(["true"], user="nosuch")
        assert isinstance(machine, ContainerMachine)
        form = "{{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}"
        limits = podman("inspect", "--format", form, machine.container).stdout.split()
        assert limits == ["1500000000", "41", "268435456", "268435456"]

    on("podman", body, cpus=1.5)


@pytest.mark.slow
def test_a_user_and_a_folder_of_the_machine_are_those_of_its_programs() -> None:
    async def body(machine: Machine) -> None:
        assert (await sh(machine, "id -un; pwd")).stdout == "games\n/usr/games\n"

    on("podman", body, user="games", folder="/usr/games")


def test_a_program_that_destroys_its_container_costs_neither_the_machine_nor_the_score() -> None:
    async def body(machine: Machine) -> None:
        await machine.write_file("/kept", "kept")
        bomb = "import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(0.01)"
        done = await machine.exec(["python3", "-c", bomb], timeout=3)
        assert done.outcome == "timeout"
        assert (await sh(machine, "kill -9 -1; kill -9 1; kill -TERM 1; kill -STOP 1")).outcome == "exited"
        assert await machine.read_file("/kept") == b"kept"
        assert (await sh(machine, "ls /proc | grep -c '^[0-9]*$'")).stdout < "9"

    on("podman", body)


@pytest.mark.parametrize("part", ["/bin/sh /bin/dash", "/lib/libc.so.6 /lib/*/libc.so.6"])
def test_a_container_whose_shell_is_destroyed_starts_no_program_and_has_its_files(part: str) -> None:
    async def body(machine: Machine) -> None:
        await machine.write_file("/kept", "kept")
        await sh(machine, f"rm -f {part}")
        for _ in range(2):
            gone = await machine.exec(["true"])
            assert (gone.exit_code, gone.outcome) == (127, "exited")
        assert await machine.read_file("/kept") == b"kept"

    on("podman", body)


def test_a_container_that_is_gone_is_an_error_of_the_sandbox() -> None:
    async def body(machine: Machine) -> None:
        assert isinstance(machine, ContainerMachine)
        podman("rm", "--force", machine.container)
        with pytest.raises(SandboxError, match="the container of this rollout is gone"):
            await machine.exec(["true"])
        with pytest.raises(SandboxError):
            await machine.read_file("/etc/passwd")
        await machine.close()
        with pytest.raises(SandboxError, match="closed"):
            await machine.exec(["true"])

    on("podman", body)


def test_what_only_containers_have_is_refused_by_name_without_one() -> None:
    sandbox()
    for wanted in ({"image": "debian"}, {"network": True}, {"user": "nobody"}, {"cpus": 1.0}, {"folder": "/app"}):
        with pytest.raises(ConfigError, match=rf"MachineSpec\({next(iter(wanted))}=.*needs a container: bubblewrap"):
            on("bubblewrap", lambda machine: machine.exec(["true"]), **wanted)

    async def body(machine: Machine) -> None:
        with pytest.raises(ConfigError, match="user='nobody'"):
            await machine.exec(["true"], user="nobody")
        for call in (machine.copy_in(Path("/usr"), "a"), machine.copy_out("a", Path("/usr")), machine.restart()):
            with pytest.raises(ConfigError, match="needs a container"):
                await call

    on("bubblewrap", body)
    for wrong in (
        {"memory_mb": 0},
        {"processes": True},
        {"cpus": -1},
        {"folder": "app"},
        {"env": {"A=B": ""}},
        {"image": "dir:/etc"},
    ):
        with pytest.raises(ConfigError):
            MachineSpec(**wrong)  # pyright: ignore[reportArgumentType]


def test_a_disk_limit_that_the_engine_cannot_keep_is_refused() -> None:
    need_podman()
    if "xfs" in podman("info", "--format", "{{.Store.GraphStatus}}").stdout:
        pytest.skip("the storage of podman is on xfs here, which can limit disk space")
    with pytest.raises(ConfigError, match=r"disk_mb=100.*podman cannot limit the disk space here.*xfs"):
        on("podman", lambda machine: machine.exec(["true"]), disk_mb=100)


def build_folder(folder: Path, base: str = "ghcr.io/no/such:1") -> Path:
    folder.mkdir()
    said = secrets.token_hex(4)  # so that no earlier test has built it
    (folder / "Dockerfile").write_text(f"FROM {base} AS base\nFROM base\nCOPY said /said\nWORKDIR /srv\nENV B=2\n")
    (folder / "said").write_text(said)
    return folder


def test_an_image_is_built_once_for_all_from_a_dockerfile_that_is_not_changed(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "image")
    before = (folder / "Dockerfile").read_text()
    made = spec(image=folder, images={"ghcr.io/no/such:1": IMAGE})

    async def main() -> set[str]:
        async def one() -> str:
            async with open_machine(made) as machine:
                done = await sh(machine, "cat /said; pwd; echo $B")
                assert done.stdout == (folder / "said").read_text() + "/srv\n2\n"
                await machine.write_file("relative", b"")
                assert await machine.read_file("/srv/relative") == b""
                assert isinstance(machine, ContainerMachine)
                return podman("inspect", "--format", "{{.ImageName}} {{.Image}}", machine.container).stdout

        return set(await asyncio.gather(one(), one()))

    [image] = asyncio.run(main())
    name = image.split()[0]
    assert name.startswith("localhost/bench/")
    assert (folder / "Dockerfile").read_text() == before
    podman("rmi", name.removesuffix(":latest"))


DOCKERFILE = """ARG BASE=x:1
ARG OTHER=y
FROM --platform=linux/amd64 x:1 AS base
ARG LATER=x:1
RUN --mount=type=bind,from=x:1,target=/x cat <<EOF && \\
    FROM x:1
FROM x:1
EOF
# FROM x:1
FROM base AS other
RUN echo $((1<<2)) <<<x \\
FROM x:1
COPY --chown=1 --from=base /a /b
copy --from=x:1 /a /b
from x:1
FROM ${BASE}
"""


def test_images_are_replaced_in_the_instructions_that_name_them(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("\ufeff" + DOCKERFILE)
    assert dockerfile(tmp_path, {}) == DOCKERFILE
    (tmp_path / "quoted").mkdir()
    (tmp_path / "quoted" / "Dockerfile").write_text('ARG BASE="x:1"\nFROM $BASE\n')
    assert dockerfile(tmp_path / "quoted", {"x:1": "new"}) == 'ARG BASE="new"\nFROM $BASE\n'
    found = dockerfile(tmp_path, {"x:1": "new", "base": "wrong"})
    changed = {number: line for number, line in enumerate(found.splitlines(), 1) if "new" in line}
    assert changed == {
        1: "ARG BASE=new",
        3: "FROM --platform=linux/amd64 new AS base",
        5: "RUN --mount=type=bind,from=new,target=/x cat <<EOF && \\",
        14: "copy --from=new /a /b",
        15: "from new",
    }
    assert "wrong" not in found


def test_a_folder_has_another_hash_if_anything_in_it_has_changed(tmp_path: Path) -> None:
    def seen() -> str:
        found = content_hash(tmp_path, "text")
        assert found == content_hash(tmp_path, "text") != content_hash(tmp_path, "other")
        return found

    file, empty, link = tmp_path / "a", tmp_path / "empty", tmp_path / "link"
    hashes = [seen()]
    changes: list[Callable[[], object]] = [
        lambda: file.write_text("1"),
        lambda: file.write_text("2"),
        lambda: file.chmod(0o600),
        empty.mkdir,
        lambda: empty.chmod(0o700),
        lambda: link.symlink_to("a"),
        lambda: (link.unlink(), link.symlink_to("b")),
    ]
    for change in changes:
        change()
        hashes.append(seen())
    assert len(set(hashes)) == len(hashes)


def test_images_that_cannot_be_had_say_why(tmp_path: Path) -> None:
    def fails(image: str | Path) -> None:
        on("podman", lambda machine: machine.exec(["true"]), image=image)

    with pytest.raises(ConfigError, match="must be a folder with a Dockerfile"):
        fails(tmp_path)
    (tmp_path / "Dockerfile").symlink_to("/dev/null")  # reading a pipe would not end
    with pytest.raises(ConfigError, match="not a regular file"):
        fails(tmp_path)
    (tmp_path / "Dockerfile").unlink()
    with pytest.raises(SandboxError, match=r"localhost/no/such:1' is not on this machine and cannot be pulled"):
        fails("localhost/no/such:1")
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY missing /missing\n")
    with pytest.raises(EnvironmentFault, match=r"cannot build the image of .*missing"):
        fails(tmp_path)
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo 'no gcc' >&2; exit 9\n")
    with pytest.raises(EnvironmentFault, match=r"exit status 9\n(.*\n)*no gcc"):
        fails(tmp_path)
    # The shell does what compilers do: prints much, and a bar that overwrites itself. A long command is
    # in the output of podman twice, and must not displace what it has printed.
    long = ": " + "x" * 3000
    noise = "seq 100000; printf 'bar 1\\rbar 2\\r\\n'; printf '\\033[31mred\\033[0m\\n'; exit 9"
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN {long}; {noise}\n")
    with pytest.raises(EnvironmentFault, match=r"cannot build the image of .*exit status 9\n") as caught:
        fails(tmp_path)
    first, _, *shown = str(caught.value).splitlines()
    assert len(first) < 1000
    assert {"99999", "100000", "bar 2", "red"} <= set(shown)
    assert "bar 1" not in shown
    assert len(shown) <= 20
    assert len("\n".join(shown)) <= 2000
    assert not OBEYED.search("".join(shown))


def test_a_cancelled_rollout_removes_its_container_also_during_its_start() -> None:
    made = spec()
    engine = find_engine("podman")
    assert isinstance(engine, Engine)

    async def main() -> list[str]:
        names: list[str] = []

        async def work() -> None:
            async with open_machine(made) as machine:
                assert isinstance(machine, ContainerMachine)
                names.append(machine.container)
                await machine.exec(["sleep", "60"])

        task = asyncio.ensure_future(work())
        await until(lambda: bool(names))
        starting = asyncio.ensure_future(work())
        await until(lambda: len(engine.live) == 2)
        names += engine.live
        for each in (task, starting):
            each.cancel()
        await asyncio.wait([task, starting])
        return names

    assert [name for name in asyncio.run(main()) if exists(name)] == []
    assert engine.live == set()
