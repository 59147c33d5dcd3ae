"""Start of machines in containers: their options and their main process."""

from __future__ import annotations

import secrets

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.sandbox.container import IMAGE
from harness.sandbox.container_machine import SHELL, ContainerMachine
from harness.sandbox.engine_client import MAIN_FAILED, Engine
from harness.sandbox.exec_pipes import variables
from harness.sandbox.images import is_missing, local_image
from harness.sandbox.machine import Machine, MachineSpec

_WAIT = f"while :; do sleep 3600 || [ $? -gt 128 ] || exit {MAIN_FAILED}; done"
"""Main process: also continues if its `sleep` is killed. A shell as process 1 removes processes whose parent has
ended."""


class Containers:
    """Starts machines in containers.

    Args:
        engine: The container engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def open(self, spec: MachineSpec) -> Machine:
        """Start a machine; see `open_machine`."""
        engine = self.engine
        if spec.disk_mb is not None and (problem := await engine.refuses_disk_limit()):
            raise ConfigError(
                f"MachineSpec(disk_mb={spec.disk_mb}): {engine.name} cannot limit the disk space here ({problem}). "
                "Omit disk_mb, or move the storage of the engine to xfs that is mounted with pquota"
            )
        image = spec.image or IMAGE
        local = await local_image(engine, image, spec.images, spec.build_seconds)
        try:
            return await self._start(spec, local)
        except SandboxError:
            if not await is_missing(engine, local):
                raise
        await local_image(engine, image, spec.images, spec.build_seconds)  # it was removed after its last use
        return await self._start(spec, local)

    async def _start(self, spec: MachineSpec, local: str) -> Machine:
        engine = self.engine
        name = f"bench-{secrets.token_hex(8)}"
        environment, secret = variables(spec.env)
        answer = await engine.start(name, [*_options(spec), *environment], local, ["-c", _WAIT], secret)
        if answer.code:
            raise EnvironmentFault(
                f"containers of {str(spec.image or IMAGE)!r} do not start: machines need /bin/sh, and the "
                f"working folder must exist: {answer.error}"
            )
        return ContainerMachine(engine, name)


def _options(spec: MachineSpec) -> list[str]:
    options = {
        "--entrypoint": SHELL,
        "--hostname": "machine",
        "--ipc": "private",
        "--log-driver": "none",
        "--stop-timeout": "0",
        "--pids-limit": str(spec.processes + 1),  # plus the main process's `sleep`
        "--memory": f"{spec.memory_mb}m",
        "--memory-swap": f"{spec.memory_mb}m",
    }
    if not spec.network:
        options["--network"] = "none"
    if spec.cpus is not None:
        options["--cpus"] = f"{spec.cpus:g}"
    if spec.disk_mb is not None:
        options["--storage-opt"] = f"size={spec.disk_mb}m"
    if spec.user is not None:
        options["--user"] = spec.user
    if spec.folder is not None:
        options["--workdir"] = spec.folder
    pairs = [*options.items(), ("--cap-drop", "MKNOD"), ("--cap-drop", "NET_RAW")]
    return [part for pair in pairs for part in pair]
