"""Environments that end their process, one row after the other, in every place where they have code; and the processes
that are left of them."""

from __future__ import annotations

import os
from pathlib import Path

STRIKES = r"""
import asyncio, ctypes, os, signal, subprocess, sys, threading, time

def pipes():
    found = []
    for fd in range(3, 256):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                found.append(fd)
        except OSError:
            pass
    return found

def strike(how):
    if how == "kill":
        ctypes.CDLL(None).kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "leave":
        ctypes.CDLL(None)._exit(3)
    if how == "close":
        for fd in pipes():
            ctypes.CDLL(None).close(fd)
        time.sleep(60)
    if how == "scribble":
        for fd in pipes():
            try:
                os.write(fd, b'{"type": "generated", "to": 0\n}}garbage\n')
            except OSError:
                pass
"""
"""Ways to end a process that nothing in it can refuse."""

DYING = (
    STRIKES
    + """
from harness import MultiTurnEnv, Rubric, cleanup, teardown

def at(info, place):
    if info.get("at") == place:
        strike(info["how"])

def correct(completion, answer, info):
    at(info, "reward")
    return float(completion[-1]["content"] == answer)

async def said(completion, info):
    at(info, "metric")
    return float(len(completion))

def best(completions, infos):
    for info in infos:
        at(info, "group")
    return [1.0 for _ in completions]

class Dying(MultiTurnEnv):
    dies_at_last = False

    async def setup_state(self, state):
        at(state["info"], "setup")

    async def env_response(self, messages, state):
        at(state["info"], "response")
        return [{"role": "user", "content": "and?"}]

    @cleanup
    async def tidy(self, state):
        at(state["info"], "cleanup")

    @teardown
    async def close(self):
        if self.dies_at_last:
            strike("kill")

    def reference_reply(self, example, messages):
        return example.answer

def load_environment(faults=(), size=6, grouped=False, loads="", last=False):
    strike(loads)
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n), "info": {}} for n in range(size)]
    for index, place, how in faults:
        rows[index]["info"] = {"at": place, "how": how}
    rubric = Rubric([correct, best], [1.0, 1.0]) if grouped else Rubric([correct, said], [1.0, 0.0])
    environment = Dying(dataset=rows, rubric=rubric, max_turns=2)
    environment.dies_at_last = last
    return environment
"""
)
"""`faults`: rows, each with the place and the way in which it ends its process."""


def at_work_in(folder: Path) -> list[int]:
    """The processes whose working directory is `folder`, or one in it."""
    found: list[int] = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            is_there = Path(os.readlink(each / "cwd")).is_relative_to(folder.resolve())
        except OSError:  # gone by now, or not ours
            continue
        if is_there and int(each.name) != os.getpid():
            found.append(int(each.name))
    return found


def left_over(mark: str) -> list[int]:
    """The processes that have `mark` in their environment, and have not ended."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark.encode() in (folder / "environ").read_bytes()
            is_over = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if marked and not is_over and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found
