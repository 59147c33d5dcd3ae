"""The environments of the load test, one a `kind`, and a watch on the process that runs them: what it holds while it
works, by the number of rollouts that have begun. Rows exist only while they are looked at."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from bench_load import Rows, is_right

from benchmarks.load import SAMPLES, UNSCORED
from harness import Environment, MultiTurnEnv, Rubric, SingleTurnEnv
from harness.core.state import State
from harness.core.types import Messages, Prompt

EVERY = 0.5
"""Seconds between two looks."""


class Watch(threading.Thread):
    """Writes down, from the first rollout on, what the process holds."""

    def __init__(self, file: str) -> None:
        super().__init__(daemon=True, name="watch")
        self._file = file
        self._loop: asyncio.AbstractEventLoop | None = None
        self.begun = 0
        self.held = 0

    def see(self, state: State) -> None:
        """A rollout begins; its state has what tells of its end."""
        self.begun += 1
        self.held += 1
        state["sampling_args"] = _Held(self, state["sampling_args"])
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.start()

    def run(self) -> None:
        """Look again and again."""
        pause = threading.Event()
        with open(self._file, "a", encoding="utf-8") as out:
            while not pause.wait(EVERY):
                tasks = len(asyncio.all_tasks(self._loop))
                seen = {"begun": self.begun, "tasks": tasks, "states": self.held, "rss_mb": resident_mb()}
                out.write(json.dumps(seen) + "\n")
                out.flush()


class _Held(dict[str, Any]):
    """A dict that is gone when the state is that it lies in. (Asking the garbage collector for all states would cost a
    tenth of a second, and may break a tuple that another thread is making.)"""

    def __init__(self, watch: Watch, values: dict[str, Any]) -> None:
        super().__init__(values)
        self._watch = watch

    def __del__(self) -> None:
        self._watch.held -= 1


def resident_mb() -> float:
    """What the process has in memory now; its peak where the system does not tell."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


_watch = Watch(os.environ[SAMPLES]) if SAMPLES in os.environ else None


def _see(state: State) -> None:
    if _watch is not None:
        _watch.see(state)


class Single(SingleTurnEnv):
    """One question, one reply."""

    async def setup_state(self, state: State) -> State:
        """Told to the watch."""
        _see(state)
        return state


class Turns(MultiTurnEnv):
    """A conversation."""

    async def setup_state(self, state: State) -> State:
        """Told to the watch."""
        _see(state)
        return state

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Goes on asking."""
        return [{"role": "user", "content": "Are you sure? Say it again."}]


class Blocking(Turns):
    """A conversation whose other side is a plain function, which runs in a thread."""

    def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:  # type: ignore[override]
        """Goes on asking."""
        return [{"role": "user", "content": "Are you sure? Say it again."}]


def compared(completions: list[Messages], answers: list[str]) -> list[float]:
    """Which rollouts of an example have the answer."""
    return [is_right(*pair) for pair in zip(completions, answers, strict=True)]


def sometimes(completion: Messages, answer: str) -> float:
    """As `is_right`, but it breaks now and then."""
    if int(answer) // 2 % UNSCORED == 0:
        raise ValueError("cannot tell")
    return is_right(completion, answer)


def load_environment(kind: str = "single", rows: int = 1000) -> Environment:
    """`rows` questions, asked in the way of that kind."""
    dataset: Any = Rows(rows)
    if kind == "turns":
        return Turns(max_turns=3, dataset=dataset, rubric=Rubric([is_right]))
    if kind == "blocking":
        return Blocking(max_turns=2, dataset=dataset, rubric=Rubric([is_right]))
    rubrics = {"single": is_right, "group": compared, "scattered": sometimes}
    return Single(dataset=dataset, rubric=Rubric([rubrics[kind]]))
