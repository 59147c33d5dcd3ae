"""Whether a program passes its hidden tests. Owns the sandbox run and the reading of its verdict; what happens inside
is `inside/examiner` (the tests) and `inside/solver` (the program)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from harness import JsonDict
from harness.errors import EnvironmentFault
from harness.sandbox import Limits, Result, Sandbox
from humaneval.extraction import Program

PATIENCE = 6.0
"""Seconds on the clock for each second of processor time: a loaded machine must not make a right program wrong."""

_EXAMINE = ("python", "-s", "-m", "humaneval.inside.examiner")

_SLOW = {"timeout": "its time was up", "cpu": "its processor time was up"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests say of a program.

    Args:
        passed: All tests passed, and the examiner said so itself.
        timed_out: It was still at work when its time was up.
        reason: Why it did not pass, in a few words; empty if it did.
    """

    passed: bool
    timed_out: bool
    reason: str


class Grader:
    """Runs programs against tests.

    Args:
        sandbox: Where.
        seconds: Processor time for one program.
    """

    def __init__(self, sandbox: Sandbox, seconds: float) -> None:
        self._sandbox = sandbox
        self._limits = Limits(
            wall_seconds=seconds * PATIENCE,
            cpu_seconds=seconds,
            memory_mb=1024,
            processes=16,
            file_mb=16,
            disk_mb=64,
            output_bytes=100_000,
        )

    async def grade(self, program: Program, problem: Mapping[str, object]) -> Verdict:
        """Run a program against the tests of a problem.

        Raises:
            SandboxError: the sandbox failed; nothing is known of the program.
            EnvironmentFault: the problem's own tests cannot be run.
        """
        nonce = secrets.token_hex(16)
        order = {
            "nonce": nonce,
            "given": program.given,
            "code": program.code,
            **{name: problem[name] for name in ("prompt", "test", "entry_point")},
        }
        # the tests go to the examiner's stdin, which it has read to the end before the program exists
        result = await self._sandbox.run(_inside(), _EXAMINE, json.dumps(order), self._limits)
        return read_verdict(result, nonce, str(problem.get("task_id", "?")))


def read_verdict(result: Result, nonce: str, task_id: str) -> Verdict:
    """What a run of the examiner came to. Without a word from the examiner itself, the program has not passed.

    Raises:
        EnvironmentFault: the examiner found fault with the tests, before there was a program.
    """
    said: JsonDict = {}
    for line in result.stdout.splitlines():
        if line.startswith(nonce):
            said = cast(JsonDict, json.loads(line[len(nonce) :]))
    if "fault" in said:
        raise EnvironmentFault(f"the tests of {task_id} cannot be run: {said['fault']}")
    if result.outcome in _SLOW:
        return Verdict(False, True, _SLOW[result.outcome])
    if not said:
        return Verdict(False, False, f"it ended its own examination ({result.outcome}, exit code {result.exit_code})")
    if said["passed"] is True:
        return Verdict(True, False, "")
    return Verdict(False, bool(said.get("timed_out")), str(said.get("reason", ""))[:500])


@cache
def _inside() -> dict[str, str]:
    folder = Path(__file__).with_name("inside")
    names = ("__init__.py", "examiner.py", "solver.py", "values.py")
    sources = {f"humaneval/inside/{name}": (folder / name).read_text(encoding="utf-8") for name in names}
    return {"humaneval/__init__.py": "", **sources}
