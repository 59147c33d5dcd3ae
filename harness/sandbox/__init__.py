"""Where model-written code runs: one protocol, three ways to keep it. Owns isolation and limits; knows nothing of what
the code is for and scores nothing.

api         what a caller sees: `Sandbox`, `Limits`, `Result`, `Session`
find        which way there is on this machine; the refusal when there is none
bubblewrap  Linux namespaces without a daemon
container   docker or podman
local       the host itself with limits: must be asked for by name
ways        what they do the same: runs, sessions, the queue before the processors
contained   what they rest on: a contained process from its first byte to the last of its tree
orders      what the sandbox and the warden in it are told
wire        the two ends of its pipes, bounded
tree        what a process tree uses, from /proc
seccomp     the system calls that are refused inside bubblewrap
workbench   a shell and an interpreter for one conversation, kept between calls
attendant   the program inside that keeps them apart
repl        the interpreter's loop
warden      the program that runs inside, before and beside the model's code
"""

from __future__ import annotations

from harness.core.errors import SandboxError, SandboxMissing
from harness.sandbox.api import Limits, Outcome, Result, Sandbox, Session
from harness.sandbox.find import find_sandbox

__all__ = ["Limits", "Outcome", "Result", "Sandbox", "SandboxError", "SandboxMissing", "Session", "find_sandbox"]
