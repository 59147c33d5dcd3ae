"""Choice of a sandbox that works on this machine, or an error that says what to install. Running without isolation is
never chosen automatically."""

from __future__ import annotations

import difflib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

from harness.core.errors import ConfigError, SandboxMissing
from harness.sandbox.api import Limits, Sandbox
from harness.sandbox.backend import SandboxBackend
from harness.sandbox.bubblewrap import Bubblewrap
from harness.sandbox.container import IMAGE, Container, client_environment
from harness.sandbox.local import UnsafeLocal
from harness.sandbox.orders import encode_order
from harness.sandbox.wire import WardenReports

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
        SandboxMissing: no sandbox is available, or the named one does not work; says why and what to install.
        ConfigError: unknown sandbox name.
        EnvironmentFault: a package is not installed.
    """
    if name == "unsafe-local":
        return UnsafeLocal()
    if name == "bubblewrap":
        return _checked(_bubblewrap(tuple(packages)))
    if name in ENGINES:
        return _checked(_container(name, image))
    if name != "auto":
        near = difflib.get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"sandbox={name!r} is not known; {hint}There are {', '.join(NAMES)}")
    reasons: list[str] = []
    for found in (_bubblewrap(tuple(packages)), *(_container(engine, image) for engine in ENGINES)):
        if isinstance(found, SandboxBackend):
            return found
        reasons.append(found)
    raise _missing(reasons)


def unavailable_reason(name: str, image: str = IMAGE) -> str:
    """Why a sandbox is not available; "" if it works.

    Args:
        name: `bubblewrap`, `docker` or `podman`.
        image: Container image.
    """
    found = _bubblewrap(()) if name == "bubblewrap" else _container(name, image)
    return "" if isinstance(found, SandboxBackend) else found


def _checked(found: SandboxBackend | str) -> Sandbox:
    if isinstance(found, SandboxBackend):
        return found
    raise _missing([found])


def _missing(reasons: Sequence[str]) -> SandboxMissing:
    install = (
        "install bubblewrap, 0.7 or newer (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
        if sys.platform == "linux"
        else "install docker or podman, and start it"
    )
    return SandboxMissing(
        f"model-written code needs a sandbox, and none works here: {'; '.join(reasons)}. To go on, {install}. "
        "On a machine that you can lose, sandbox='unsafe-local' runs the code with no containment"
    )


@cache
def _bubblewrap(packages: tuple[str, ...]) -> Bubblewrap | str:
    """The sandbox, or the reason why it is not available."""
    program = shutil.which("bwrap") if sys.platform == "linux" else None
    if program is None:
        return "bubblewrap (bwrap) is not installed" if sys.platform == "linux" else "bubblewrap is for Linux only"
    sandbox = Bubblewrap(program, packages)
    reason = _probe(sandbox)
    return sandbox if reason is None else f"bubblewrap ({program}) does not work: {reason}"


@cache
def _container(engine: str, image: str) -> Container | str:
    program = shutil.which(engine)
    if program is None:
        return f"{engine} is not installed"
    try:
        asked = subprocess.run(
            [program, "info"], capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_SECONDS,
            env=client_environment(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{engine} does not answer: {error}"
    if asked.returncode != 0:
        return f"{engine} does not work: {_last_line(asked.stderr)}"
    return Container(engine, program, image)


def _probe(sandbox: Bubblewrap) -> str | None:
    """Try to run an empty program; return the error, or None on success."""
    limits, nonce = Limits(), secrets.token_hex(16)
    with sandbox.launch(limits) as launch:
        order = encode_order(launch, {}, ["python", "-I", "-S", "-c", ""], limits, nonce)
        try:
            done = subprocess.run(
                launch.command, input=order, capture_output=True, timeout=PROBE_SECONDS, env=dict(launch.outer_env),
                pass_fds=launch.pass_fds, cwd="/",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    reports = WardenReports(nonce)
    said = reports.add(done.stderr) + reports.rest()
    if any(report.get("code") == 0 for report in reports.seen):
        return None
    return next((str(report["failed"]) for report in reports.seen if "failed" in report), _last_line(said))


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else f"it said nothing (as user {os.geteuid()})"
