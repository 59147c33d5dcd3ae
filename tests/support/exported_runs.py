"""One run of each kind, made by `bench` itself, for tests of what exports make of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench_runs import ROOT, Workshop

from harness.store.rundir import RunDir

MIXED = """
from harness import EnvGroup, Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

def place(completions):
    return [float(number) for number, _ in enumerate(completions)]

class Echo(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"

def load_environment():
    def part(word, reward, weight):
        rows = [{"question": f"{word} {n}", "answer": f"{word}{n}"} for n in range(2)]
        return Echo(dataset=rows, rubric=Rubric([correct, reward], [1.0, weight]))
    return EnvGroup([part("up", place, 0.0), part("down", place, 0.0)], ["upper", "lower"])
"""
"""Two environments as one, with a reward function that sees all rollouts of an example at once."""

AGENT = """
[[eval]]
agent = "examples.agent:Calculator"
dataset = "examples/rows.jsonl"
eval_fns = ["examples.rewards:exact_match", "examples.rewards:mentions_answer"]
rollouts_per_example = 2
"""

ORACLE = ("-m", "reference/oracle", "-q")


def exported_runs(folder: Path) -> dict[str, RunDir]:
    """`run`, `group`, `agent`, `multi`: a run each."""
    shop = Workshop(folder)
    shutil.copytree(ROOT / "examples", shop.cwd / "examples")
    shop.environment("mixed", MIXED)
    shop.write("agent.toml", AGENT)
    commands = {
        "run": ("gsm8k", "-a", "split=sample", "-n", "3", "-r", "2", "-m", "reference/noisy?accuracy=0.5", "-q"),
        "group": ("mixed", "-r", "3", *ORACLE),
        "agent": ("agent.toml", *ORACLE),
        "multi": ("multi-eval", "-a", "tasks=examples/tasks.json", *ORACLE),
    }
    runs: dict[str, RunDir] = {}
    for name, words in commands.items():
        before = set(shop.run_dirs())
        done = shop.bench("run", *words)
        assert done.code == 0, done.err
        [manifest] = set(shop.run_dirs()) - before
        runs[name] = RunDir(manifest.parent)
    return runs
