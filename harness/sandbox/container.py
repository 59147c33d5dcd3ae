"""Sandbox backend with docker or podman. Killing the engine's client does not end a container, so containers are
removed explicitly.

The engine limits memory, processes and network. The launcher in the container enforces the time limit, so a container
ends even if the harness was killed and cannot remove it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager

from harness.sandbox.api import Limits
from harness.sandbox.backend import Sandbox
from harness.sandbox.bubblewrap import NOBODY, program_environment
from harness.sandbox.engine_client import Engine
from harness.sandbox.launch_data import LAUNCHER, Launch
from harness.sandbox.leftovers import client_environment, labels

IMAGE = "python:3.12-slim"
"""Default image for programs; it must contain `python3`."""

START_SECONDS = 300.0
"""Timeout for starting a container; the first start may download the image."""


class Container(Sandbox):
    """Sandbox that uses docker or podman.

    Args:
        engine: The engine.
        image: Image in which the program runs.
    """

    def __init__(self, engine: Engine, image: str = IMAGE) -> None:
        self.name = engine.name
        self.engine = engine
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
        """Remove the container if it still exists; see `Engine.remove`."""
        await self.engine.remove(str(launch.request["container"]))

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
            "--stop-timeout": "0",
            "--log-driver": "none",
            "--pids-limit": str(limits.processes + 1),
            "--memory": f"{limits.memory_mb}m",
            "--memory-swap": f"{limits.memory_mb}m",
            "--shm-size": f"{shared}m",
            "--tmpfs": f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={private}m",
            "--workdir": "/tmp",
            "--entrypoint": "python3",
        }
        command = [
            self.engine.program,
            "run",
            "--rm",
            "--interactive",
            "--read-only",
            *labels(),
            *self.engine.run_options,
        ]
        for option, value in options.items():
            command += [option, value]
        return [*command, self._image, *LAUNCHER]
