"""Sandboxes for model-written code: isolation and resource limits behind one protocol, with four backends.

api         the interface for callers: `Sandbox`, `Limits`, `Result`, `Session`
find        choosing a sandbox that works on this machine, or the error that says what to install
bubblewrap  backend: Linux namespaces without a daemon
container   backend: docker or podman
local       backend: no isolation, only limits; must be selected by name
backend     the common part of the backends: runs, sessions, and the limit on concurrent runs
contained   a sandboxed process from start to end
orders      how a sandbox is started, and the message to the warden in it
wire        the pipes of a sandboxed process, with bounded buffers
tree        resource usage of a process tree, from /proc
seccomp     system calls that are forbidden inside bubblewrap
workbench   a shell and an interpreter that persist between the tool calls of a rollout
attendant   the program in the sandbox that runs the workbench's requests
repl        the interpreter loop
warden      the program in the sandbox that starts the model's code and watches it"""

from __future__ import annotations

from harness.core.errors import SandboxError, SandboxMissing
from harness.sandbox.api import Limits, Outcome, Result, Sandbox, Session
from harness.sandbox.find import find_sandbox

__all__ = ["Limits", "Outcome", "Result", "Sandbox", "SandboxError", "SandboxMissing", "Session", "find_sandbox"]
