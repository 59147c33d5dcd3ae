"""Run scripts of a task in its container, and read the reward that its tests write."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import cast

from harness.core.errors import EnvironmentFault
from harness.core.records import Score
from harness.core.state import State
from harness.core.types import JsonDict
from harness.plugins.harbor.task_file import HarborTask
from harness.rubrics.rubric import Rubric
from harness.sandbox.api import Result
from harness.sandbox.machine import Machine

LOGS = "/logs/verifier"
AGENT_LOGS = "/logs/agent"
TESTS = "/tests"

DESTROYED = "machine_destroyed"
"""Value in the state of a rollout whose container was usable before the agent started, but not after it has ended."""

OUTPUT_BYTES = 32_768
"""Maximum size of the output of a script that the state keeps: its end."""

_MOST_BYTES = 1 << 20
"""Maximum size of a file with rewards."""

_MOST_METRICS = 50

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where root finds programs: the agent may write to folders of the image's own PATH."""

_PREPARE = f"""
mkdir -p /logs && chown 0 /logs && chmod 0755 /logs || exit 1
rm -rf -- {TESTS} {LOGS} 2>/dev/null
for folder in {TESTS} {LOGS}; do
  [ -e "$folder" ] || continue
  left=$(ls -A "$folder") && [ -z "$left" ] || {{ echo "$folder cannot be emptied" >&2; exit 1; }}
  chown 0 "$folder" && chmod 0755 "$folder" || exit 1
done
mkdir -p {TESTS} {LOGS} {AGENT_LOGS} /logs/artifacts && chmod 0777 {AGENT_LOGS} /logs/artifacts || exit 1
if [ "$1" = shared ]; then chmod 0777 {LOGS}; else
  [ -n "$2" ] || while read -r key id _; do [ "$key" != Uid: ] || set -- own "$id"; done </proc/1/status
  chmod 0755 {LOGS} && chown -- "$2" {LOGS}
fi
"""
"""Makes empty folders. A mount can only be emptied. Process 1 has the image's user."""

_RUN = """
run='exec "$1" >"$2" 2>&1'
if command -v bash >/dev/null; then exec bash -c "$run" bash "$@"; fi
eval "$run"
"""
"""Runs a script with its output in a file. Bash, if the image has it, runs a script without a first line that names a
shell itself."""

_OPEN = 'chmod -R a+rX -- "${1%/*}" && chmod a+x -- "$1"'
"""Lets all users read the folder of a script and run the script, whose files may be private on this computer."""


_TAIL = '[ -f "$2" ] && exec tail -c "$1" -- "$2"'
"""Prints the end of a file. The script may have put a FIFO in its place, which would be waited for."""


async def _as_root(machine: Machine, *argv: str) -> Result:
    return await machine.exec(argv, user="0", cwd="/", env={"PATH": _PATH}, output_bytes=2 * OUTPUT_BYTES)


async def prepare(machine: Machine, task: HarborTask) -> str:
    """Make empty folders for logs, and remove tests and rewards that the agent may have made; return the error, also
    if programs that the agent has replaced do not end.

    Only the tests' user may write rewards. If it is the agent's user, too, programs of other users may do so, as tests
    may start some.

    Raises:
        SandboxError: the machine failed.
    """
    kind = "shared" if task.agent_user == task.verifier_user else "own"
    done = await _as_root(machine, "/bin/sh", "-c", _PREPARE, "sh", kind, task.verifier_user or "")
    if done.outcome != "exited":
        return f"sh did not end: {done.outcome}"
    return "" if done.exit_code == 0 else (done.stderr.strip() or f"sh ended with exit code {done.exit_code}")


async def run_script(
    machine: Machine, script: str, log: str, *, user: str | None, env: dict[str, str], seconds: float
) -> tuple[Result, str]:
    """Run a script of the task in the working folder, and return how it ended and the end of its output.

    Args:
        machine: The rollout's machine.
        script: Path of the script in the machine.
        log: File in the machine for its output.
        user: The user that runs it; None for that of the image.
        env: Additional environment variables.
        seconds: Timeout.
    """
    await _as_root(machine, "/bin/sh", "-c", _OPEN, "sh", script)
    done = await machine.exec(["/bin/sh", "-c", _RUN, "sh", script, log], user=user, env=env, timeout=seconds)
    tail = await _as_root(machine, "/bin/sh", "-c", _TAIL, "sh", str(OUTPUT_BYTES), log)
    output = tail.stdout if tail.exit_code == 0 else ""
    if len(output.encode()) >= OUTPUT_BYTES:
        output = f"[the output was longer; this is its end]\n{output}"
    return done, output + done.stderr


async def verify(task: HarborTask, machine: Machine, env: dict[str, str], state: State) -> None:
    """Copy the tests into the machine and run them. Stores `verifier` (the reward, or why there is none) and
    `verifier_output` in the state.

    Raises:
        SandboxError: the machine failed.
    """
    result: JsonDict = {"reward": None, "metrics": {}, "exit_code": None, "seconds": 0.0}
    result["problem"] = "the tests did not end"
    state["verifier"], state["verifier_output"] = result, ""
    if problem := await prepare(machine, task):
        result["problem"] = f"the agent has left a container that cannot be prepared for the tests: {problem}"
        state[DESTROYED] = True
        return
    await machine.copy_in(task.folder / "tests", TESTS)
    done, state["verifier_output"] = await run_script(
        machine, f"{TESTS}/test.sh", f"{LOGS}/test-stdout.txt",
        user=task.verifier_user, env={"TEST_DIR": TESTS, **env}, seconds=task.verifier_seconds,
    )  # fmt: skip
    result["exit_code"], result["seconds"] = done.exit_code, round(done.wall_seconds, 3)
    if done.outcome != "exited":
        why = f"took longer than {task.verifier_seconds:g} s" if done.outcome == "timeout" else f"ended: {done.outcome}"
        result["problem"] = f"the tests {why}"
        return
    try:
        written = [await _read(machine, f"{LOGS}/reward.{ending}") for ending in ("json", "txt")]
        result["reward"], result["metrics"] = rewards_of(*written)
        result["problem"] = ""
    except ValueError as error:
        result["problem"] = f"{error} (test.sh ended with exit code {done.exit_code})"


async def _read(machine: Machine, path: str) -> bytes | None:
    try:
        return await machine.read_file(path, _MOST_BYTES)
    except FileNotFoundError:
        return None


def rewards_of(document: bytes | None, text: bytes | None) -> tuple[float, dict[str, float]]:
    """Read the reward and the metrics that tests have written.

    Args:
        document: Contents of `reward.json`, an object of numbers; None if there is none.
        text: Contents of `reward.txt`, a number; None if there is none.

    Returns:
        The reward: `reward` of the object, or else the number in `reward.txt`, or else the object's only number. And
        the other numbers of the object.

    Raises:
        ValueError: there is no reward; the message says why.
    """
    metrics = {} if document is None else _numbers(document)
    if "reward" in metrics:
        return metrics.pop("reward"), metrics
    if text is not None:
        return _number(text), metrics
    if document is None:
        raise ValueError(f"the tests wrote neither {LOGS}/reward.txt nor {LOGS}/reward.json")
    if len(metrics) != 1:
        names = ", ".join(list(metrics)[:5]) or "no numbers"
        raise ValueError(f"reward.json has no `reward`, and which of its values is the reward is unclear: {names}")
    return metrics.popitem()[1], {}


def _number(text: bytes) -> float:
    words = text.decode("utf-8", "replace").strip()
    try:
        value = float(words)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"reward.txt is {'empty' if not words else f'not a number: {words[:60]!r}'}")
    return value


def _numbers(document: bytes) -> dict[str, float]:
    try:
        parsed: object = json.loads(document.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"reward.json {'is empty' if not document.strip() else f'is not JSON: {error}'}") from error
    if not isinstance(parsed, dict):
        raise ValueError("reward.json is not an object")
    found: dict[str, float] = {}
    for name, value in cast("dict[str, object]", parsed).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not -1e300 < value < 1e300:  # also false for NaN
                raise ValueError(f"reward.json: {name[:60]!r} is not a finite number")
            found[name.encode("utf-8", "replace").decode()] = float(value)  # no journal can hold lone surrogates
    return found


class VerifierRubric(Rubric):
    """The reward is the one that the tests wrote. Reads only the state, so that rollouts can be scored again."""

    def __init__(self) -> None:
        super().__init__([verifier_reward])

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts; the tests' other numbers become metrics `verifier_NAME`."""
        scores = await super().score(states)
        for state, score in zip(states, scores, strict=True):
            for name, value in list(state.get("verifier", {}).get("metrics", {}).items())[:_MOST_METRICS]:
                score.metrics.setdefault("verifier_" + re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60], value)
            state["metrics"] = score.metrics
        return scores


async def verifier_reward(state: State) -> float:
    """The reward that the task's tests wrote; without one, the rollout is unscored."""
    result = state.get("verifier")
    if result is None:
        raise EnvironmentFault("the tests did not run")
    if result["reward"] is None:
        raise EnvironmentFault(result["problem"])
    return result["reward"]
