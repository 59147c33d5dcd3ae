"""`vf.SandboxEnv`: an environment with the tool `bash` and a sandbox for each rollout. Implements the classic
arguments, hooks, metrics and messages. The sandboxes are local (`harness.sandbox`), while the original class uses a
provider's remote sandboxes. An image other than those of Python, Debian and Ubuntu is used in a container."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness.core.errors import EnvironmentFault
from harness.core.errors import SandboxError as HarnessSandboxError
from harness.core.state import State
from harness.core.types import JsonDict, Messages
from harness.envs.hooks import cleanup, teardown
from harness.plugins.classic import faults
from harness.plugins.classic.container_bench import ContainerBench
from harness.plugins.classic.rubric import Rubric
from harness.plugins.classic.sandbox_request import (
    MACHINE,
    SERVICE,
    START_COMMAND,
    SandboxRequest,
    limits_of,
    machine_of,
    needs_container,
    request_of,
)
from harness.plugins.classic.tool_env import StatefulToolEnv
from harness.sandbox import find_sandbox
from harness.sandbox.workbench import Lost, Ran, Workbench

Bench: TypeAlias = Workbench | ContainerBench
"""The sandbox of a rollout: with the programs of this machine, or of an image."""

# `self.sandbox_client` of `vf.SandboxEnv`: implements the only method of the remote provider's client that local
# sandboxes support, and raises an error for the others.


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

    def __init__(self, bench: Callable[[str], Bench], seconds: float) -> None:
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


_log = logging.getLogger(__name__)


_REMOTE = frozenset({"active_sandboxes", "bulk_delete_sandboxes", "teardown_sandbox_client", "with_retry"})


class SandboxCreationError(faults.SandboxError):
    """A sandbox could not be created."""


class SandboxNotReadyError(faults.SandboxError):
    """A sandbox did not start."""


class SandboxMonitorRubric(Rubric):
    """Rubric with the metrics `sandbox_ready_wait_time` and `sandbox_command_execution_time`, in seconds."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.sandbox_ready_wait_time)
        self.add_metric(self.sandbox_command_execution_time)

    async def sandbox_ready_wait_time(self, state: State) -> float:
        """Metric: seconds until the sandbox had started; 0 if it was not used."""
        return state["sandbox_state"]["ready_wait_time"]

    async def sandbox_command_execution_time(self, state: State) -> float:
        """Metric: mean duration of the commands in the sandbox, in seconds."""
        times = state["sandbox_state"]["command_execution_times"]
        return sum(times) / len(times) if times else 0.0


class SandboxEnv(StatefulToolEnv):
    """`vf.SandboxEnv`: a model with a shell. The sandbox starts with the first command and is removed with its work
    folder at the end of the rollout; each command runs in a new shell.

    Args:
        *args: `sandbox_name`, `docker_image`, `start_command`, `cpu_cores`, `memory_gb`, `disk_size_gb`, `gpu_count`,
            `timeout_minutes`, `timeout_per_command_seconds`, `environment_vars`, `team_id`, `advanced_configs`.
        **kwargs: The same arguments by name; arguments for a provider's service, which are ignored; and the arguments
            of `ToolEnv`.

    Raises:
        SandboxMissing: this machine has no sandbox; the message says what to install.
        EnvironmentFault: an argument requests a feature that local sandboxes lack.
    """

    _modules: Sequence[str] = ()
    """Modules that programs in the sandbox can import besides the standard library."""

    _only_python = False
    """Whether images other than those of Python are refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > len(MACHINE):
            raise TypeError(f"vf.SandboxEnv takes at most {len(MACHINE)} arguments by position, not {len(args)}")
        machine: dict[str, Any] = dict(zip(MACHINE, args, strict=False))
        machine.update({name: kwargs.pop(name) for name in (*MACHINE, *SERVICE) if name in kwargs})
        self.sandbox_request = request_of(machine)
        self.timeout_per_command_seconds = machine.get("timeout_per_command_seconds", 30)
        limits_of(self.sandbox_request, type(self).__name__, self._only_python)
        stop_errors = kwargs.pop("stop_errors", None)
        if needs_container(self.sandbox_request):
            machine_of(self.sandbox_request, type(self).__name__)  # raises errors
        else:
            find_sandbox(packages=self._modules)
        self._benches: dict[str, Bench] = {}
        super().__init__(stop_errors=[faults.SandboxError] if stop_errors is None else stop_errors, **kwargs)
        self.sandbox_client = SandboxClient(self._bench, self.timeout_per_command_seconds)
        self.add_rubric(SandboxMonitorRubric())
        self.add_tool(self.bash, args_to_skip=["sandbox_id", "working_dir", "sandbox_state"])

    def __getattr__(self, name: str) -> Any:
        if name in _REMOTE:
            raise AttributeError(
                f"{type(self).__name__}.{name} is not supported: it is for sandboxes of a remote provider"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Hooks

    def get_sandbox_request(self, state: State) -> SandboxRequest:
        """Return the configuration of the rollout's sandbox; override it to change the configuration for some rows."""
        return self.sandbox_request.model_copy()

    async def post_rollout(self, state: State) -> None:
        """Hook at the end of a rollout, while its sandbox still exists; override it to inspect the sandbox."""

    async def setup_state(self, state: State, **kwargs: Any) -> Any:
        """Give the rollout its own sandbox, which starts on first use."""
        request: Any = self.get_sandbox_request(state)
        who = type(self).__name__
        limits = limits_of(request, who, self._only_python)
        start = None if request.start_command == START_COMMAND else request.start_command
        sandbox_id = uuid.uuid4().hex
        if needs_container(request):
            self._benches[sandbox_id] = ContainerBench(machine_of(request, who), start, limits.wall_seconds)
        else:
            sandbox = find_sandbox(packages=self._modules)
            self._benches[sandbox_id] = Workbench(sandbox, limits, request.environment_vars, self._modules, start)
        state["sandbox_id"] = sandbox_id
        state["sandbox_state"] = dict(ready=False, ready_wait_time=0.0, command_execution_times=[])
        return await super().setup_state(state, **kwargs)

    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        """Add the rollout's sandbox to the arguments of the tool `bash`."""
        if tool_name != "bash":
            return dict(tool_args)
        return {**tool_args, **entries(state, "sandbox_id", "sandbox_state"), "working_dir": state.get("working_dir")}

    def _should_stop_for_error(self, err: Exception) -> bool:
        # A broken sandbox always fails the rollout, regardless of `stop_errors`.
        return isinstance(err, faults.SandboxError) or super()._should_stop_for_error(err)

    # The tool

    async def bash(self, command: str, sandbox_id: str, sandbox_state: JsonDict, working_dir: str | None = None) -> str:
        """Run a shell command in the sandbox, whose files stay from call to call. Returns what the command writes.

        Args:
            command: The command.
            sandbox_id: The rollout's sandbox.
            sandbox_state: Measurements of the sandbox.
            working_dir: Where to run, if not in the work folder.
        """
        bench, seconds = self._bench(sandbox_id), self.timeout_per_command_seconds
        started = time.monotonic()
        try:
            done = await bench.command(command, seconds, working_dir)
        except HarnessSandboxError as error:
            raise SandboxNotReadyError(str(error)) from error
        self._measured(sandbox_state, bench, time.monotonic() - started)
        return result_text(done, seconds)

    def _bench(self, sandbox_id: str) -> Bench:
        bench = self._benches.get(sandbox_id)
        if bench is None:
            raise faults.SandboxError(f"there is no sandbox {sandbox_id!r}: its rollout has ended")
        return bench

    def _measured(self, sandbox_state: JsonDict, bench: Bench, seconds: float) -> None:
        if not sandbox_state["ready"]:
            sandbox_state["ready"], sandbox_state["ready_wait_time"] = True, bench.open_seconds
            seconds -= bench.open_seconds
        sandbox_state["command_execution_times"].append(max(0.0, seconds))

    # Cleanup

    @cleanup
    async def destroy_sandbox(self, state: State) -> None:
        """Call `post_rollout`, then remove the sandbox.

        Raises:
            SandboxError: the container has failed during the rollout, even if its code has caught the error.
        """
        try:
            await self.post_rollout(state)
        finally:
            bench = self._benches.pop(str(state.get("sandbox_id")), None)
            if bench is not None:
                await bench.close()
        if isinstance(bench, ContainerBench) and bench.failure is not None:
            raise faults.SandboxError(str(bench.failure)) from bench.failure

    @teardown
    async def teardown_sandboxes(self) -> None:
        """Remove the sandboxes of rollouts that have not removed them."""
        while self._benches:
            await self._benches.popitem()[1].close()


def result_text(done: Ran | Lost, seconds: float) -> str:
    """Format the result of a command for the model."""
    if isinstance(done, Lost):
        return f"Error: {done}"
    if done.timed_out:
        return f"Error: Command timed out after {seconds:g}s"
    output, errors = done.stdout.strip(), done.stderr.strip()
    parts = [output, f"stderr:\n{errors}" if errors else ""]
    return "\n".join(part for part in parts if part) or "(no output)"


def entries(state: Mapping[str, Any], *names: str) -> JsonDict:
    """Return the values that the method `setup_state` of this class has stored in a state.

    Raises:
        EnvironmentFault: a subclass did not call `super().setup_state`.
    """
    missing = [name for name in names if name not in state]
    if missing:
        raise EnvironmentFault(f"state has no {missing[0]!r}: setup_state must call super().setup_state")
    return {name: state[name] for name in names}
