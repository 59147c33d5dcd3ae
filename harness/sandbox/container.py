"""Sandbox backend with docker or podman. Killing the engine's client does not end a container, so containers are
removed explicitly.

The engine limits memory, processes and network. The launcher in the container enforces the time limit, so a container
ends even if the harness was killed and cannot remove it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from harness.sandbox.api import Limits
from harness.sandbox.backend import Sandbox
from harness.sandbox.bubblewrap import NOBODY, program_environment
from harness.sandbox.launch_data import LAUNCHER, Launch
from harness.usercode.threads import offload

IMAGE = "python:3.12-slim"
"""Default image for programs; it must contain `python3`."""

START_SECONDS = 300.0
"""Timeout for starting a container; the first start may download the image."""

REMOVE_SECONDS = 20.0

_KEPT = ("PATH", "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Environment variables that the engine's client needs in addition to the engine's own. The container gets none of
them."""


def client_environment() -> dict[str, str]:
    """Environment variables of the client program of the container engine."""
    own = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_")
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(own)}


class Container(Sandbox):
    """Sandbox that uses docker or podman.

    Args:
        engine: `docker` or `podman`.
        program: Path of the engine's client.
        image: Image in which the program runs.
    """

    def __init__(self, engine: str, program: str, image: str = IMAGE) -> None:
        self.name = engine
        self._program = program
        self._image = image

    @contextmanager
    def launch(self, limits: Limits) -> Generator[Launch, None, None]:
        """Prepare the start of one process; see `Sandbox.launch`."""
        name = f"bench-{os.getpid()}-{secrets.token_hex(6)}"
        yield Launch(
            command=tuple(self._command(name, limits)),
            python="python3",
            base="/tmp",
            env=program_environment("/tmp"),
            outer_env=client_environment(),
            request={"container": name, "strict": True},
            start_seconds=START_SECONDS,
        )

    async def ended(self, launch: Launch) -> None:
        """Remove the container if it still exists. Completes in its thread even if the await is cancelled."""
        await offload.run(self._remove, str(launch.request["container"]))

    def _remove(self, name: str) -> None:
        # in its own session, so that Ctrl-C does not end it along with the harness
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self._program, "rm", "--force", name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=client_environment(),
                start_new_session=True,
                timeout=REMOVE_SECONDS,
            )

    def _command(self, name: str, limits: Limits) -> list[str]:
        shared = max(1, limits.disk_mb // 8)
        private = max(1, limits.disk_mb - shared)
        options = {
            "--name": name,
            "--network": "none",
            "--cap-drop": "ALL",
            "--security-opt": "no-new-privileges",
            "--user": f"{NOBODY}:{NOBODY}",
            "--hostname": "sandbox",
            "--ipc": "private",
            "--log-driver": "none",
            "--pids-limit": str(limits.processes + 1),
            "--memory": f"{limits.memory_mb}m",
            "--memory-swap": f"{limits.memory_mb}m",
            "--shm-size": f"{shared}m",
            "--tmpfs": f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={private}m",
            "--workdir": "/tmp",
            "--entrypoint": "python3",
        }
        command = [self._program, "run", "--rm", "--interactive", "--read-only"]
        for option, value in options.items():
            command += [option, value]
        return [*command, self._image, *LAUNCHER]
