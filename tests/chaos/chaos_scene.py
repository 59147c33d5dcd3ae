"""What the chaos suite plays on: a suite of four environments, a server with scripted faults in this process, whose own
log says what was asked for, and child processes that start through `chaos_driver`. Owns starting and watching them;
what is done to them is `chaos_rounds`', what must hold `chaos_reader`'s."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nursery
from bench_runs import PATIENCE, Done, Process, Running
from chaos_driver import LEFT
from chaos_reader import Findings
from fault_server import FaultServer

from harness.engine.environment_loader import load_environment
from harness.reference.player import EnvironmentPlayer
from harness.reference.script import fault_script

HERE = Path(__file__).parent

COMMON = """
import json
from harness import JudgeRubric, Rubric, SingleTurnEnv, ToolEnv
from harness.rubrics.judge import quoted_response

def correct(completion, answer):
    return float(str(completion[-1]["content"]).strip() == answer)

def said(completion):
    return float(len(str(completion[-1]["content"] or "")))

def table(size, word):
    return [{"question": f"{word} {n} + {n}", "answer": str(2 * n)} for n in range(size)]

class Adding(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"
"""

ENVIRONMENTS = {
    "single": COMMON
    + """
def load_environment():
    return Adding(dataset=table(8, "What is"), rubric=Rubric([correct, said], [1.0, 0.0]))
""",
    "grouped": COMMON
    + """
def share(completions, answers):
    right = sum(c[-1]["content"] == a for c, a in zip(completions, answers))
    return [right / len(answers) for _ in answers]

def load_environment():
    return Adding(dataset=table(5, "Together"), rubric=Rubric([correct, share], [0.5, 0.5]))
""",
    "tools": COMMON
    + """
def double(number: int) -> int:
    \"\"\"Doubles a number.

    Args:
        number: The number.
    \"\"\"
    return 2 * number

class Doubling(ToolEnv):
    def reference_reply(self, example, messages):
        if messages[-1]["role"] == "tool":
            return messages[-1]["content"]
        call = {"name": "double", "arguments": json.dumps({"number": int(example.answer) // 2})}
        return {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": call}]}

    def null_reply(self, example, messages):
        return "?"

def load_environment():
    return Doubling(tools=[double], dataset=table(5, "Double"), rubric=Rubric([correct]), max_turns=4)
""",
    "judged": COMMON
    + """
class Judged(Adding):
    def reference_verdict(self, example, messages):
        right = quoted_response(messages) == example.answer
        return "<verdict>" + ("CORRECT" if right else "INCORRECT") + "</verdict>"

def load_environment(judge="http://127.0.0.1:9/v1"):
    rubric = JudgeRubric(judge_model="reference/judge", judge_base_url=judge)
    return Judged(dataset=table(6, "Judge"), rubric=rubric)
""",
}

SUITE = """
[[eval]]
id = "grouped"
num_examples = 5
rollouts_per_example = 3

[[eval]]
id = "tools"
num_examples = 5
rollouts_per_example = 2

[[eval]]
id = "judged"
args = {{ judge = "{url}" }}
num_examples = 6
rollouts_per_example = 2

[[eval]]
id = "single"
num_examples = 8
rollouts_per_example = 2
"""

ROLLOUTS = 5 * 3 + 5 * 2 + 6 * 2 + 8 * 2

FAULTS = (
    "429@per=rollout,share=0.1,times=1,header.retry-after-ms=5",
    "503@per=rollout,share=0.1,times=1,header.retry-after-ms=5",
    "reset@at=9",
    "truncated@at=17",
)
"""What a provider does on a bad day. Asking again makes up for all of it, so the numbers are those of a good one."""

BABBLE = ("Traceback", "Task was destroyed", "was never awaited", "never retrieved", "ResourceWarning")
"""What must not stand on stderr, however a process ends."""


class Scene:
    """A folder, a server, and an undisturbed run of the suite to compare with.

    Args:
        folder: New, and below it everything.
        seed: Of the server's faults.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.cwd = folder / "work"
        self._modules, self._logs, self._seed = folder / "modules", folder / "logs", seed
        for each in (self.cwd, self._modules, self._logs):
            each.mkdir(parents=True)
        for name, source in ENVIRONMENTS.items():
            (self._modules / f"{name}.py").write_text(source)
        self._server: FaultServer | None = None
        self._children = 0

    @contextmanager
    def open(self) -> Generator[Scene]:
        """Serve, make the undisturbed run, and stay until the block ends."""
        with _imported_for_a_while(self._modules):
            players = {
                name: EnvironmentPlayer(load_environment(str(self._modules / f"{name}.py"))) for name in ENVIRONMENTS
            }
        for player in players.values():
            player.learn_all()
        with FaultServer(*FAULTS, players=players) as server:
            self._server = server
            (self.cwd / "suite.toml").write_text(SUITE.format(url=server.url))
            self.trouble()
            done = self.start([], "calm").wait()
            assert done.code == 0, done.err
            assert len(self.runs("calm")) == len(ENVIRONMENTS)
            yield self

    @property
    def server(self) -> FaultServer:
        """The server."""
        assert self._server is not None
        return self._server

    def trouble(self, *more: str, latency: float = 0.004) -> None:
        """Begin the server's faults anew, and its log."""
        self.relent(*more, latency=latency)
        self.server.server.served.clear()

    def relent(self, *more: str, latency: float = 0.004) -> None:
        """Begin the server's faults anew, and go on with its log."""
        self.server.server.faults = fault_script(*more, *FAULTS, seed=self._seed, latency=latency, sigma=0.8)

    def asked(self) -> int:
        """Requests so far."""
        return len(self.server.server.served)

    def asked_since(self, mark: int) -> list[tuple[str, bool]]:
        """Each request since then: the key of its rollout, and whether a judge was asked."""
        return [(each.rollout, each.model == "reference/judge") for each in list(self.server.server.served)[mark:]]

    def command(self, output_dir: str, *more: str) -> list[str]:
        """The suite's."""
        return [
            "run", "suite.toml", "-m", "reference/noisy?accuracy=0.6&seed=3", "-b", self.server.url, "-c", "4",
            "-f", "5", "-q", "-o", output_dir, *more,
        ]  # fmt: skip

    def environ(self, log: Path, rules: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Of a child."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHONWARN"))}
        return {
            **keep, "PYTHONPATH": os.pathsep.join([str(self._modules), str(HERE)]), "NO_COLOR": "1", "COLUMNS": "200",
            "HF_HOME": str(self.cwd / "hf"), "CHAOS": json.dumps(rules), "CHAOS_LOG": str(log),
        }  # fmt: skip

    def start(self, rules: Sequence[Mapping[str, Any]], output_dir: str, *more: str) -> Child:
        """Start the suite in a child process that these rules meet."""
        return self.start_command(self.command(output_dir, *more), rules)

    def start_command(
        self, command: Sequence[str], rules: Sequence[Mapping[str, Any]] = (), *, own: bool = False
    ) -> Child:
        """Start any command of `bench`.

        Args:
            command: Its words.
            rules: What it meets.
            own: In an interpreter of its own: what it meets must be there before anything is imported.
        """
        self._children += 1
        log = self._logs / f"met-{self._children}"
        log.touch()
        environ = self.environ(log, rules)
        if own:
            environ["PYTHONHASHSEED"] = "0"

        def begin(out: int, err: int) -> Process:
            way = ["-m", "chaos_driver"]
            return nursery.start([*way, *command], cwd=self.cwd, environ=environ, stdout=out, stderr=err)

        return Child(Running(self._logs, begin), log)

    def runs(self, output_dir: str) -> dict[str, Path]:
        """The run folders by environment; more than one of an environment is an error."""
        found: dict[str, Path] = {}
        for path in sorted((self.cwd / output_dir / "evals").glob("*/*/run.json")):
            name = json.loads(path.read_text())["env_id"]
            assert name not in found, f"{path.parent} beside {found[name]}"
            found[name] = path.parent
        return found


@contextmanager
def _imported_for_a_while(folder: Path) -> Iterator[None]:
    """What is imported from `folder` in the block is found by no later import of this process: `tools` is a name that
    others have, too."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
            del sys.modules[name]


class Child:
    """A command that goes on, and what it met."""

    def __init__(self, running: Running, log: Path) -> None:
        self.running = running
        self._log = log

    def wait(self, patience: float = PATIENCE) -> Done:
        """How it ended, within so many seconds."""
        return self.running.wait(patience)

    def met(self) -> list[str]:
        """The faults that it met."""
        return [line for line in self._log.read_text().splitlines() if not line.startswith(LEFT)]

    def check(self, done: Done, codes: Sequence[int]) -> Findings:
        """What is wrong with how it ended, and which processes it left."""
        found = Findings()
        if done.code not in codes:
            found.wrong.append(f"ended with {done.code} instead of {codes}: {done.err[-600:]}")
        found.wrong += [f"said {word}: {done.err[-1500:]}" for word in BABBLE if word in done.err]
        found.left += [line.removeprefix(LEFT) for line in self._log.read_text().splitlines() if line.startswith(LEFT)]
        found.left += [f"process {pid}" for pid in self.processes()]
        return found

    def processes(self) -> Iterator[int]:
        """It, what it started, and their descendants, by a variable that all of them inherit."""
        mark = f"CHAOS_LOG={self._log}\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                content = path.read_bytes()
            except OSError:  # gone, or not ours
                continue
            if mark in content:
                yield int(path.parent.name)
