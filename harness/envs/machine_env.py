"""Environments whose model works on a machine: a container or another sandbox, one for each rollout."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any, Literal, Unpack

from harness.core.errors import EnvironmentFault, LimitReached
from harness.core.state import State
from harness.core.types import JsonDict, Messages
from harness.envs.options import EnvOptions
from harness.envs.stateful_tool_env import StatefulToolEnv
from harness.envs.tool_env import ErrorFormatter
from harness.sandbox.api import Result
from harness.sandbox.find import ENGINES, find_machines
from harness.sandbox.machine import BASH_OR_SH, Machine, MachineSpec, open_machine
from harness.sandbox.user_machine import UserMachine
from harness.tools import Tool, read_tool

MAX_VIEW = 1 << 20
"""Maximum size in bytes of a file that the tool `edit` shows or changes."""

_MAX_PATH = 4096


async def bash(command: str, machine: Machine, timeout: float) -> str:
    """Run a shell command on the machine. Each command has a shell of its own; files and background processes stay.
    Returns the output of the command, and its exit code if it is not 0.

    Args:
        command: The command.
        machine: The rollout's machine.
        timeout: Seconds.
    """
    return output_text(await machine.exec(["sh", "-c", BASH_OR_SH, "sh", command], timeout=timeout), timeout)


async def python(code: str, machine: Machine, timeout: float) -> str:
    """Run a Python program on the machine, in an interpreter of its own. Returns its output.

    Args:
        code: The program. Use print() to see values.
        machine: The rollout's machine.
        timeout: Seconds.
    """
    return output_text(await machine.exec(["python3", "-"], stdin=code, timeout=timeout), timeout)


async def edit(
    command: Literal["view", "create", "str_replace", "insert"],
    path: str,
    machine: Machine,
    file_text: str = "",
    old_str: str = "",
    new_str: str = "",
    insert_line: int = 0,
) -> str:
    """View, create and change text files on the machine.

    Args:
        command: view shows a file with line numbers; create writes file_text to a file; str_replace replaces old_str,
            which must occur exactly once, by new_str; insert inserts new_str after line insert_line.
        path: The path of the file.
        machine: The rollout's machine.
        file_text: The whole text of the file to create.
        old_str: The text to replace.
        new_str: The new text.
        insert_line: Line number after which to insert; 0 for the start of the file.
    """
    if not path or "\0" in path or len(os.fsencode(path)) > _MAX_PATH:
        raise ValueError("path is not the path of a file")
    if command == "create":
        await machine.write_file(path, file_text)
        return f"{path} has been written"
    text = (await machine.read_file(path, MAX_VIEW)).decode("utf-8", "replace" if command == "view" else "strict")
    lines = list(io.StringIO(text, newline="\n"))  # as tools count them: `splitlines` also splits at other characters
    if command == "view":
        return "".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1)) or "(empty file)"
    if command == "insert":
        if not 0 <= insert_line <= len(lines):
            raise ValueError(f"insert_line must be from 0 to {len(lines)}, the number of lines of {path}")
        head = "".join(lines[:insert_line])
        between = "" if not head or head.endswith("\n") else "\n"
        text = head + between + new_str.removesuffix("\n") + "\n" + "".join(lines[insert_line:])
    elif (count := text.count(old_str) if old_str else 0) != 1:
        raise ValueError(f"old_str occurs {count} times in {path}; it must occur exactly once")
    else:
        text = text.replace(old_str, new_str)
    mode = await machine.exec(["stat", "-c", "%a", path])
    await machine.write_file(path, text, int(mode.stdout, 8) if mode.exit_code == 0 else 0o644)
    return f"{path} has been changed"


MACHINE_TOOLS: dict[str, Callable[..., Any]] = {"bash": bash, "python": python, "edit": edit}
"""Tools for a model that works on a machine."""

_GIVEN = ("machine", "timeout")
"""Parameters that `MachineEnv` passes to tools, hidden from the model."""


class MachineEnvOptions(EnvOptions, total=False):
    """Constructor arguments of `MachineEnv` that it passes on to `ToolEnv`."""

    error_formatter: ErrorFormatter
    stop_errors: Sequence[type[Exception]] | None
    max_output_chars: int | None


class MachineEnv(StatefulToolEnv):
    """An environment with a machine for each rollout, and tools that work on it. The machine is removed at the end of
    the rollout, also if it fails or is cancelled.

    Override `machine_spec` for other machines for some rows, `setup_machine` to prepare the machine, and `verify` to
    look at it after the model's last reply. Hooks may write files as root. While the rollout runs, the machine is also
    `state.machine`, which tools get: in a container it reads and writes files with the rights of the container's user.

    Args:
        machine: Description of the machine.
        machine_tools: Names of the tools for the model: `bash`, `python` (if the image has `python3`) and `edit`.
        tools: More tools: Python functions. Those with a parameter `machine` get the rollout's machine.
        command_timeout: Timeout of a call of a tool, in seconds.
        max_turns: Maximum number of model replies; −1 for no limit.
        **options: See `EnvOptions`; and `error_formatter`, `stop_errors` and `max_output_chars` of `ToolEnv`.

    Raises:
        EnvironmentFault: see `ToolEnv`.
        SandboxMissing: this computer has no suitable sandbox; the message says what to install.
        ConfigError: the sandbox cannot do what `machine` asks for.
    """

    def __init__(
        self,
        machine: MachineSpec | None = None,
        machine_tools: Sequence[str] = ("bash", "edit"),
        tools: Iterable[Callable[..., Any]] = (),
        *,
        command_timeout: float = 60.0,
        max_turns: int = 50,
        **options: Unpack[MachineEnvOptions],
    ) -> None:
        unknown = [name for name in machine_tools if name not in MACHINE_TOOLS]
        if unknown:
            raise EnvironmentFault(f"machine_tools={unknown[0]!r} is unknown; there are {', '.join(MACHINE_TOOLS)}")
        self.machine = machine or MachineSpec()
        self.command_timeout = command_timeout
        find_machines(self.machine)
        super().__init__(max_turns=max_turns, **options)
        for tool in (*(MACHINE_TOOLS[name] for name in machine_tools), *tools):
            self.add_tool(tool)

    # Hooks

    def machine_spec(self, state: State) -> MachineSpec:
        """Return what kind of machine a rollout gets; by default that of the constructor."""
        return self.machine

    async def setup_machine(self, machine: Machine, state: State) -> None:
        """Hook before the first turn; may write files and run programs."""

    async def take_turns(self, state: State) -> None:
        """Run the turns of the rollout, between `setup_machine` and `verify`."""
        await super().play(state)

    async def verify(self, machine: Machine, state: State) -> None:
        """Hook after the last turn; store results in `state` for the reward functions. Also called if a limit has ended
        the rollout. An exception fails the rollout, which is then unscored."""

    # Tools

    def add_tool(self, tool: Callable[..., Any], args_to_skip: Sequence[str] = ()) -> None:
        """Add a tool; see `StatefulToolEnv.add_tool`. The parameters `machine` and `timeout` are hidden, if the tool
        has a parameter `machine`."""
        names = () if isinstance(tool, Tool) else signature(tool).parameters
        given = [name for name in _GIVEN if name in names and "machine" in names]
        self._add(read_tool(tool, [*args_to_skip, *given]))

    def update_tool_args(
        self, tool_name: str, tool_args: JsonDict, messages: Messages, state: State, **kwargs: Any
    ) -> JsonDict:
        """Add the machine to the arguments of tools that have a parameter for it."""
        values = {"machine": state.machine, "timeout": self.command_timeout}
        tool = self.tool_map.get(tool_name)
        hidden = tool.hidden if tool is not None else frozenset[str]()
        return {**tool_args, **{name: values[name] for name in _GIVEN if "machine" in hidden and name in hidden}}

    # The loop

    async def play(self, state: State) -> None:
        """Run the turns on a new machine."""
        spec = self.machine_spec(state)
        async with open_machine(spec) as machine:
            state.machine = UserMachine(machine, spec.user) if machine.name in ENGINES else machine
            try:
                await self.setup_machine(machine, state)
                try:
                    await self.take_turns(state)
                except LimitReached:
                    await self._verify(machine, state)
                    raise
                if state["error"] is None:
                    await self._verify(machine, state)
            finally:
                state.machine = None
                if machine.restarts:
                    state["machine_restarts"] = machine.restarts

    async def _verify(self, machine: Machine, state: State) -> None:
        """Call `verify`, unless the machine has failed: the model or agent may have caught this error and gone on, but
        would look worse for it. So may `verify`."""
        state.is_verifying = True  # until it has ended without an error
        if isinstance(state.machine, UserMachine):
            await state.machine.close()
        if machine.failure is None:
            await self.verify(machine, state)
        if machine.failure is not None:
            raise machine.failure
        state.is_verifying = False


def output_text(done: Result, timeout: float) -> str:
    """The result of a command as text for the model."""
    parts = [done.stdout.rstrip("\n"), done.stderr.rstrip("\n")]
    if done.stdout_truncated or done.stderr_truncated:
        parts.append("[the output was longer and has been cut]")
    if done.outcome == "timeout":
        parts.append(f"[killed: it took longer than {timeout:g} s]")
    elif done.outcome == "output":
        parts.append("[killed: it wrote too much output]")
    elif done.outcome == "signalled":
        parts.append("[killed: all programs on the machine were ended]")
    elif done.exit_code:
        parts.append(f"[exit code {done.exit_code}]")
    return "\n".join(part for part in parts if part) or "(no output)"
