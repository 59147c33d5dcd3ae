"""Sandboxes for model-written code: isolation and resource limits behind one interface, with four backends; and
machines, which last for a whole rollout.

api             limits and results
backend         the interface `Sandbox` and `Session`, and the limit on concurrent runs
find            choosing a sandbox that works on this machine, or the error that says what to install
bubblewrap      backend: Linux namespaces without a daemon
container       backend: docker or podman
local           backend: no isolation, only limits; must be selected by name
process         a sandboxed process from start to end
pipes           the pipes of a sandboxed process, with bounded buffers
tree            resource usage of a process tree, from /proc
seccomp         system calls that are forbidden inside bubblewrap
launch_data     how a sandbox is started, and the request that the launcher in it reads
launch_program  the launcher: the program in the sandbox that starts the model's code and watches it
workbench       a shell and an interpreter that persist between the tool calls of a rollout
session_program the program in the sandbox that runs the workbench's requests
repl            the interpreter loop
machine         a machine for each rollout: the interface, and `open_machine`
containers      start of machines in containers
container_machine, bubblewrap_machine  machines in containers and in a workbench
exec_pipes      a program in a container: the scripts that start and kill it, and its pipes
archives        files and folders as tar archives, in which container engines copy them
engine_client   the command line of docker and podman
engine_load     limits on the work of an engine, and pauses for one that is out of order
leftovers       containers that a killed process has left
images          images of containers, built once for each content"""

from __future__ import annotations

from harness.core.errors import SandboxError, SandboxMissing
from harness.sandbox.api import Limits, Outcome, Result
from harness.sandbox.backend import Sandbox, Session
from harness.sandbox.find import find_sandbox
from harness.sandbox.machine import Machine, MachineSpec, open_machine

__all__ = [
    "Limits",
    "Machine",
    "MachineSpec",
    "Outcome",
    "Result",
    "Sandbox",
    "SandboxError",
    "SandboxMissing",
    "Session",
    "find_sandbox",
    "open_machine",
]
