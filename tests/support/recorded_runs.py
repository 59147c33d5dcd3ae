"""Recorded runs for tests of the commands that take one, made in this process: an environment by its path, played by a
reference model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Bench = Callable[..., Any]
Write = Callable[[str, str], Path]

HALF_RIGHT = "reference/oracle"
"""The model that knows the answers to the rows 0 and 2."""

ALL_RIGHT = "reference/null"
"""The model that knows them all."""

BY_FILE = '''
import json, pathlib
from harness import Rubric, SingleTurnEnv

def mood(name):
    path = pathlib.Path(name)
    return path.read_text().split() if path.exists() else []

def correct(completion, answer):
    """1 for the answer; breaks for the answers in the file `broken`."""
    if answer in mood("broken"):
        raise ConnectionError("the grader is away")
    return float(completion[-1]["content"] == answer)

def polite(completion):
    return 0.25

def strict(completion):
    return 0.5

class Rows(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer if example.answer in ("a0", "a2") else "?"

    def null_reply(self, example, messages):
        return example.answer

class OwnWay(Rubric):
    @property
    def weights(self):
        return {}

def load_environment(file="rows.json"):
    """Rows of a file; functions as the file `functions` says, `correct` by default."""
    functions = [globals()[name] for name in mood("functions") or ["correct"]]
    make = OwnWay if mood("own-way") else Rubric
    return Rows(dataset=json.loads(pathlib.Path(file).read_text()), rubric=make(functions))
'''
"""Whose rubric is another one as soon as a file says so: a module is imported once in a process."""


def make_run(bench: Bench, write: Write, *arguments: str, model: str = HALF_RIGHT) -> Path:
    """Run four rows of a file, one rollout each; returns the run's folder."""
    if not Path("by_file.py").exists():
        write("by_file.py", BY_FILE)
        write("rows.json", json.dumps([{"question": str(n), "answer": f"a{n}"} for n in range(4)]))
    usual = ("run", "./by_file.py", "-n", "-1", "-r", "1", "-m", model, "-q", "--json")
    done = bench(*usual, *arguments)
    assert done.code == 0, done.err
    return Path(json.loads(done.out)["runs"][0]["path"])


def all_runs() -> list[Path]:
    """Every run folder under the working directory, in no order."""
    return [path.parent for path in Path().glob("**/evals/*/*/run.json")]


def change(path: Path, **fields: object) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
