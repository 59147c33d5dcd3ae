"""Choice of a sandbox that works on this machine, or an error that says what to install. Running without isolation is
never chosen automatically."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from harness.core.errors import ConfigError, SandboxMissing
from harness.sandbox.api import Limits
from harness.sandbox.backend import Sandbox
from harness.sandbox.bubblewrap import Bubblewrap
from harness.sandbox.bubblewrap_machine import Workbenches
from harness.sandbox.container import IMAGE, Container
from harness.sandbox.containers import Containers
from harness.sandbox.engine_client import Engine
from harness.sandbox.images import dockerfile
from harness.sandbox.launch_data import encode_request
from harness.sandbox.local import UnsafeLocal
from harness.sandbox.machine import MachineSpec
from harness.sandbox.pipes import LauncherReports, last_line
from harness.settings.wording import suggestion

ENGINES = ("docker", "podman")
NAMES = ("auto", "bubblewrap", *ENGINES, "unsafe-local")
PROBE_SECONDS = 20.0


def find_sandbox(name: str = "auto", *, packages: Sequence[str] = (), image: str = IMAGE) -> Sandbox:
    """Find a sandbox and check by a test run that it works.

    Args:
        name: `bubblewrap`, `docker` or `podman`; `auto` for the first of these that works; or `unsafe-local`, which
            isolates nothing and is never chosen by `auto`.
        packages: Installed packages that programs may import in addition to the standard library. A container has those
            of its image instead.
        image: Container image.

    Raises:
        SandboxMissing: no sandbox is available, or the named one does not work; the message says what to install.
        ConfigError: unknown sandbox name.
        EnvironmentFault: a package is not installed.
    """
    if name == "unsafe-local":
        return UnsafeLocal()
    if name not in NAMES:
        raise ConfigError(f"sandbox={name!r} is unknown; {suggestion(name, NAMES)}")
    reasons: list[str] = []
    for each in ("bubblewrap", *ENGINES) if name == "auto" else (name,):
        found = _bubblewrap(tuple(packages)) if each == "bubblewrap" else _container(each, image)
        if isinstance(found, Sandbox):
            return found
        reasons.append(found)
    install = (
        "install bubblewrap, 0.7 or newer (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
        if sys.platform == "linux"
        else "install docker or podman, and start it"
    )
    raise SandboxMissing(
        f"model-written code needs a sandbox, and none works here: {'; '.join(reasons)}. Remedy: {install}; "
        "or pass sandbox='unsafe-local', which runs the code without isolation"
    )


def unavailable_reason(name: str, image: str = IMAGE) -> str:
    """Why a sandbox is not available; "" if it works.

    Args:
        name: `bubblewrap`, `docker` or `podman`.
        image: Container image.
    """
    found = _bubblewrap(()) if name == "bubblewrap" else _container(name, image)
    return found if isinstance(found, str) else ""


@cache
def _bubblewrap(packages: tuple[str, ...]) -> Bubblewrap | str:
    """Return the sandbox, or the reason why it is not available."""
    program = shutil.which("bwrap") if sys.platform == "linux" else None
    if program is None:
        return "bubblewrap (bwrap) is not installed" if sys.platform == "linux" else "bubblewrap is for Linux only"
    sandbox = Bubblewrap(program, packages)
    reason = _probe(sandbox)
    return sandbox if reason is None else f"bubblewrap ({program}) does not work: {reason}"


@cache
def _container(engine: str, image: str) -> Container | str:
    """Return the sandbox of a container engine, or the reason why it is not available."""
    found = find_engine(engine)
    return Container(found, image) if isinstance(found, Engine) else found


@cache
def find_engine(name: str) -> Engine | str:
    """Return a container engine that works, or the reason why it is not available.

    Args:
        name: `docker` or `podman`.
    """
    program = shutil.which(name)
    if program is None:
        return f"{name} is not installed"
    engine = Engine(name, program)
    if problem := engine.problem(PROBE_SECONDS):
        return problem
    if b"podman" in engine.call_now("--version").output.lower():  # also as a program `docker`, with podman's options
        engine.name = "podman"
    return engine


def find_container_engine() -> Engine | str:
    """Return the first of docker and podman that works, or the reasons why none does."""
    found = [find_engine(name) for name in ENGINES]
    engine = next((each for each in found if isinstance(each, Engine)), None)
    return "; ".join(str(each) for each in found) if engine is None else engine


def find_machines(spec: MachineSpec) -> Containers | Workbenches:
    """Find what can start a machine, and check that it can have what `spec` asks for.

    Raises:
        SandboxMissing: no suitable sandbox works here; the message says what to install.
        ConfigError: the sandbox is unknown, or cannot do what `spec` asks for.
    """
    if spec.sandbox not in NAMES:
        raise ConfigError(f"MachineSpec(sandbox={spec.sandbox!r}) is unknown; {suggestion(spec.sandbox, NAMES)}")
    if isinstance(spec.image, Path):
        dockerfile(spec.image, spec.images)  # a missing one is an error before the first rollout
    if spec.sandbox in ENGINES or spec.image is not None:
        if spec.sandbox not in ("auto", *ENGINES):
            spec.refuse(spec.sandbox)
        engine = find_engine(spec.sandbox) if spec.sandbox in ENGINES else find_container_engine()
        if isinstance(engine, str):
            raise SandboxMissing(
                f"a machine with an image needs docker or podman, and none works here: {engine}. "
                "Install one of them, and start it (Debian, Ubuntu: apt-get install podman; Fedora: dnf install podman)"
            )
        return Containers(engine)
    sandbox = find_sandbox(spec.sandbox)
    if isinstance(sandbox, Container):
        return Containers(sandbox.engine)
    spec.refuse(sandbox.name)
    return Workbenches(sandbox)


def _probe(sandbox: Bubblewrap) -> str | None:
    """Try to run an empty program; return the error, or None on success."""
    limits, nonce = Limits(), secrets.token_hex(16)
    with sandbox.launch(limits) as launch:
        request = encode_request(launch, {}, ["python", "-I", "-S", "-c", ""], limits, nonce)
        try:
            done = subprocess.run(
                launch.command, input=request, capture_output=True, timeout=PROBE_SECONDS, env=dict(launch.outer_env),
                pass_fds=launch.pass_fds, cwd="/",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    reports = LauncherReports(nonce)
    errors = reports.add(done.stderr) + reports.rest()
    if any(report.get("code") == 0 for report in reports.seen):
        return None
    return next((str(report["failed"]) for report in reports.seen if "failed" in report), last_line(errors))
