"""`self.sandbox_client` of `vf.SandboxEnv`: implements the only method of the remote provider's client that local
sandboxes support, and raises an error for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.errors import SandboxError as HarnessSandboxError
from harness.plugins.classic import faults
from harness.sandbox.workbench import Lost, Workbench


@dataclass(frozen=True)
class CommandResponse:
    """Output and exit code of a command in a sandbox."""

    stdout: str
    stderr: str
    exit_code: int


class CommandTimeoutError(faults.SandboxError, TimeoutError):
    """A command in a sandbox exceeded its timeout and was stopped."""


class SandboxClient:
    """Client that runs commands in the sandboxes of rollouts.

    Args:
        bench: Function that returns the sandbox with a given id.
        seconds: Default timeout of a command.
    """

    def __init__(self, bench: Callable[[str], Workbench], seconds: float) -> None:
        self._bench, self._seconds = bench, seconds

    async def execute_command(
        self,
        sandbox_id: str,
        command: str,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResponse:
        """Run a shell command in a rollout's sandbox.

        Raises:
            CommandTimeoutError: the command took longer than `timeout` seconds.
            SandboxError: the sandbox failed or was removed.
        """
        seconds = self._seconds if timeout is None else timeout
        try:
            done = await self._bench(sandbox_id).command(command, seconds, working_dir, env)
        except HarnessSandboxError as error:
            raise faults.SandboxError(str(error)) from error
        if isinstance(done, Lost):
            raise faults.SandboxError(f"{command[:200]!r}: {done}")
        if done.timed_out:
            raise CommandTimeoutError(f"command {command[:200]!r} took longer than {seconds:g} s")
        return CommandResponse(done.stdout, done.stderr, done.exit_code)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"sandbox_client.{name} is not supported: it belongs to the client of a remote provider. "
            "sandbox_client.execute_command(sandbox_id, command) runs a command in the rollout's sandbox"
        )
