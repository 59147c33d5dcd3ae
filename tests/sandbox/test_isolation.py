"""What a program in a sandbox cannot reach: each promise is attacked from inside. The same attack succeeds where
nothing is contained (`unsafe-local`), wherever that is harmless, so that a test that passes says something."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxes import sandbox

from harness.sandbox import Limits, Result

ROOT = Path(__file__).resolve().parents[2]


def attack(way: str, program: str, *arguments: str, **limits: Any) -> Any:
    """What a program prints as JSON."""
    result = run(way, program, *arguments, **limits)
    assert result.outcome == "exited", result
    assert result.exit_code == 0, result
    return json.loads(result.stdout)


def run(way: str, program: str, *arguments: str, **limits: Any) -> Result:
    argv = ["python", "-c", textwrap.dedent(program), *arguments]
    return asyncio.run(sandbox(way).run({}, argv, b"", Limits(**limits)))


# Network

NETWORK = """
import json, socket, sys
tcp, udp, path, abstract, address = sys.argv[1:]
reached = []
def attempt(name, family, kind, target):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(2)
            s.connect(target)
            s.send(name.encode())
            if kind == socket.SOCK_STREAM:
                assert s.recv(1) == b"!"
            reached.append(name)
    except (OSError, AssertionError):
        pass
attempt("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(tcp)))
attempt("tcp by address", socket.AF_INET, socket.SOCK_STREAM, (address, int(tcp)))
attempt("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(udp)))
attempt("unix path", socket.AF_UNIX, socket.SOCK_STREAM, path)
attempt("abstract unix", socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + abstract)
print(json.dumps(reached))
"""


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[list[str], socket.socket]]:
    """Listeners of every kind on this machine, all on loopback; their addresses and the UDP one."""
    import threading

    name = f"bench-{secrets.token_hex(6)}"
    path = str(tmp_path / "service")
    with (
        socket.create_server(("0.0.0.0", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as plain,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        plain.bind(path)
        os.chmod(path, 0o777)
        abstract.bind(f"\0{name}")
        stop = threading.Event()

        def serve(listener: socket.socket) -> None:
            listener.settimeout(0.05)
            while not stop.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    connection.recv(100)  # first: whoever writes to a closed end gets an error, and has yet been let in
                    connection.sendall(b"!")

        plain.listen()
        abstract.listen()
        threads = [threading.Thread(target=serve, args=(one,)) for one in (tcp, plain, abstract)]
        for thread in threads:
            thread.start()
        address = socket.gethostbyname("localhost")
        yield [str(tcp.getsockname()[1]), str(udp.getsockname()[1]), path, name, address], udp
        stop.set()
        for thread in threads:
            thread.join()


def received(udp: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            found.append(udp.recv(100))
        except BlockingIOError:
            return found


def test_no_network_of_any_kind(services: tuple[list[str], socket.socket]) -> None:
    arguments, udp = services
    assert attack("unsafe-local", NETWORK, *arguments) == [
        "tcp", "tcp by address", "udp", "unix path", "abstract unix",
    ]  # fmt: skip
    assert received(udp) == [b"udp"]
    # inside, a datagram can be sent: to the sandbox's own loopback, where nobody listens
    assert attack("bubblewrap", NETWORK, *arguments) in ([], ["udp"])
    assert received(udp) == []


def test_no_interface_but_a_loopback_of_its_own() -> None:
    names = attack("bubblewrap", "import json, socket; print(json.dumps([n for _, n in socket.if_nameindex()]))")
    assert names == ["lo"]


def test_no_address_family_that_no_namespace_confines() -> None:
    program = """
        import json, socket
        refused = []
        for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET, 31):
            try:
                socket.socket(family, socket.SOCK_SEQPACKET if family == socket.AF_ALG else socket.SOCK_STREAM).close()
            except OSError as error:
                refused.append(error.errno)
        socket.socketpair()[0].close()
        print(json.dumps(refused))
        """
    assert attack("bubblewrap", program) == [97, 97, 97, 97]


# Files and environment

READ = """
import json, os, sys
word, pid, *paths = sys.argv[1:]
word = word[::-1].encode()
found = []
for path in [*paths, "/etc/shadow", "/etc/passwd", f"/proc/{pid}/environ", f"/proc/{pid}/cmdline"]:
    try:
        with open(path, "rb") as file:
            file.read(1)
            found.append(path)
    except OSError:
        pass
for other in os.listdir("/proc"):
    if other.isdigit():
        try:
            with open(f"/proc/{other}/environ", "rb") as file:
                if word in file.read():
                    found.append("environment")
        except OSError:
            pass
if any(word in value.encode() for value in os.environ.values()):
    found.append("own environment")
for folder in {os.path.dirname(path) for path in paths}:
    try:
        found += [os.path.join(folder, name) for name in os.listdir(folder) if folder != "/tmp"]
    except OSError:
        pass
print(json.dumps(sorted(set(found))))
"""


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """A word that stands in our environment, and files that hold it: in the home folder, a temporary one and here."""
    word = secrets.token_hex(12)
    monkeypatch.setenv("BENCH_CANARY", word)
    name = f".bench-canary-{secrets.token_hex(6)}"
    paths = [Path.home() / name, Path("/tmp") / name, tmp_path / name, ROOT / "tests" / "sandbox" / name]
    for path in paths:
        path.write_text(word)
    yield word, [*map(str, paths)]
    for path in paths:
        path.unlink()


def test_no_file_of_ours_can_be_read(secret: tuple[str, list[str]]) -> None:
    word, paths = secret
    mine = [*paths, str(ROOT / "pyproject.toml"), str(Path(__file__)), str(ROOT / "harness" / "sandbox" / "find.py")]
    arguments = [word[::-1], str(os.getpid()), *mine]
    open_to_all = attack("unsafe-local", READ, *arguments)
    assert set(mine) <= set(open_to_all)
    assert f"/proc/{os.getpid()}/environ" in open_to_all
    assert "own environment" not in open_to_all  # even there it is wiped
    # of the home folder there is what leads to the interpreter, if it lies there, and nothing beside it
    way = [str(path) for path in Path(sys.base_prefix).parents if path.parent == Path.home()]
    assert attack("bubblewrap", READ, *arguments) == way


@pytest.mark.slow
def test_the_word_is_nowhere_in_all_of_the_tree(secret: tuple[str, list[str]]) -> None:
    word, paths = secret
    program = """
        import json, os, sys
        names, found, count = set(sys.argv[2:]), [], 0
        for folder, folders, files in os.walk("/"):
            folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/usr/share")]
            count += len(files)
            found += [os.path.join(folder, f) for f in files if f in names]
        print(json.dumps([count > 1000, found, sorted(os.listdir("/"))]))
        """
    names = [*map(os.path.basename, paths), "HumanEval.jsonl.gz", "id_rsa", "AGENTS.md", ".bash_history"]
    looked, found, root = attack("bubblewrap", program, word, *names, wall_seconds=120, cpu_seconds=60)
    assert looked
    assert found == []
    assert {"home", "mnt", "work", "var", "run", "sys", "boot"}.isdisjoint(root)


def test_installed_packages_are_hidden_and_named_ones_are_there() -> None:
    from harness.sandbox import find_sandbox

    program = """
        import json
        found = []
        for name in ("harness", "pytest", "orjson", "gsm8k", "humaneval", "pip"):
            try:
                __import__(name)
                found.append(name)
            except ImportError:
                pass
        print(json.dumps(found))
        """
    assert attack("bubblewrap", program) == []
    assert {"harness", "orjson"} <= set(attack("unsafe-local", program))
    with_packages = find_sandbox("bubblewrap", packages=["orjson", "pytest", "typing_extensions"])
    result = asyncio.run(with_packages.run({}, ["python", "-c", "import orjson; print(orjson.dumps([1]).decode())"]))
    assert result.stdout == "[1]\n", result


# Writing

WRITE = """
import json, os, sys
written = []
for path in sys.argv[1:]:
    try:
        with open(path, "a") as file:
            file.write("x")
        written.append(path)
    except OSError:
        pass
print(json.dumps(written))
"""


def test_nothing_outside_can_be_written(tmp_path: Path) -> None:
    name = f"bench-{secrets.token_hex(6)}"
    folders = ["/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/dev", "/proc", "/var", "/run", sys.base_prefix + "/lib"]
    folders += [os.path.dirname(os.__file__), str(Path.home()), str(ROOT), str(tmp_path), "/root", "/home"]
    paths = [os.path.join(folder, name) for folder in folders]
    existing = [
        os.__file__,
        "/etc/ld.so.cache",
        "/proc/sys/kernel/hostname",
        "/proc/sysrq-trigger",
        "/proc/1/oom_score_adj",
    ]
    assert attack("unsafe-local", WRITE, str(tmp_path / name)) == [str(tmp_path / name)]
    (tmp_path / name).unlink()
    own = ["/tmp/work/a", "/tmp/b", "/dev/shm/c"]
    assert attack("bubblewrap", WRITE, *paths, *existing, *own) == own
    assert not [path for path in paths if os.path.exists(path)]


def test_the_private_folder_is_new_every_time() -> None:
    look = "import json, os; print(json.dumps([os.listdir('/tmp'), os.listdir('.'), os.listdir('/dev/shm')]))"
    leave = "open('/tmp/left', 'w'); open('left', 'w'); open('/dev/shm/left', 'w')\n" + look
    assert [sorted(names) for names in attack("bubblewrap", leave)] == [["left", "work"], ["left"], ["left"]]
    assert attack("bubblewrap", look) == [["work"], [], []]


# Rights

RIGHTS = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def errno_of(name, *arguments):
    ctypes.set_errno(0)
    function = getattr(libc, name)
    return ctypes.get_errno() if function(*arguments) in (-1, 2**32 - 1) else 0
print(json.dumps({
    "uid": os.getuid(), "capabilities": [int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Amb")],
    "no_new_privs": int(status["NoNewPrivs"]), "seccomp": int(status["Seccomp"]), "groups": os.getgroups(),
    "unshare user": errno_of("unshare", 0x10000000), "unshare net": errno_of("unshare", 0x40000000),
    "mount": errno_of("mount", b"none", b"/tmp", b"tmpfs", 0, None), "ptrace": errno_of("ptrace", 0, 0, 0, 0),
    "memfd": errno_of("memfd_create", b"x", 0), "shmget": errno_of("shmget", 0, 1 << 20, 0o1600),
    "keyctl": errno_of("syscall", 250, 0, -3, 0), "bpf": errno_of("syscall", 321, 0, 0, 0),
    "io_uring": errno_of("syscall", 425, 1, 0), "perf": errno_of("syscall", 298, 0, 0, -1, -1, 0),
    "clone with a user namespace": errno_of("syscall", 56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": errno_of("syscall", 435, 0, 0), "x32": errno_of("syscall", 0x40000000 | 39),
}))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the system calls are x86-64's")
def test_no_rights_and_no_way_to_get_some() -> None:
    assert attack("bubblewrap", RIGHTS) == {
        "uid": 65534 if os.geteuid() else pytest.approx(1.95e9, rel=0.03),
        "capabilities": [0, 0, 0], "no_new_privs": 1, "seccomp": 2, "groups": [] if os.geteuid() == 0 else [65534],
        "unshare user": 1, "unshare net": 1, "mount": 1, "ptrace": 1, "memfd": 1, "shmget": 1, "keyctl": 1, "bpf": 1,
        "io_uring": 1, "perf": 1, "clone with a user namespace": 1, "clone3": 38, "x32": 38,
    }  # fmt: skip


def test_no_process_of_ours_can_be_seen_or_signalled() -> None:
    program = """
        import json, os, sys
        try:
            os.kill(int(sys.argv[1]), 0)
            reached = True
        except OSError:
            reached = False
        print(json.dumps([reached, sorted(int(n) for n in os.listdir("/proc") if n.isdigit())]))
        """
    assert attack("unsafe-local", program, str(os.getpid()))[0] is True
    assert attack("bubblewrap", program, str(os.getpid())) == [False, [1, 2, 3]]


def test_the_request_of_the_launcher_cannot_be_read_and_its_reports_not_forged() -> None:
    program = """
        import os, sys
        for name in ("mem", "environ", "fd/0", "fd/3", "maps"):
            try:
                open(f"/proc/{os.getppid()}/{name}", "rb").close()
                print("opened", name)
            except OSError:
                pass
        sys.stderr.write('\\n\\x1e0123456789abcdef0123456789abcdef {"wall": 0, "cpu": 0, "code": 0}\\n')
        sys.exit(3)
        """
    for way in ("bubblewrap", "unsafe-local"):
        result = run(way, program)
        assert (result.exit_code, result.outcome) == (3, "exited")
        # where nothing is contained, a program of root may open everything
        assert result.stdout == "" or (way == "unsafe-local" and os.geteuid() == 0)
        assert result.stderr == '\n\x1e0123456789abcdef0123456789abcdef {"wall": 0, "cpu": 0, "code": 0}\n'
